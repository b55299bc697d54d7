#include "agent/cores/core_loads.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <tuple>

namespace offpath::agent {

void CoreLoads::Unmap::operator()(Page* page) const noexcept { munmap(page, sizeof *page); }

Result<CoreLoads> CoreLoads::make() {
  void* const at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return fail_errno(errno, "mmap of the page of connections");
  return CoreLoads(new (at) Page{});
}

// A connection is open before it is taken, so that whoever reads `taken` first never misses it.
void CoreLoads::took(unsigned core) noexcept {
  page_->lines[core].open.fetch_add(1, std::memory_order_relaxed);
  page_->lines[core].taken.fetch_add(1, std::memory_order_release);
}

void CoreLoads::ended(unsigned core) noexcept { page_->lines[core].open.fetch_sub(1, std::memory_order_relaxed); }

CoreLoads::Load CoreLoads::of(unsigned core) const noexcept {
  Load load;
  load.taken = page_->lines[core].taken.load(std::memory_order_acquire);
  load.open = page_->lines[core].open.load(std::memory_order_relaxed);
  return load;
}

void CoreLoads::begin_anew(unsigned core) noexcept {
  page_->lines[core].open.store(0, std::memory_order_relaxed);
  page_->lines[core].taken.store(0, std::memory_order_relaxed);
}

std::optional<unsigned> least_loaded(std::span<const CoreChoice> cores) noexcept {
  std::optional<unsigned> best;
  for (unsigned core = 0; core < cores.size(); ++core) {
    const CoreChoice& each = cores[core];
    if (!each.serves) continue;
    if (!best || std::tie(each.connections, each.given) < std::tie(cores[*best].connections, cores[*best].given))
      best = core;
  }
  return best;
}

}  // namespace offpath::agent
