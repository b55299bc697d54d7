// Writes what the program reads of this end: replies and their tail, completion lines, and the agent's line, which has
// the position up to which requests are taken and the flag of the sleep. It stores where the segment is mapped;
// elsewhere the link writes, one flush at a time.
//
// Read this first in src/channel/agent, then what it writes (answers.h, completion_lines.h), owed_wakes.h (what follows
// the writing) and transfers.h, and operations.h for the tokens of the link.
#pragma once

#include <cstdint>
#include <vector>

#include "channel/agent/answers.h"
#include "channel/agent/completion_lines.h"
#include "channel/agent/operations.h"
#include "channel/agent/owed_wakes.h"
#include "link/link.h"
#include "wire/channel_layout.h"

namespace offpath::channel {

class LineWriter {
 public:
  // `mapped`: the channel segment; null: the link writes to it.
  LineWriter(link::AgentLink& link, const wire::ChannelLayout& layout, std::byte* mapped, CompletionLines& lines,
             OwedWakes& wakes, const Answers& answers) noexcept
      : link_(link), layout_(layout), mapped_(mapped), lines_(lines), wakes_(wakes), answers_(answers) {}

  // The flag of the sleep is to be written.
  void flag_changed() noexcept { flag_changed_ = true; }
  [[nodiscard]] bool flag_is_due() const noexcept { return flag_changed_; }
  // Whether anything is to be written, given the position up to which requests are taken, beside new replies.
  [[nodiscard]] bool due(std::uint64_t request_head) const noexcept {
    return !lines_.changed().empty() || request_head != head_written_ || flag_changed_;
  }
  void write(std::uint64_t request_head, bool asleep);
  [[nodiscard]] bool writing() const noexcept { return writes_ > 0; }  // by the link
  void end_write() noexcept { --writes_; }
  // The position of the reply ring that the program can see, or will when the writes under way end.
  [[nodiscard]] std::uint64_t replies_written() const noexcept { return replies_written_; }

 private:
  const wire::CompletionLine& publish(std::uint32_t stream) noexcept {
    const wire::CompletionLine& words = lines_.publish(stream);
    wakes_.settle(stream, words);
    return words;
  }
  void store_lines(std::uint64_t request_head);
  void send_lines(std::uint64_t request_head, bool asleep);

  link::AgentLink& link_;
  wire::ChannelLayout layout_;
  std::byte* mapped_;
  CompletionLines& lines_;
  OwedWakes& wakes_;
  const Answers& answers_;
  std::uint64_t replies_written_ = 0;
  std::uint64_t head_written_ = 0;  // request head that the program knows
  bool flag_changed_ = false;
  std::vector<std::byte> buffer_;  // source of the link's writes, until they have completed
  unsigned writes_ = 0;            // under way
};

}  // namespace offpath::channel
