#include "md/offload/phase_model.h"

#include <algorithm>
#include <cmath>

namespace md {

double seconds_without(const HostPhases& host, double interval) {
  return host.force + host.integrate + host.communicate + (host.rebuild - host.communicate) / interval;
}

double seconds_with_forces_elsewhere(const HostPhases& host, const AgentPhases& agent, double interval) {
  const double saved = host.force + host.rebuild - std::max(host.rebuild, agent.force);
  return seconds_without(host, interval) - saved / interval;
}

// A list is requested `asked` steps after the snapshot of the current one, arrives after the agent's time, and is used
// from then on. If the current one expires earlier, the host waits for the rest.
double seconds_with_lists_elsewhere(const HostPhases& host, const AgentPhases& agent) {
  const double plain = host.force + host.integrate + host.communicate_wide;
  const double life = std::max(1.0, host.list_steps);
  const double made_in = agent.list / plain;  // steps
  const double asked = std::max({1.0, std::floor(list_requested_at * life) + 1, std::ceil(made_in)});
  const double waited = std::max(0.0, asked + made_in - life);
  const double period = std::min(asked, life);
  return plain * (1 + waited / period) + (host.rebuild_wide - host.communicate_wide) / std::max(host.bins_steps, life);
}

}  // namespace md
