// The streams of a channel: which numbers are open, and for each what it was charged and what credit it has. Charges
// and credit are sums since the stream was opened; they only grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "channel/host/channel_words.h"
#include "channel/host/request_ring.h"

namespace offpath::channel {

class HostStreams {
 public:
  struct Stream {
    bool open = false;
    std::uint64_t charged = 0;
    std::uint64_t credit_seen = 0;   // the agent's word at the last look
    std::uint64_t credit_asked = 0;  // 0: none, or given up
    std::uint64_t last_ticket = 0;   // of its newest data request
    unsigned credit_waiters = 0;     // threads
    std::uint64_t closings = 0;      // of streams of this number: a thread that waited sees that its stream is gone

    // By the last look.
    [[nodiscard]] bool covers(std::uint64_t charge) const noexcept { return charged + charge <= credit_seen; }
    void note(std::uint64_t charge, std::uint64_t ticket) noexcept {
      charged += charge;
      last_ticket = ticket;
    }
  };

  HostStreams(const ChannelWords& words, RequestRing& requests, std::uint32_t count)
      : words_(words), requests_(requests), streams_(count) {}

  // Takes the next free number. It stays taken until close().
  [[nodiscard]] Result<std::uint32_t> open();
  void close(std::uint32_t stream) noexcept { streams_[stream] = {.closings = streams_[stream].closings + 1}; }
  [[nodiscard]] Stream& operator[](std::uint32_t stream) noexcept { return streams_[stream]; }
  [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(streams_.size()); }

  void look_at_credit(std::uint32_t stream) noexcept { streams_[stream].credit_seen = words_.credit(stream); }
  [[nodiscard]] std::uint64_t credit_left(std::uint32_t stream) const noexcept;
  // Asks for credit up to that sum, once, if the ring has room.
  void ask_credit(std::uint32_t stream, std::uint64_t sum);
  // A post that asked for credit failed: other streams may have it, unless threads still wait for it.
  void give_up_credit(std::uint32_t stream);
  // The newest pulled ticket of all open streams.
  [[nodiscard]] std::uint64_t newest_pulled() const noexcept;

 private:
  // False: the ring is full.
  bool post_need(std::uint32_t stream, std::uint64_t sum);

  ChannelWords words_;
  RequestRing& requests_;
  std::vector<Stream> streams_;
};

}  // namespace offpath::channel
