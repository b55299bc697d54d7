// The memory shared by an agent and the process that does the slow path of its TCP (docs/internals/tcp.md): a segment
// of that process with two rings of records, one each way.
//
//   offset                what            written by
//   0                     TcpSlowLine     process   bytes sent and taken, asleep
//   64                    TcpSlowLine     agent     the same
//   4096                  ring            process   to the agent
//   4096 + ring_bytes     ring            agent     to the process
//
// Positions count bytes since the start and never wrap; a byte is stored at its position modulo the ring's size, a
// power of two. A record is a head of 8 bytes and its payload, padded to 8; it may wrap around the end. The record is
// written, then the position after it with release order. A malformed record ends the process's part, and nothing else.
//
// Records of a ring are taken in order, which several rules rely on: a flow is handed over before any later event of
// it, and an answer comes after every frame that was sent before the question was seen.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/areas/ip_address.h"

namespace offpath::wire {

inline constexpr std::uint32_t tcp_slow_version = 3;

struct alignas(64) TcpSlowLine {
  std::uint64_t sent;    // in the ring that this side writes
  std::uint64_t taken;   // from the other ring
  std::uint64_t asleep;  // 1: wants a wake after the next record
  std::uint64_t zero[5];
};
static_assert(sizeof(TcpSlowLine) == 64);

struct TcpSlowLayout {
  std::uint32_t ring_bytes = 1 << 20;

  static constexpr std::uint64_t process_line = 0, agent_line = 64, rings = 4096;
  static constexpr std::uint32_t ring_bytes_min = 1 << 18, ring_bytes_max = 1 << 24;
  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept { return rings + 2 * std::uint64_t{ring_bytes}; }
};

// Checks a layout that another process requested.
[[nodiscard]] inline Status check_tcp_slow_layout(const TcpSlowLayout& layout, std::uint64_t bytes) {
  if (!std::has_single_bit(layout.ring_bytes) || layout.ring_bytes < TcpSlowLayout::ring_bytes_min ||
      layout.ring_bytes > TcpSlowLayout::ring_bytes_max)
    return fail(Error::invalid, "rings of {} bytes; powers of two from {} to {} are allowed", layout.ring_bytes,
                TcpSlowLayout::ring_bytes_min, TcpSlowLayout::ring_bytes_max);
  if (bytes < layout.bytes())
    return fail(Error::invalid, "an area of {} bytes, but its rings take {}", bytes, layout.bytes());
  return {};
}

struct TcpSlowHead {
  std::uint32_t bytes;  // of the payload
  std::uint16_t kind;
  std::uint16_t zero;
};
static_assert(sizeof(TcpSlowHead) == 8);
inline constexpr std::uint32_t tcp_slow_frame_bytes_max = 66 << 10;   // 64 KiB with headers
inline constexpr std::uint32_t tcp_slow_record_bytes_max = 68 << 10;  // such a frame, and the structs before it

enum class TcpSlowKind : std::uint16_t {
  // To the process.
  setup = 1,  // TcpSlowSetup; always and only the first record
  // TcpSlowFrame, and a frame that belongs to no flow of the agent; omitted if there was no room
  frame = 2,
  listen = 3,          // TcpSlowListen
  stop_listening = 4,  // TcpSlowListen
  connect = 5,         // TcpSlowConnect
  abandon = 6,         // TcpSlowKey: the connection that `connect` asked for is no longer wanted
  confirmed = 7,       // TcpSlowKey: the agent has taken the flow of an `adopt`
  declined = 8,        // TcpSlowKey: there is no room for it, or it is no longer wanted
  time_wait = 9,       // TcpHandedFlow: both directions have ended
  resolve = 10,        // TcpSlowNeighbour without its MAC
  look = 11,           // empty: taking it shows that the process is alive, while the agent waits for it
  // To the agent.
  adopt = 33,      // TcpHandedFlow: established; perhaps with TcpSlowFrame, the segment that completed its handshake
  failed = 34,     // TcpSlowKey; value: tcp::FlowError
  returned = 35,   // TcpSlowFrame, and a frame of a flow that was handed over
  neighbour = 36,  // TcpSlowNeighbour
  send = 37,       // TcpSlowSend, and a frame to send
};

// How the agent is reached in one family.
struct TcpSlowFamily {
  IpAddress address, gateway;  // unspecified: none
  std::uint8_t prefix_length;
  std::uint8_t zero[3];
};
static_assert(sizeof(TcpSlowFamily) == 36);

struct TcpSlowSetup {
  std::uint32_t version;
  TcpSlowFamily families[2];  // IPv4, IPv6
  std::uint32_t flows_max, half_open_max, time_wait_max;
  std::uint64_t window_max;
  // of the agent's keyed hashes, so that numbers and cookies stay valid when the work changes hands
  std::uint64_t secret[2];
  std::uint64_t cookies_until_ns;  // CLOCK_MONOTONIC: until then cookies of the agent may come back
  std::uint64_t time_wait_ns;
  std::uint16_t mtu;
  std::uint8_t mac[6];
  std::uint8_t checksum;  // 1: the port completes checksums
  std::uint8_t syn_cookies;
  std::uint8_t zeros[6];
};
static_assert(sizeof(TcpSlowSetup) == 144);

struct TcpSlowFrame {
  std::uint64_t checksum_verified;
};

// A connection by its four numbers, from the agent's side. `attempt` distinguishes connections that the agent begins
// with the same numbers; 0: a peer began it.
struct TcpSlowKey {
  IpAddress local_address, remote_address;
  std::uint16_t local_port, remote_port;
  std::uint32_t attempt;
  std::uint64_t value;
};
static_assert(sizeof(TcpSlowKey) == 48);

struct TcpSlowConnect {
  TcpSlowKey key;              // value: bytes that the peer may send at once
  std::uint8_t traffic_class;  // of packets, with zeros for the bits of ECN
  std::uint8_t wants_ecn;      // 1: its SYN asks for ECN
  std::uint8_t zeros[6];
};
static_assert(sizeof(TcpSlowConnect) == 56);

struct TcpSlowListen {
  std::uint16_t port;
  std::uint8_t is_ipv6;
  std::uint8_t traffic_class;  // of the answers to SYNs
  std::uint8_t zero[4];
  std::uint64_t receive_bytes;
};
static_assert(sizeof(TcpSlowListen) == 16);

struct TcpSlowNeighbour {
  IpAddress address;
  std::uint8_t mac[6];
  std::uint16_t zero;
};
static_assert(sizeof(TcpSlowNeighbour) == 24);

struct TcpSlowSend {
  std::uint32_t tcp_offset;
  std::uint32_t checksum_partial;
};

// Flags of TcpHandedFlow.
inline constexpr std::uint8_t tcp_handed_timestamps = 1, tcp_handed_sack = 2, tcp_handed_ecn = 4;

// The state of a connection on which nothing is in flight. The initial sequence number and the timestamps' offset
// follow from the key.
struct TcpHandedFlow {
  TcpSlowKey key;     // value: 0
  std::uint32_t una;  // the next sequence number to send
  std::uint32_t receive_next;
  std::uint32_t send_window;                  // bytes
  std::uint32_t window_sequence, window_ack;  // of the segment that announced it
  std::uint32_t recent_timestamp;
  std::uint32_t round_trip_us;  // 0: not measured
  std::uint16_t mss;            // payload of a segment, without the usual options
  std::uint8_t send_scale, receive_scale;
  std::uint8_t flags;
  std::uint8_t next_hop_mac[6];  // zeros: unknown
  std::uint8_t traffic_class;    // of `time_wait`
};
static_assert(sizeof(TcpHandedFlow) == 88 && alignof(TcpHandedFlow) == 8);

}  // namespace offpath::wire
