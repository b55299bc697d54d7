// Writes of tracks that programs of this agent have requested. All members that keep tracks of the pool write their
// parts of it (track_parts.h), to the same directory, at the same time:
//
//   begin, more   each member, again and again until its part is written; its answers have its progress
//   more          a member whose part is written, from time to time, so that it keeps it; all once more at the end
//   publish       all members, when all have confirmed that they have their part
//   finish        all members, when all are published
//   abandon       all members, after the first failure, at the deadline, or when the program is gone
//
// So no file has its final name before every member has written its part. Only rows that this agent keeps pass through
// it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "service/effects.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

class TrackWrites {
 public:
  static constexpr TimeNs tell_ns = 250 * millisecond_ns;  // how often members say how far they are
  static constexpr TimeNs publish_ns = 60 * second_ns;     // for a disk that is slow
  static constexpr TimeNs keep_ns = 15 * second_ns;        // how often members that wait for others are asked
  static constexpr std::size_t channel_writes_max = 16;    // of one program, including those whose end it has not
                                                           // received

  // A question for a member; its answer comes by on_answer with the number.
  struct Ask {
    std::uint64_t number;
    std::string member;
    wire::PeerWrite::What what;
    std::uint64_t write;
    TimeNs wait_ns, deadline;  // until the member says how far it is; for its answer
  };
  struct Wanted {
    std::string name, text;  // of the pool
    uid_t pool_user, user;
    std::string directory;
    TimeNs deadline;
  };
  using Send = std::function<void(const Ask&, const Wanted&, TimeNs now, service::Effects&)>;

  TrackWrites(std::function<std::uint64_t()> next, TimeNs ask_wait_ns, Send send)
      : next_(std::move(next)), ask_wait_ns_(ask_wait_ns), send_(std::move(send)) {}

  // `members` keep the tracks. The result is the write's number.
  [[nodiscard]] Result<std::uint64_t> begin(service::ChannelNumber channel, Wanted wanted,
                                            std::vector<std::string> members, TimeNs now, service::Effects& effects);
  // Answers the program when the write is over, or after a wait; or cancels it. A result can be requested again, in
  // case an answer came too late. It is removed on cancellation, when the program has too many, and with the program.
  [[nodiscard]] Status serve(service::ChannelNumber channel, std::uint64_t ticket, const wire::SiftWritten& asked,
                             TimeNs now, service::Effects& effects);

  [[nodiscard]] bool has(std::uint64_t number) const { return asks_.contains(number); }
  void on_answer(std::uint64_t number, const Result<wire::Written>& answer, TimeNs now, service::Effects& effects);
  // A member that is not among `alive`, or has restarted, has lost its part. Without this call a write would notice the
  // death of a waiting member only at its next question.
  void on_members(std::span<const std::string> alive, std::span<const std::string> anew, TimeNs now,
                  service::Effects& effects);
  void on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects);
  void on_time(TimeNs now, service::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  [[nodiscard]] std::size_t asks() const noexcept { return asks_.size(); }  // that are not answered

 private:
  using What = wire::PeerWrite::What;
  struct Member {
    std::string name;
    wire::Written written{};
    bool over = false, asked = false;  // with the state; it has not answered
    TimeNs again = never;              // the time of the next question
  };
  struct Waiting {
    std::uint64_t ticket;
    TimeNs until;
  };
  enum class State { writing, confirming, publishing, finishing, over };
  struct Write {
    service::ChannelNumber channel;
    Wanted wanted;
    std::vector<Member> members;
    State state = State::writing;
    Status status{};
    std::optional<Waiting> waiting{};
    bool told = false;  // its end
  };
  struct Asked {
    std::uint64_t write;
    std::size_t member;
  };

  void ask(std::uint64_t number, Write& write, std::size_t member, What what, TimeNs now, service::Effects& effects);
  void ask_all(std::uint64_t number, Write& write, State state, What what, TimeNs now, service::Effects& effects);
  void next_state(std::uint64_t number, Write& write, TimeNs now, service::Effects& effects);
  void end(std::uint64_t number, Write& write, Status status, TimeNs now, service::Effects& effects);
  static void tell(Write& write, service::Effects& effects);  // the program, if it waits
  [[nodiscard]] static wire::Written progress(const Write& write);

  std::function<std::uint64_t()> next_;
  TimeNs ask_wait_ns_;
  Send send_;
  std::map<std::uint64_t, Write> writes_;
  std::map<std::uint64_t, Asked> asks_;
};

}  // namespace offpath::sift
