#include "service/own_channels.h"

#include <cstring>
#include <utility>

#include "wire/messages/replies.h"

namespace offpath::service {

std::uint64_t OwnChannels::expect(ChannelNumber number, std::vector<std::byte> body, Replied replied) {
  Channel& channel = channels_.at(number);
  channel.body = std::move(body);
  channel.waiting.emplace(channel.next_ticket, std::move(replied));
  return channel.next_ticket++;
}

ChannelNumber OwnChannels::channel_of(const Effect& effect) noexcept {
  if (const auto* const reply = std::get_if<ReplyEffect>(&effect)) return reply->channel;
  if (const auto* const listed = std::get_if<ListedEffect>(&effect)) return listed->channel;
  if (const auto* const failed = std::get_if<FailEffect>(&effect)) return failed->channel;
  if (const auto* const over = std::get_if<HandOverEffect>(&effect)) return over->channel;
  return 0;
}

bool OwnChannels::reply(Effect& effect) {
  const ChannelNumber number = channel_of(effect);
  if (!has(number)) return false;
  if (const auto* const said = std::get_if<ReplyEffect>(&effect)) {
    const auto* const done = std::get_if<wire::Done>(&said->message);
    Reply made;
    made.done = done != nullptr ? done->value : 0;
    tell(number, said->ticket, std::move(made));
  } else if (const auto* const listed = std::get_if<ListedEffect>(&effect)) {
    Reply made;
    made.more = listed->message.more;
    made.view = listed->message.view;
    for (const wire::ListedEntry& entry : listed->message.entries)
      made.items.push_back({entry.sequence, entry.bytes, entry.rows, entry.arrow, std::string(entry.row_key),
                            std::string(entry.column_key), std::string(entry.member)});
    tell(number, listed->ticket, std::move(made));
  } else if (auto* const failed = std::get_if<FailEffect>(&effect)) {
    tell(number, failed->ticket, tl::unexpected(std::move(failed->failure)));
  } else if (auto* const over = std::get_if<HandOverEffect>(&effect)) {
    Reply made;
    made.frame = std::move(over->frame);
    made.lease = over->got.lease;
    tell(number, over->ticket, std::move(made));
  }
  return true;
}

void OwnChannels::tell(ChannelNumber number, std::uint64_t ticket, Result<Reply> reply) {
  const auto node = channels_.at(number).waiting.extract(ticket);
  if (node) node.mapped()(std::move(reply));
}

Status OwnChannels::copy(const PullEffect& pull) const {
  const std::vector<std::byte>& body = channels_.at(pull.channel).body;
  for (const link::ReadPiece& piece : pull.pieces) {
    if (piece.offset > body.size() || piece.length > body.size() - piece.offset)
      return fail(Error::invalid, "a request of the agent itself has {} bytes; {} at offset {} were read", body.size(),
                  piece.length, piece.offset);
    std::memcpy(piece.to, body.data() + piece.offset, piece.length);
  }
  return {};
}

}  // namespace offpath::service
