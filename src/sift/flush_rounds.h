// Flushes of one pool for which programs of this agent wait. Each asks all members, under a number that grows
// (flushes.h says what a member does then). If a member has begun a later flush, rows may have been put since, so all
// members are asked again under a larger number, until the program's deadline. The loss of a member ends a flush: the
// others may wait for messages that it does not send any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "service/effects.h"

namespace offpath::sift {

class FlushRounds {
 public:
  struct Round {
    std::uint64_t number;
    TimeNs deadline;
  };
  struct Over {
    service::ChannelNumber channel;
    std::uint64_t ticket;
    Status status;
  };
  // Empty: answers are missing. A round: ask all members again.
  using Outcome = std::variant<std::monostate, Round, Over>;

  // `self`: this agent's position among `members`.
  FlushRounds(std::string pool, std::uint32_t self, std::size_t members)
      : pool_(std::move(pool)), self_(self), members_(members) {}

  // A program's flush, under an id that the owner chooses. Ask all members, this one included, for the round.
  [[nodiscard]] Round begin(std::uint64_t id, service::ChannelNumber channel, std::uint64_t ticket, TimeNs deadline);
  // A member's answer. `newer`: the number of a later flush that it has begun, or 0.
  [[nodiscard]] Outcome on_answer(std::uint64_t id, const Result<std::uint64_t>& newer, TimeNs now);
  // All of them have failed.
  [[nodiscard]] std::vector<Over> end_all(const Failure& why);
  // Another member's flush. nullopt: take part. Otherwise the number of a later flush, which has begun here.
  [[nodiscard]] std::optional<std::uint64_t> begin_of_member(std::uint64_t number) noexcept;

 private:
  struct Flush {
    service::ChannelNumber channel;
    std::uint64_t ticket;
    TimeNs deadline;
    std::size_t open = 0;     // answers that are missing
    std::uint64_t newer = 0;  // the largest number of a later flush
    Status status{};          // the first failure
  };
  [[nodiscard]] Round next_round(Flush& flush) noexcept;

  std::string pool_;
  std::uint32_t self_;
  std::size_t members_;
  std::uint64_t newest_ = 0;
  std::unordered_map<std::uint64_t, Flush> flushes_;  // by id
};

}  // namespace offpath::sift
