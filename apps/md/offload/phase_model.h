// Predicts the time of a step in each mode from the times of its phases: the performance model of "Smarter NICs for
// faster molecular dynamics" (2022), its formula (3), and a counterpart for lists made elsewhere. Times in seconds.
#pragma once

#include <array>

#include "md/settings.h"

namespace md {

// The host alone, for each call. The paper's t_neigh + t_comm in a step that makes lists is `rebuild` here: exchange,
// sort, borders and the list itself.
struct HostPhases {
  double force = 0, integrate = 0, communicate = 0, rebuild = 0;
  // With the wider bins and halo that lists made elsewhere need; communicate_wide: more copies of atoms.
  double rebuild_wide = 0, communicate_wide = 0;
  double list_steps = 0;  // the number of steps for which a list misses nothing
  double bins_steps = 0;  // the number of steps for which atoms stay near enough to their bins, in list mode
};

// The agent alone: from the request to the result.
struct AgentPhases {
  double force = 0, list = 0;
};

// Averages for a step, with new lists every `interval` steps; `list` does not depend on it.
double seconds_without(const HostPhases& host, double interval);
// Formula (3): t_force + t_rebuild - max(t_rebuild, t_force of the agent) is saved in every step that makes lists.
double seconds_with_forces_elsewhere(const HostPhases& host, const AgentPhases& agent, double interval);
// The counterpart: all but every n-th rebuild is hidden, as long as the agent makes a list while one holds.
double seconds_with_lists_elsewhere(const HostPhases& host, const AgentPhases& agent);

inline constexpr double list_requested_at = 0.4;  // as a fraction of the time for which a list is valid
inline constexpr double margin_in_skins = 3;      // by which bins and halo are wider in list mode

// An estimate of how much longer a list takes with them: wider bins have more candidates, but in longer rows. Measured:
// 1.2 to 1.3 for an estimate of 1.3.
inline double wide_search(const Settings& s) { return (s.cut + s.skin + margin_in_skins * s.skin) / (s.cut + s.skin); }

}  // namespace md
