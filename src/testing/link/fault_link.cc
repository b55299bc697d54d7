#include "testing/link/fault_link.h"

#include <algorithm>
#include <array>
#include <utility>

namespace offpath::link {

namespace {

constexpr std::string_view injected = "injected by fault_link";
constexpr std::uint64_t rank_in_order = UINT64_MAX / 2;

}  // namespace

// ---- the agent's end

FaultAgentLink::FaultAgentLink(std::unique_ptr<AgentLink> inner, const AgentFaults& faults, std::uint64_t seed)
    : inner_(std::move(inner)), faults_(faults), random_(seed), due_fd_(inner_->event_fd()) {}

Status FaultAgentLink::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                    std::uint32_t key) {
  return inner_->attach_range(range, generation, base, length, key);
}

Status FaultAgentLink::detach_range(RegionId range, std::uint32_t generation) {
  return inner_->detach_range(range, generation);
}

MutableBytes FaultAgentLink::mapped(RegionId segment) { return ended_ ? MutableBytes{} : inner_->mapped(segment); }

// An event for an operation the inner link does not have.
void FaultAgentLink::complete_in_place(Kind kind, std::uint64_t token, Failure failure) {
  take_completion({kind, token, tl::unexpected(std::move(failure)), {}});
  due_fd_.arm(next_event());
}

bool FaultAgentLink::breaks() {
  if (!random_.chance(faults_.close) || ended_) return false;
  ++counters_.closes;
  end({Error::peer_lost, fmt::format("the link broke, {}", injected)});
  return true;
}

// The link is over: every operation under way completes, then `closed`.
void FaultAgentLink::end(Failure why) {
  ended_ = true;
  ended_at_ = now_;
  inner_->close();
  for (const auto& [operation, unused] : std::exchange(outstanding_, {}))
    held_.hold({operation.first,
                operation.second,
                fail(Error::peer_lost, "under way when the link ended: {}", why.message),
                {}},
               now_, rank_in_order);
  held_.make_all_due(now_);
  held_.hold({Kind::closed, 0, tl::unexpected(std::move(why)), {}}, now_, UINT64_MAX);
  wake_due_ = never;
  due_fd_.arm(next_event());
}

void FaultAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  if (done_) return;
  const bool broken = breaks() || ended_;
  const bool fails = random_.chance(faults_.read_fails);
  const bool unreadable = random_.chance(faults_.read_unreadable);
  if (broken) return complete_in_place(Kind::read_done, token, {Error::peer_lost, "the link has ended"});
  if (fails) {
    ++counters_.reads_failed;
    return complete_in_place(Kind::read_done, token, {Error::io, fmt::format("a read failed, {}", injected)});
  }
  if (unreadable) {
    ++counters_.reads_unreadable;
    const RegionId region = pieces.empty() ? 0 : pieces.front().region;
    return complete_in_place(Kind::read_done, token,
                             {Error::unreadable, fmt::format("region {:#x} cannot be read, {}", region, injected)});
  }
  outstanding_[{Kind::read_done, token}] = true;
  inner_->read(token, pieces);
  due_fd_.arm(now_);  // it may be over by now, and only poll decides when its owner learns it
}

void FaultAgentLink::write(std::uint64_t token, std::span<const WritePiece> pieces) {
  if (done_) return;
  const bool broken = breaks() || ended_;
  const bool fails = random_.chance(faults_.write_fails);
  if (broken) return complete_in_place(Kind::write_done, token, {Error::peer_lost, "the link has ended"});
  if (fails) {
    ++counters_.writes_failed;
    return complete_in_place(Kind::write_done, token, {Error::io, fmt::format("a write failed, {}", injected)});
  }
  outstanding_[{Kind::write_done, token}] = true;
  inner_->write(token, pieces);
  due_fd_.arm(now_);  // it may be over by now, and only poll decides when its owner learns it
}

void FaultAgentLink::wake() {
  if (ended_) return;
  const bool delayed = random_.chance(faults_.wake_delayed);
  const TimeNs delay = random_.between(0, faults_.delay_max_ns);
  if (random_.chance(faults_.wake_repeated)) {
    ++counters_.wakes_repeated;
    inner_->wake();
  }
  if (!delayed) return inner_->wake();
  ++counters_.wakes_delayed;
  wake_due_ = std::min(wake_due_, now_ + delay);
  due_fd_.arm(next_event());
}

Status FaultAgentLink::hand_over(std::uint64_t ticket, int fd) {
  if (ended_) return fail(Error::closed, "this end of the link is closed");
  return inner_->hand_over(ticket, fd);
}

TimeNs FaultAgentLink::next_event() const noexcept {
  if (done_) return never;
  return now_ < stalled_until_ ? stalled_until_ : std::min(held_.next_due(), wake_due_);
}

void FaultAgentLink::take_completion(LinkEvent event) {
  const bool delayed = random_.chance(faults_.completion_delayed);
  const TimeNs delay = random_.between(0, faults_.delay_max_ns);
  const bool reordered = random_.chance(faults_.completion_reordered);
  const std::uint64_t rank = random_.below(2 * rank_in_order);
  if (ended_) return held_.hold(std::move(event), ended_at_, rank_in_order);  // before `closed`
  counters_.completions_delayed += delayed;
  counters_.completions_reordered += reordered;
  held_.hold(std::move(event), now_ + (delayed ? delay : 0), reordered ? rank : rank_in_order);
}

void FaultAgentLink::take(LinkEvent event) {
  switch (event.kind) {
    case Kind::read_done:
    case Kind::write_done:
      outstanding_.erase({event.kind, event.token});
      take_completion(std::move(event));
      return;
    case Kind::woken: {
      const bool delayed = random_.chance(faults_.wake_delayed);
      const TimeNs delay = random_.between(0, faults_.delay_max_ns);
      if (random_.chance(faults_.wake_repeated)) {
        ++counters_.wakes_repeated;
        held_.hold({Kind::woken, 0, {}, {}}, now_, rank_in_order);
      }
      counters_.wakes_delayed += delayed;
      held_.hold(std::move(event), now_ + (delayed ? delay : 0), rank_in_order);
      return;
    }
    case Kind::offered:
      held_.hold(std::move(event), now_, rank_in_order);
      return;
    case Kind::closed:
      end(event.status ? Failure{Error::closed, "closed"} : std::move(event.status).error());
      return;
  }
}

std::size_t FaultAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  now_ = std::max(now_, now);
  if (done_ || now_ < stalled_until_) return 0;
  if (random_.chance(faults_.stall) && faults_.stall_max_ns > 0) {
    ++counters_.stalls;
    stalled_until_ = now_ + random_.between(1, faults_.stall_max_ns);
    due_fd_.arm(next_event());
    return 0;
  }
  if (wake_due_ <= now_) {
    wake_due_ = never;
    inner_->wake();
  }
  std::array<LinkEvent, 64> arrived;
  for (std::size_t count = arrived.size(); count == arrived.size() && !ended_;) {
    count = inner_->poll(now_, arrived);
    for (std::size_t i = 0; i < count; ++i) take(std::move(arrived[i]));
  }
  const std::size_t count = held_.release(now_, events);
  done_ = count > 0 && events[count - 1].kind == Kind::closed;
  due_fd_.arm(next_event());
  return count;
}

void FaultAgentLink::close() {
  ended_ = done_ = true;
  inner_->close();
}

// ---- the host's end

FaultHostLink::FaultHostLink(std::unique_ptr<HostLink> inner, const HostFaults& faults, std::uint64_t seed)
    : inner_(std::move(inner)), faults_(faults), random_(seed) {}

Status FaultHostLink::alive() const {
  if (broken_) return fail(Error::peer_lost, "the link broke, {}", injected);
  return {};
}

Result<SegmentMemory> FaultHostLink::allocate(std::uint64_t length) {
  if (random_.chance(faults_.allocate_fails)) {
    ++counters_.allocations_failed;
    return fail(Error::no_memory, "allocating a segment of {} bytes failed, {}", length, injected);
  }
  return inner_->allocate(length);
}

Status FaultHostLink::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  OFP_TRY(alive());
  if (random_.chance(faults_.announce_fails)) {
    ++counters_.announcements_failed;
    return fail(Error::timeout, "the agent did not take segment {:#x} in time, {}", segment, injected);
  }
  return inner_->announce_segment(segment, memory, deadline);
}

void FaultHostLink::retire_segment(RegionId segment) {
  if (!broken_) inner_->retire_segment(segment);
}

Result<std::uint32_t> FaultHostLink::announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                    std::uint64_t length) {
  OFP_TRY(alive());
  if (random_.chance(faults_.announce_fails)) {
    ++counters_.announcements_failed;
    return fail(Error::io, "range {} at generation {} could not be registered, {}", range, generation, injected);
  }
  return inner_->announce_range(range, generation, base, length);
}

void FaultHostLink::retire_range(RegionId range, std::uint32_t generation) {
  if (!broken_) inner_->retire_range(range, generation);
}

void FaultHostLink::wake() {
  if (broken_) return;
  if (random_.chance(faults_.wake_repeated)) {
    ++counters_.wakes_repeated;
    inner_->wake();
  }
  inner_->wake();
}

// A repeated wake may be old: it has the requests of the wake before.
void FaultHostLink::wake_with(Bytes requests) {
  if (broken_) return;
  if (random_.chance(faults_.wake_repeated)) {
    ++counters_.wakes_repeated;
    inner_->wake_with(requests_before_);
  }
  inner_->wake_with(requests);
  requests_before_.assign(requests.begin(), requests.end());
}

void FaultHostLink::wait(TimeNs deadline) {
  if (broken_) return;
  if (random_.chance(faults_.wait_spurious)) {
    ++counters_.waits_spurious;
    return;
  }
  inner_->wait(deadline);
}

Status FaultHostLink::look() {
  OFP_TRY(alive());
  if (random_.chance(faults_.close)) {
    ++counters_.closes;
    broken_ = true;
    inner_->close();
  }
  OFP_TRY(alive());
  return inner_->look();
}

Result<Fd> FaultHostLink::take_descriptor(std::uint64_t ticket, TimeNs deadline) {
  OFP_TRY(alive());
  return inner_->take_descriptor(ticket, deadline);
}

Status FaultHostLink::offer(std::uint64_t number, int fd) {
  OFP_TRY(alive());
  if (random_.chance(faults_.offer_fails)) {
    ++counters_.offers_failed;
    return fail(Error::io, "offering descriptor {} failed, {}", number, injected);
  }
  return inner_->offer(number, fd);
}

void FaultHostLink::abandon() { inner_->abandon(); }
void FaultHostLink::close() { inner_->close(); }

}  // namespace offpath::link
