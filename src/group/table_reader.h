// Reads tables of members that other agents post: takes them from the request or pulls them from the poster's memory,
// decodes, forwards and answers them. A state machine: requests and completions go in, effects come out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "channel/ring.h"
#include "service/effects.h"
#include "wire/messages/peer_messages.h"

namespace offpath::group {

class TableReader {
 public:
  static constexpr std::size_t pulls_of_channel_max = 4;

  // `take` is called with each table, whose texts are valid during the call; its result is the answer.
  explicit TableReader(std::function<Status(const wire::MemberTable& table, TimeNs now)> take)
      : take_(std::move(take)) {}

  // `may_post`: the channel is of the agent's own user or of root, as members of a group are.
  void on_request(std::uint64_t channel, const channel::Entry& request, bool may_post, TimeNs now,
                  service::Effects& effects);
  void on_transfer(std::uint64_t token, const Status& status, TimeNs now, service::Effects& effects);
  void on_channel_closed(std::uint64_t channel);

 private:
  struct Pulling {
    std::uint64_t channel, ticket;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] Status begin(std::uint64_t channel, const channel::Entry& request, bool may_post, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status take(Bytes bytes, TimeNs now);

  std::function<Status(const wire::MemberTable&, TimeNs)> take_;
  std::map<std::uint64_t, Pulling> pulling_;  // by token
  std::uint64_t next_token_ = 1;
};

}  // namespace offpath::group
