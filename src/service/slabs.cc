#include "service/slabs.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

namespace offpath::service {

namespace {

constexpr std::uint64_t pages_of_slab = Slabs::slab_bytes / page_bytes;

std::uint16_t place_of(const Slabs::Slab& slab, const std::byte* page) noexcept {
  return static_cast<std::uint16_t>(static_cast<std::uint64_t>(page - slab.data) / page_bytes);
}

}  // namespace

Slabs::Slab* Slabs::with_room(uid_t user) noexcept {
  const auto at = roomy_.find(user);
  return at == roomy_.end() ? nullptr : at->second.back();
}

Result<Slabs::Slab*> Slabs::make(uid_t user) {
  void* const data =
      mmap(nullptr, slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return fail_errno(errno, "mmap of memory for small objects");
  Slab& slab = slabs_[static_cast<std::byte*>(data)];
  slab.data = static_cast<std::byte*>(data);
  slab.user = user;
  slab.fresh.resize(pages_of_slab);
  std::iota(slab.fresh.rbegin(), slab.fresh.rend(), std::uint16_t{0});
  slab.warm.reserve(pages_of_slab);
  roomy_[user].push_back(&slab);
  return &slab;
}

Slabs::Slab* Slabs::idle() noexcept {
  for (auto& [user, slabs] : roomy_)
    if (Slab* const first = slabs.front(); !first->in_use()) return first;
  return nullptr;
}

Slabs::Slab& Slabs::of(const std::byte* page) noexcept {
  const auto behind = slabs_.upper_bound(page);
  OFP_ASSERT(behind != slabs_.begin());
  return std::prev(behind)->second;
}

std::byte* Slabs::take(Slab& slab, bool& warm) noexcept {
  warm = !slab.warm.empty();
  std::vector<std::uint16_t>& from = warm ? slab.warm : slab.fresh;
  const std::uint16_t place = from.back();
  from.pop_back();
  if (warm) warm_bytes_ -= page_bytes;
  ++slab.used;
  if (!slab.has_room()) {
    const auto own = roomy_.find(slab.user);
    std::erase(own->second, &slab);
    if (own->second.empty()) roomy_.erase(own);
  }
  return slab.data + place * page_bytes;
}

void Slabs::give_back(Slab& slab, std::byte* page, bool keep_warm) {
  --slab.used;
  if (!keep_warm) {
    ++slab.leaving;
    leaving_.push_back(page);
    return;
  }
  if (!slab.has_room()) roomy_[slab.user].push_back(&slab);
  slab.warm.push_back(place_of(slab, page));
  warm_bytes_ += page_bytes;
}

void Slabs::rest(Slab& slab) noexcept {
  std::vector<Slab*>& own = roomy_.find(slab.user)->second;
  const auto at = std::ranges::find(own, &slab);
  std::rotate(own.begin(), at, at + 1);
}

Slabs::Run Slabs::remove(Slab& slab) noexcept {
  const Run memory{slab.data, slab_bytes};
  warm_bytes_ -= slab.warm_bytes();
  const auto own = roomy_.find(slab.user);
  std::erase(own->second, &slab);
  if (own->second.empty()) roomy_.erase(own);
  slabs_.erase(slab.data);
  return memory;
}

std::vector<Slabs::Run> Slabs::take_leaving() {
  std::ranges::sort(leaving_);
  std::vector<Run> runs;
  for (std::byte* const page : leaving_) {
    if (!runs.empty() && runs.back().data + runs.back().bytes == page && &of(page) == &of(runs.back().data))
      runs.back().bytes += page_bytes;
    else
      runs.push_back({page, page_bytes});
  }
  leaving_.clear();
  return runs;
}

void Slabs::release(const Run& run) noexcept { madvise(run.data, run.bytes, MADV_REMOVE); }

void Slabs::released(Slab& slab, const Run& run) {
  if (!slab.has_room()) roomy_[slab.user].push_back(&slab);
  for (std::uint64_t at = 0; at < run.bytes; at += page_bytes) slab.fresh.push_back(place_of(slab, run.data + at));
  slab.leaving -= static_cast<std::uint32_t>(run.bytes / page_bytes);
}

}  // namespace offpath::service
