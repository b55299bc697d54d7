// The rings of a flow's payload, and others in their place (TcpCommandKind::replace). Rings at first have their place
// by their handle; larger ones come from a pool that all flows share. A flow gets the next ring of a direction when the
// one before the present ring is free. idle_memory.h says when it gets its first ones again.
//
// Commands that a flow owes the agent afterwards are marked in SocketCell::owed; the caller settles them
// (owed_commands.h).
#pragma once

#include <algorithm>
#include <atomic>

#include "connections/area/memory_holders.h"
#include "connections/area/ring_pool.h"
#include "connections/area/socket_records.h"

namespace offpath::channel {

class FlowRings {
 public:
  using Handle = std::uint32_t;
  FlowRings(const SocketRecords& records, AreaRings& commands, MemoryHolders& holders) noexcept
      : records_(records), commands_(commands), holders_(holders), pool_(records.pool_words()) {}

  // ---- where bytes are
  [[nodiscard]] MutableBytes present(Handle handle, Way way) const noexcept {
    return ring_at(handle, way, records_.cell(handle).place(way));
  }
  // Of `count` bytes that were received, from `at` on: how many are still in the ring before the present one.
  [[nodiscard]] std::uint64_t bytes_before(Handle handle, std::uint64_t at, std::uint64_t count) const noexcept {
    if (records_.cell(handle).growth(Way::in) != RingGrowth::taken) return 0;
    const RingStep& step = records_.step(handle, Way::in);
    return at < step.from ? std::min(count, step.from - at) : 0;
  }
  [[nodiscard]] MutableBytes before(Handle handle, Way way) const noexcept {
    return ring_at(handle, way, records_.step(handle, way).before);
  }
  // Writes the first rings of a handle into the command that begins with it.
  void name(Handle handle, wire::TcpCommand& command) const noexcept;

  // ---- larger rings
  // Asks for those that the agent has advised, in SocketCell::owed. False: there is no room for a command.
  bool ask(Handle handle) noexcept;
  // Takes an event that concerns rings. If the process dies in between, another one repeats it with the same event.
  void take(const wire::TcpEvent& event) noexcept;
  // After acknowledgements: the ring for outgoing bytes before the present one may be free.
  void note_acknowledged(Handle handle) noexcept {
    const SocketCell& at = records_.cell(handle);
    if (at.growth(Way::out) == RingGrowth::taken && at.acknowledged >= records_.step(handle, Way::out).from)
      end_step(handle, Way::out);
  }
  // Whether the program has read all of the ring before the present one, and the agent has not been told.
  [[nodiscard]] bool has_left_ring(Handle handle) const noexcept {
    const SocketCell& at = records_.cell(handle);
    return at.growth(Way::in) == RingGrowth::taken && bytes_before(handle, at.read, 1) == 0 &&
           at.allowed < records_.step(handle, Way::in).from + at.bytes(Way::in);
  }

  // ---- first rings again
  [[nodiscard]] bool has_larger(Handle handle) const noexcept;
  // Whether the present ring is a larger one that holds nothing.
  [[nodiscard]] bool may_leave(Handle handle, Way way) const noexcept;
  // Asks for the first ring in place of an empty one. There is room for a command, and for `in`, the window is shut.
  void leave(Handle handle, Way way) noexcept;
  // The flow has ended, and its handle gets its first rings again.
  void free(Handle handle) noexcept;

  // ---- memory
  [[nodiscard]] bool lies_in_pool(RingPlace place, Way way) const noexcept {
    return 1u << place.log2 > records_.first_bytes(way);
  }
  // Without the lock: whether a flow may have a larger ring.
  [[nodiscard]] bool uses_pool() const noexcept { return SocketsShared::read(records_.shared().uses_pool); }
  void note_unused_pool() noexcept {
    if (pool_.is_unused()) SocketsShared::set(records_.shared().uses_pool, false);
  }
  [[nodiscard]] bool is_pool_short() const noexcept { return pool_.free_bytes() < pool_.bytes() / 4; }
  void remove_pages(MutableBytes ring) const noexcept;
  // From now on this process removes none; rings that are given back keep theirs. Any thread.
  void keep_pages() noexcept { keeps_pages_.store(true, std::memory_order_relaxed); }
  // After the death of a process under the lock: recomputes which memory the rings have. A command that was not posted
  // is ignored.
  void recount() noexcept;

 private:
  [[nodiscard]] MutableBytes ring_at(Handle handle, Way way, RingPlace place) const noexcept {
    if (lies_in_pool(place, way))
      return records_.pool_ring(place.unit * std::uint64_t{RingPool::unit_bytes}, 1u << place.log2);
    return records_.first_ring(handle, way);
  }
  void ask(Handle handle, Way way) noexcept;
  void ask_for(Handle handle, Way way, RingPlace next, std::uint64_t position) noexcept;
  [[nodiscard]] RingGrowth before_leaving(Handle handle, Way way) const noexcept;
  void end_step(Handle handle, Way way) noexcept;
  void give(Handle handle, Way way, RingPlace place) noexcept;

  const SocketRecords& records_;
  AreaRings& commands_;
  MemoryHolders& holders_;
  RingPool pool_;
  std::atomic<bool> keeps_pages_ = false;
};

}  // namespace offpath::channel
