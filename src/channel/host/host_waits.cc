#include "channel/host/host_waits.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/relax.h"
#include "channel/interruption.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

using wire::WakeWord;

void HostWaits::spin(Lock& lock, TimeNs until, TimeNs now) {
  // After this part other threads on the core, perhaps an agent, get their turn.
  constexpr TimeNs spin_alone_ns = microsecond_ns;
  lock.unlock();
  if (until - now <= spin_ns - spin_alone_ns)
    sched_yield();
  else
    for (int i = 0; i < 16; ++i) relax();
  lock.lock();
}

Status HostWaits::look_at_link() {
  if (Status looked = link_.look(); !looked) return life_.lose(std::move(looked).error());
  if (wakes_.any_armed()) wakes_.ask_armed();
  return {};
}

Status HostWaits::look_at_all() {
  if (!turns_.is_taken()) {
    turns_.next();
    OFP_TRY(look_at_link());
  }
  return take_in_replies();
}

Status HostWaits::sleep(Lock& lock, TimeNs deadline) {
  if (const Interruption asked = interruption(); asked.is_due != nullptr) {
    const std::uint32_t turn = turns_.number();
    lock.unlock();
    const bool due = asked.is_due(asked.user) != 0;
    lock.lock();
    OFP_TRY(life_.usable());
    if (due) return fail(Error::cancelled, "the wait was interrupted");
    // Another thread may have taken the wake meanwhile.
    if (turn != turns_.number()) return {};
  }
  ++sleeps_;
  const bool looks = turns_.sleep(lock, link_, deadline);
  OFP_TRY(life_.usable());
  if (!looks) return {};
  events_.tell_watcher();
  return look_at_link();
}

void HostWaits::end_sleeps() {
  turns_.next();
  if (turns_.is_taken()) wakes_.ask_room();
}

Status HostWaits::for_room(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline) {
  if (payload_bytes > wire::entry_bytes_max)
    return fail(Error::too_large, "a request of {} bytes; at most {} are allowed", payload_bytes,
                wire::entry_bytes_max);
  while (!requests_.fits(payload_bytes)) {
    if (clock_.now() >= deadline)
      return fail(deadline == 0 ? Error::would_block : Error::timeout,
                  "the request ring is full: {} of {} slots are used", requests_.position() - words_.request_head(),
                  requests_.slots());
    wakes_.ask_room();
    OFP_TRY(take_in_replies());  // the agent takes no requests while its answers find no room
    if (requests_.fits(payload_bytes)) break;
    OFP_TRY(sleep(lock, deadline));
  }
  return {};
}

// The agent continues only if there is room for its replies: these are taken in meanwhile.
Status HostWaits::for_room_or_reply(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline) {
  const std::uint64_t began = replies_.position();
  while (true) {
    OFP_TRY(take_in_replies());
    if (requests_.fits(payload_bytes) || replies_.position() != began || clock_.now() >= deadline) return {};
    wakes_.ask_room();
    wakes_.ask_replies();
    if (requests_.fits(payload_bytes) || replies_.have_arrived()) continue;
    OFP_TRY(sleep(lock, deadline));
  }
}

Status HostWaits::for_credit(Lock& lock, std::uint32_t stream, std::uint64_t charge, TimeNs deadline) {
  if (const std::uint64_t most = link_.welcome().memory_bytes_max; charge > most)
    return fail(Error::too_large, "the batch may take {} bytes of the agent's memory, which has {} in all", charge,
                most);
  while (true) {
    const std::uint64_t wanted = streams_[stream].charged + charge;
    const std::uint64_t credit = words_.credit(stream);
    if (wanted <= credit) return {};
    // Credit is requested even if the caller does not wait, so it is there at the next attempt.
    streams_.ask_credit(stream, wanted);
    if (clock_.now() >= deadline)
      return fail(
          deadline == 0 ? Error::would_block : Error::timeout,
          "no credit: the batch needs {} bytes of the agent's memory, {} are free for this stream; drop frames, "
          "or open the stream with `keep`",
          charge, credit - std::min(credit, streams_[stream].charged));
    wakes_.ask(stream, WakeWord::credit, wanted);
    OFP_TRY(take_in_replies());
    if (words_.credit(stream) >= wanted) return {};
    const std::uint64_t closings = streams_[stream].closings;
    ++streams_[stream].credit_waiters;
    const Status slept = sleep(lock, deadline);
    if (streams_[stream].closings != closings) return fail(Error::closed, "the stream is closed");
    --streams_[stream].credit_waiters;
    OFP_TRY(slept);
  }
}

Status HostWaits::for_progress(Lock& lock, std::uint32_t stream, std::uint64_t ticket, Progress progress,
                               TimeNs deadline) {
  const TimeNs until = spin_until();
  while (words_.progress(stream, progress) < ticket) {
    const TimeNs now = clock_.now();
    if (now >= deadline) {
      OFP_TRY(look_at_link());  // an agent that died is the reason, and not the time
      return fail(Error::timeout, "ticket {} is not {} in time; {} is the newest that is", ticket,
                  progress == Progress::pulled ? "pulled" : "stored", words_.progress(stream, progress));
    }
    if (now < until) {
      spin(lock, until, now);
      OFP_TRY(life_.usable());
      continue;
    }
    wakes_.ask(stream, wake_word(progress), ticket);
    OFP_TRY(take_in_replies());  // the agent takes no requests while its answers find no room
    if (words_.progress(stream, progress) >= ticket) break;
    OFP_TRY(sleep(lock, deadline));
  }
  streams_.look_at_credit(stream);  // now, while the line is in this core's cache
  OFP_TRY(take_in_replies());
  return replies_.failure_of(ticket);
}

}  // namespace offpath::channel
