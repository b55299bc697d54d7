// The control socket: frames of a header and a payload, on a Unix socket or TCP (TLS).
//
//   0        4      6          8
//   | length | type | reserved | payload (length bytes)
//
// Handshake: Hello -> (Challenge -> Proof, over TCP) -> Welcome or Refusal. Then segments, wakes and, if the link has
// no other way to the host's memory, reads and writes (stream_link): requests are answered in order, a read by any
// number of read_data and one read_done.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/channel_layout.h"
#include "wire/region.h"

namespace offpath::wire {

inline constexpr std::uint16_t protocol_version = 18;
inline constexpr std::uint64_t hello_magic = 0x31305448'5046464Full;  // "OFFPTH01"

enum class ControlType : std::uint16_t {
  hello = 1,           // host -> agent; on one machine with the channel segment's descriptor
  challenge = 2,       // agent -> host: nonce
  proof = 3,           // host -> agent: HMAC over both nonces; its own nonce was in Hello
  welcome = 4,         // agent -> host; on one machine with an eventfd, by which the host wakes the agent
  refusal = 5,         // agent -> host: code and message; the socket closes after it
  segment = 6,         // host -> agent: SegmentNotice; on one machine with one descriptor
  segment_ok = 7,      // agent -> host: u32 region; none for outside_part
  segment_gone = 8,    // host -> agent: u32 region
  wake = 9,            // either: look at the rings
  descriptor = 10,     // agent -> host, one machine: u64 ticket, with one descriptor
  offer = 11,          // host -> agent, one machine: u64 number, with one descriptor (a file to write)
  read = 12,           // agent -> host, tcp: TransferRequest
  read_data = 13,      // host -> agent, streamed: u64 token, the next bytes of that read
  read_done = 14,      // host -> agent: Outcome; if it failed, bytes sent before do not count
  write = 15,          // agent -> host, tcp: TransferRequest, followed by its write_data
  write_data = 16,     // agent -> host, streamed: u64 token, all bytes of that write
  write_done = 17,     // host -> agent: Outcome; none for a write to the channel segment alone, unless it failed
  rendezvous = 18,     // agent -> host, verbs: u64 port for the connection of the queue pair
  withdraw = 19,       // host -> agent, verbs and doca: Withdrawal; stop using this memory
  withdrawn = 20,      // agent -> host: Withdrawal; no operation uses it any more
  memory_export = 21,  // host -> agent, doca: MemoryExport; a segment or a range
  imported = 22,       // agent -> host: Outcome; its token is the export's key
  // agent -> host, one machine, in place of segment_ok: Outcome; its token is the region. The host answers segment_gone
  segment_refused = 23,
  requests = 24,  // host -> agent, where rings are not mapped: a wake, with what a look would read first (SentRequests)
};
inline constexpr std::uint16_t control_types = 24;
[[nodiscard]] std::string_view control_type_name(ControlType type) noexcept;

struct ControlHeader {
  std::uint32_t length;
  ControlType type;
  std::uint16_t reserved;
};
static_assert(sizeof(ControlHeader) == 8);

// A longer frame ends the channel. Streamed frames are received straight into their destination.
inline constexpr std::uint32_t control_frame_bytes_max = 64 * 1024;
inline constexpr std::uint32_t data_frame_bytes_max = 2 * 1024 * 1024;  // of read_data and write_data, including the
                                                                        // token
inline constexpr std::uint32_t streamed_token_bytes = 8;

inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t proof_bytes = 32;  // HMAC-SHA256
using Nonce = std::array<std::byte, nonce_bytes>;
using Proof = std::array<std::byte, proof_bytes>;

// The job of a program, for labels (link/handshake/job_labels.h). Each is empty if unknown.
inline constexpr std::size_t job_bytes_max = 63, cgroup_bytes_max = 1023;
struct JobLabels {
  std::string job, step;  // Slurm's
  std::string cgroup;     // its path
};

struct Hello {
  std::uint16_t version = protocol_version;
  ChannelLayout layout;
  std::uint8_t force_staging = 0;
  // The channel segment's address in the host. The agent stores a value in its WitnessLine and finds it there by a
  // direct read: this proves that the socket's process id is the process at the other end, and that direct reads are
  // permitted. 0 over TCP.
  std::uint64_t channel_address = 0;
  std::int64_t pid = 0;  // the host's own view; only displayed
  Nonce nonce{};
  std::string name;        // at most 255 bytes
  JobLabels job_labels{};  // the program's own view
};

// Between machines: the time without an answer after which each side takes the other for gone.
inline constexpr std::uint32_t silence_ms_min = 2'000, silence_ms_default = 5'000, silence_ms_max = 3'600'000;

struct Welcome {
  std::uint16_t version = protocol_version;
  std::uint8_t direct = 0;  // ranges are read in place; 0: the host copies through segments
  std::uint64_t incarnation = 0;
  std::uint64_t memory_bytes_max = 0;
  std::int64_t pid = 0;
  std::uint32_t silence_ms = silence_ms_default;
  Proof proof{};           // over TCP: the agent knows the key too
  std::string agent_name;  // at most 255 bytes
  std::string agent_version;
  std::string reason;  // the reason for this link, in words
};

struct Refusal {
  Error code = Error::denied;
  std::string message;
};

struct SegmentNotice {
  RegionId region;
  std::uint64_t length;
  std::uint64_t address;  // its address in the host; used by remote links
  std::uint32_t key;
};

// Memory that the agent's card may access over PCIe, with the descriptor of the host's driver.
struct MemoryExport {
  static constexpr std::uint32_t descriptor_bytes_max = 4096;

  RegionId region = 0;
  std::uint32_t generation = 0;  // 0 for segments
  std::uint64_t address = 0;     // its address in the host
  std::uint64_t length = 0;
  std::uint32_t key = 0;  // counts the channel's exports, from 1
  Bytes descriptor;       // the driver's; opaque here
};

// Memory whose key is about to end.
struct Withdrawal {
  RegionId region;
  std::uint32_t generation;  // 0 for segments
};

// One piece of a read or write.
struct TransferPiece {
  RegionId region;
  std::uint32_t generation;  // 0 for segments
  std::uint64_t offset;
  std::uint64_t length;
};
static_assert(sizeof(TransferPiece) == 24);

//   0       8       12   16
//   | token | count | 0  | count x TransferPiece
//
// Pieces of a decoded request are the receiver's copy of the frame and unaligned: read them with `piece`.
struct TransferRequest {
  static constexpr std::uint32_t pieces_max = (control_frame_bytes_max - 16) / sizeof(TransferPiece);

  std::uint64_t token;
  Bytes pieces;

  [[nodiscard]] std::size_t count() const noexcept { return pieces.size() / sizeof(TransferPiece); }
  [[nodiscard]] TransferPiece piece(std::size_t index) const noexcept {
    return load<TransferPiece>(pieces.data() + index * sizeof(TransferPiece));
  }
};

// The outcome of a read or write: u64 token, i32 code (0: success), text.
struct Outcome {
  std::uint64_t token = 0;
  Status status;
};

void encode(const Hello& hello, std::vector<std::byte>& to);
void encode(const Welcome& welcome, std::vector<std::byte>& to);
void encode(const Refusal& refusal, std::vector<std::byte>& to);
void encode(const SegmentNotice& notice, std::vector<std::byte>& to);
void encode(const TransferRequest& request, std::vector<std::byte>& to);
void encode(const Outcome& outcome, std::vector<std::byte>& to);
void encode(const Withdrawal& withdrawal, std::vector<std::byte>& to);
void encode(const MemoryExport& exported, std::vector<std::byte>& to);
[[nodiscard]] Result<Hello> decode_hello(Bytes payload);  // Error::version names both versions
[[nodiscard]] Result<Welcome> decode_welcome(Bytes payload);
[[nodiscard]] Result<Refusal> decode_refusal(Bytes payload);
[[nodiscard]] Result<SegmentNotice> decode_segment_notice(Bytes payload);
[[nodiscard]] Result<TransferRequest> decode_transfer(Bytes payload);
[[nodiscard]] Result<Outcome> decode_outcome(Bytes payload);
[[nodiscard]] Result<Withdrawal> decode_withdrawal(Bytes payload);
[[nodiscard]] Result<MemoryExport> decode_memory_export(Bytes payload);  // its descriptor points into `payload`
[[nodiscard]] Result<RegionId> decode_segment_number(Bytes payload);     // of segment_ok and segment_gone
[[nodiscard]] Result<std::uint64_t> decode_number(Bytes payload);        // of descriptor, offer, rendezvous

}  // namespace offpath::wire
