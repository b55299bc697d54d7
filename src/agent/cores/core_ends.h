// Descriptors and settings that a core's process has from the process that started it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/cores/core_loads.h"
#include "base/fd.h"
#include "link/address.h"

namespace offpath::agent {

// The first message of a core over `control`: it has met the agent's other cores, and serves programs from now on. What
// follows the mark is where clients of Arrow Flight connect; empty: nowhere.
inline constexpr char core_serves_mark = 'S';

struct CoreEnds {
  struct Listener {
    Fd socket;
    link::Address::Kind kind;
    bool handed = false;  // connections are taken over; otherwise accepted, from members of the group
  };
  struct Pages {
    std::string name;  // of the core
    std::string path;  // of the Unix socket
  };

  unsigned core = 0, cores = 1;
  std::string agent;                                 // the agent's name
  std::vector<link::Address> addresses;              // where programs connect
  std::vector<std::vector<link::Address>> of_cores;  // where members reach each core
  std::vector<Listener> listeners;
  Fd control;  // closed by the other process when this core is to end
  std::shared_ptr<CoreLoads> loads;
  Fd pages;  // of this core alone; empty: no pages are served
  link::Address pages_at;
  Fd agent_pages;  // of core 0: those of all cores
  std::optional<link::Address> agent_pages_at;
  std::vector<Pages> others;  // the other cores' own
};

}  // namespace offpath::agent
