// Channels of the agent's own parts, such as its Flight endpoint: they ask what programs ask, by the same requests, and
// are answered by a call instead of through memory. What is done for one of them ends with it, as it does with a
// program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "service/service.h"

namespace offpath::service {

class OwnChannels {
 public:
  struct Item {
    std::uint64_t sequence, bytes, rows;
    bool arrow;
    std::string row, column;
  };
  struct Reply {
    std::uint64_t done = 0;
    FramePtr frame;           // of a get, or a query's next
    std::uint64_t lease = 0;  // of the frame; the frame needs none here
    std::vector<Item> items;  // of a list, whose texts are its own
    bool more = false;
  };
  using Replied = std::function<void(Result<Reply>)>;

  void open(ChannelNumber number, Client client) { channels_[number].client = std::move(client); }
  void close(ChannelNumber number) { channels_.erase(number); }
  [[nodiscard]] bool has(ChannelNumber number) const noexcept { return channels_.contains(number); }

  [[nodiscard]] const Client& client(ChannelNumber number) const { return channels_.at(number).client; }

  // Returns the ticket of a request whose bytes, if it names any, are `body`: of one at a time.
  [[nodiscard]] std::uint64_t expect(ChannelNumber number, std::vector<std::byte> body, Replied replied);

  // Carries out what is for one of them; false: it is for another channel, or nobody's.
  [[nodiscard]] bool reply(Effect& effect);
  [[nodiscard]] static ChannelNumber channel_of(const Effect& effect) noexcept;  // 0: none
  // What a pull of such a channel reads.
  [[nodiscard]] Status copy(const PullEffect& pull) const;

 private:
  struct Channel {
    Client client;
    std::uint64_t next_ticket = 1;
    std::vector<std::byte> body;
    std::map<std::uint64_t, Replied> waiting;
  };
  void tell(ChannelNumber number, std::uint64_t ticket, Result<Reply> reply);

  std::map<ChannelNumber, Channel> channels_;
};

}  // namespace offpath::service
