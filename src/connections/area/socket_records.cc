#include "connections/area/socket_records.h"

#include <type_traits>

#include "connections/area/process_table.h"
#include "connections/area/ring_pool.h"

namespace offpath::channel {

namespace {

constexpr std::uint64_t set_count = 3;  // SocketRecords::Set

// Where each part of the records begins.
struct Offsets {
  std::uint64_t cells, accept_slots, turn_locks, processes, steps, remote_addresses, rests, sets, pool_words, kept,
      rings, pool;

  Offsets(const SocketOptions& options, const wire::TcpAreaLayout& layout) noexcept
      : cells(layout.own() + page_bytes),
        accept_slots(cells + layout.flows * sizeof(SocketCell)),
        turn_locks(align_up(accept_slots + layout.flows * wire::tcp_cores_max * sizeof(AcceptSlots), sizeof(TurnLock))),
        processes(align_up(turn_locks + 2 * layout.flows * sizeof(TurnLock), page_bytes)),
        steps(align_up(processes + wire::tcp_processes_max * ProcessTable::process_bytes(layout.flows), page_bytes)),
        remote_addresses(steps + 2 * layout.flows * sizeof(RingStep)),
        rests(remote_addresses + layout.flows * sizeof(wire::IpAddress)),
        sets(rests + layout.flows * sizeof(Rest)),
        pool_words(sets + set_count * HandleSet::bytes(layout.flows)),
        kept(align_up(pool_words + options.pool_bytes / RingPool::word_bytes * sizeof(std::uint64_t), page_bytes)),
        rings(align_up(kept + options.kept_bytes, wire::tcp_ring_block_bytes)),
        pool(align_up(rings + options.flows * (std::uint64_t{options.send_bytes} + options.receive_bytes),
                      wire::tcp_ring_block_bytes)) {}
};

wire::TcpAreaLayout layout_with(const SocketOptions& options) noexcept {
  wire::TcpAreaLayout layout;
  layout.flows = options.flows;
  return layout;
}

}  // namespace

wire::TcpAreaLayout SocketRecords::layout_of(const SocketOptions& options) noexcept {
  wire::TcpAreaLayout layout = layout_with(options);
  layout.bytes = Offsets(options, layout).pool + options.pool_bytes;
  return layout;
}

SocketRecords::SocketRecords(MutableBytes memory, const SocketOptions& options) noexcept
    : memory_(memory),
      layout_(layout_of(options)),
      send_bytes_(options.send_bytes),
      receive_bytes_(options.receive_bytes) {
  static_assert(sizeof(SocketsShared) <= page_bytes && sizeof(AcceptSlots) == 12 && sizeof(TurnLock) == 64 &&
                sizeof(RingStep) == 32 && sizeof(Rest) == 16);
  OFP_ASSERT(memory.size() >= layout_.bytes && std::has_single_bit(send_bytes_) && std::has_single_bit(receive_bytes_));
  const Offsets offsets(options, layout_);
  rings_at_ = offsets.rings;
  pool_at_ = offsets.pool;
  cells_ = at<SocketCell>(offsets.cells);
  accept_slots_ = at<AcceptSlots>(offsets.accept_slots);
  turn_locks_ = at<TurnLock>(offsets.turn_locks);
  steps_ = at<RingStep>(offsets.steps);
  remote_addresses_ = at<wire::IpAddress>(offsets.remote_addresses);
  rests_ = at<Rest>(offsets.rests);
  processes_ = memory.data() + offsets.processes;
  sets_ = memory.data() + offsets.sets;
  pool_words_ = {at<std::uint64_t>(offsets.pool_words), options.pool_bytes / RingPool::word_bytes};
  kept_ = memory.subspan(offsets.kept, options.kept_bytes);
}

void SocketRecords::make(const SocketOptions& options) const noexcept {
  auto* const made = new (memory_.data() + layout_.own()) SocketsShared{};
  made->lock.init();
  made->options = options;
}

}  // namespace offpath::channel
