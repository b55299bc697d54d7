// Channels of the agent's own parts, such as its Flight endpoint: they send the same requests as programs, and are
// answered by a call instead of through memory. When such a channel closes, its requests end, as a program's do.
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
    std::string row, column, member;
  };
  struct Reply {
    std::uint64_t done = 0;
    FramePtr frame;           // of a get, or the next of a query
    std::uint64_t lease = 0;  // of the frame; not needed here
    std::vector<Item> items;  // of a list; it owns its texts
    bool more = false;
    std::uint64_t view = 0;  // of the members, in a listing
  };
  using Replied = std::function<void(Result<Reply>)>;

  void open(ChannelNumber number, Client client) { channels_[number].client = std::move(client); }
  void close(ChannelNumber number) { channels_.erase(number); }
  [[nodiscard]] bool has(ChannelNumber number) const noexcept { return channels_.contains(number); }

  [[nodiscard]] const Client& client(ChannelNumber number) const { return channels_.at(number).client; }

  // Returns the ticket of a request whose bytes, if it names any, are `body`. At most one at a time.
  [[nodiscard]] std::uint64_t expect(ChannelNumber number, std::vector<std::byte> body, Replied replied);

  // Carries out an effect for one of these channels; false: it is for another channel, or none.
  [[nodiscard]] bool reply(Effect& effect);
  [[nodiscard]] static ChannelNumber channel_of(const Effect& effect) noexcept;  // 0: none
  // Copies the bytes that a pull from such a channel reads.
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
