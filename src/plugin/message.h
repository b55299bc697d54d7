// The messages between agent and worker, over a Unix socket of packets (SOCK_SEQPACKET). A packet is the message's kind
// (u8, its place in FromWorker or FromAgent, from 1 on) and its fields in the order of message.cc, coded as in
// wire/fields.h. Descriptors come with:
//
//   Done           one for each output, in order, except for those in a room (flag 2)
//   SendNotice     one, if the message is not enclosed
//   CallPacket     `descriptors`, of which the first is the memfd of the description if that is not enclosed;
//                  MorePacket follows with those for which a packet has no room
//   AnswerPacket   one, if there are bytes that are not enclosed
//
// Descriptors have numbers from 1 on; 0 is the description. The description of a small call is enclosed; others are a
// memfd, so that neither arguments nor keys nor the number of inputs is bounded by a packet:
//
//   0                  the fields of Description
//   multiple of 4096   arguments (of 8, if the description is enclosed)
//   multiples of 4096  inputs without a descriptor of their own
//
// The agent trusts no message of a worker: decode_from_worker is fuzzed (message_of_worker_fuzz.cc), and outputs are
// checked before they are used (output_memory.h).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "plugin/call.h"
#include "wire/messages/function_outputs.h"
#include "wire/messages/lane_messages.h"

namespace offpath::plugin {

inline constexpr std::uint32_t protocol_version = 5;
inline constexpr std::size_t packet_bytes_max = 96 << 10;    // the kernel's default for a socket is twice that
inline constexpr std::size_t enclosed_bytes_max = 64 << 10;  // of a description
inline constexpr std::size_t kept_max = 256;                 // mappings a worker keeps
inline constexpr std::uint32_t output_in_room = 2;           // a flag of OutputNotice, besides OFP_DATA_ARROW
inline constexpr std::size_t packet_descriptors_max = 250;   // the kernel's is 253
inline constexpr std::size_t functions_max = 128;
inline constexpr std::size_t name_bytes_max = 64, doc_bytes_max = 200, confinement_bytes_max = 200;
using wire::message_bytes_max;
using wire::output_name_bytes_max;
inline constexpr unsigned lines_max = 100;  // log lines of one call
inline constexpr std::size_t error_bytes_max = wire::function_error_bytes_max, line_bytes_max = 1000;
inline constexpr std::size_t reason_bytes_max = 4096;
inline constexpr std::size_t message_enclosed_max = 32 << 10;  // of a message between lanes: in the packet
inline constexpr std::size_t operations_max = 64;              // of a call at a time
inline constexpr std::uint64_t output_bytes_limit = std::uint64_t{1} << 46;  // no file is larger

struct FunctionInfo {
  std::string name, doc;
};

// A worker's report of its confinement: "on", "log", "off" or "none: " and the reason; "user net ipc", "off" or "none:
// " and the reason.
struct Confinement {
  std::string seccomp{}, namespaces{};
};
struct Ready {
  std::uint32_t protocol = protocol_version;
  std::string name;
  std::vector<FunctionInfo> functions;
  Confinement confinement{};
};
struct Unusable {
  std::string reason;
};
struct LogLine {
  LogLevel level = LogLevel::info;
  std::string line;
};
struct OutputNotice {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t flags = 0;
};
struct Done {
  CallNumber call = 0;
  std::int32_t status = 0;
  std::string error;
  std::vector<OutputNotice> outputs;
};
struct SendNotice {
  CallNumber call = 0;
  OperationNumber operation = 0;
  std::uint32_t lane = 0, tag = 0;
  std::uint64_t bytes = 0;
  bool is_enclosed = false;
  std::vector<std::byte> enclosed{};
};
struct ReceiveNotice {
  CallNumber call = 0;
  OperationNumber operation = 0;
  std::uint32_t lane = 0, tag = 0;
  std::uint64_t room = 0;
};
struct TakenNotice {
  CallNumber call = 0;
  OperationNumber operation = 0;
};
using FromWorker = std::variant<Ready, Unusable, LogLine, Done, SendNotice, ReceiveNotice, TakenNotice>;

struct CallPacket {
  CallNumber call = 0;
  std::uint32_t descriptors = 0;
  std::uint64_t description_bytes = 0;
  std::vector<std::uint64_t> forget{};  // kept memory that no longer exists
  Bytes enclosed{};                     // the description; empty: it is in a memfd
};
struct MorePacket {};
struct AnswerPacket {
  CallNumber call = 0;
  OperationNumber operation = 0;
  std::int32_t error = 0;  // 0: success
  std::string why{};
  std::uint64_t bytes = 0;
  bool is_enclosed = false;
  std::vector<std::byte> enclosed{};
};
using FromAgent = std::variant<CallPacket, MorePacket, AnswerPacket>;

struct InputNotice {
  std::string row, column;
  std::uint32_t descriptor = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::uint32_t flags = 0;
  std::uint64_t kept = 0, kept_bytes = 0;  // with descriptor 0: the worker has it mapped
};
struct RoomNotice {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t descriptor = 0;
  std::uint64_t kept = 0, kept_bytes = 0;
};
struct Description {
  TimeNs deadline_ns = never;
  std::uint64_t output_bytes_max = 0, arguments_at = 0, arguments_bytes = 0;
  std::string function;
  std::vector<InputNotice> inputs;
  std::uint64_t session = 0, worker = 0;
  std::uint32_t lane = 0, lanes = 0;
  std::vector<RoomNotice> rooms{};
};

// Texts come back printable: control characters are replaced. Everything is within the limits above, including names
// and counts; the caller checks the numbers of calls.
[[nodiscard]] Result<FromWorker> decode_from_worker(Bytes packet);
[[nodiscard]] Result<FromAgent> decode_from_agent(Bytes packet);
[[nodiscard]] Result<Description> decode_description(Bytes bytes);

// Appends. Long texts are cut.
void encode(const FromWorker& message, std::vector<std::byte>& to);
void encode(const FromAgent& message, std::vector<std::byte>& to);
void encode(const Description& description, std::vector<std::byte>& to);

[[nodiscard]] bool is_function_name(std::string_view name) noexcept;

}  // namespace offpath::plugin
