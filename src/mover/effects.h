// What a service wants done. Services take requests, completions and the time as arguments and fill a list of
// effects the caller owns; the caller (src/agent/dispatcher) carries them out in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "link/link.h"
#include "mover/buffer_cache.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::plugin {
struct Call;
struct OperationAnswer;
}  // namespace offpath::plugin

namespace offpath::mover {

using ChannelNumber = std::uint64_t;

struct PullEffect {
  ChannelNumber channel;
  std::uint64_t token;
  std::vector<link::ReadPiece> pieces;
};

struct PushEffect {
  ChannelNumber channel;
  std::uint64_t token;
  std::vector<link::WritePiece> pieces;
  FramePtr source;  // kept until the push has ended
};

// A word of a stream's completion line.
struct LineEffect {
  enum class Word { pulled, stored, credit, reset } word;
  ChannelNumber channel;
  std::uint32_t stream;
  std::uint64_t value;
};

using ReplyMessage = std::variant<wire::Opened, wire::Probed, wire::Got, wire::Done, wire::TaskDone>;

struct ReplyEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  ReplyMessage message;
};

struct ListedEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  wire::Listed message;
  std::shared_ptr<const void> texts;  // what the message's texts are parts of
};

struct FailEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  std::uint32_t stream;  // wire::any_reply where no stream is concerned
  Failure failure;
};

// The frame's descriptor to the host, then the reply; where descriptors cannot cross, the reply says so. Or the frame's
// bytes in the reply, where `got` says that they are enclosed.
struct HandOverEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  FramePtr frame;
  wire::Got got;
};

// Work of more than 100 us, off the loop. `run` touches nothing but what it captured. Its result comes back as
// on_job with the same token.
struct JobEffect {
  std::uint64_t token;
  std::function<Status()> run;
};

// A put that was to be done later (mover::Stored) is over: back to the mover.
struct StoredEffect {
  std::uint64_t token;
  Status status;
};

// How a request names memory of this agent (group::Named).
struct AskedMemory {
  wire::BufferRef bytes{};
  std::uint64_t offer = 0;
  wire::BufferRef inbox{};
};

// Asks another member of the agent's group. Its answer comes back by `token`: the reply, or a failure that names the
// member.
struct AskEffect {
  std::uint64_t token;
  std::string member;
  wire::EntryKind kind;
  TimeNs deadline;
  FramePtr object;                // the member may pull it; may be null
  std::uint32_t inbox_bytes = 0;  // for what the member pushes
  std::function<void(const AskedMemory& memory, std::vector<std::byte>& payload)> compose;
  std::uint64_t payload_bytes = 1024;  // of the request itself, about
  std::vector<std::byte> body{};       // the member may pull them, instead of an object
  Bytes memory{};                      // likewise; they lie in this descriptor, too. `owner` keeps both
  int memory_fd = -1;
  std::shared_ptr<const void> owner{};
};

// Calls a function of a plug-in. Its outcome comes back by `token`, as on_called, unless it was cancelled.
struct CallEffect {
  std::uint64_t token;
  std::shared_ptr<plugin::Call> call;
};

struct CancelCallEffect {
  std::uint64_t token;
};

// Of an operation that a function has asked for (plugin::Operation).
struct AnswerOperationEffect {
  std::uint64_t worker, call, operation;
  std::shared_ptr<const plugin::OperationAnswer> answer;
};

using Effect = std::variant<PullEffect, PushEffect, LineEffect, ReplyEffect, ListedEffect, FailEffect, HandOverEffect,
                            JobEffect, StoredEffect, AskEffect, CallEffect, CancelCallEffect, AnswerOperationEffect>;

// Bounded by what one event can cause; reused, so a warm agent allocates nothing here.
using Effects = std::vector<Effect>;

// Tokens carry their service in the top byte, so that completions find their way back.
enum class Service : std::uint8_t {
  mover = 1,
  pool = 2,
  group = 3,
  peers = 4,
  query = 5,
  asked = 6,
  sift = 7,
  compute = 8,
  disk = 9,
  gauges = 11,
  exchange = 16,
  task = 17,
  message = 18
};
[[nodiscard]] constexpr std::uint64_t token_of(Service service, std::uint64_t number) noexcept {
  return (static_cast<std::uint64_t>(service) << 56) | number;
}
[[nodiscard]] constexpr std::uint64_t number_of(std::uint64_t token) noexcept { return token & ~(0xFFull << 56); }
[[nodiscard]] constexpr Service service_of(std::uint64_t token) noexcept { return static_cast<Service>(token >> 56); }

}  // namespace offpath::mover
