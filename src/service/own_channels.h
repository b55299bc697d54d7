// Channels of the agent's own parts, such as its Flight endpoint: they ask what programs ask, by the same requests, and
// are answered by a call instead of through memory. What is done for one of them ends with it, as it does with a
// program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mover/effects.h"
#include "pool/table/frame_table.h"

namespace offpath::agent {

class OwnChannels {
 public:
  struct Reply {
    std::uint64_t done = 0;
    mover::FramePtr frame;                      // of a get, or a query's next
    std::uint64_t lease = 0;                    // of the frame; the frame needs none here
    std::vector<pool::FrameTable::Item> items;  // of a list, whose texts are its own
    bool more = false;
  };
  using Replied = std::function<void(Result<Reply>)>;

  void open(mover::ChannelNumber number) { channels_.try_emplace(number); }
  void close(mover::ChannelNumber number) { channels_.erase(number); }
  [[nodiscard]] bool has(mover::ChannelNumber number) const noexcept { return channels_.contains(number); }

  // Returns the ticket of a request whose bytes, if it names any, are `body`: of one at a time.
  [[nodiscard]] std::uint64_t expect(mover::ChannelNumber number, std::vector<std::byte> body, Replied replied);

  // Carries out what is for one of them; false: it is for another channel, or nobody's.
  [[nodiscard]] bool reply(mover::Effect& effect);
  [[nodiscard]] static mover::ChannelNumber channel_of(const mover::Effect& effect) noexcept;  // 0: none
  // What a pull of such a channel reads.
  [[nodiscard]] Status copy(const mover::PullEffect& pull) const;

 private:
  struct Channel {
    std::uint64_t next_ticket = 1;
    std::vector<std::byte> body;
    std::map<std::uint64_t, Replied> waiting;
  };
  void tell(mover::ChannelNumber number, std::uint64_t ticket, Result<Reply> reply);

  std::map<mover::ChannelNumber, Channel> channels_;
};

}  // namespace offpath::agent
