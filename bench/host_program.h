// The host program of a benchmark: the C interface with Results, and waits that spin, so that measurements see when a
// line changes, without the scheduler.
#pragma once

#include <offpath/offpath.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "machine.h"

namespace offpath::bench {

class Channel {
 public:
  // `address` empty: OFFPATH_AGENT.
  [[nodiscard]] static Result<Channel> connect(const std::string& address);
  Channel(Channel&& other) noexcept : channel_(std::exchange(other.channel_, nullptr)) {}
  Channel& operator=(Channel&&) = delete;
  ~Channel();

  [[nodiscard]] ofp_channel* get() const noexcept { return channel_; }
  [[nodiscard]] Result<ofp_channel_info> info() const;

 private:
  explicit Channel(ofp_channel* channel) noexcept : channel_(channel) {}
  ofp_channel* channel_ = nullptr;
};

// A stream of `columns` columns of doubles (one of bytes if `format` is "C") that keeps one frame, so that the agent's
// pages are reused and a run needs memory for only two frames.
struct StreamSpec {
  std::string name;
  const char* destination = "ipc-page";
  std::uint32_t columns = 1;
  const char* format = "g";
  std::uint64_t rows_max = 0;
  std::uint64_t keep = 1;
};

class Stream {
 public:
  [[nodiscard]] static Result<Stream> open(const Channel& channel, const StreamSpec& spec);
  Stream(Stream&& other) noexcept
      : channel_(other.channel_), stream_(std::exchange(other.stream_, nullptr)), name_(std::move(other.name_)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  [[nodiscard]] ofp_stream* get() const noexcept { return stream_; }

  // A post, with the times in ticks() at which it was entered and left.
  struct Posted {
    std::uint64_t ticket = 0;
    std::uint64_t entered_ticks = 0;
    std::uint64_t left_ticks = 0;
  };
  [[nodiscard]] Result<Posted> post(std::span<const void* const> columns, std::uint64_t rows);

  // Spins until the line reaches the ticket; returns the ticks at that moment, or the operation's own error.
  [[nodiscard]] Result<std::uint64_t> spin_pulled(std::uint64_t ticket);
  [[nodiscard]] Result<std::uint64_t> spin_stored(std::uint64_t ticket);
  // Sleeps until it is stored, like a program without other work.
  [[nodiscard]] Status wait_stored(std::uint64_t ticket);

 private:
  Stream(ofp_channel* channel, ofp_stream* stream, std::string name) noexcept
      : channel_(channel), stream_(stream), name_(std::move(name)) {}
  [[nodiscard]] Result<std::uint64_t> spin(std::uint64_t ticket, bool stored);

  ofp_channel* channel_;
  ofp_stream* stream_;
  std::string name_;
  std::uint64_t sends_ = 0;
};

// A round trip through the rings: afterwards the agent is awake.
[[nodiscard]] Status wake_agent(const Channel& channel);
// Long enough for an idle agent to fall asleep, so that it does not spin beside a peer on its core.
inline constexpr TimeNs agent_settles_ns = 3 * millisecond_ns;

// Announces memory during this object's life. Declared after the memory, so that it is withdrawn first.
class Announcement {
 public:
  Announcement() = default;
  [[nodiscard]] static Result<Announcement> make(const Channel& channel, const void* base, std::uint64_t length_bytes);
  Announcement(Announcement&& other) noexcept : range_(std::exchange(other.range_, nullptr)) {}
  Announcement& operator=(Announcement&& other) noexcept {
    std::swap(range_, other.range_);
    return *this;
  }
  ~Announcement();

 private:
  ofp_range* range_ = nullptr;
};

// Announced source buffers for sends, used in rotation as columns.
class Sources {
 public:
  [[nodiscard]] static Result<Sources> make(const Channel& channel, std::uint64_t column_bytes, std::uint32_t columns,
                                            std::uint64_t working_set_bytes, std::uint64_t misalign_bytes = 0);
  // The next operation's columns; valid until the next call.
  [[nodiscard]] std::span<const void* const> next();
  [[nodiscard]] const RotatedBuffers& buffers() const noexcept { return buffers_; }

 private:
  RotatedBuffers buffers_;
  Announcement announcement_;
  std::vector<const void*> columns_;
};

[[nodiscard]] Failure failure_of(const ofp_error& error);

}  // namespace offpath::bench
