#include "sift/split/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace offpath::sift {

namespace {

constexpr std::uint64_t huge_bytes = 2ull << 20;

void unmap(MutableBytes memory) noexcept {
  if (memory.data() != nullptr) munmap(memory.data(), memory.size());
}

struct Kept {
  MutableBytes memory;
  ~Kept() { unmap(memory); }
};
thread_local Kept kept;

// On a huge page's boundary.
Result<MutableBytes> map(std::uint64_t bytes) {
  void* const mapped = mmap(nullptr, bytes + huge_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "memory for a sort");
  std::byte* const begin = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uint64_t before = align_up(address, huge_bytes) - address;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, huge_bytes - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // without huge pages, small ones are used
  return MutableBytes{begin + before, bytes};
}

}  // namespace

Result<Scratch> Scratch::take(std::uint64_t bytes) {
  const std::uint64_t whole = align_up(std::max<std::uint64_t>(bytes, 1), huge_bytes);
  if (kept.memory.size() >= whole) return Scratch(std::exchange(kept.memory, {}));
  OFP_ASSIGN(const MutableBytes memory, map(whole));
  return Scratch(memory);
}

Scratch::~Scratch() {
  if (memory_.size() > kept.memory.size() && memory_.size() <= kept_bytes_max) std::swap(memory_, kept.memory);
  unmap(memory_);
}

std::byte* Scratch::next_bytes(std::uint64_t bytes) noexcept {
  std::byte* const at = memory_.data() + used_;
  used_ += bytes;
  OFP_ASSERT(used_ <= memory_.size());
  return at;
}

}  // namespace offpath::sift
