// The lines of a small text file with their numbers, for messages that a user can act on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "md/files/bad_input.h"

namespace md {

class TextLines {
 public:
  // Throws BadInput if the file cannot be read.
  explicit TextLines(const std::string& path);

  // The next line, or none at the end.
  std::optional<std::string_view> next();
  // Throws BadInput "path:line: what".
  [[noreturn]] void fail(const std::string& what) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t number() const { return number_; }

 private:
  std::string path_, text_;
  std::size_t at_ = 0, number_ = 0;
};

std::vector<std::string_view> words_of(std::string_view line);
// The whole word as a finite number, or none. Accepts Fortran's 1.5D-3.
std::optional<double> number_of(std::string_view word);
std::optional<std::int64_t> whole_number_of(std::string_view word);

}  // namespace md
