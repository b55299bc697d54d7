#include "pool/rows/arrivals.h"

#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::ReplyEffect;

namespace {

constexpr TimeNs offer_wait_ns = second_ns;  // for the descriptor of a named object

}  // namespace

Status Arrivals::serve_put(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerPut put{};
  OFP_TRY(wire::decode(request.payload, put));
  OFP_TRY(context_.directory.may_be_named(put.pool));
  OFP_ASSIGN(Definition* const definition, context_.directory.define_of_member(put.pool, put.owner, put.user,
                                                                               Directory::Access::write, now, effects));
  definition->dropped = false;
  Arrival arrival;
  arrival.object = {channel,
                    put.offer,
                    put.object,
                    put.object.length,
                    static_cast<uid_t>(put.user),
                    deadline_after(now, offer_wait_ns)};
  arrival.ticket = request.ticket;
  arrival.place = {definition->name.name,
                   std::string(put.row_key),
                   std::string(put.column_key),
                   static_cast<uid_t>(put.user),
                   put.keep,
                   put.hidden};
  if (put.counter > put_counter_max)
    return fail(Error::protocol, "put of a member: its counter is {}, at most {} is possible", put.counter,
                put_counter_max);
  arrival.id = {put.writer, put.number, put.counter, {}, put.moved};
  OFP_ASSIGN(arrival.id.over, decode_over(put.over));
  context_.clock.saw(put.counter);
  arrival.rows = put.rows;
  arrival.arrow = put.arrow;
  arrival.deadline = deadline_after(now, put.wait_ns);
  ++context_.counters.served_puts;
  if (const auto later = parts_.versions.not_wanted(arrival.place, arrival.id)) {
    if (put.offer != 0) (void)context_.table.take_offer(channel, put.offer);
    effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{*later}});
    return {};
  }
  waiting_.push_back(std::move(arrival));
  admit(now, effects);
  return {};
}

Status Arrivals::serve_delivery(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerDeliver delivery{};
  OFP_TRY(wire::decode(request.payload, delivery));
  const RemoteGet* const asked = parts_.gets.find(delivery.delivery);
  if (asked == nullptr || asked->asking == 0)
    return fail(Error::not_found, "delivery {} is not expected any more", delivery.delivery);
  Arrival arrival;
  arrival.object = {channel,         delivery.offer,
                    delivery.object, delivery.object.length,
                    asked->get.user, deadline_after(now, offer_wait_ns)};
  arrival.ticket = request.ticket;
  arrival.delivery = delivery.delivery;
  arrival.rows = delivery.rows;
  arrival.arrow = delivery.arrow;
  arrival.deadline = deadline_after(now, context_.options.put_wait_ns);
  waiting_.push_back(std::move(arrival));
  admit(now, effects);
  return {};
}

// Starts pulls of all objects that have room. Others wait without blocking later ones, because each pool has a budget
// of its own.
void Arrivals::admit(TimeNs now, Effects& effects) {
  for (std::size_t i = 0; i < waiting_.size();) {
    Arrival& arrival = waiting_[i];
    Result<bool> begun = begin(arrival, now, effects);
    if (begun && !*begun && now >= arrival.deadline)
      begun = tl::unexpected(Failure{Error::timeout, std::move(arrival.last.message)});
    if (begun && !*begun) {
      context_.due(arrival.deadline);
      ++i;
      continue;
    }
    if (!begun) PoolContext::refuse(arrival.object.channel, arrival.ticket, std::move(begun).error(), effects);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Result<bool> Arrivals::begin(Arrival& arrival, TimeNs now, Effects& effects) {
  OFP_TRY(intake_.may_fit(arrival.object.bytes));
  if (arrival.delivery == 0) {
    Status room = context_.table.may_put(arrival.place, arrival.object.bytes + bytes_[arrival.place.pool], arrival.id);
    if (!room && (room.error().code == Error::would_block ||
                  (room.error().code == Error::too_large &&
                   context_.table.may_put(arrival.place, arrival.object.bytes, arrival.id)))) {
      waits_for_budget_ = true;
      arrival.last = std::move(room).error();
      return false;
    }
    if (!room) return tl::unexpected(std::move(room).error());
  }
  if (arrival.delivery == 0 && context_.table.is_durable(arrival.place.pool) && context_.table.disk()->rests(now)) {
    arrival.last = {Error::no_space,
                    fmt::format("member {}: {}", context_.directory.self(), context_.table.disk()->failure())};
    context_.due(context_.table.disk()->rests_until());
    return false;
  }
  const std::uint64_t number = context_.numbers.take();
  const std::uint64_t token = service::token_of(service::ServiceId::peers, number);
  set_reserve(arrival);
  OFP_ASSIGN(const Intake::Begun begun, intake_.begin(token, arrival.object, now, effects));
  if (begun == Intake::Begun::not_yet) {
    context_.due(arrival.object.deadline());
    if (arrival.object.reserve) {  // its memory is not freed for others
      waits_for_budget_ = true;
      context_.due(now + context_.options.retry_ns);
    }
    arrival.last = {Error::no_memory, fmt::format("member {} has no memory free for an object of {} bytes",
                                                  context_.directory.self(), arrival.object.bytes)};
    return false;
  }
  context_.counters.served_bytes += arrival.object.bytes;
  if (begun == Intake::Begun::now) {
    arrived(std::move(arrival), intake_.end(token, {}), now, effects);
    return true;
  }
  bytes_[arrival.place.pool] += arrival.object.bytes;
  pulled_.emplace(number, std::move(arrival));
  return true;
}

void Arrivals::arrived(Arrival arrival, Result<FramePtr> object, TimeNs now, Effects& effects) {
  const auto answer = [&](const Status& outcome) {
    if (outcome)
      effects.push_back(ReplyEffect{arrival.object.channel, arrival.ticket, wire::Done{0}});
    else
      PoolContext::refuse(arrival.object.channel, arrival.ticket, outcome.error(), effects);
  };
  if (!object) return answer(tl::unexpected(object.error()));
  FramePtr frame = std::move(*object);
  frame->rows = arrival.rows;
  frame->arrow = arrival.arrow;
  if (arrival.delivery == 0) {
    if (const auto later = parts_.versions.not_wanted(arrival.place, arrival.id)) {  // a later object came meanwhile
      effects.push_back(ReplyEffect{arrival.object.channel, arrival.ticket, wire::Done{*later}});
      return;
    }
    if (context_.table.is_durable(arrival.place.pool)) {
      keep(
          arrival.place, arrival.id, frame,
          [channel = arrival.object.channel, ticket = arrival.ticket](const Result<std::uint64_t>& later, TimeNs,
                                                                      Effects& then) {
            if (later)
              then.push_back(ReplyEffect{channel, ticket, wire::Done{*later}});
            else
              PoolContext::refuse(channel, ticket, later.error(), then);
          },
          effects);
      return;
    }
    return answer(take(arrival.place, std::move(frame), arrival.id, now, effects));
  }
  RemoteGet* const asked = parts_.gets.find(arrival.delivery);
  if (asked == nullptr) return answer(fail(Error::not_found, "delivery {} is not expected any more", arrival.delivery));
  asked->delivered = std::move(frame);
  answer({});
}

// Takes an accepted object of another member's put.
Status Arrivals::take(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects,
                      const RecordPtr& file) {
  OFP_TRY(parts_.versions.take(place, std::move(frame), id, now, effects, file));
  if (id.moved)  // other owners may lack it, too
    parts_.comparisons.later(deadline_after(now, context_.options.compare_wait_ns));
  parts_.moves.give_away_later(place, now);
  return {};
}

void Arrivals::set_reserve(Arrival& arrival) const {
  const Reserves::SetAside* const reserve = parts_.reserves.find(arrival.place.pool);
  if (reserve == nullptr || arrival.delivery != 0) return;
  arrival.object.reserve = reserve->memory;
  arrival.object.stays = reserve->stays(arrival.place.column_key);
}

void Arrivals::keep(const Place& place, const PutId& id, const FramePtr& frame, Ended ended, Effects& effects) {
  context_.table.keep(
      place, frame, id,
      [this, place, id = id, frame, ended = std::move(ended)](Result<RecordPtr> file, TimeNs now,
                                                              Effects& then) mutable {
        const auto kept = [&]() -> Result<std::uint64_t> {
          if (!file)  // the member tries again: a full disk may be emptied
            return fail(Error::no_space, "member {}: {}", context_.directory.self(), file.error().message);
          if (const auto later = parts_.versions.not_wanted(place, id)) {  // a later object came during the write
            context_.table.disk()->remove(*file);
            return *later;
          }
          OFP_TRY(take(place, frame, id, now, then, *file));
          return 0;
        }();
        ended(kept, now, then);
      },
      effects);
}

void Arrivals::on_time(TimeNs now, Effects& effects) {
  waits_for_budget_ = false;
  admit(now, effects);
}

void Arrivals::on_pulled(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  auto node = pulled_.extract(service::number_of(token));
  if (!node) return;
  bytes_[node.mapped().place.pool] -= node.mapped().object.bytes;
  arrived(std::move(node.mapped()), intake_.end(token, status), now, effects);
}

void Arrivals::on_channel_closed(ChannelNumber channel) {
  std::erase_if(waiting_, [channel](const Arrival& each) { return each.object.channel == channel; });
  for (auto at = pulled_.begin(); at != pulled_.end();) {
    if (at->second.object.channel == channel) {
      bytes_[at->second.place.pool] -= at->second.object.bytes;
      intake_.forget(service::token_of(service::ServiceId::peers, at->first));
      at = pulled_.erase(at);
    } else {
      ++at;
    }
  }
}

void Arrivals::add_pools(std::set<std::string_view>& names) const {
  for (const Arrival& arrival : waiting_) names.insert(arrival.place.pool);
  for (const auto& [number, arrival] : pulled_) names.insert(arrival.place.pool);
}

}  // namespace offpath::pool
