// JSON that this agent's own processes have written, read as a tree, changed and written again. Numbers and texts stay
// as they were written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace offpath::agent {

struct JsonTree {
  enum class Kind { null, boolean, number, text, list, object } kind = Kind::null;
  std::string raw{};              // of a boolean, a number, or a text with its quotes
  std::vector<JsonTree> items{};  // of a list
  std::vector<std::pair<std::string, JsonTree>> members{};

  // None: it is no JSON, or lists and objects lie in each other too deeply.
  [[nodiscard]] static std::optional<JsonTree> parse(std::string_view text);
  [[nodiscard]] static JsonTree of_number(std::uint64_t value);
  [[nodiscard]] static JsonTree of_text(std::string_view value);
  [[nodiscard]] static JsonTree of_boolean(bool value);

  // A member of an object; null: there is none of that name.
  [[nodiscard]] const JsonTree* find(std::string_view key) const noexcept;
  [[nodiscard]] JsonTree* find(std::string_view key) noexcept;
  [[nodiscard]] std::string written() const;

 private:
  void write(std::string& to) const;
};

}  // namespace offpath::agent
