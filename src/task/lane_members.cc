// Lanes of other members of the group: their location, and messages from agent to agent.
#include <algorithm>

#include "plugin/message.h"
#include "plugin/output_memory.h"
#include "task/lane_messages.h"
#include "task/session.h"
#include "wire/messages/lane_messages.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::task {

using plugin::OperationAnswer;
using service::AskedMemory;
using service::ChannelNumber;
using service::Effects;
using service::FailEffect;
using service::ReplyEffect;
using service::ServiceId;
using wire::EntryKind;

namespace {

constexpr TimeNs ask_again_ns = 10 * millisecond_ns, tell_again_ns = 50 * millisecond_ns;
constexpr TimeNs offer_wait_ns = second_ns;
constexpr TimeNs delivery_ns = 60 * second_ns;  // for the largest message over the slowest supported link
constexpr TimeNs answer_ns = 5 * second_ns;

void done(ChannelNumber channel, std::uint64_t ticket, std::uint64_t value, Effects& effects) {
  effects.push_back(ReplyEffect{channel, ticket, wire::Done{value}});
}

Result<std::uint64_t> number_of(const Result<group::Answer>& answer) {
  if (!answer) return tl::unexpected(answer.error());
  wire::Done number{};
  if (answer->kind != wire::ReplyKind::done)
    return fail(Error::protocol, "a member answered with reply kind {}", static_cast<int>(answer->kind));
  OFP_TRY(wire::decode(answer->payload, number));
  return number.value;
}

// Asking again is useless.
bool is_final(Error code) {
  return code == Error::denied || code == Error::invalid || code == Error::protocol || code == Error::too_large ||
         code == Error::unsupported;
}

}  // namespace

// ---- requests of members

void LaneMessages::on_peer_request(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                                   Effects& effects) {
  Status served = is_member
                      ? serve(channel, request, now, effects)
                      : fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
  if (!served) effects.push_back(FailEffect{channel, request.ticket, wire::any_reply, std::move(served).error()});
  settle(now, effects);
}

Status LaneMessages::serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::peer_lanes:
      return serve_table(channel, request, effects);
    case EntryKind::peer_receive:
      return serve_receive(channel, request);
    case EntryKind::peer_message:
      return serve_message(channel, request, now, effects);
    case EntryKind::peer_cancel:
      serve_cancel(channel, request, effects);
      return {};
    default:
      return fail(Error::protocol, "request of kind {} does not belong to lanes", request.kind);
  }
}

Status LaneMessages::serve_table(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::PeerLanes asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (!members_.contains(std::string(asked.sender)))
    return fail(Error::would_block, "member \"{}\" is unknown here", brief(asked.sender));
  const auto coming = std::ranges::count_if(tables_, [&](const auto& each) { return each.second.channel == channel; });
  if (coming != 0) return fail(Error::would_block, "a table of this member is being read");
  const std::uint64_t number = next_number_++;
  TableComing& table = tables_[number];
  table = {channel,
           request.ticket,
           asked.process,
           asked.version,
           std::string(asked.sender),
           std::vector<std::byte>(asked.table.length)};
  effects.push_back(service::PullEffect{
      channel,
      service::token_of(ServiceId::message, number),
      {{asked.table.region, asked.table.generation, asked.table.offset, table.bytes.data(), table.bytes.size()}}});
  return {};
}

Status LaneMessages::serve_receive(ChannelNumber channel, const channel::Entry& request) {
  wire::PeerReceive asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  Lane* const lane = find(asked.session);
  if (lane == nullptr || lane->team != Team{static_cast<uid_t>(asked.user), asked.lanes, std::string(asked.team)} ||
      lane->lane != asked.from)
    return fail(Error::not_found, "lane {} of team \"{}\" does not belong to session {} of this agent, or no longer",
                asked.from, brief(asked.team), asked.session);
  for (auto queue = lane->sent.find({asked.to, asked.tag}); queue != lane->sent.end();
       queue = lane->sent.find({asked.to, asked.tag})) {
    Message& oldest = queue->second.front();
    if (oldest.number > asked.got) break;
    oldest.taken = true;
    if (oldest.going) break;  // its answer may still arrive, and is ignored then
    drop(*lane, queue, queue->second.begin());
  }
  auto& wants = lane->wants[{asked.to, asked.tag}];
  if (wants.size() >= limits_.lane_operations_max)
    return fail(Error::would_block, "{} receives wait for this message", wants.size());
  wants.push_back({channel, request.ticket, asked.number, asked.room, std::string(asked.reader)});
  touch(*lane);
  return {};
}

void LaneMessages::serve_cancel(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::PeerCancel cancelled{};
  if (!wire::decode(request.payload, cancelled)) return;
  for (auto& [session, lane] : lanes_) {
    for (auto slot = lane.wants.begin(); slot != lane.wants.end();) {
      std::erase_if(slot->second, [&](const Want& want) {
        if (want.channel != channel || want.number != cancelled.number) return false;
        effects.push_back(
            FailEffect{channel, want.ticket, wire::any_reply, {Error::cancelled, "it is no longer wanted"}});
        return true;
      });
      slot = slot->second.empty() ? lane.wants.erase(slot) : std::next(slot);
    }
  }
  done(channel, request.ticket, 0, effects);
}

// ---- messages to members

void LaneMessages::serve_wants(Lane& lane, TimeNs now, Effects& effects) {
  for (auto slot = lane.wants.begin(); slot != lane.wants.end();) {
    auto& [key, wants] = *slot;
    const auto sent = lane.sent.find(key);
    // One at a time: if a message is not taken, the next receive gets it, and no later message.
    while (!wants.empty() && sent != lane.sent.end() && !sent->second.front().going) {
      Message& message = sent->second.front();
      const Want want = std::move(wants.front());
      wants.pop_front();
      if (message.bytes > want.room)
        done(want.channel, want.ticket, message.bytes, effects);
      else
        deliver(lane, key, message, want, now, effects);
    }
    slot = wants.empty() ? lane.wants.erase(slot) : std::next(slot);
  }
}

void LaneMessages::deliver(Lane& lane, const Slot& slot, Message& message, const Want& want, TimeNs now,
                           Effects& effects) {
  service::AskEffect ask{};
  ask.member = want.reader;
  ask.kind = EntryKind::peer_message;
  ask.deadline = deadline_after(now, delivery_ns);
  std::vector<std::byte> enclosed;
  if (message.memory) {
    auto mapped = MappedOutput::map(message.memory->get(), message.bytes);
    if (!mapped) {
      effects.push_back(FailEffect{want.channel, want.ticket, wire::any_reply, std::move(mapped).error()});
      return;
    }
    struct Held {
      MappedOutput mapped;
      std::shared_ptr<const Fd> memory;
    };
    const auto held = std::make_shared<const Held>(Held{std::move(*mapped), message.memory});
    ask.memory = {held->mapped.data(), message.bytes};
    ask.memory_fd = message.memory->get();
    ask.owner = held;
  } else if (message.bytes > wire::message_enclosed_max) {
    ask.body = message.enclosed;
  } else {
    enclosed = message.enclosed;
    ask.payload_bytes += enclosed.size();
  }
  ask.compose = [number = want.number, id = message.number, length = message.bytes, enclosed = std::move(enclosed)](
                    const AskedMemory& memory, std::vector<std::byte>& payload) {
    wire::encode(wire::PeerMessage{number, id, length, memory.offer, memory.bytes, enclosed}, payload);
  };
  const std::uint64_t number = next_number_++;
  ask.token = service::token_of(ServiceId::message, number);
  deliveries_.emplace(number, Delivery{lane.session, slot, message.number, want.channel, want.ticket});
  message.going = true;
  effects.push_back(std::move(ask));
}

void LaneMessages::end_delivery(const Delivery& delivery, const Status& outcome, Effects& effects) {
  if (outcome)
    done(delivery.channel, delivery.ticket, 0, effects);
  else
    effects.push_back(FailEffect{delivery.channel,
                                 delivery.ticket,
                                 wire::any_reply,
                                 {Error::would_block, "it was not taken: " + outcome.error().message}});
  Lane* const lane = find(delivery.session);
  if (lane == nullptr) return;
  const auto queue = lane->sent.find(delivery.slot);
  OFP_ASSERT(queue != lane->sent.end());
  const auto message = std::ranges::find(queue->second, delivery.message, &Message::number);
  OFP_ASSERT(message != queue->second.end());
  touch(*lane);
  message->going = false;
  if (!outcome && !message->taken && !lane->gone.contains(delivery.slot.first)) return;
  drop(*lane, queue, message);
}

// ---- messages from members

void LaneMessages::ask(Lane& lane, Pending& pending, const Place& place, Effects& effects) {
  const std::uint64_t number = next_number_++;
  const plugin::Operation& operation = pending.operation;
  pending.asked = number;
  Asked& asked = asked_[number];
  asked.session = lane.session;
  asked.call = operation.call;
  asked.operation = operation.number;
  asked.member = *place.member;
  asked.from_session = place.session;
  asked.tag = operation.tag;
  const auto& taken = members_.at(asked.member).taken;
  if (const auto at = taken.find({place.session, lane.session, operation.tag}); at != taken.end())
    asked.got = at->second;
  service::AskEffect request{};
  request.token = service::token_of(ServiceId::message, number);
  request.member = asked.member;
  request.kind = EntryKind::peer_receive;
  request.deadline = deadline_after(operation.deadline_ns, answer_ns);
  request.compose = [self = self_, team = lane.team, session = place.session, number, room = operation.bytes,
                     from = operation.lane, to = lane.lane, tag = operation.tag,
                     got = asked.got](const AskedMemory&, std::vector<std::byte>& payload) {
    wire::encode(wire::PeerReceive{team.user, session, number, room, got, team.lanes, from, to, tag, self, team.name},
                 payload);
  };
  effects.push_back(std::move(request));
}

void LaneMessages::cancel(Pending& pending, Effects& effects) {
  const auto asked = asked_.find(std::exchange(pending.asked, 0));
  if (asked == asked_.end()) return;
  service::AskEffect request{};
  request.token = service::token_of(ServiceId::message, 0);  // the answer does not matter
  request.member = asked->second.member;
  request.kind = EntryKind::peer_cancel;
  request.deadline = deadline_after(pending.operation.deadline_ns, answer_ns);
  request.compose = [number = asked->first](const AskedMemory&, std::vector<std::byte>& payload) {
    wire::encode(wire::PeerCancel{wire::PeerCancel::What::receive, number}, payload);
  };
  effects.push_back(std::move(request));
}

Status LaneMessages::serve_message(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerMessage message{};
  OFP_TRY(wire::decode(request.payload, message));
  const auto at = asked_.find(message.number);
  Lane* const lane = at != asked_.end() ? find(at->second.session) : nullptr;
  const bool waits = lane != nullptr && find(*lane, at->second.call, at->second.operation) != nullptr &&
                     at->second.channel == 0 && at->second.taken == 0;
  if (!waits) {
    if (message.offer != 0) (void)take_offer_(channel, message.offer);
    return fail(Error::not_found, "no receive waits for message {}", message.number);
  }
  at->second.channel = channel;
  at->second.ticket = request.ticket;
  at->second.message = message.message;
  at->second.length = message.length;
  Status begun = begin_arrival(at->first, at->second, message, now, effects);
  if (!begun) at->second.channel = 0;
  return begun;
}

Status LaneMessages::begin_arrival(std::uint64_t number, Asked& asked, const wire::PeerMessage& message, TimeNs now,
                                   Effects& effects) {
  Lane& lane = lanes_.at(asked.session);
  if (message.length > find(lane, asked.call, asked.operation)->operation.bytes)
    return fail(Error::protocol, "a message of {} bytes, but there is room for fewer", message.length);
  if (message.length == 0 || !message.bytes.empty()) {
    OperationAnswer given;
    given.bytes = message.length;
    given.enclosed.assign(message.bytes.begin(), message.bytes.end());
    arrived(number, asked, std::move(given), now, effects);
    return {};
  }
  if (message.offer != 0) {
    await_offer(number, asked, message.offer, deadline_after(now, offer_wait_ns));
    on_descriptor(now, effects);
    return {};
  }
  std::byte* to = nullptr;
  bool unshared = false;
  if (message.length <= plugin::message_enclosed_max) {
    asked.small.resize(message.length);
    to = asked.small.data();
  } else {
    if (!room_(message.length))
      return fail(Error::no_memory, "there is no memory for a message of {} bytes", message.length);
    OFP_ASSIGN(service::Buffer buffer, cache_->take_file(message.length, lane.team.user));
    asked.buffer = std::make_shared<service::Buffer>(std::move(buffer));
    to = asked.buffer->data();
    unshared = !asked.buffer->is_shared();
  }
  effects.push_back(service::PullEffect{
      asked.channel,
      service::token_of(ServiceId::message, number),
      {{message.object.region, message.object.generation, message.object.offset, to, message.length, unshared}}});
  return {};
}

// Descriptors and the messages that name them arrive separately.
void LaneMessages::on_descriptor(TimeNs now, Effects& effects) {
  for (const std::uint64_t number : offer_times_.all()) {
    const auto at = asked_.find(number);
    if (at == asked_.end()) continue;
    Asked& asked = at->second;
    Fd memory = take_offer_(asked.channel, asked.offer);
    if (!memory && now < asked.offer_until) continue;
    await_offer(number, asked, 0, never);
    const Status usable = memory ? plugin::check_output(memory.get(), asked.length, "a message of a member")
                                 : fail(Error::protocol, "a message's descriptor did not arrive");
    if (!usable) {
      refuse_arrival(asked, usable.error(), effects);
      continue;
    }
    const auto owned = std::make_shared<const Fd>(std::move(memory));
    OperationAnswer given;
    given.bytes = asked.length;
    given.fd = owned->get();
    given.owner = owned;
    arrived(number, asked, std::move(given), now, effects);
  }
  settle(now, effects);
}

void LaneMessages::await_offer(std::uint64_t number, Asked& asked, std::uint64_t offer, TimeNs until) {
  asked.offer = offer;
  asked.offer_until = until;
  offer_times_.set(number, until);
}

void LaneMessages::refuse_arrival(Asked& asked, Failure why, Effects& effects) {
  effects.push_back(FailEffect{asked.channel, asked.ticket, wire::any_reply, std::move(why)});
  asked.channel = 0;
  asked.small = {};
  asked.buffer.reset();
}

void LaneMessages::arrived(std::uint64_t number, Asked& asked, OperationAnswer given, TimeNs now, Effects& effects) {
  Lane* const lane = find(asked.session);
  Pending* const pending = lane != nullptr ? find(*lane, asked.call, asked.operation) : nullptr;
  if (pending == nullptr || pending->asked != number)
    return refuse_arrival(asked, {Error::not_found, fmt::format("no receive waits for message {}", number)}, effects);
  done(asked.channel, asked.ticket, 0, effects);
  asked.taken = asked.message;
  if (const auto member = members_.find(asked.member); member != members_.end())
    member->second.taken[{asked.from_session, asked.session, asked.tag}] = asked.taken;
  asked.channel = 0;
  ++counters_.from_members;
  answer(*pending, std::move(given), now, effects);
  lane->receives.remove_if([&](const Pending& each) { return &each == pending; });
}

void LaneMessages::on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  const std::uint64_t number = service::number_of(token);
  if (const auto asked = asked_.find(number); asked != asked_.end() && asked->second.channel != 0) {
    Asked& coming = asked->second;
    if (!status) {
      refuse_arrival(coming, status.error(), effects);
    } else {
      OperationAnswer given;
      given.bytes = coming.length;
      given.enclosed = std::move(coming.small);
      if (coming.buffer) {
        given.fd = coming.buffer->share();
        given.owner = std::exchange(coming.buffer, nullptr);
      }
      arrived(number, coming, std::move(given), now, effects);
    }
    if (coming.answered) close_ask(number, false, now);
  } else if (const auto node = tables_.extract(number)) {
    const TableComing& coming = node.mapped();
    const auto member = members_.find(coming.sender);
    wire::LaneTable table{};
    Status taken = status;
    if (taken) taken = wire::decode(coming.bytes, table);
    if (taken && member == members_.end())
      taken = fail(Error::would_block, "member \"{}\" is no longer known here", brief(coming.sender));
    if (taken && (member->second.process != coming.process || member->second.version < coming.version)) {
      if (member->second.process != coming.process) member->second.taken.clear();
      member->second.process = coming.process;
      member->second.version = coming.version;
      take_table(member->second, table);
    }
    if (taken)
      done(coming.channel, coming.ticket, 0, effects);
    else
      effects.push_back(FailEffect{coming.channel, coming.ticket, wire::any_reply, taken.error()});
  }
  settle(now, effects);
}

void LaneMessages::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, Effects& effects) {
  const std::uint64_t number = service::number_of(token);
  if (asked_.contains(number)) {
    end_ask(number, answer, now, effects);
  } else if (const auto delivery = deliveries_.extract(number)) {
    const auto taken = number_of(answer);
    end_delivery(delivery.mapped(), taken ? Status{} : tl::unexpected(taken.error()), effects);
  } else if (const auto telling = telling_.extract(number)) {
    if (const auto member = members_.find(telling.mapped()); member != members_.end()) {
      if (answer)
        member->second.told = member->second.telling;
      else
        member->second.tell_at = now + tell_again_ns;
      member->second.telling = 0;
    }
  }
  settle(now, effects);
}

// `certain`: the member has answered, so it knows which messages were taken.
void LaneMessages::close_ask(std::uint64_t number, bool certain, TimeNs now) {
  const auto node = asked_.extract(number);
  const Asked& asked = node.mapped();
  offer_times_.erase(number);
  if (const auto member = members_.find(asked.member); member != members_.end()) {
    const auto taken = member->second.taken.find({asked.from_session, asked.session, asked.tag});
    if (certain && taken != member->second.taken.end() && (taken->second == asked.taken || taken->second == asked.got))
      member->second.taken.erase(taken);
  }
  Lane* const lane = find(asked.session);
  Pending* const pending = lane != nullptr ? find(*lane, asked.call, asked.operation) : nullptr;
  if (pending == nullptr || pending->asked != number) return;
  pending->asked = 0;
  pending->ask_at = now + ask_again_ns;
  touch(*lane);
}

void LaneMessages::end_ask(std::uint64_t number, const Result<group::Answer>& answer, TimeNs now, Effects& effects) {
  Asked& asked = asked_.at(number);
  const auto value = number_of(answer);
  // A running push ends first, successfully or with its channel.
  if (asked.channel != 0 && asked.offer == 0) {
    asked.answered = true;
    return;
  }
  if (asked.channel != 0) {
    await_offer(number, asked, 0, never);
    refuse_arrival(asked, {Error::not_found, "it was given up by its sender"}, effects);
  }
  Lane* const lane = find(asked.session);
  Pending* const pending = lane != nullptr ? find(*lane, asked.call, asked.operation) : nullptr;
  if (pending != nullptr && pending->asked == number &&
      ((value && *value != 0) || (!value && is_final(value.error().code)))) {
    OperationAnswer given;
    given.bytes = value ? *value : 0;
    given.status = value ? fail(Error::too_large, "the message has {} bytes, but there is room for {}", *value,
                                pending->operation.bytes)
                         : Status(tl::unexpected(value.error()));
    this->answer(*pending, std::move(given), now, effects);
    lane->receives.remove_if([&](const Pending& each) { return &each == pending; });
  }
  close_ask(number, value.has_value(), now);
}

void LaneMessages::on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects) {
  for (auto& [session, lane] : lanes_)
    for (auto& [slot, wants] : lane.wants)
      std::erase_if(wants, [&](const Want& want) { return want.channel == channel; });
  std::erase_if(tables_, [&](const auto& each) { return each.second.channel == channel; });
  std::vector<std::uint64_t> ended;
  for (auto& [number, asked] : asked_) {
    if (asked.channel != channel) continue;
    asked.channel = 0;
    await_offer(number, asked, 0, never);
    asked.small = {};
    asked.buffer.reset();
    if (asked.answered) ended.push_back(number);
  }
  for (const std::uint64_t number : ended) close_ask(number, false, now);
  settle(now, effects);
}

// ---- location of lanes

void LaneMessages::take_table(Member& member, const wire::LaneTable& table) {
  Claims before = std::exchange(member.claims, {});
  for (const wire::LaneEntry& entry : table.entries)
    member.claims[{static_cast<uid_t>(entry.user), entry.lanes, std::string(entry.team)}][entry.lane] = entry.session;
  for (const auto& [team, lanes] : before) {
    const auto now = member.claims.find(team);
    for (const auto& [lane, session] : lanes) {
      const bool stays = now != member.claims.end() && now->second.contains(lane) && now->second.at(lane) == session;
      if (!stays) vanish(team, lane);
    }
  }
  for (const auto& [team, lanes] : member.claims)
    for (const auto& [lane, session] : lanes) appear(team, lane);
}

void LaneMessages::forget(Member& member) {
  take_table(member, {});
  member.taken.clear();
  member.process = member.version = 0;
}

void LaneMessages::on_members(const std::vector<std::string>& alive,
                              const std::optional<std::pair<std::string, std::uint64_t>>& anew, TimeNs now,
                              Effects& effects) {
  for (auto member = members_.begin(); member != members_.end();) {
    const bool lives = std::ranges::find(alive, member->first) != alive.end();
    const bool is_anew = anew && anew->first == member->first;
    if (!lives || (is_anew && member->second.process == anew->second)) forget(member->second);
    if (!lives || is_anew) {
      member->second.told = member->second.telling = 0;
      std::erase_if(telling_, [&](const auto& each) { return each.second == member->first; });
    }
    member = lives ? std::next(member) : members_.erase(member);
  }
  for (const std::string& name : alive)
    if (name != self_) members_.try_emplace(name);
  settle(now, effects);
}

// Sends each member one table at a time, and another one after a change.
void LaneMessages::tell(TimeNs now, Effects& effects) {
  if (version_ == 0) return;  // there has never been a team here
  tell_at_ = never;
  std::vector<std::byte> body;
  for (auto& [name, member] : members_) {
    if (member.told == version_ || member.telling != 0) continue;
    if (now < member.tell_at) {
      tell_at_ = std::min(tell_at_, member.tell_at);
      continue;
    }
    if (body.empty()) {
      wire::LaneTable table;
      for (const auto& [session, lane] : lanes_)
        table.entries.push_back({lane.team.user, session, lane.lane, lane.team.lanes, lane.team.name});
      wire::encode(table, body);
    }
    const std::uint64_t number = next_number_++;
    member.telling = version_;
    telling_.emplace(number, name);
    service::AskEffect ask{};
    ask.token = service::token_of(ServiceId::message, number);
    ask.member = name;
    ask.kind = EntryKind::peer_lanes;
    ask.deadline = deadline_after(now, answer_ns);
    ask.body = body;
    ask.compose = [self = self_, process = process_, version = version_](const AskedMemory& memory,
                                                                         std::vector<std::byte>& payload) {
      wire::encode(wire::PeerLanes{process, version, memory.bytes, self}, payload);
    };
    effects.push_back(std::move(ask));
  }
}

}  // namespace offpath::task
