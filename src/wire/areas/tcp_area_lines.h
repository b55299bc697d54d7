// The lines at the beginning of an area of TCP connections, and where their words are. tcp_area.h draws the area.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/areas/ip_address.h"
#include "wire/areas/tcp_congestion.h"

namespace offpath::wire {

inline constexpr std::uint32_t tcp_cores_max = 16;

struct alignas(64) TcpProgramLine {
  std::uint64_t commands;
  std::uint64_t events_taken;
  std::uint64_t zero[6];
};
static_assert(sizeof(TcpProgramLine) == 64);

struct alignas(64) TcpAgentLine {
  std::uint64_t commands_taken;
  std::uint64_t asleep;  // 1: the agent wants a wake after the next command
  std::uint64_t cores;   // in core 0's line, from the start
  // likewise, by the relay: not 0, the agent reaches the area over a link; tcp_link_pins: and the link has its pages
  std::uint64_t linked;
  // likewise, by the agent: its own IPv4 address and its own IPv6 address, zeros for a family without one
  std::uint32_t address4;  // 10.0.0.1 is 0x0a000001
  // likewise: the congestion control of connections that choose none, and bits (tcp_congestion_bit) of those that this
  // program may choose, and of those that every program may: a supervisor's program has rights that its callers lack
  TcpCongestion congestion;
  std::uint8_t congestions, congestions_of_all;
  std::uint8_t zero;
  IpAddress address6;
  std::uint64_t zero_too;
};
static_assert(sizeof(TcpAgentLine) == 64);
// The link writes to the pages that it found when it began, so none of them may be given back to the machine.
inline constexpr std::uint64_t tcp_link_pins = 2;

struct alignas(64) TcpEventLine {
  std::uint64_t events;
  std::uint64_t zero[7];
};
static_assert(sizeof(TcpEventLine) == 64);

struct alignas(64) TcpProcessLine {
  // 1: the process wants a wake after the next event that concerns it; 2: also after commands were taken; 3: only when
  // events wait for room in their ring, because its threads sleep on words of flows
  std::uint64_t asleep;
  std::uint64_t woken;  // over a link: how often the agent has woken the process
  std::uint64_t zero[6];
};
static_assert(sizeof(TcpProcessLine) == 64);

inline constexpr std::uint32_t tcp_processes_max = 512;  // of a program
inline constexpr std::uint32_t tcp_no_handle = ~0u;

// One bit for each process, up to the bits of a word: the last bit stands for all further processes.
[[nodiscard]] constexpr std::uint64_t tcp_process_bit(std::uint32_t process) noexcept {
  return 1ull << (process < 63 ? process : 63);
}

// The datagram with which a process joins. Every other datagram only wakes core 0, as this one does.
struct TcpJoin {
  static constexpr std::uint32_t join = 0x6a6f696e;
  std::uint32_t kind;
  std::uint32_t process;
};
static_assert(sizeof(TcpJoin) == 8);

// Offsets of the words of core 0's lines; those of other cores are of_core() further.
namespace tcp_word {
[[nodiscard]] constexpr std::uint64_t of_core(std::uint32_t core) noexcept { return core * 256ull; }
inline constexpr std::uint64_t program_line = 0, agent_line = 64, event_line = 128;
inline constexpr std::uint64_t commands = program_line + offsetof(TcpProgramLine, commands);
inline constexpr std::uint64_t events_taken = program_line + offsetof(TcpProgramLine, events_taken);
inline constexpr std::uint64_t process_lines = 4096;
[[nodiscard]] constexpr std::uint64_t process_asleep(std::uint32_t process) noexcept {
  return process_lines + process * sizeof(TcpProcessLine) + offsetof(TcpProcessLine, asleep);
}
[[nodiscard]] constexpr std::uint64_t process_woken(std::uint32_t process) noexcept {
  return process_lines + process * sizeof(TcpProcessLine) + offsetof(TcpProcessLine, woken);
}
inline constexpr std::uint64_t commands_taken = agent_line + offsetof(TcpAgentLine, commands_taken);
inline constexpr std::uint64_t agent_asleep = agent_line + offsetof(TcpAgentLine, asleep);
inline constexpr std::uint64_t cores = agent_line + offsetof(TcpAgentLine, cores);
inline constexpr std::uint64_t linked = agent_line + offsetof(TcpAgentLine, linked);
// Of the agent's own addresses and congestion control: the link brings them in one piece.
inline constexpr std::uint64_t addresses = agent_line + offsetof(TcpAgentLine, address4),
                               addresses_bytes = offsetof(TcpAgentLine, zero_too) - offsetof(TcpAgentLine, address4);
inline constexpr std::uint64_t events = event_line + offsetof(TcpEventLine, events);
static_assert(of_core(tcp_cores_max) <= process_lines);
}  // namespace tcp_word

}  // namespace offpath::wire
