#include "link/card/registered_memory.h"

#include <sys/resource.h>

#include <algorithm>

#include <fmt/format.h>

namespace offpath::link {

namespace {

std::uint64_t address_of(const std::byte* memory) noexcept { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

std::string locked_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return fmt::format("{} KiB", limit.rlim_cur / 1024);
}

// No operation under way uses removed memory: its owner waits for that.
void KeptRegions::forget_removed() {
  newest_ = {};
  for (auto at = windows_.begin(); at != windows_.end();) {
    const std::uint64_t number = at->first.first;
    const auto after = windows_.upper_bound({number, UINT64_MAX});
    if (lasting_->has(number)) {
      at = after;
      continue;
    }
    for (; at != after; at = windows_.erase(at)) bytes_ -= at->second.length;
  }
}

std::optional<KeptRegions::Key> KeptRegions::key_of(Registrar& registrar, const std::byte* memory) {
  if (!lasting_) return std::nullopt;
  if (const std::uint64_t removals = lasting_->removals(); removals != removals_) {
    removals_ = removals;
    forget_removed();
  }
  if (!newest_.holds(memory)) {
    const auto found = lasting_->find(memory);
    if (!found) return std::nullopt;
    newest_ = *found;
  }
  const auto offset = static_cast<std::uint64_t>(memory - newest_.begin);
  const std::uint64_t window = offset / window_bytes, begin = window * window_bytes;
  const std::uint64_t length = std::min(window_bytes, newest_.length - begin);
  auto at = windows_.find({newest_.number, window});
  if (at == windows_.end()) {
    if (windows_.size() >= windows_max) return std::nullopt;
    auto region = registrar.register_own(newest_.begin + begin, length, true);
    if (!region) return std::nullopt;
    at = windows_.emplace(std::pair(newest_.number, window), Window{std::move(*region), length}).first;
    bytes_ += length;
  }
  return Key{at->second.region->key(), begin + length - offset};
}

void OperationRegions::cover(Registrar& registrar, std::span<Piece> pieces, bool written) {
  std::ranges::sort(pieces, {}, &Piece::memory);
  for (std::size_t first = 0; first < pieces.size();) {
    const std::uint64_t begin = address_of(pieces[first].memory) / page_bytes * page_bytes;
    std::uint64_t end = begin, bytes = 0;
    std::size_t next = first;
    for (; next < pieces.size(); ++next) {
      const std::uint64_t at = address_of(pieces[next].memory);
      if (next > first && at > end) break;
      end = std::max(end, align_up(at + pieces[next].length, page_bytes));
      bytes += pieces[next].length;
    }
    first = next;
    if (bytes < bytes_min) continue;
    auto region = registrar.register_own(reinterpret_cast<const void*>(begin), end - begin, written);
    if (region) stretches_.push_back({begin, end, std::move(*region)});
  }
}

std::optional<std::uint64_t> OperationRegions::key_of(const std::byte* memory) const noexcept {
  const std::uint64_t at = address_of(memory);
  const auto after = std::ranges::upper_bound(stretches_, at, {}, &Stretch::begin);
  if (after == stretches_.begin() || at >= std::prev(after)->end) return std::nullopt;
  return std::prev(after)->region->key();
}

}  // namespace offpath::link
