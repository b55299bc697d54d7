#include "pool/table/hand_overs.h"

#include <utility>

#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/stream_messages.h"

namespace offpath::pool {

using service::FailEffect;
using service::HandOverEffect;

void HandOvers::on_channel_closed(ChannelNumber channel) {
  const auto at = leases_.find(channel);
  if (at == leases_.end()) return;
  leases_count_ -= at->second.size();
  leases_.erase(at);
}

void HandOvers::hand_over(ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, Effects& effects) {
  const auto at = leases_.find(channel);
  if (at == leases_.end()) return;
  if (frame->bytes <= wire::enclosed_bytes_max) {
    const wire::Got got{.how = wire::Got::How::enclosed,
                        .arrow = frame->arrow,
                        .lease = 0,
                        .length = frame->bytes,
                        .rows = frame->rows};
    return effects.push_back(HandOverEffect{channel, ticket, frame, got});
  }
  auto& leases = at->second;
  if (leases.size() >= leases_max_) {
    Failure full{Error::too_large,
                 fmt::format("the program holds {} frames, which is the limit; release some", leases.size())};
    effects.push_back(FailEffect{channel, ticket, wire::any_reply, std::move(full)});
    return;
  }
  const wire::Got got{.how = wire::Got::How::descriptor,
                      .arrow = frame->arrow,
                      .lease = next_lease_++,
                      .length = frame->bytes,
                      .rows = frame->rows};
  leases.emplace(got.lease, frame);
  ++leases_count_;
  effects.push_back(HandOverEffect{channel, ticket, frame, got});
}

void HandOvers::push(ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, wire::RegionId region,
                     std::uint64_t offset, Effects& effects) {
  const std::uint64_t token = next_token_++;
  const wire::Got got{
      .how = wire::Got::How::pushed, .arrow = frame->arrow, .lease = 0, .length = frame->bytes, .rows = frame->rows};
  pushes_.emplace(token, Push{channel, ticket, got});
  effects.push_back(service::PushEffect{channel,
                                        service::token_of(service::ServiceId::pool, token),
                                        {{region, offset, frame->buffer.data(), frame->bytes}},
                                        frame});
}

void HandOvers::on_transfer(std::uint64_t token, Status status, Effects& effects) {
  const auto at = pushes_.find(service::number_of(token));
  if (at == pushes_.end()) return;
  const Push push = at->second;
  pushes_.erase(at);
  if (status)
    effects.push_back(service::ReplyEffect{push.channel, push.ticket, push.got});
  else
    effects.push_back(FailEffect{push.channel, push.ticket, wire::any_reply, std::move(status).error()});
}

void HandOvers::on_push_lease(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  auto& leases = leases_.at(channel);
  wire::PushLease asked{};
  Status status = wire::decode(request.payload, asked);
  auto lease = status ? leases.extract(asked.lease) : std::unordered_map<std::uint64_t, FramePtr>::node_type{};
  if (status && !lease)
    status = fail(Error::not_found, "there is no lease {} whose bytes could be pushed", asked.lease);
  if (!status) {
    effects.push_back(FailEffect{channel, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  --leases_count_;
  push(channel, request.ticket, lease.mapped(), asked.segment, 0, effects);
}

void HandOvers::on_release(ChannelNumber channel, const channel::Entry& request) {
  wire::Release release{};
  if (wire::decode(request.payload, release)) leases_count_ -= leases_.at(channel).erase(release.lease);
}

}  // namespace offpath::pool
