#include "group/table_reader.h"

#include <algorithm>
#include <utility>

namespace offpath::group {

void TableReader::on_request(std::uint64_t channel, const channel::Entry& request, bool may_post, TimeNs now,
                             service::Effects& effects) {
  if (Status begun = begin(channel, request, may_post, now, effects); !begun)
    service::answer_outcome(effects, channel, request.ticket, std::move(begun));
}

Status TableReader::begin(std::uint64_t channel, const channel::Entry& request, bool may_post, TimeNs now,
                          service::Effects& effects) {
  wire::PostTable post{};
  OFP_TRY(wire::decode(request.payload, post));
  // A table makes this agent connect to the addresses in it.
  if (!may_post) return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
  if (post.table.length == 0) {
    service::answer_outcome(effects, channel, request.ticket, take(post.enclosed, now));
    return {};
  }
  const auto of_channel =
      std::ranges::count_if(pulling_, [&](const auto& each) { return each.second.channel == channel; });
  if (static_cast<std::size_t>(of_channel) >= pulls_of_channel_max)
    return fail(Error::would_block, "{} tables of this channel are being read", of_channel);
  const std::uint64_t token = service::token_of(service::ServiceId::group, next_token_++);
  Pulling& pulling = pulling_[token];
  pulling = {channel, request.ticket, std::vector<std::byte>(post.table.length)};
  service::pull(effects, channel, token, post.table, pulling.bytes.data());
  return {};
}

Status TableReader::take(Bytes bytes, TimeNs now) {
  wire::MemberTable table{};
  OFP_TRY(wire::decode(bytes, table));
  return take_(table, now);
}

void TableReader::on_transfer(std::uint64_t token, const Status& status, TimeNs now, service::Effects& effects) {
  const auto node = pulling_.extract(token);
  if (!node) return;
  const Pulling& pulled = node.mapped();
  service::answer_outcome(effects, pulled.channel, pulled.ticket, status ? take(pulled.bytes, now) : status);
}

void TableReader::on_channel_closed(std::uint64_t channel) {
  std::erase_if(pulling_, [&](const auto& each) { return each.second.channel == channel; });
}

}  // namespace offpath::group
