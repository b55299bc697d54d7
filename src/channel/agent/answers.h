// Answers to a program's requests, in the order in which they were given, until the reply ring has room for them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/queue.h"
#include "base/status.h"
#include "channel/agent/completion_lines.h"
#include "channel/ring.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::channel {

class Answers {
 public:
  // `mapped`: the ring in the program's memory; null: replies are composed in memory of this process, for a link that
  // writes them.
  Answers(std::byte* mapped, std::uint32_t slots, CompletionLines& lines);

  // `failed_stream`: whose completion line is held back until the answer is in the ring.
  void add(wire::ReplyKind kind, std::uint64_t ticket, Bytes payload, std::uint32_t failed_stream = wire::any_reply);
  [[nodiscard]] bool empty() const noexcept { return answers_.empty(); }
  // Too many wait: no request is taken until the program has read replies.
  [[nodiscard]] bool full() const noexcept { return answers_.size() >= answers_max; }

  // Writes those that have room, given up to where the program has read. True if it wrote something.
  [[nodiscard]] Result<bool> compose(std::uint64_t head);
  [[nodiscard]] const RingWriter& ring() const noexcept { return ring_; }
  [[nodiscard]] const std::byte* slot(std::uint64_t index) const noexcept {  // composed for the link
    return mirror_.get() + index * wire::slot_bytes;
  }

 private:
  static constexpr std::size_t answers_max = 1024;

  struct Answer {
    wire::ReplyKind kind;
    std::uint64_t ticket;
    std::vector<std::byte> payload;
    std::uint32_t failed_stream;
  };

  CompletionLines& lines_;
  // Not initialised: a page takes memory when a reply is written to it, and slots are written whole before they are
  // sent.
  std::unique_ptr<std::byte[]> mirror_;
  RingWriter ring_;
  Queue<Answer> answers_;
  std::uint64_t slots_written_ = 0;  // of the first of them
};

}  // namespace offpath::channel
