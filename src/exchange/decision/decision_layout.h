// Views in the form that functions get (offpath/decision.h): one run of bytes for each input.
#pragma once

#include <vector>

#include "exchange/decision/decision.h"

namespace offpath::exchange {

struct DecisionInputs {
  std::vector<std::byte> view, gauges, figures, actuators;
};
// The size of the input `view`.
[[nodiscard]] std::uint64_t view_bytes(const View& view, const DecisionScene& scene);
[[nodiscard]] DecisionInputs lay_out_decision(const View& view, const DecisionScene& scene, const GaugeVisit& gauges,
                                              std::uint64_t lost, TimeNs now);
void add_actuator(const DecisionActuator& actuator, std::optional<std::uint64_t> value, std::vector<std::byte>& to);

}  // namespace offpath::exchange
