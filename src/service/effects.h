// What a service wants done. Services take requests, completions and the time as arguments and fill a list of
// effects the caller owns; the caller (dispatcher.h) carries them out in order.
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

// Memory of this agent as a request names it, until it is answered.
struct AskedMemory {
  wire::BufferRef bytes{};  // to be pulled: the request's body or object
  std::uint64_t offer = 0;  // not 0: they lie in the descriptor of that number instead, from its beginning
  wire::BufferRef inbox{};  // may be written
};

// What a member has answered.
struct Answer {
  wire::ReplyKind kind{};
  std::vector<std::byte> payload{};
  Bytes inbox{};  // what lies in the inbox now; during the call only
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

// Answers of a request that asks for a number, or for nothing but how it went.
inline void answer(Effects& effects, ChannelNumber channel, std::uint64_t ticket, Result<std::uint64_t> number) {
  if (number)
    effects.push_back(ReplyEffect{channel, ticket, wire::Done{*number}});
  else
    effects.push_back(FailEffect{channel, ticket, wire::any_reply, std::move(number).error()});
}
inline void answer_outcome(Effects& effects, ChannelNumber channel, std::uint64_t ticket, Status outcome) {
  answer(effects, channel, ticket,
         outcome ? Result<std::uint64_t>(0) : Result<std::uint64_t>(tl::unexpected(std::move(outcome).error())));
}

// Pulls all of `from`. `to` stays until on_transfer with the same token.
inline void pull(Effects& effects, ChannelNumber channel, std::uint64_t token, const wire::BufferRef& from,
                 std::byte* to) {
  effects.push_back(PullEffect{channel, token, {{from.region, from.generation, from.offset, to, from.length}}});
}

}  // namespace offpath::service
