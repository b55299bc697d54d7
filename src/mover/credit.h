// The credit of streams: memory promised to programs, which bounds what they may send.
//
// A stream's credit is a position that only grows, because its program may be using it at any moment. The memory behind
// it need not stay promised. Memory for which no batch has arrived is taken back when other streams ask for it: first
// from streams of the user that asks, then from the user with the largest promises, and there from streams that sent
// nothing lately. A batch that arrives on credit without memory waits unpulled, with its arrays in its program's
// memory, in one queue with the streams that ask for credit. So a promise holds up others only until its batch arrives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/measure/latency.h"
#include "mover/operation.h"
#include "mover/options.h"
#include "mover/request_queues.h"
#include "mover/store.h"

namespace offpath::mover {

// One user's account, for as long as the user has streams.
struct Account {
  std::uint32_t streams_open = 0;
  std::uint64_t promised_bytes = 0, claimed_bytes = 0;  // as in the counters
  // Streams that memory is promised to, and those whose promises are gone lately. `next` is looked at next when
  // promises are taken back.
  std::vector<Stream*> promised_to;
  std::size_t next = 0;
};

class Credit {
 public:
  // Reserved memory, and the part of it that is unused: only its purpose may use it.
  struct Aside {
    std::uint64_t bytes = 0, left = 0;
  };

  // `waits` gets the times from asking for credit to getting it.
  Credit(const MoverOptions& options, BufferCache& cache, RequestQueues& queues, MoverCounters& counters,
         LatencyHistogram& waits);

  // ---- streams
  // Sets its account and its window for batches of `largest` bytes (0: unknown), and promises it memory.
  void open(Stream& stream, std::uint64_t largest, Effects& effects);
  // Its largest batch is now one of `largest` bytes: its window grows as when it is opened.
  void widen(Stream& stream, std::uint64_t largest, Effects& effects);
  // All its promises return. Its operations have no claims left.
  void close(Stream& stream, TimeNs now);
  [[nodiscard]] std::uint32_t streams_of(uid_t user) const;
  // The program asks for a total; true: it asks for less than before, and others may have waited behind it.
  [[nodiscard]] bool ask(Stream& stream, std::uint64_t total, TimeNs now, Effects& effects);
  // Takes the operation's charge from its stream's credit. False: the memory for it is not there now.
  [[nodiscard]] Result<bool> spend(Operation& operation);
  // Memory of a batch that has arrived and waits for earlier pulls.
  void claim(Operation& operation) noexcept;
  void end_claim(Operation& operation) noexcept;
  // Serves the stream, or puts it into the queue. Its batches that have memory then wait for their pulls.
  void serve_or_queue(Stream& stream, TimeNs now, Effects& effects);
  // Memory has become free: serves streams that wait for it. Returns the channels of those that got some.
  [[nodiscard]] std::vector<ChannelNumber> serve_queue(TimeNs now, Effects& effects);
  // The window beyond the request, as far as there is free memory.
  void extend(Stream& stream, Effects& effects);

  // ---- memory
  // Reserves memory for objects of other members; otherwise two full agents with objects for each other deadlock. A
  // batch that is larger than all the rest may use it too. True: less than before.
  [[nodiscard]] bool keep_for_members(std::uint64_t bytes) noexcept;
  void set_aside(std::function<Aside()> aside) { aside_ = std::move(aside); }
  // Whether so many bytes are free, after taking promises back if needed; see memory_unused, memory_free and
  // memory_free_for_programs.
  [[nodiscard]] bool make_unused(std::uint64_t bytes);
  [[nodiscard]] bool make_free(std::uint64_t bytes);
  [[nodiscard]] bool make_free_for_programs(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t memory_free() const;
  [[nodiscard]] std::uint64_t memory_unused() const noexcept;  // including reserved memory
  [[nodiscard]] std::uint64_t memory_free_for_programs() const;
  [[nodiscard]] std::uint64_t memory_reach_for_programs() const;  // free, or can be taken back from promises
  [[nodiscard]] std::uint64_t memory_max_for_programs() const;    // when everything that they may use is free
  [[nodiscard]] std::uint64_t memory_free_for(uid_t user) const;
  // Memory that has to become free for the stream that has waited longest for it; 0: none waits.
  [[nodiscard]] std::uint64_t memory_lacking() const;
  [[nodiscard]] std::uint64_t lacking_of(const Stream& stream) const;
  // The memory that it lacks: for its oldest batch that waits for some, or for the credit that it has asked for.
  [[nodiscard]] static std::uint64_t required_of(const Stream& stream) noexcept;

  // ---- time
  [[nodiscard]] TimeNs next_deadline() const noexcept { return std::min(waits_told_.look_at, pass_at_); }
  // Without memory a program waits, and its own warning may not be seen: the log names the longest wait.
  void tell_of_waits(TimeNs now);
  // Those behind the first one of the queue may be served although it waits.
  [[nodiscard]] bool is_time_to_pass(TimeNs now) const noexcept { return now >= pass_at_; }

 private:
  // Which waits the log has reported: one line names the longest, and the next one comes later.
  struct WaitsTold {
    static constexpr TimeNs silent_ns = second_ns;        // a longer wait is reported
    static constexpr TimeNs between_ns = 10 * second_ns;  // at least, from one line to the next
    TimeNs next_at = 0, look_at = never;
  };

  [[nodiscard]] std::uint64_t set_aside_left() const { return aside_ ? aside_().left : 0; }
  [[nodiscard]] std::uint64_t memory_without(std::uint64_t promised) const noexcept;
  [[nodiscard]] std::uint64_t left_of(uid_t user, std::uint64_t promised, std::uint64_t all) const;
  [[nodiscard]] std::uint64_t reach_of(const Stream& stream, std::uint64_t reserved) const;
  [[nodiscard]] std::uint64_t window_of(const Stream& stream, std::uint64_t largest) const;
  [[nodiscard]] bool make_free(std::uint64_t bytes, std::uint64_t reserved);
  void take_from_all(std::uint64_t unused, const Account* except);
  std::uint64_t take_from(Account& account, std::uint64_t bytes, std::uint64_t wished, const Stream* except);
  static void unlist(Stream& stream);
  void promise_more(Stream& stream, std::uint64_t bytes);
  void promise_less(Stream& stream, std::uint64_t bytes) noexcept;
  [[nodiscard]] static bool is_served(const Stream& stream) noexcept;
  [[nodiscard]] bool serve(Stream& stream, Effects& effects);
  [[nodiscard]] bool waits_for_all(const Stream& stream) const;
  [[nodiscard]] bool is_behind(const Stream& stream, TimeNs now) const;
  void leave_queue(Stream& stream, TimeNs now);
  static void set_credit(Stream& stream, Effects& effects);

  const MoverOptions& options_;
  BufferCache& cache_;
  RequestQueues& queues_;
  MoverCounters& counters_;
  LatencyHistogram& waits_;
  std::map<uid_t, Account> accounts_;
  std::uint64_t kept_bytes_ = 0;  // for other members
  std::function<Aside()> aside_;
  std::deque<Stream*> hungry_;     // waiting for memory, the longest first
  bool is_queue_blocked_ = false;  // one of them lacks memory that no user's share withholds: others wait behind it
  TimeNs pass_at_ = never;         // when they pass it
  WaitsTold waits_told_;
};

}  // namespace offpath::mover
