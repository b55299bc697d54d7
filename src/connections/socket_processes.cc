// Several processes with one area: the holders of each connection, and whom to notify.
#include <algorithm>
#include <atomic>
#include <bit>

#include "base/sleep_flag.h"
#include "connections/socket_cells.h"

namespace offpath::channel {

bool SocketArea::is_held(std::uint32_t number, Handle handle) const noexcept {
  return (held_word(number, handle) >> handle % 64 & 1) != 0;
}

bool SocketArea::holds(Handle handle) {
  const Lock lock(*this);
  return handle < layout_.flows && is_held(process_, handle);
}

void SocketArea::set_changed(std::uint32_t number, Handle handle) noexcept {
  changed_word(number, handle) |= 1ull << handle % 64;
  std::uint64_t& any = process(number).changed;
  const std::uint64_t bit = 1ull << handle / group_of_handles();
  if ((any & bit) == 0) std::atomic_ref<std::uint64_t>(any).store(any | bit, std::memory_order_relaxed);
  if (number != process_) std::atomic_ref<std::uint32_t>(process(number).told).store(1, std::memory_order_relaxed);
}

void SocketArea::hold(std::uint32_t number, Handle handle) noexcept {
  held_word(number, handle) |= 1ull << handle % 64;
  Cell& held = cell(handle);
  ++held.holders;
  held.holder = static_cast<std::uint16_t>(number);
}

// The bit is cleared last: if this process dies before, it is still a holder, and ending the handle is repeated.
void SocketArea::let_go(std::uint32_t number, Handle handle, bool abort) noexcept {
  Cell& held = cell(handle);
  if (held.holders <= 1) {
    held.holders = 0;
    end(handle, abort);
  } else if (--held.holders == 1) {
    for (std::uint32_t each = 0; each < shared_->processes; ++each)
      if (each != number && is_held(each, handle)) held.holder = static_cast<std::uint16_t>(each);
    name_holders(handle);
  }
  held_word(number, handle) &= ~(1ull << handle % 64);
}

void SocketArea::let_go_of_all(std::uint32_t number) noexcept {
  for (Handle first = 0; first < layout_.flows; first += 64) {
    for (std::uint64_t left = held_word(number, first); left != 0; left &= left - 1)
      let_go(number, first + static_cast<std::uint32_t>(std::countr_zero(left)), false);
    changed_word(number, first) = 0;
  }
  process(number).changed = 0;
  process(number).is = Process::Is::free;
}

// Sets the process that the agent wakes for it, or every process.
void SocketArea::name_holders(Handle handle) noexcept {
  const Cell& held = cell(handle);
  const std::uint16_t wanted = held.holders == 1 && shared_->processes > 1 ? held.holder : every_process;
  if (held.is == Cell::Is::flow && !held.gone && wanted != held.woken) owe(handle, owed_holders);
}

void SocketArea::count_holders() const noexcept {
  shared_->lacking.fill(0);
  for (Handle handle = 0; handle < layout_.flows; ++handle) {
    Cell& held = cell(handle);
    held.holders = 0;
    for (std::uint32_t each = 0; each < shared_->processes; ++each) {
      if (!is_held(each, handle)) continue;
      ++held.holders;
      held.holder = static_cast<std::uint16_t>(each);
    }
    for (std::uint32_t core = 0; core < cores_; ++core) shared_->lacking[core] += held.lacks >> core & 1u;
  }
}

Result<std::uint32_t> SocketArea::new_process() noexcept {
  std::uint32_t number = 0;
  while (number < shared_->processes && process(number).is != Process::Is::free) ++number;
  if (number == wire::tcp_processes_max)
    return fail(Error::no_space, "{} processes share these connections, which is the limit", number);
  shared_->processes = std::max(shared_->processes, number + 1);
  process(number).is = Process::Is::alive;
  process(number).slept_flags = 0;
  SleepFlag(memory_.data() + wire::tcp_word::process_asleep(number)).clear();
  return number;
}

Result<std::uint32_t> SocketArea::add_process() {
  const Lock lock(*this);
  OFP_ASSIGN(const std::uint32_t number, new_process());
  for (Handle first = 0; first < layout_.flows; first += 64) {
    for (std::uint64_t left = held_word(process_, first); left != 0; left &= left - 1) {
      const Handle handle = first + static_cast<std::uint32_t>(std::countr_zero(left));
      hold(number, handle);
      set_changed(number, handle);
      name_holders(handle);
    }
  }
  tell_agent();
  return number;
}

Result<std::uint32_t> SocketArea::add_process(std::span<const Handle> handles) {
  const Lock lock(*this);
  OFP_ASSIGN(const std::uint32_t number, new_process());
  for (const Handle handle : handles) {
    if (handle >= layout_.flows || !is_held(process_, handle) || is_held(number, handle)) continue;
    hold(number, handle);
    set_changed(number, handle);
    name_holders(handle);
  }
  tell_agent();
  return number;
}

void SocketArea::drop_process(std::uint32_t number) {
  const Lock lock(*this);
  let_go_of_all(number);
  tell_agent();
}

bool SocketArea::depart() {
  const Lock lock(*this);
  let_go_of_all(process_);
  process(process_).is = Process::Is::leaving;
  tell_agent();
  for (std::uint32_t each = 0; each < shared_->processes; ++each)
    if (process(each).is == Process::Is::alive) return false;
  return true;
}

}  // namespace offpath::channel
