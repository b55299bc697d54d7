// The part of the status that concerns programs' TCP connections.
#pragma once

#include <string>
#include <vector>

#include "loop/loop.h"
#include "tcp/area/area_mirror.h"
#include "tcp/port/port.h"
#include "tcp/program/tcp_service.h"
#include "tcp/slow_path/slow_path_agent.h"

namespace offpath::agent {

struct TcpStatus {
  // The values of one core: current gauges and running counters.
  struct Core {
    std::uint32_t core = 0;
    std::size_t flows = 0;
    std::uint64_t segments_in = 0, segments_out = 0,
                  dropped_in = 0;  // dropped_in: frames for which the kernel had no room
    loop::LoopCounters loop{};
  };
  std::string device, address, address6;  // addresses: empty where there is none of that family
  std::string address6_state;             // tentative, usable, or duplicate: another node has it
  std::string router6;                    // that advertised itself; empty: none
  bool link_up = true;                    // as reported by the port
  std::size_t flows = 0, half_open = 0;
  tcp::StackCounters stack;
  LatencyHistogram acknowledged{};
  tcp::PortCounters port;
  tcp::TcpServiceCounters service;
  std::vector<tcp::TcpService::ProgramStatus> programs;
  std::vector<tcp::TcpService::ConnectionStatus> connections;  // at most connections_shown of each core
  std::vector<Core> cores;
  bool slow_path_is_there = false;  // a process of the host does it now
  tcp::SlowPathCounters slow_path;
  tcp::AreaMirrorCounters link;  // of programs on other machines

  static constexpr std::size_t connections_shown = 4096;
};

// The status of one core.
[[nodiscard]] TcpStatus status_of(std::uint32_t core, const tcp::Stack& stack, const tcp::Port& port,
                                  const tcp::TcpService& service, const loop::Loop& loop);
// Adds another core's status: counts are summed.
void add(TcpStatus& all, TcpStatus core);

}  // namespace offpath::agent
