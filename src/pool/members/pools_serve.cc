// What other members ask of this one. Their bytes are decoded and checked like those of any program; that they act for
// users is taken from agents of this agent's own user only.
#include <utility>

#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::AskedMemory;
using service::FailEffect;
using service::ReplyEffect;
using wire::EntryKind;

namespace {

constexpr TimeNs offer_wait_ns = second_ns;  // for the descriptor of an object that was named already

}  // namespace

void Pools::on_peer_request(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                            Effects& effects) {
  context_.now = now;
  const auto serve = [&]() -> Status {
    if (!is_member) return fail(Error::denied, "members of a group are of one user; this channel is of another one");
    switch (static_cast<EntryKind>(request.kind)) {
      case EntryKind::peer_put:
        return serve_put(channel, request, now, effects);
      case EntryKind::peer_get:
        return serve_get(channel, request, now, effects);
      case EntryKind::peer_compute:
        return serve_compute(channel, request, now, effects);
      case EntryKind::peer_cancel: {
        wire::PeerCancel cancelled{};
        OFP_TRY(wire::decode(request.payload, cancelled));
        if (cancelled.what == wire::PeerCancel::What::get)
          end_get_of_member(channel, cancelled.number, effects);
        else if (computes_ != nullptr)
          computes_->cancel(channel, cancelled.number, effects);
        effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
        return {};
      }
      case EntryKind::peer_deliver:
        return serve_delivery(channel, request, now, effects);
      case EntryKind::peer_list:
        return listings_.serve(channel, request, effects);
      case EntryKind::peer_drop:
        return drops_.serve(channel, request, now, effects);
      case EntryKind::peer_compare:
        return comparisons_.serve(channel, request, now, effects);
      case EntryKind::peer_step_end:
        return serve_step_end(channel, request, now, effects);
      case EntryKind::peer_define:
        return serve_definition(request, effects).map([&] {
          effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
        });
      default:
        OFP_ASSERT(!"a request of another service");
    }
  };
  if (Status served = serve(); !served)
    PoolContext::refuse(channel, request.ticket, std::move(served).error(), effects);
}

// ---- objects that come here

Status Pools::serve_put(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerPut put{};
  OFP_TRY(wire::decode(request.payload, put));
  OFP_TRY(check_not_local(put.pool));
  OFP_ASSIGN(Definition* const definition,
             context_.directory.define_of_member(put.pool, put.owner, put.user, Access::write, context_.now, effects));
  definition->dropped = false;
  Incoming incoming;
  incoming.object = {channel,
                     put.offer,
                     put.object,
                     put.object.length,
                     static_cast<uid_t>(put.user),
                     deadline_after(now, offer_wait_ns)};
  incoming.ticket = request.ticket;
  incoming.place = {definition->name.name,
                    std::string(put.row_key),
                    std::string(put.column_key),
                    static_cast<uid_t>(put.user),
                    put.keep,
                    put.hidden};
  if (put.counter > put_counter_max)
    return fail(Error::protocol, "put of a member: its counter is {}, at most {} is possible", put.counter,
                put_counter_max);
  incoming.id = {put.writer, put.number, put.counter, {}, put.moved};
  OFP_ASSIGN(incoming.id.over, decode_over(put.over));
  context_.clock.saw(put.counter);
  incoming.rows = put.rows;
  incoming.arrow = put.arrow;
  incoming.deadline = deadline_after(now, put.wait_ns);
  ++context_.counters.served_puts;
  if (const auto later = versions_.not_wanted(incoming.place, incoming.id)) {
    if (put.offer != 0) (void)context_.table.take_offer(channel, put.offer);
    effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{*later}});
    return {};
  }
  waiting_.push_back(std::move(incoming));
  admit_incoming(now, effects);
  return {};
}

Status Pools::serve_delivery(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerDeliver delivery{};
  OFP_TRY(wire::decode(request.payload, delivery));
  const RemoteGet* const asked = gets_.find(delivery.delivery);
  if (asked == nullptr || asked->asking == 0)
    return fail(Error::not_found, "nobody waits for delivery {} any more", delivery.delivery);
  Incoming incoming;
  incoming.object = {channel,         delivery.offer,
                     delivery.object, delivery.object.length,
                     asked->get.user, deadline_after(now, offer_wait_ns)};
  incoming.ticket = request.ticket;
  incoming.delivery = delivery.delivery;
  incoming.rows = delivery.rows;
  incoming.arrow = delivery.arrow;
  incoming.deadline = deadline_after(now, context_.options.put_wait_ns);
  waiting_.push_back(std::move(incoming));
  admit_incoming(now, effects);
  return {};
}

void Pools::on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.on_offer(channel, number, std::move(fd), effects);
  if (!waiting_.empty()) admit_incoming(now, effects);
}

// Starts pulls of all that there is room for. Those without room wait, and others may pass them: each pool has a budget
// of its own.
void Pools::admit_incoming(TimeNs now, Effects& effects) {
  for (std::size_t i = 0; i < waiting_.size();) {
    Incoming& incoming = waiting_[i];
    Result<bool> begun = begin_pull(incoming, now, effects);
    if (begun && !*begun && now >= incoming.deadline)
      begun = tl::unexpected(Failure{Error::timeout, std::move(incoming.last.message)});
    if (begun && !*begun) {
      context_.due(incoming.deadline);
      ++i;
      continue;
    }
    if (!begun) PoolContext::refuse(incoming.object.channel, incoming.ticket, std::move(begun).error(), effects);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Result<bool> Pools::begin_pull(Incoming& incoming, TimeNs now, Effects& effects) {
  OFP_TRY(intake_.may_fit(incoming.object.bytes));
  if (incoming.delivery == 0) {
    Status room = context_.table.may_put(incoming.place, incoming.object.bytes + arriving_bytes_[incoming.place.pool],
                                         incoming.id);
    if (!room && (room.error().code == Error::would_block ||
                  (room.error().code == Error::too_large &&
                   context_.table.may_put(incoming.place, incoming.object.bytes, incoming.id)))) {
      waits_for_budget_ = true;
      incoming.last = std::move(room).error();
      return false;
    }
    if (!room) return tl::unexpected(std::move(room).error());
  }
  if (incoming.delivery == 0 && context_.table.is_durable(incoming.place.pool) && context_.table.disk()->rests(now)) {
    incoming.last = {Error::no_space,
                     fmt::format("member {}: {}", context_.directory.self(), context_.table.disk()->failure())};
    context_.due(context_.table.disk()->rests_until());
    return false;
  }
  const std::uint64_t number = context_.numbers.take();
  const std::uint64_t token = service::token_of(service::ServiceId::peers, number);
  set_reserve(incoming);
  OFP_ASSIGN(const Intake::Begun begun, intake_.begin(token, incoming.object, now, effects));
  if (begun == Intake::Begun::not_yet) {
    context_.due(incoming.object.deadline());
    if (incoming.object.reserve) {  // no memory becomes free for others when some of it is back
      waits_for_budget_ = true;
      context_.due(now + context_.options.retry_ns);
    }
    incoming.last = {Error::no_memory, fmt::format("member {} has no memory free for an object of {} bytes",
                                                   context_.directory.self(), incoming.object.bytes)};
    return false;
  }
  context_.counters.served_bytes += incoming.object.bytes;
  if (begun == Intake::Begun::now) {
    arrived(std::move(incoming), intake_.end(token, {}), now, effects);
    return true;
  }
  arriving_bytes_[incoming.place.pool] += incoming.object.bytes;
  incoming_.emplace(number, std::move(incoming));
  return true;
}

void Pools::arrived(Incoming incoming, Result<FramePtr> object, TimeNs now, Effects& effects) {
  const auto answer = [&](const Status& outcome) {
    if (outcome)
      effects.push_back(ReplyEffect{incoming.object.channel, incoming.ticket, wire::Done{0}});
    else
      PoolContext::refuse(incoming.object.channel, incoming.ticket, outcome.error(), effects);
  };
  if (!object) return answer(tl::unexpected(object.error()));
  FramePtr frame = std::move(*object);
  frame->rows = incoming.rows;
  frame->arrow = incoming.arrow;
  if (incoming.delivery == 0) {
    if (const auto later =
            versions_.not_wanted(incoming.place, incoming.id)) {  // another came while this one was under way
      effects.push_back(ReplyEffect{incoming.object.channel, incoming.ticket, wire::Done{*later}});
      return;
    }
    if (context_.table.is_durable(incoming.place.pool))
      return keep_arrived(std::move(incoming), std::move(frame), effects);
    return answer(take(incoming.place, std::move(frame), incoming.id, now, effects));
  }
  RemoteGet* const asked = gets_.find(incoming.delivery);
  if (asked == nullptr)
    return answer(fail(Error::not_found, "nobody waits for delivery {} any more", incoming.delivery));
  asked->delivered = std::move(frame);
  answer({});
}

// What another member has put, and is wanted.
Status Pools::take(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects,
                   const RecordPtr& file) {
  OFP_TRY(versions_.take(place, std::move(frame), id, now, effects, file));
  if (id.moved)  // other owners may lack it, too
    comparisons_.later(deadline_after(now, context_.options.compare_wait_ns));
  moves_.give_away_later(place, now);
  return {};
}

// ---- objects that go from here

Status Pools::serve_get(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerGet get{};
  OFP_TRY(wire::decode(request.payload, get));
  OFP_TRY(check_not_local(get.pool));
  OFP_ASSIGN(const Definition* const definition,
             context_.directory.define_of_member(get.pool, get.owner, get.user, Access::read, context_.now, effects));
  ++context_.counters.served_gets;
  context_.table.get({.channel = channel,
                      .ticket = request.ticket,
                      .user = static_cast<uid_t>(get.user),
                      .pool = definition->name.name,
                      .keys = {std::string(get.row_key), std::string(get.column_key)},
                      .of_member = true,
                      .inbox = get.inbox,
                      .reader = std::string(get.reader),
                      .delivery = get.delivery,
                      .wait_ns = get.wait_ns,
                      .deadline = deadline_after(now, get.wait_ns)},
                     effects);
  return {};
}

void Pools::end_get_of_member(ChannelNumber channel, std::uint64_t delivery, Effects& effects) {
  for (const FrameTable::Get& get : context_.table.take_waiting(channel, true, delivery))
    PoolContext::refuse(get.channel, get.ticket, {Error::cancelled, "the object is not wanted any more"}, effects);
}

void Pools::deliver(const FrameTable::Get& get, FramePtr frame, Effects& effects) {
  context_.counters.served_bytes += frame->bytes;
  context_.requests.ask(
      {Asking::Kind::deliver, 0, get.reader, get, frame}, EntryKind::peer_deliver,
      deadline_after(context_.now, context_.options.put_wait_ns), frame, 0,
      [delivery = get.delivery, rows = frame->rows, arrow = frame->arrow, bytes = frame->bytes](
          const AskedMemory& memory, std::vector<std::byte>& payload) {
        wire::PeerDeliver message{delivery, rows, arrow, memory.offer, memory.bytes};
        message.object.length = bytes;
        wire::encode(message, payload);
      },
      effects);
}

void Pools::on_deliver_answer(const FrameTable::Get& get, const service::Frame& frame, const Status& status,
                              Effects& effects) {
  if (!status) return PoolContext::refuse(get.channel, get.ticket, status.error(), effects);
  effects.push_back(ReplyEffect{get.channel, get.ticket,
                                wire::Got{.how = wire::Got::How::delivered,
                                          .arrow = frame.arrow,
                                          .lease = 0,
                                          .length = frame.bytes,
                                          .rows = frame.rows}});
}

// ---- the rest

Status Pools::serve_step_end(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerStepEnd end{};
  OFP_TRY(wire::decode(request.payload, end));
  OFP_TRY(check_not_reserved(end.pool));
  OFP_TRY(check_not_local(end.pool));
  OFP_ASSIGN(const Definition* const definition,
             context_.directory.define_of_member(end.pool, end.user, end.user, Access::write, context_.now, effects));
  OFP_TRY(context_.table.end_step(definition->name.name, std::string(end.row_key), end.rank, end.ranks, now, effects));
  effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
  return {};
}

Status Pools::serve_definition(const channel::Entry& request, Effects& effects) {
  wire::PeerDefine message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_TRY(check_not_local(message.pool));
  OFP_TRY(context_.directory.define_of_member(message.pool, message.user, message.user, Access::write, context_.now,
                                              effects));
  return {};
}

}  // namespace offpath::pool
