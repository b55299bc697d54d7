// How far each stream of a channel is: its completion line, which the agent writes into the program's memory. A failure
// is in the reply ring before `pulled` or `stored` passes its ticket: both are held back while a failure of the stream
// finds no room there. Credit is not, because a program that only posts needs it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "wire/channel_layout.h"

namespace offpath::channel {

class CompletionLines {
 public:
  explicit CompletionLines(std::uint32_t streams) : lines_(streams) {}

  [[nodiscard]] bool has(std::uint32_t stream) const noexcept { return stream < lines_.size(); }

  void set_pulled(std::uint32_t stream, std::uint64_t ticket) noexcept { changed(stream).words.pulled = ticket; }
  void set_stored(std::uint32_t stream, std::uint64_t ticket) noexcept { changed(stream).words.stored = ticket; }
  void set_credit(std::uint32_t stream, std::uint64_t total) noexcept { changed(stream).words.credit = total; }
  void reset(std::uint32_t stream) noexcept {  // before the number is reused
    Line& line = changed(stream);
    line.words = line.written = {};
  }
  void write_again(std::uint32_t stream) noexcept { (void)changed(stream); }

  // A failure of the stream waits for room in the reply ring; it has found some.
  void hold_back(std::uint32_t stream) noexcept { ++lines_[stream].failures; }
  void release(std::uint32_t stream) noexcept {
    if (--lines_[stream].failures == 0) write_again(stream);
  }

  // The streams whose lines have to be written, until all_published().
  [[nodiscard]] std::span<const std::uint32_t> changed() const noexcept { return changed_; }
  // The line to be written now.
  const wire::CompletionLine& publish(std::uint32_t stream) noexcept {
    Line& line = lines_[stream];
    line.changed = false;
    if (line.failures == 0)
      line.written = line.words;
    else
      line.written.credit = line.words.credit;
    return line.written;
  }
  void all_published() noexcept { changed_.clear(); }
  // As the program may see it.
  [[nodiscard]] const wire::CompletionLine& written(std::uint32_t stream) const noexcept {
    return lines_[stream].written;
  }

 private:
  struct Line {
    wire::CompletionLine words{};    // as set
    wire::CompletionLine written{};  // as published
    std::size_t failures = 0;        // that wait for room
    bool changed = false;
  };

  Line& changed(std::uint32_t stream) noexcept {
    OFP_ASSERT(stream < lines_.size());
    Line& line = lines_[stream];
    if (!line.changed) {
      line.changed = true;
      changed_.push_back(stream);
    }
    return line;
  }

  std::vector<Line> lines_;
  std::vector<std::uint32_t> changed_;
};

}  // namespace offpath::channel
