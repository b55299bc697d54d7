// Inputs that stay on the agent from task to task, each under its name in one version: the newest one.
//
// Whoever runs with a version keeps its memory; a newer one gets memory of its own, unless only a part has changed.
// That is pulled onto what is there, for which nobody may be using it.
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
    MemoryPtr memory;  // nothing, part
  };

  // What has to be pulled, so that `name` is there as `version`. `later`: its part may not be written to yet.
  [[nodiscard]] Found find(std::string_view name, std::uint64_t version, std::uint64_t bytes,
                           std::uint64_t changed_from) const;
  // It is, or is going to be, `version`.
  void keep(std::string_view name, std::uint64_t version, MemoryPtr memory);
  // What could not be filled is no version of anything.
  void drop(const MemoryPtr& memory);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t bytes_of(std::string_view name) const;
  [[nodiscard]] std::size_t count() const noexcept { return entries_.size(); }

 private:
  std::map<std::string, Entry, std::less<>> entries_;
  std::uint64_t bytes_ = 0;
};

}  // namespace offpath::task
