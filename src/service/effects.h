// The vocabulary of services' results. Services take requests, completions and the time as arguments and append to a
// list of effects that the caller owns; the caller (dispatcher.h) carries them out in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "link/link.h"
#include "service/frame.h"
#include "service/token.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::plugin {
struct Call;
struct OperationAnswer;
}  // namespace offpath::plugin

namespace offpath::service {

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

using ReplyMessage = std::variant<wire::Opened, wire::Probed, wire::Got, wire::Done, wire::TaskDone, wire::Written>;

struct ReplyEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  ReplyMessage message;
};

struct ListedEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  wire::Listed message;
  std::shared_ptr<const void> texts;  // owner of the message's texts
};

struct MembersEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  wire::MemberTable message;
  std::shared_ptr<const void> texts;  // owner of the message's texts
};

struct FailEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  std::uint32_t stream;  // wire::any_reply if no stream is concerned
  Failure failure;
};

// Sends the frame's descriptor to the host, then the reply. If descriptors cannot cross, the reply says so. If `got`
// says that the bytes are enclosed, the reply contains them.
struct HandOverEffect {
  ChannelNumber channel;
  std::uint64_t ticket;
  FramePtr frame;
  wire::Got got;
};

// Work of more than 100 us, off the loop. `run` uses only its captures. Its result is delivered to on_job with the same
// token.
struct JobEffect {
  std::uint64_t token;
  std::function<Status()> run;
};

// Reports the end of a deferred put (mover::Stored) to the mover.
struct StoredEffect {
  std::uint64_t token;
  Status status;
};

// Memory of this agent that a request to a member names, until the answer.
struct AskedMemory {
  wire::BufferRef bytes{};  // to be pulled: the request's body or object
  std::uint64_t offer = 0;  // not 0: the bytes are in the descriptor of that number, from offset 0
  wire::BufferRef inbox{};  // the member may write to it
};

// A member's answer.
struct Answer {
  wire::ReplyKind kind{};
  std::vector<std::byte> payload{};
  Bytes inbox{};  // the contents of the inbox; valid only during the call
};

// Sends a request to another member of the agent's group. The answer is delivered by `token`: the reply, or a failure
// that names the member.
struct AskEffect {
  std::uint64_t token;
  std::string member;
  wire::EntryKind kind;
  TimeNs deadline;
  FramePtr object;                // the member may pull it; may be null
  std::uint32_t inbox_bytes = 0;  // for bytes that the member pushes
  std::function<void(const AskedMemory& memory, std::vector<std::byte>& payload)> compose;
  std::uint64_t payload_bytes = 1024;  // estimated size of the request itself
  std::vector<std::byte> body{};       // the member may pull them, instead of an object
  Bytes memory{};                      // likewise; also available in this descriptor. `owner` keeps both
  int memory_fd = -1;
  std::shared_ptr<const void> owner{};
};

// Calls a function of a plug-in. Its outcome is delivered to on_called by `token`, unless it was cancelled.
struct CallEffect {
  std::uint64_t token;
  std::shared_ptr<plugin::Call> call;
};

struct CancelCallEffect {
  std::uint64_t token;
};

// Answers an operation that a function requested (plugin::Operation).
struct AnswerOperationEffect {
  std::uint64_t worker, call, operation;
  std::shared_ptr<const plugin::OperationAnswer> answer;
};

using Effect = std::variant<PullEffect, PushEffect, LineEffect, ReplyEffect, ListedEffect, MembersEffect, FailEffect,
                            HandOverEffect, JobEffect, StoredEffect, AskEffect, CallEffect, CancelCallEffect,
                            AnswerOperationEffect>;

// Bounded by what one event can cause; reused, so a warm agent allocates nothing here. Effects are appended in one
// unit, effects.cc: the variant's moves are too much code for each place that has an effect.
class Effects : public std::vector<Effect> {
 public:
  template <class Kind>
  void push_back(Kind effect);
};

// Answers a request whose result is a number, or only its success.
void answer(Effects& effects, ChannelNumber channel, std::uint64_t ticket, Result<std::uint64_t> number);
void answer_outcome(Effects& effects, ChannelNumber channel, std::uint64_t ticket, Status outcome);

// Pulls all of `from`. `to` has to stay until on_transfer with the same token.
void pull(Effects& effects, ChannelNumber channel, std::uint64_t token, const wire::BufferRef& from, std::byte* to);

}  // namespace offpath::service
