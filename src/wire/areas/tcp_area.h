// The memory of a program's TCP connections: a segment of its own, shared by its processes (a fork keeps it). It begins
// with two rings of 64-byte entries for each core of the agent: commands of the program (TcpCommand) and events of the
// agent (TcpEvent). The program manages the rest, which is mostly payload of flows, in a ring for each direction.
//
//   offset                   what              written by
//   0                        TcpProgramLine    program     commands posted, events taken
//   64                       TcpAgentLine      agent       commands taken, asleep
//   128                      TcpEventLine      agent       events posted
//   + core * 256             the same three of every other core
//   4096                     TcpProcessLine    program     of each of its processes: asleep
//   + processes * 64         TcpCommand slots  program
//   + command_slots * 64     TcpEvent slots    agent
//   + event_slots * 64       the same two of every other core; unused where the agent has fewer cores
//   reads()                  words, by handle  program     the position `read` of each flow (tcp_positions.h)
//   sleeps()                 words of 4 bytes, by handle   both: threads of the program that sleep until the flow's or
//                                                          listener's next event (connections/sleep_word.h)
//   own()                    the program's     program; the agent writes arriving data to the receive rings
//
// Cores. The agent announces its number of cores at the start (in core 0's line). A flow stays on one core: its
// commands go into that core's ring, and its events come from that core. Core h % cores has handle h, so two cores
// never share a handle. Listeners are the exception: core 0 takes their commands and sends their events, whatever their
// handle, and all cores have them after the event `listening`. An accept slot again belongs to its handle's core.
// flow_steering.h gives the core to which a connection is steered.
//
// Positions of rings count entries since the beginning and never wrap; the slot is position modulo the ring's size. An
// entry is written, then its position with release order. Positions of streams count bytes from 0 and only grow: byte p
// of a stream is stored at p modulo the size of its ring, a power of two.
//
// Wakes of the agent. A datagram on the socket of a process wakes core 0. Each further core has a doorbell, an eventfd
// that it shares with the program: the answer to `tcp_open` hands over the socket of process 0 and then the doorbells,
// in the order of cores. Each write is a wake; the agent never reads. Over a link there is one core.
//
// A handle names a flow, or a listener. The program chooses it, below `flows`, and may reuse it after the event `gone`.
// A malformed command ends the program's channel, and all its flows with it.
//
// Processes. The process that opened the area is number 0. Others join by a TcpJoin, a datagram on the socket with
// which a process of the program wakes the agent. It carries two sockets of the new process: one for wakes, and one for
// notices, where a byte means that a process has ended. When a process's wake socket is closed, the agent takes the
// process for ended and reports it by an event without a handle, and then by a notice to each of the others, which may
// be neither asleep nor about to look. Over a link the agent counts a wake of the ended process after the event, and
// the relay sends the notices. The program ends with its last process. The processes that are woken for a flow's events
// are those of its last `holders` command, or all.
//
// Read this first in src/wire/areas, then ip_address.h, tcp_congestion.h, tcp_positions.h and flow_steering.h;
// exchange_area.h, gauges_layout.h and tcp_slow_path.h are independent of it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/areas/ip_address.h"
#include "wire/areas/tcp_area_lines.h"

namespace offpath::wire {

inline constexpr std::uint32_t tcp_area_version = 16;

enum class TcpCommandKind : std::uint8_t {
  // handle, port, flags with the families, the smallest receive_bytes of an accept slot; listener: a handle that has
  // the port by `bind`, or tcp_no_handle. Event: listening, or closed and gone with an error
  listen = 1,
  accept_slot = 2,  // handle, listener, rings: the listener's next connection becomes this flow. Event: accepted
  connect = 3,      // TcpConnect. Event: connected, or closed and gone
  offer = 4,        // handle, position: bytes before it may be sent
  allow = 5,        // handle, position: bytes before it may be received
  finish = 6,       // handle: FIN after the offered bytes
  // handle: no more reads; offered bytes and a FIN are sent, then gone. A listener stops listening
  release = 7,
  abort = 8,     // handle: RST, then gone
  options = 9,   // handle, flags, traffic_class6, keepalive, user_timeout_ms
  holders = 10,  // handle, position: bits of the processes (tcp_process_bit) to wake for this flow's events
  // handle: the agent stores no more bytes until the next `allow`, so the program may give pages of the receive ring
  // back. Event: received, with `shut`
  shut = 11,
  // handle, port (0: any), flags with the families: keeps the port. Event: listening, or closed and gone with an error
  bind = 12,
  // listener, position, flags: the process `listener` sleeps, and has taken the events before `position`. flags are
  // those of TcpProcessLine::asleep. Over a link only; otherwise the line alone says it
  sleep = 13,
  // TcpOffer: bytes of the next `offer`, which did not fit into it. Over a link only
  payload = 14,
  // handle, flags: a TcpWay, receive_at and receive_bytes: another ring, position: bytes from there on go into it,
  // earlier ones stay in the ring so far. Event: `taken`, or `refused`, as always for a larger ring without an advice
  replace = 15,
};

// Commands for a connection that exists.
[[nodiscard]] constexpr bool concerns_flow(TcpCommandKind kind) noexcept {
  return kind >= TcpCommandKind::offer && kind <= TcpCommandKind::shut;
}

// Flags of commands. The reuse flags are those of socket options and concern ports.
inline constexpr std::uint16_t tcp_no_delay = 1, tcp_keepalive = 2, tcp_reuse_port = 4, tcp_reuse_address = 8;
// Of `listen` and `bind`: the families that the port is for, at least one. Listeners of different families do not share
// a port, they have one each.
inline constexpr std::uint16_t tcp_for_ipv4 = 16, tcp_for_ipv6 = 32, tcp_families = tcp_for_ipv4 | tcp_for_ipv6;
[[nodiscard]] constexpr std::uint16_t tcp_for(IpFamily family) noexcept {
  return family == IpFamily::v4 ? tcp_for_ipv4 : tcp_for_ipv6;
}
// Of `connect`, `listen` and `options`: the congestion control, and the traffic class of sent packets, whose two bits
// of ECN are zeros. The class is that of IPv4 (IP_TOS); of a `connect`, that of its address's family.
inline constexpr unsigned tcp_congestion_shift = 6, tcp_traffic_class_shift = 8;
inline constexpr std::uint16_t tcp_congestion_mask = 7;
inline constexpr std::uint8_t tcp_traffic_class_mask = 0xfc;
[[nodiscard]] constexpr std::uint16_t tcp_flags_of(TcpCongestion congestion, std::uint8_t traffic_class) noexcept {
  return static_cast<std::uint16_t>(static_cast<unsigned>(congestion) << tcp_congestion_shift |
                                    (traffic_class & tcp_traffic_class_mask) << tcp_traffic_class_shift);
}
// From a program's flags: possibly undefined ones.
[[nodiscard]] constexpr TcpCongestion tcp_congestion_of(std::uint16_t flags) noexcept {
  return static_cast<TcpCongestion>(flags >> tcp_congestion_shift & tcp_congestion_mask);
}
[[nodiscard]] constexpr std::uint8_t tcp_traffic_class_of(std::uint16_t flags) noexcept {
  return static_cast<std::uint8_t>(flags >> tcp_traffic_class_shift & tcp_traffic_class_mask);
}

struct TcpCommand {
  TcpCommandKind kind;
  std::uint8_t keepalive_probes;
  std::uint16_t port;  // local
  std::uint32_t handle;
  // rings, from the start of the area. With every later command of a flow, send_at is the position of bytes that the
  // program has read
  std::uint64_t send_at;
  std::uint64_t position;
  std::uint32_t listener;
  std::uint32_t zero;
  std::uint8_t traffic_class6;  // of listen and options: of packets of IPv6 (IPV6_TCLASS)
  std::uint8_t zero_too;
  std::uint16_t flags;  // of connect, listen (for its flows), bind and options
  std::uint16_t keepalive_idle_s, keepalive_interval_s;
  std::uint64_t receive_at;
  std::uint32_t send_bytes;
  std::uint32_t receive_bytes;
  std::uint32_t user_timeout_ms;  // TCP_USER_TIMEOUT; 0: none
  std::uint32_t stamp;            // over a link: tcp_stamp() of the rest
};
static_assert(sizeof(TcpCommand) == 64 && alignof(TcpCommand) == 8);

// The entry of a `connect`. The local address is the agent's own one of the same family.
struct TcpConnect {
  TcpCommandKind kind;
  std::uint8_t keepalive_probes;
  std::uint16_t port;  // local; 0: any
  std::uint32_t handle;
  std::uint64_t send_at;
  IpAddress remote_address;
  std::uint16_t remote_port;
  std::uint16_t flags;
  std::uint16_t keepalive_idle_s, keepalive_interval_s;
  std::uint64_t receive_at;
  std::uint32_t send_bytes;
  std::uint32_t receive_bytes;
  std::uint32_t user_timeout_ms;
  std::uint32_t stamp;
};
static_assert(sizeof(TcpConnect) == sizeof(TcpCommand) && alignof(TcpConnect) == alignof(TcpCommand));
static_assert(offsetof(TcpConnect, send_at) == offsetof(TcpCommand, send_at) &&
              offsetof(TcpConnect, keepalive_probes) == offsetof(TcpCommand, keepalive_probes) &&
              offsetof(TcpConnect, flags) == offsetof(TcpCommand, flags) &&
              offsetof(TcpConnect, keepalive_idle_s) == offsetof(TcpCommand, keepalive_idle_s) &&
              offsetof(TcpConnect, user_timeout_ms) == offsetof(TcpCommand, user_timeout_ms) &&
              offsetof(TcpConnect, receive_at) == offsetof(TcpCommand, receive_at) &&
              offsetof(TcpConnect, stamp) == offsetof(TcpCommand, stamp));

// The entry of an `offer`, and of a `payload`. Over a link the bytes of a small send are in its entries as well as in
// the ring: `count` bytes that end at `position`. A longer one has several entries, of which the offer is the last.
struct TcpOffer {
  TcpCommandKind kind;
  std::uint8_t count;  // 0: the bytes are in the ring alone
  std::uint16_t zero;
  std::uint32_t handle;
  std::uint64_t read;  // TcpCommand::send_at
  std::uint64_t position;
  std::array<std::byte, 36> bytes;
  std::uint32_t stamp;
};
static_assert(sizeof(TcpOffer) == sizeof(TcpCommand) && alignof(TcpOffer) == alignof(TcpCommand));
static_assert(offsetof(TcpOffer, handle) == offsetof(TcpCommand, handle) &&
              offsetof(TcpOffer, position) == offsetof(TcpCommand, position) &&
              offsetof(TcpOffer, read) == offsetof(TcpCommand, send_at) &&
              offsetof(TcpOffer, stamp) == offsetof(TcpCommand, stamp));
inline constexpr std::uint32_t tcp_entry_payload = sizeof(TcpOffer::bytes), tcp_small_send = 4 * tcp_entry_payload;

// Over a link, so many slots of the ring and one for each process are left to commands `sleep`.
inline constexpr std::uint32_t tcp_sleep_slots = 8;

// The stamp of the command at `position` of its ring. An entry of which only a part was read, or one of an earlier lap,
// has another one (but for one case in 2^32).
[[nodiscard]] inline std::uint32_t tcp_stamp(const TcpCommand& command, std::uint64_t position) noexcept {
  TcpCommand stamped = command;
  stamped.stamp = 0;
  std::array<std::uint64_t, 8> words;
  std::memcpy(words.data(), &stamped, sizeof stamped);
  std::uint64_t sum = (position + 1) * 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) {
    sum = (sum ^ word) * 0xff51afd7ed558ccd;
    sum ^= sum >> 32;
  }
  return static_cast<std::uint32_t>(sum >> 16) | 1u;  // never 0, which an unused slot has
}

// Bits of TcpEvent::what: everything new since the last event. A flow has one entry in the ring at a time, or more if
// the earlier one was taken. With tcp_no_handle as handle, the entry says that the process in `listener` has ended.
namespace tcp_event {
inline constexpr std::uint8_t connected = 1, received = 2, finished = 4, acknowledged = 8, closed = 16, gone = 32,
                              accepted = 64, listening = 128;
}

// refused: the ring has bytes that arrived out of order, or the program has allowed more meanwhile.
namespace tcp_shut {
inline constexpr std::uint32_t done = 1, refused = 2;
}

// Larger rings. The agent advises one when a quarter of a ring passes within half a round trip; the program answers
// with `replace`. For `out`, position is what it has offered so far, and it offers no more before the answer. For `in`,
// position is what it has allowed so far, and the answer comes before the event that reports bytes from there on. The
// ring before is the program's again when bytes up to the position are acknowledged, or with `returned`, which the
// agent says once the program has allowed bytes that show that it has read up to the position.
//
// First rings again. The program may name the flow's first ring at any time while the present one holds nothing. For
// `out`, position is what it has offered, all of which is acknowledged. For `in`, position is what it has received, the
// window is shut (`shut`), and its next `allow` opens it. With `taken`, the larger ring is the program's again.
enum class TcpWay : std::uint8_t { out, in };
namespace tcp_ring {
inline constexpr std::uint32_t advised = 1, taken = 2, refused = 4, returned = 8;
// Where the bits of a direction are in TcpEvent::rings.
[[nodiscard]] constexpr std::uint32_t of(TcpWay way, std::uint32_t bits) noexcept {
  return bits << 8 * static_cast<std::uint32_t>(way);
}
[[nodiscard]] constexpr bool says(std::uint32_t rings, TcpWay way, std::uint32_t bit) noexcept {
  return (rings & of(way, bit)) != 0;
}
}  // namespace tcp_ring
// A larger ring begins at a multiple of the block.
inline constexpr std::uint32_t tcp_ring_block_bytes = 16 << 10;

enum class TcpError : std::uint8_t { none, refused, reset, timed_out, unreachable, address_in_use, no_room, denied };

struct TcpEvent {
  std::uint8_t what;
  TcpError error;      // with closed
  std::uint16_t port;  // local; with connected, accepted, listening
  std::uint32_t handle;
  std::uint64_t received;  // bytes before it are complete in the receive ring
  union {
    std::uint64_t acknowledged = 0;  // bytes before it belong to the program again; without accepted
    IpAddress remote_address;        // with accepted, when nothing was sent yet
  };
  std::uint16_t remote_port;    // with accepted
  std::uint16_t mss;            // current payload of a segment
  std::uint32_t listener;       // with accepted
  std::uint32_t round_trip_us;  // smoothed
  std::uint32_t window;         // of congestion, bytes
  std::uint32_t shut;           // outcome of a `shut` command: a value of tcp_shut; 0: none
  std::uint32_t rings;          // bits of tcp_ring, by direction
  std::uint64_t begun;          // with accepted: it grows in the order in which peers have begun, on all cores
};
static_assert(sizeof(TcpEvent) == 64 && alignof(TcpEvent) == 8);

struct TcpAreaLayout {
  std::uint32_t command_slots = 1024;
  std::uint32_t event_slots = 1024;
  std::uint32_t flows = 1024;  // handles are below this
  std::uint64_t bytes = 0;     // of the whole area

  static constexpr std::uint64_t commands = tcp_word::process_lines + tcp_processes_max * sizeof(TcpProcessLine);
  static constexpr std::uint64_t slot_bytes = 64;

  // For core 0; those of another core are of_core() further.
  [[nodiscard]] constexpr std::uint64_t events() const noexcept { return commands + command_slots * slot_bytes; }
  [[nodiscard]] constexpr std::uint64_t of_core(std::uint32_t core) const noexcept {
    return core * (std::uint64_t{command_slots} + event_slots) * slot_bytes;
  }
  [[nodiscard]] constexpr std::uint64_t reads() const noexcept { return commands + of_core(tcp_cores_max); }
  [[nodiscard]] constexpr std::uint64_t sleeps() const noexcept { return reads() + flows * sizeof(std::uint64_t); }
  [[nodiscard]] constexpr std::uint64_t sleep_word(std::uint32_t handle) const noexcept {
    return sleeps() + handle * sizeof(std::uint32_t);
  }
  // The rest of the area, from there on, is the program's.
  [[nodiscard]] constexpr std::uint64_t own() const noexcept {
    return align_up(sleeps() + flows * sizeof(std::uint32_t), page_bytes);
  }
};

inline constexpr std::uint32_t tcp_slots_min = 16, tcp_slots_max = 1u << 16, tcp_flows_max = 1u << 20;
inline constexpr std::uint32_t tcp_ring_bytes_min = 1024,
                               tcp_ring_bytes_max = 4 << 20;  // of one flow, in one direction

// Checks the ring of a handle that a program's command names.
[[nodiscard]] inline Status check_tcp_ring(const TcpAreaLayout& layout, std::uint32_t handle, std::uint64_t at,
                                           std::uint32_t bytes) {
  if (!std::has_single_bit(bytes) || bytes < tcp_ring_bytes_min || bytes > tcp_ring_bytes_max)
    return fail(Error::protocol, "handle {}: a ring of {} bytes; powers of two from {} to {} are allowed", handle,
                bytes, tcp_ring_bytes_min, tcp_ring_bytes_max);
  if (at < layout.own() || at > layout.bytes || bytes > layout.bytes - at)
    return fail(Error::protocol, "handle {}: a ring of {} bytes at {}, outside the area from {} to {}", handle, bytes,
                at, layout.own(), layout.bytes);
  return {};
}

// Checks a layout that another process requested.
[[nodiscard]] inline Status check_tcp_area(const TcpAreaLayout& layout) {
  for (const std::uint32_t slots : {layout.command_slots, layout.event_slots})
    if (!std::has_single_bit(slots) || slots < tcp_slots_min || slots > tcp_slots_max)
      return fail(Error::invalid, "a ring of {} slots; powers of two from {} to {} are allowed", slots, tcp_slots_min,
                  tcp_slots_max);
  if (layout.flows == 0 || layout.flows > tcp_flows_max)
    return fail(Error::invalid, "{} flows, 1 to {} are allowed", layout.flows, tcp_flows_max);
  if (layout.bytes < layout.own())
    return fail(Error::invalid, "an area of {} bytes, but its rings alone take {}", layout.bytes, layout.own());
  return {};
}

}  // namespace offpath::wire
