// Functions that decide on the views of an agent's exchanges: their calls, and what their answers change (records,
// grants, settings of actuators). Read decision/decision.h first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"

namespace offpath::exchange {

class ExchangeService::Decisions {
 public:
  explicit Decisions(std::function<std::uint64_t()> next_token) : next_token_(std::move(next_token)) {}

  void serve(GaugeVisit gauges, SetActuator set) {
    gauges_ = std::move(gauges);
    set_actuator_ = std::move(set);
  }
  [[nodiscard]] bool is_served() const noexcept { return set_actuator_ != nullptr; }

  // Calls the function of `one` with its newest view, unless its last call is under way. `suspended_ns`: as of
  // DecisionScene.
  void decide(One& one, const View& view, TimeNs suspended_ns, TimeNs now, service::Effects& out);
  void on_called(std::uint64_t token, const Result<plugin::Outputs>& outcome, TimeNs now);

 private:
  [[nodiscard]] Status carry_out_answer(One& one, const plugin::Outputs& outputs, TimeNs now);
  void take_step(One& one, const Decision::Step& step);
  static void note_failure(One& one, std::string_view why, TimeNs now);

  std::function<std::uint64_t()> next_token_;
  std::map<std::uint64_t, One*> calls_;  // of functions, by token
  GaugeVisit gauges_;
  SetActuator set_actuator_;
};

}  // namespace offpath::exchange
