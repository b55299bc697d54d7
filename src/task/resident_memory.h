// Inputs that stay on the agent from task to task, each under its name in one version: the newest.
//
// A task that runs with a version keeps its memory. A newer version gets memory of its own; if only a part has changed,
// the part is pulled into the existing memory, provided that no task uses it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "task/memory.h"

namespace offpath::task {

class ResidentMemory {
 public:
  struct Entry {
    std::uint64_t version = 0;
    MemoryPtr memory;
  };
  enum class Need : std::uint8_t { nothing, part, whole, later };
  struct Found {
    Need need = Need::whole;
    MemoryPtr memory;  // pull nothing, or a part
  };

  // The parts to pull so that `name` exists as `version`. `later`: the memory may not be written at present.
  [[nodiscard]] Found find(std::string_view name, std::uint64_t version, std::uint64_t bytes,
                           std::uint64_t changed_from) const;
  // Declares that the memory has `version`, or will have it.
  void keep(std::string_view name, std::uint64_t version, MemoryPtr memory);
  // Memory that could not be filled has no version.
  void drop(const MemoryPtr& memory);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t bytes_of(std::string_view name) const;
  [[nodiscard]] std::size_t count() const noexcept { return entries_.size(); }

 private:
  std::map<std::string, Entry, std::less<>> entries_;
  std::uint64_t bytes_ = 0;
};

}  // namespace offpath::task
