// How threads of a program wait: they look for a while, request a wake, and sleep. Each wait ends at its deadline at
// the latest, or when the channel ends.
//
// A wait releases the lock that it is given while it sleeps or pauses. Afterwards only its result is known: other
// threads may have posted, opened and closed streams, and named memory.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "channel/host/channel_clock.h"
#include "channel/host/channel_life.h"
#include "channel/host/channel_words.h"
#include "channel/host/event_descriptor.h"
#include "channel/host/host_streams.h"
#include "channel/host/replies.h"
#include "channel/host/request_ring.h"
#include "channel/host/sleep_turns.h"
#include "channel/host/wake_requests.h"
#include "channel/reply.h"
#include "link/link.h"

namespace offpath::channel {

class HostWaits {
 public:
  using Lock = SleepTurns::Lock;

  HostWaits(link::HostLink& link, const ChannelClock& clock, const ChannelWords& words, EventDescriptor& events,
            SleepTurns& turns, ChannelLife& life, RequestRing& requests, Replies& replies, WakeRequests& wakes,
            HostStreams& streams) noexcept
      : link_(link),
        clock_(clock),
        words_(words),
        events_(events),
        turns_(turns),
        life_(life),
        requests_(requests),
        replies_(replies),
        wakes_(wakes),
        streams_(streams) {}

  // Until a request of so many bytes fits.
  [[nodiscard]] Status for_room(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline);
  // The same, but the next reply or the deadline end it as well, without a failure.
  [[nodiscard]] Status for_room_or_reply(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline);
  // Until the stream has the credit for so much more. It is asked for. Error::closed: another thread closed the stream.
  [[nodiscard]] Status for_credit(Lock& lock, std::uint32_t stream, std::uint64_t charge, TimeNs deadline);
  // Returns the ticket's failure if it failed.
  [[nodiscard]] Status for_progress(Lock& lock, std::uint32_t stream, std::uint64_t ticket, Progress progress,
                                    TimeNs deadline);
  // Until `there()`, which is asked after each look at the replies.
  template <class There>
  [[nodiscard]] Status for_replies(Lock& lock, TimeNs deadline, const There& there);

  // ---- looks, which never block

  [[nodiscard]] Status take_in_replies() {
    if (Status taken = replies_.take_in(requests_.newest()); !taken) [[unlikely]]
      return life_.lose(std::move(taken).error());
    return {};
  }
  // At the link, unless another thread sleeps there and will, and at the replies.
  [[nodiscard]] Status look_at_all();

  // Something has changed that no wake of the agent tells of: sleeping threads look again. The one that sleeps on the
  // link does when the agent has woken it, which it is asked for.
  void end_sleeps();

  [[nodiscard]] std::uint64_t sleeps() const noexcept { return sleeps_; }

 private:
  static constexpr TimeNs spin_ns = 30 * microsecond_ns;  // before a sleep: about the cost of a sleep and a wake

  [[nodiscard]] TimeNs spin_until() const { return clock_.is_virtual() ? 0 : clock_.now() + spin_ns; }
  // A pause between two looks of a wait that spins until then.
  static void spin(Lock& lock, TimeNs until, TimeNs now);
  [[nodiscard]] Status sleep(Lock& lock, TimeNs deadline);
  [[nodiscard]] Status look_at_link();

  link::HostLink& link_;
  ChannelClock clock_;
  ChannelWords words_;
  EventDescriptor& events_;
  SleepTurns& turns_;
  ChannelLife& life_;
  RequestRing& requests_;
  Replies& replies_;
  WakeRequests& wakes_;
  HostStreams& streams_;
  std::uint64_t sleeps_ = 0;
};

template <class There>
Status HostWaits::for_replies(Lock& lock, TimeNs deadline, const There& there) {
  const TimeNs until = spin_until();
  while (true) {
    OFP_TRY(take_in_replies());
    if (there()) return {};
    if (const TimeNs now = clock_.now(); now >= deadline) {
      return fail(Error::timeout, "the agent did not answer in time");
    } else if (now < until) {
      spin(lock, until, now);
      continue;
    }
    wakes_.ask_replies();
    if (replies_.have_arrived()) continue;
    OFP_TRY(sleep(lock, deadline));
  }
}

}  // namespace offpath::channel
