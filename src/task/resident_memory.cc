#include "task/resident_memory.h"

#include <algorithm>
#include <utility>

namespace offpath::task {

namespace {

constexpr long owners_at_rest = 2;  // this owner, and the session's list of all its memory

}  // namespace

ResidentMemory::Found ResidentMemory::find(std::string_view name, std::uint64_t version, std::uint64_t bytes,
                                           std::uint64_t changed_from) const {
  const auto at = entries_.find(name);
  if (at == entries_.end() || at->second.memory->bytes != bytes || at->second.memory->state == Memory::State::failed)
    return {};
  const Entry& entry = at->second;
  if (entry.version == version) return {Need::nothing, entry.memory};
  // A function's output is sealed, so nothing can be written to it.
  if (changed_from == 0 || entry.version != changed_from || entry.memory->made) return {};
  if (entry.memory.use_count() > owners_at_rest) return {Need::later, nullptr};
  return {Need::part, entry.memory};
}

void ResidentMemory::keep(std::string_view name, std::uint64_t version, MemoryPtr memory) {
  auto at = entries_.find(name);
  if (at == entries_.end()) at = entries_.emplace(std::string(name), Entry{}).first;
  if (at->second.memory) bytes_ -= at->second.memory->bytes;
  bytes_ += memory->bytes;
  at->second = {version, std::move(memory)};
}

void ResidentMemory::drop(const MemoryPtr& memory) {
  const auto at = std::ranges::find_if(entries_, [&](const auto& each) { return each.second.memory == memory; });
  if (at == entries_.end()) return;
  bytes_ -= memory->bytes;
  entries_.erase(at);
}

std::uint64_t ResidentMemory::bytes_of(std::string_view name) const {
  const auto at = entries_.find(name);
  return at == entries_.end() ? 0 : at->second.memory->bytes;
}

}  // namespace offpath::task
