// The control socket: frames of a header and a payload, on a Unix socket or TCP (TLS).
//
//   0        4      6          8
//   | length | type | reserved | payload (length bytes)
//
// Handshake: Hello -> (Challenge -> Proof, over TCP) -> Welcome or Refusal. Then segments, wakes and, where
// there is no other way to the host's memory, reads and writes (tcp_link).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/channel_layout.h"
#include "wire/region.h"

namespace offpath::wire {

inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::uint64_t hello_magic = 0x31305448'5046464Full;  // "OFFPTH01"

enum class ControlType : std::uint16_t {
  hello = 1,       // host -> agent; local: with descriptors {channel segment, event}
  challenge = 2,   // agent -> host: nonce
  proof = 3,       // host -> agent: HMAC over both nonces, and its own nonce was in Hello
  welcome = 4,     // agent -> host
  refusal = 5,     // agent -> host: code and message; the socket closes after it
  segment = 6,     // host -> agent: SegmentNotice; local: with one descriptor
  segment_ok = 7,  // agent -> host: u32 region
  segment_gone = 8,  // host -> agent: u32 region
  wake = 9,        // either: look at the rings
  descriptor = 10, // agent -> host, local: u64 ticket, with one descriptor
  offer = 11,      // host -> agent, local: u64 number, with one descriptor (a file to write)
  read = 12,       // agent -> host, tcp: ReadRequest
  read_data = 13,  // host -> agent: u64 token, i32 code (0: bytes follow; else text follows)
  write = 14,      // agent -> host, tcp: u64 token, u32 count, count x {u32 region, u32 0, u64 offset, u64 length}, bytes
  write_done = 15, // host -> agent: u64 token, i32 code, text
};

struct ControlHeader {
  std::uint32_t length;
  ControlType type;
  std::uint16_t reserved;
};
static_assert(sizeof(ControlHeader) == 8);

// Of frames the other side may send; a longer one ends the channel. Data frames (read_data, write) carry at most
// data_frame_bytes_max and are received straight into their destination.
inline constexpr std::uint32_t control_frame_bytes_max = 64 * 1024;
inline constexpr std::uint32_t data_frame_bytes_max = 2 * 1024 * 1024;

inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t proof_bytes = 32;  // HMAC-SHA256
using Nonce = std::array<std::byte, nonce_bytes>;
using Proof = std::array<std::byte, proof_bytes>;

struct Hello {
  std::uint16_t version = protocol_version;
  ChannelLayout layout;
  std::uint8_t force_staging = 0;
  // Where the host wrote a random number for the agent to find by a direct read: it proves that the
  // socket's process id is the process that speaks, and that direct reads are permitted. 0 over TCP.
  std::uint64_t probe_address = 0;
  std::uint64_t probe_value = 0;
  std::int64_t pid = 0;  // as the host sees itself; only shown
  Nonce nonce{};
  std::string name;  // at most 255 bytes
};

struct Welcome {
  std::uint16_t version = protocol_version;
  std::uint8_t direct = 0;      // ranges are read where they lie; 0: the host copies through segments
  std::uint64_t incarnation = 0;
  std::uint64_t memory_bytes_max = 0;
  std::int64_t pid = 0;
  Proof proof{};                // over TCP: the agent knows the key as well
  std::string agent_name;       // at most 255 bytes
  std::string agent_version;
  std::string reason;           // why this link, in words
};

struct Refusal {
  Error code = Error::denied;
  std::string message;
};

struct SegmentNotice {
  RegionId region;
  std::uint64_t length;
  std::uint64_t address;  // where the host maps it; used by remote links
  std::uint32_t key;
};

struct ReadRequestPiece {
  RegionId region;
  std::uint32_t generation;
  std::uint64_t offset;
  std::uint64_t length;
};
static_assert(sizeof(ReadRequestPiece) == 24);

void encode(const Hello& hello, std::vector<std::byte>& to);
void encode(const Welcome& welcome, std::vector<std::byte>& to);
void encode(const Refusal& refusal, std::vector<std::byte>& to);
void encode(const SegmentNotice& notice, std::vector<std::byte>& to);
[[nodiscard]] Result<Hello> decode_hello(Bytes payload);      // Error::version names both versions
[[nodiscard]] Result<Welcome> decode_welcome(Bytes payload);
[[nodiscard]] Result<Refusal> decode_refusal(Bytes payload);
[[nodiscard]] Result<SegmentNotice> decode_segment_notice(Bytes payload);

}  // namespace offpath::wire
