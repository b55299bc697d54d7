// Decisions of one exchange: a function of a plug-in that is called with each view, and what becomes of its answer. A
// state machine like exchange.h; exchange_decisions.h connects it to workers, grants and actuators.
//
//   idle --view--> calling --answer--> lowering --no error--> raising --all are in force--> idle
//
// A view that arrives while it is not idle is lost, and counted: nothing waits for the function.
//
// Settings go out in two stages. Lowering: those made under an earlier grant and not repeated are given up, and lower
// values are set. Raising: the others, only if all of the first stage were answered without an error. A leader counts
// the larger of the earlier and the new grant for this member, so their sum here must never be that of both. The grant
// that the view showed is followed (Grants::on_user_goes_by) only after every setting is in force; so what others get
// next is no longer used here.
//
// Read this first in src/exchange/decision, then decision_layout.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/exchange_settings.h"
#include "offpath/decision.h"
#include "plugin/call.h"
#include "telemetry/sample.h"

namespace offpath::exchange {

struct DecisionCounters {
  std::uint64_t called = 0, failed = 0;  // failed: the function, its view, or its answer
  std::uint64_t lost = 0;                // views without a call
  std::uint64_t set = 0, unset = 0;      // settings in force; refused ones
};

// Samples that the function may see: each with its schema, and when it arrived.
using GaugeVisitor = std::function<void(const Schema&, const Sample&, TimeNs at)>;
using GaugeVisit = std::function<void(const GaugeVisitor&)>;

// The inputs of a call beside the view.
struct DecisionScene {
  const std::vector<std::string>& members;
  MemberIndex self;
  TimeNs interval_ns;
  const std::vector<Reduction>& reductions;
  std::uint64_t grant_total;  // 0: no grants
  bool may_grant;
  Grants::Held held;  // amount 0: nothing
  std::uint64_t held_nonce;
  TimeNs suspended_ns;  // so far
};

// An answer, checked.
struct DecisionAnswer {
  struct Setting {
    std::size_t actuator;  // of the settings' list
    std::uint64_t value;
    TimeNs until;  // CLOCK_MONOTONIC; 0: as long as is allowed
    bool granted;
  };
  std::optional<std::vector<std::byte>> record{};
  std::vector<ofp_grant_target> grants{};
  std::vector<Setting> settings{};
};
// The outputs' memory is copied once. Anything that does not fit is Error::invalid or too_large.
[[nodiscard]] Result<DecisionAnswer> read_answer(const plugin::Outputs& outputs, std::size_t members,
                                                 std::uint64_t bytes_max,
                                                 const std::vector<DecisionActuator>& actuators);

class Decision {
 public:
  // A value for an actuator, or to give it up.
  struct Asked {
    std::uint64_t number;    // on_set has it
    std::uint32_t actuator;  // of the agent's
    std::uint64_t value;
    TimeNs until;  // CLOCK_BOOTTIME; 0: give it up
  };
  // A grant that this member follows from now on.
  struct Followed {
    std::uint64_t nonce, number;
  };
  // To be carried out in any order; each is answered by on_set, perhaps at once.
  struct Step {
    std::vector<Asked> asked{};
    std::optional<Followed> followed{};
  };

  explicit Decision(DecisionSettings settings);

  [[nodiscard]] bool is_idle() const noexcept { return phase_ == Phase::idle; }  // no: the next view is lost
  // The call with this view; null: it is lost. Error::too_large: it has more bytes than a worker takes; it counts as a
  // call that failed.
  [[nodiscard]] Result<std::shared_ptr<plugin::Call>> on_view(const View& view, const DecisionScene& scene,
                                                              const GaugeVisit& gauges, TimeNs now);
  // The call has ended without a usable answer.
  void on_failed();
  [[nodiscard]] Step on_answer(const DecisionAnswer& answer, TimeNs now);
  // The outcome of setting number `number` of an earlier Step. Returns the next Step when its stage is complete.
  [[nodiscard]] Step on_set(std::uint64_t number, const Result<std::uint64_t>& value);

  [[nodiscard]] const DecisionSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const DecisionCounters& counters() const noexcept { return counters_; }

 private:
  struct State {
    std::optional<std::uint64_t> value{};  // in force, as the keeper has said; none: the former setting
    TimeNs until = 0;                      // likewise, of CLOCK_BOOTTIME
    bool granted = false;                  // perhaps under a grant
    bool is_sure = true;                   // false: a later setting failed, and may still be in force
  };
  struct Pending {
    std::uint64_t number;
    std::size_t actuator;
    State next;  // once it is in force
  };
  enum class Phase : std::uint8_t { idle, calling, lowering, raising } phase_ = Phase::idle;
  void ask(std::size_t actuator, const State& next, Step& step);
  [[nodiscard]] Step go_on();

  DecisionSettings settings_;
  std::vector<State> states_;                          // by actuator
  std::vector<Pending> asked_;                         // of this stage, not answered
  std::vector<std::pair<std::size_t, State>> raises_;  // of the next one
  std::uint64_t next_ = 1;
  bool all_in_force_ = true;
  Grants::Held shown_{};  // by the view that is decided on
  std::uint64_t shown_nonce_ = 0;
  TimeNs shown_suspended_ns_ = 0;
  DecisionCounters counters_;
};

}  // namespace offpath::exchange
