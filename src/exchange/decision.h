// Decisions of one exchange: a function of a plug-in that is called with each view, and what becomes of its answer. A
// state machine like exchange.h; exchange_decisions.cc connects it to workers, grants and actuators.
//
//   idle --view--> calling --answer--> setting --all are in force--> idle
//
// A view that arrives while it is not idle is lost, and counted: nothing waits for the function. The grant that the
// view showed is followed (Grants::on_user_goes_by) only after every setting is in force, those made under an earlier
// grant and not repeated having been given up; so what others get next is no longer used here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "offpath/decision.h"
#include "plugin/call.h"
#include "telemetry/sample.h"

namespace offpath::exchange {

struct DecisionActuator {
  std::uint32_t number = 0;  // of the agent's
  std::string name;
  std::uint64_t min = 0, max = 0;
  TimeNs lease_ns = 0;
};

struct DecisionSettings {
  std::string plugin, function;
  std::string arguments;  // for the function
  std::vector<DecisionActuator> actuators;
};

struct DecisionCounters {
  std::uint64_t called = 0, failed = 0;  // failed: the function, or its answer
  std::uint64_t lost = 0;                // views without a call
  std::uint64_t set = 0, unset = 0;      // settings in force; refused ones
};

// Samples that the function may see: each with its schema, and when it arrived.
using GaugeVisitor = std::function<void(const Schema&, const Sample&, TimeNs at)>;
using GaugeVisit = std::function<void(const GaugeVisitor&)>;

// Beside the view, what a call shows.
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

  explicit Decision(DecisionSettings settings);

  // The call with this view; null: it is lost.
  [[nodiscard]] std::shared_ptr<plugin::Call> on_view(const View& view, const DecisionScene& scene,
                                                      const GaugeVisit& gauges, TimeNs now);
  // The call has ended without a usable answer.
  void on_failed();
  // Its settings, to be carried out in this order; each is answered by on_set, perhaps at once.
  [[nodiscard]] std::vector<Asked> on_answer(const DecisionAnswer& answer, TimeNs now);
  // Returns the grant to follow, once the last of them is in force.
  [[nodiscard]] std::optional<Followed> on_set(std::uint64_t number, const Result<std::uint64_t>& value);
  // Called after on_answer without any setting to carry out.
  [[nodiscard]] std::optional<Followed> finish();

  [[nodiscard]] const DecisionSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const DecisionCounters& counters() const noexcept { return counters_; }

 private:
  struct State {
    std::optional<std::uint64_t> value{};  // set and not given up, as far as is known
    bool granted = false;                  // perhaps under a grant
    TimeNs until = 0;                      // CLOCK_BOOTTIME
  };
  struct Pending {
    std::uint64_t number;
    std::size_t actuator;
    State next;  // once it is in force
  };
  enum class Phase : std::uint8_t { idle, calling, setting } phase_ = Phase::idle;

  DecisionSettings settings_;
  std::vector<State> states_;  // by actuator
  std::vector<Pending> asked_;
  std::uint64_t next_ = 1;
  bool all_in_force_ = true;
  Grants::Held shown_{};  // by the view that is decided on
  std::uint64_t shown_nonce_ = 0;
  TimeNs shown_suspended_ns_ = 0;
  DecisionCounters counters_;
};

}  // namespace offpath::exchange
