#include "exchange/channel_carrier.h"

#include <algorithm>
#include <utility>

#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"

namespace offpath::exchange {

void ChannelCarrier::send(MemberIndex to, SharedBytes parcel, TimeNs deadline, TimeNs) {
  const std::uint64_t size = parcel->size();
  const std::uint64_t parts =
      size <= wire::exchange_enclosed_max ? 1 : (size + wire::exchange_part_max - 1) / wire::exchange_part_max;
  // One large parcel may have more parts than that, for a member that reads; a member that does not read gets none.
  if ((*unanswered_)[to] != 0 && (*unanswered_)[to] + parts > unanswered_max) {
    ++left_out_;
    return;
  }
  ++parcels_;
  for (std::uint64_t offset = 0; offset < size; offset += wire::exchange_part_max)
    post_part(to, parcel, offset, std::min(size - offset, wire::exchange_part_max), deadline);
}

void ChannelCarrier::post_part(MemberIndex to, const SharedBytes& parcel, std::uint64_t offset, std::uint64_t length,
                               TimeNs deadline) {
  group::Request request;
  request.kind = wire::EntryKind::peer_exchange;
  request.deadline = deadline;
  const bool enclosed = parcel->size() <= wire::exchange_enclosed_max;
  wire::PeerExchange message{};
  message.tag = tag_;
  message.parcel = parcels_;
  message.total_bytes = parcel->size();
  message.offset = offset;
  if (enclosed) {
    request.payload_bytes = 128 + length;
    request.compose = [message, parcel](const group::Named&, std::vector<std::byte>& payload) {
      wire::PeerExchange whole = message;
      whole.bytes = Bytes(*parcel);
      wire::encode(whole, payload);
    };
  } else {
    const Bytes part = Bytes(*parcel).subspan(offset, length);
    if (length <= group::Reach::copied_bytes_max) {
      request.object = part;  // copied when it is posted
      request.owner = parcel;
    } else {
      request.body.assign(part.begin(), part.end());
    }
    request.compose = [message](const group::Named& named, std::vector<std::byte>& payload) {
      wire::PeerExchange named_part = message;
      named_part.part = named.bytes;
      wire::encode(named_part, payload);
    };
  }
  ++(*unanswered_)[to];
  request.answer = [to, unanswered = unanswered_](const Result<group::Answer>&, TimeNs) { --(*unanswered)[to]; };
  post_(members_[to], std::move(request));
}

Status ChannelCarrier::poll(TimeNs, const Take& take) {
  for (SharedBytes& parcel : std::exchange(arrived_, {})) {
    const MemberIndex from = parcel->size() >= sizeof(ParcelHeader) ? load<ParcelHeader>(parcel->data()).from : nobody;
    take(from, std::move(parcel));
  }
  return {};
}

void ParcelReader::on_request(std::uint64_t channel, const channel::Entry& request, bool is_member, std::uint64_t token,
                              service::Effects& effects) {
  if (Status begun = begin(channel, request, is_member, token, effects); !begun)
    service::answer_outcome(effects, channel, request.ticket, std::move(begun));
}

Status ParcelReader::begin(std::uint64_t channel, const channel::Entry& request, bool is_member, std::uint64_t token,
                           service::Effects& effects) {
  wire::PeerExchange message{};
  OFP_TRY(wire::decode(request.payload, message));
  if (!is_member) return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
  const std::uint64_t most = bytes_max_(message.tag);
  if (most == 0) return fail(Error::not_found, "there is no such exchange here");
  if (message.total_bytes > most)
    return fail(Error::too_large, "a parcel of {} bytes, at most {} are allowed", message.total_bytes, most);
  if (!message.bytes.empty()) {
    if (message.bytes.size() != message.total_bytes)
      return fail(Error::protocol, "a parcel of {} bytes encloses {}", message.total_bytes, message.bytes.size());
    deliver_(message.tag, std::make_shared<const std::vector<std::byte>>(message.bytes.begin(), message.bytes.end()));
    service::answer(effects, channel, request.ticket, 0);
    return {};
  }
  auto at = std::ranges::find_if(assembling_, [&](const auto& each) {
    return each->channel == channel && each->tag == message.tag && each->parcel == message.parcel &&
           each->bytes->size() == message.total_bytes;
  });
  if (at == assembling_.end()) {
    const auto of_channel = [&](const auto& each) { return each->channel == channel; };
    if (static_cast<std::size_t>(std::ranges::count_if(assembling_, of_channel)) >= assembling_max)
      assembling_.erase(
          std::ranges::find_if(assembling_, of_channel));  // its sender has abandoned it, or sent invalid bytes
    auto fresh = std::make_shared<Assembly>();
    fresh->channel = channel;
    fresh->tag = message.tag;
    fresh->parcel = message.parcel;
    fresh->bytes = std::make_shared<std::vector<std::byte>>(message.total_bytes);
    at = assembling_.insert(assembling_.end(), std::move(fresh));
  }
  Pulling pulling;
  pulling.channel = channel;
  pulling.ticket = request.ticket;
  pulling.length = message.part.length;
  pulling.assembly = *at;
  service::pull(effects, channel, token, message.part, (*at)->bytes->data() + message.offset);
  pulling_.emplace(token, std::move(pulling));
  return {};
}

bool ParcelReader::on_transfer(std::uint64_t token, const Status& status, service::Effects& effects) {
  const auto node = pulling_.extract(token);
  if (!node) return false;
  Pulling& pulled = node.mapped();
  service::answer_outcome(effects, pulled.channel, pulled.ticket, status);
  const std::shared_ptr<Assembly> assembly = std::move(pulled.assembly);
  if (!status)
    std::erase(assembling_, assembly);
  else if ((assembly->there += pulled.length) >= assembly->bytes->size())
    finish(assembly);
  return true;
}

void ParcelReader::finish(const std::shared_ptr<Assembly>& assembly) {
  if (std::erase(assembling_, assembly) != 0) deliver_(assembly->tag, std::move(assembly->bytes));
}

void ParcelReader::on_channel_closed(std::uint64_t channel) {
  std::erase_if(assembling_, [&](const auto& each) { return each->channel == channel; });
  std::erase_if(pulling_, [&](const auto& each) { return each.second.channel == channel; });
}

}  // namespace offpath::exchange
