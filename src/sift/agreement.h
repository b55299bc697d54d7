// Agreement on the definition of one sift pool, as one of its members sees it. Agents that know different members make
// different definitions of one name, of which at most one may win.
//
//   - Nothing is taken into a pool before all of its living members have confirmed, within `heard_for_ns`, that they
//     have the same definition, and all other living members that they have no other one. Every agent that has a
//     definition asks all members, and again every second.
//   - A member that has confirmed does not take another definition for `bound_for_ns`, which is longer: by then it has
//     heard of the agreement.
//   - Of two definitions without agreement, the one with more members wins, or else the first in order; agents with the
//     other one take it. A member that was refused promises nothing, so a definition that cannot win disappears soon.
//   - A definition with agreement stays. If there are two, of members that could not reach each other, both keep their
//     objects. The loser takes no further rows, and gives the reason in its answers, the log and the status,
//     until it is dropped.
//
// Absent members are not waited for: they are told when they are back.
//
// A state machine: the owner sends the questions that it adds to `Asks`, and reports their answers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::sift {

class Agreement {
 public:
  static constexpr TimeNs heard_for_ns = 5 * second_ns, bound_for_ns = 10 * second_ns;
  static constexpr TimeNs ask_every_ns = second_ns, tell_rivals_every_ns = 5 * second_ns;
  static constexpr TimeNs rival_believed_ns = 3 * tell_rivals_every_ns;
  static constexpr TimeNs refused_wait_ns = 15 * second_ns;  // for another definition, after a refusal
  static constexpr TimeNs meet_ns = 3 * second_ns;           // until unknown members of a definition count as absent

  // The answer of a member with the same definition, or of one that lacks the definition (definition.h) and wants it;
  // the numbers go to other agents.
  enum Answer : std::uint64_t { promised = 0, agreed_on = 1, unpromised = 2, wants_definition = 3 };
  // Asks a member whether it has another definition. `sends`: with the whole of this one. `tells`: all have agreed on
  // this one.
  struct Ask {
    std::string member;
    bool tells = false, sends = false;
  };
  using Asks = std::vector<Ask>;
  enum class Outcome : std::uint8_t {
    none,
    agreed,   // by this call
    hopeless  // may_put() fails, so requests that wait for agreement fail, too
  };

  // `self` and `members` are names; `members` are sorted. `alive`, below: all living members that are known here,
  // sorted.
  Agreement(std::string self, std::string text, std::vector<std::string> members);

  [[nodiscard]] bool is_agreed() const noexcept { return agreed_; }
  // The definition that other members agreed on, and that wins; empty: there is none.
  [[nodiscard]] const std::string& rival() const noexcept { return rival_; }
  // Fails if a rival wins although this definition was agreed on, or if agreement is not possible.
  [[nodiscard]] Status may_put(TimeNs now) const;
  // Members that live, or may live, and have not confirmed that they have no other definition.
  [[nodiscard]] std::vector<std::string> missing(std::span<const std::string> alive, TimeNs now) const;
  [[nodiscard]] TimeNs next_deadline() const noexcept { return ask_at_; }  // of work()

  // Does what is due.
  [[nodiscard]] Outcome work(std::span<const std::string> alive, TimeNs now, Asks& asks);
  // `answer`: an Answer, or the reason why the member gave none.
  [[nodiscard]] Outcome on_answer(const std::string& member, const Result<std::uint64_t>& answer,
                                  std::span<const std::string> alive, TimeNs now, Asks& asks);
  // Another member, or a record from before this agent restarted, says that all have agreed. Outcome::none: this was
  // known.
  Outcome agree(TimeNs now);
  // A member has restarted, without its pools.
  void on_restart(const std::string& member) {
    heard_.erase(member);
    refused_.erase(member);
    forgetful_.erase(member);
  }
  // Asks one member, unless it is being asked.
  void ask(const std::string& member, Asks& asks);

  // ---- messages of other members
  // A member asks whether this agent has the same definition. `told`: this agent has its definition from that
  // member.
  [[nodiscard]] Answer confirm(bool told, TimeNs now);
  // A member asks about another definition of the name. Fails unless that replaces this one.
  [[nodiscard]] Status yield_to_proposed(std::string_view other, TimeNs now);
  // All members of another definition of the name have agreed on it. Fails unless it replaces this one.
  [[nodiscard]] Status yield_to_agreed(std::string_view other, TimeNs now);
  void take_as_proposed(TimeNs now);  // this definition has replaced another one

 private:
  void refuse(const std::string& member, std::string why, TimeNs now);

  std::string self_, name_, text_;
  std::vector<std::string> members_;
  bool agreed_ = false;
  std::map<std::string, TimeNs> heard_;  // members that have the same definition, and when they last confirmed it
  std::set<std::string> asking_;         // asked, without an answer yet
  std::set<std::string> sent_;           // of these, those that were sent the whole definition
  std::map<std::string, std::string> refused_;  // members that have another one, or refuse, and their reasons
  std::set<std::string> forgetful_;  // of these, those that a telling did not reach: they are asked again instead
  TimeNs refused_since_ = never, bound_until_ = 0, ask_at_ = 0;
  TimeNs told_at_ = never;  // when another member asked or told; it may know members that are unknown here
  std::string rival_;
  TimeNs rival_until_ = 0;  // until then the rival counts
};

}  // namespace offpath::sift
