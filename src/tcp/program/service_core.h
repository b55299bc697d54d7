// Shared by all parts of a TcpService: the core that it is for, with that core's stack, limits and counters.
#pragma once

#include <cstdint>

#include "tcp/program/tcp_service_limits.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

struct TcpServiceCounters {
  std::uint64_t commands = 0, events = 0;
  std::uint64_t stored_bytes = 0;         // into receive rings, including duplicates
  std::uint64_t without_accept_slot = 0;  // peers' connections that waited for an accept slot
  // connections refused or delayed because receive rings had reached their limit
  std::uint64_t without_memory = 0;
  std::uint64_t rings_grown = 0, rings_refused = 0;  // larger rings that programs asked for, and limits did not allow
  std::uint64_t rings_shrunk = 0;                    // first rings again
  std::uint64_t programs_refused = 0, programs_ended = 0;  // ended: for invalid values
};

struct ServiceCore {
  TcpServiceLimits limits;
  std::uint32_t number, cores;
  Stack* stack = nullptr;  // set before any call of a program
  TcpServiceCounters counters{};
};

}  // namespace offpath::tcp
