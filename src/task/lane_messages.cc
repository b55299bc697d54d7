// Lanes of this agent's programs: messages sent by them and waits for messages.
#include "task/lane_messages.h"

#include <algorithm>

#include "plugin/message.h"
#include "wire/messages/replies.h"

namespace offpath::task {

using plugin::Operation;
using plugin::OperationAnswer;
using service::Effects;

LaneMessages::LaneMessages(Limits limits, std::shared_ptr<service::BufferCache> cache,
                           std::function<bool(std::uint64_t)> room)
    : limits_(limits), cache_(std::move(cache)), room_(std::move(room)) {}

void LaneMessages::set_self(std::string name, std::uint64_t process) {
  self_ = std::move(name);
  process_ = process;
}

// ---- location of lanes

LaneMessages::Lane* LaneMessages::find(std::uint64_t session) {
  const auto at = lanes_.find(session);
  return at != lanes_.end() ? &at->second : nullptr;
}

LaneMessages::Lane* LaneMessages::find(const Team& team, std::uint32_t lane) {
  const auto claims = own_.find(team);
  if (claims == own_.end()) return nullptr;
  const auto at = claims->second.find(lane);
  return at != claims->second.end() ? find(at->second) : nullptr;
}

LaneMessages::Pending* LaneMessages::find(Lane& lane, plugin::CallNumber call, plugin::OperationNumber operation) {
  const auto at = std::ranges::find_if(lane.receives, [&](const Pending& each) {
    return each.operation.call == call && each.operation.number == operation;
  });
  return at != lane.receives.end() ? &*at : nullptr;
}

LaneMessages::Place LaneMessages::locate(const Team& team, std::uint32_t lane) {
  Place place;
  place.here = find(team, lane);
  const std::string* first = place.here != nullptr ? &self_ : nullptr;
  for (const auto& [name, member] : members_) {
    const auto claims = member.claims.find(team);
    if (claims == member.claims.end()) continue;
    const auto at = claims->second.find(lane);
    if (at == claims->second.end() || (first != nullptr && *first <= name)) continue;
    first = &name;
    place = {nullptr, &name, at->second};
  }
  return place;
}

void LaneMessages::touch(const Team& team) {
  const auto claims = own_.find(team);
  if (claims == own_.end()) return;
  for (const auto& [lane, session] : claims->second) dirty_.insert(session);
}

void LaneMessages::appear(const Team& team, std::uint32_t lane) {
  const auto claims = own_.find(team);
  if (claims == own_.end()) return;
  for (const auto& [other, session] : claims->second) lanes_.at(session).gone.erase(lane);
  touch(team);
}

// Drops the messages that the lane has not received.
void LaneMessages::vanish(const Team& team, std::uint32_t lane) {
  const auto claims = own_.find(team);
  if (claims == own_.end()) return;
  const Place place = locate(team, lane);
  for (const auto& [other, session] : claims->second) {
    Lane& mine = lanes_.at(session);
    if (place.here == nullptr && place.member == nullptr) mine.gone.insert(lane);
    for (auto at = mine.sent.lower_bound({lane, 0}); at != mine.sent.end() && at->first.first == lane;) {
      const auto queue = at++;
      const bool going = queue->second.front().going;  // only the oldest may be under way
      for (std::size_t left = queue->second.size() - (going ? 1 : 0); left > 0; --left)
        drop(mine, queue, std::prev(queue->second.end()));
    }
  }
  touch(team);
}

Status LaneMessages::open(std::uint64_t session, uid_t user, std::string_view team, std::uint32_t lane,
                          std::uint32_t lanes, TimeNs now, Effects& effects) {
  const Team named{user, lanes, std::string(team)};
  const Place place = locate(named, lane);
  if (place.here != nullptr || place.member != nullptr)
    return fail(Error::exists,
                "lane {} of {} of team \"{}\" already belongs to another session, on {}: each lane belongs to one "
                "program; give each run's team a name of its own",
                lane, lanes, brief(team), place.here != nullptr ? "this agent" : "agent " + *place.member);
  if (lanes_.size() >= wire::lane_table_max)
    return fail(Error::too_large, "this agent has {} lanes of teams, which is the limit", lanes_.size());
  Lane& made = lanes_[session];
  made.session = session;
  made.team = named;
  made.lane = lane;
  own_[named].emplace(lane, session);
  ++version_;
  appear(named, lane);
  settle(now, effects);
  return {};
}

void LaneMessages::close(std::uint64_t session, TimeNs now, Effects& effects) {
  auto node = lanes_.extract(session);
  if (!node) return;
  Lane& lane = node.mapped();
  dirty_.erase(session);
  lane_times_.erase(session);
  const auto claims = own_.find(lane.team);
  claims->second.erase(lane.lane);
  if (claims->second.empty()) own_.erase(claims);
  ++version_;
  for (auto* const waiting : {&lane.sends, &lane.receives}) {
    for (Pending& pending : *waiting) {
      cancel(pending, effects);
      answer(pending, {fail(Error::cancelled, "the session of tasks was closed")}, now, effects);
    }
  }
  for (const auto& [slot, wants] : lane.wants)
    for (const Want& want : wants)
      effects.push_back(service::FailEffect{
          want.channel, want.ticket, wire::any_reply, {Error::not_found, "the lane's session was closed"}});
  bytes_ -= lane.bytes;
  descriptors_ -= lane.descriptors;
  counters_.held -= lane.messages;
  vanish(lane.team, lane.lane);
  for (const auto& [number, other] : lanes_)
    if (!other.sends.empty()) touch(other);  // there is more room
  settle(now, effects);
}

// ---- operations

void LaneMessages::answer(const Pending& pending, OperationAnswer given, TimeNs now, Effects& effects) {
  const Operation& operation = pending.operation;
  (operation.kind == Operation::Kind::send ? counters_.sending_ns : counters_.receiving_ns) += now - pending.since;
  if (!given.status) {
    ++counters_.failed;
    Failure& why = given.status.error();
    why.message =
        fmt::format("{} lane {}, tag {}: {}", operation.kind == Operation::Kind::send ? "send to" : "receive from",
                    operation.lane, operation.tag, why.message);
  } else if (operation.kind == Operation::Kind::receive) {
    ++counters_.received;
    counters_.received_bytes += given.bytes;
    if (given.fd >= 0) reading_[{operation.call, operation.number}] = given.owner;
  }
  effects.push_back(service::AnswerOperationEffect{operation.worker, operation.call, operation.number,
                                                   std::make_shared<OperationAnswer>(std::move(given))});
}

Status LaneMessages::check(Lane& lane, const Operation& operation) {
  if (operation.lane >= lane.team.lanes)
    return fail(Error::invalid, "team \"{}\" has {} lanes", brief(lane.team.name), lane.team.lanes);
  if (operation.bytes > wire::message_bytes_max && operation.kind == Operation::Kind::send)
    return fail(Error::too_large, "a message of {} bytes, at most {} are allowed", operation.bytes,
                wire::message_bytes_max);
  if (const Place place = locate(lane.team, lane.lane); place.here != &lane)
    return fail(Error::exists, "lane {} of team \"{}\" was also claimed on agent {}, which keeps it", lane.lane,
                brief(lane.team.name), place.member != nullptr ? *place.member : self_);
  if (lane.sends.size() + lane.receives.size() >= limits_.lane_operations_max)
    return fail(Error::no_memory, "{} operations of this lane wait, which is the limit",
                lane.sends.size() + lane.receives.size());
  return {};
}

void LaneMessages::on_operation(Operation operation, TimeNs now, Effects& effects) {
  Lane* const lane = find(operation.session);
  Status may = lane != nullptr
                   ? check(*lane, operation)
                   : fail(Error::unsupported,
                          "the session of this task has no team: its program has to name one when it opens it "
                          "(ofp_tasks_options.team)");
  Pending pending{std::move(operation), now};
  if (!may) {
    answer(pending, {std::move(may)}, now, effects);
  } else {
    const bool sends = pending.operation.kind == Operation::Kind::send;
    (sends ? lane->sends : lane->receives).push_back(std::move(pending));
    touch(*lane);
  }
  settle(now, effects);
}

void LaneMessages::on_call_ended(plugin::CallNumber call, TimeNs now, Effects& effects) {
  for (auto& [session, lane] : lanes_) {
    for (auto* const waiting : {&lane.sends, &lane.receives}) {
      std::erase_if(*waiting, [&](Pending& pending) {
        if (pending.operation.call != call) return false;
        cancel(pending, effects);
        answer(pending, {fail(Error::cancelled, "the call is no longer wanted")}, now, effects);
        return true;
      });
    }
  }
  reading_.erase(reading_.lower_bound({call, 0}), reading_.lower_bound({call + 1, 0}));
  settle(now, effects);
}

bool LaneMessages::has_room(const Lane& lane, const Operation& operation) const noexcept {
  const std::uint64_t bytes = operation.bytes;
  if (lane.messages >= limits_.lane_messages_max) return false;
  if (operation.memory && descriptors_ >= limits_.descriptors_max && lane.descriptors >= limits_.lane_descriptors_min)
    return false;
  if (lane.bytes + bytes <= limits_.lane_bytes_min) return true;
  return lane.bytes + bytes <= limits_.lane_bytes_max && bytes_ + bytes <= std::max(limits_.bytes_max, bytes);
}

void LaneMessages::keep(Lane& lane, Operation& operation) {
  Message message;
  message.number = lane.next_message++;
  message.bytes = operation.bytes;
  message.enclosed = std::move(operation.enclosed);
  if (operation.memory) {
    message.memory = std::make_shared<const Fd>(std::move(operation.memory));
    ++lane.descriptors;
    ++descriptors_;
  }
  lane.sent[{operation.lane, operation.tag}].push_back(std::move(message));
  lane.bytes += operation.bytes;
  bytes_ += operation.bytes;
  ++lane.messages;
  ++counters_.held;
  ++counters_.sent;
  counters_.sent_bytes += operation.bytes;
}

void LaneMessages::drop(Lane& lane, Sent::iterator queue, std::deque<Message>::iterator message) {
  lane.bytes -= message->bytes;
  bytes_ -= message->bytes;
  if (message->memory) {
    --lane.descriptors;
    --descriptors_;
  }
  --lane.messages;
  --counters_.held;
  queue->second.erase(message);
  if (queue->second.empty()) lane.sent.erase(queue);
  for (const auto& [session, other] : lanes_)
    if (!other.sends.empty()) touch(other);
}

// In order: a small message does not overtake a large one that waits.
void LaneMessages::admit(Lane& lane, TimeNs now, Effects& effects) {
  while (!lane.sends.empty()) {
    Pending& pending = lane.sends.front();
    Operation& operation = pending.operation;
    if (lane.gone.contains(operation.lane)) {
      answer(pending, {fail(Error::peer_lost, "that lane is gone")}, now, effects);
    } else if (has_room(lane, operation)) {
      keep(lane, operation);
      if (const Lane* const to = find(lane.team, operation.lane)) touch(*to);
      answer(pending, {}, now, effects);
    } else {
      return;
    }
    lane.sends.pop_front();
  }
}

// True: it has been answered.
bool LaneMessages::receive(Lane& lane, Pending& pending, TimeNs now, Effects& effects) {
  const Operation& operation = pending.operation;
  const Place place = locate(lane.team, operation.lane);
  if (place.member == nullptr) pending.ask_at = 0;
  if (place.here == nullptr && place.member == nullptr) {
    if (!lane.gone.contains(operation.lane)) return false;
    answer(pending, {fail(Error::peer_lost, "that lane is gone")}, now, effects);
    return true;
  }
  if (place.member != nullptr) {
    if (pending.asked == 0 && pending.ask_at <= now) ask(lane, pending, place, effects);
    return false;
  }
  const auto slot = place.here->sent.find({lane.lane, operation.tag});
  if (slot == place.here->sent.end()) return false;
  const auto message = slot->second.begin();
  if (message->going) return false;
  OperationAnswer given;
  given.bytes = message->bytes;
  if (message->bytes > operation.bytes) {
    given.status =
        fail(Error::too_large, "the message has {} bytes, but there is room for {}", message->bytes, operation.bytes);
    answer(pending, std::move(given), now, effects);
    return true;
  }
  given.enclosed = std::move(message->enclosed);
  if (message->memory) {
    given.fd = message->memory->get();
    given.owner = message->memory;
  }
  drop(*place.here, slot, message);
  answer(pending, std::move(given), now, effects);
  return true;
}

void LaneMessages::settle(TimeNs now, Effects& effects) {
  while (!dirty_.empty()) {
    Lane* const lane = find(*dirty_.begin());
    dirty_.erase(dirty_.begin());
    if (lane == nullptr) continue;
    admit(*lane, now, effects);
    std::erase_if(lane->receives, [&](Pending& pending) { return receive(*lane, pending, now, effects); });
    serve_wants(*lane, now, effects);
    note_deadline(*lane);
  }
  tell(now, effects);
}

// ---- time

void LaneMessages::end_late(TimeNs now, Effects& effects) {
  for (const std::uint64_t session : lane_times_.take(now)) {
    Lane& lane = lanes_.at(session);
    touch(lane);  // which notes the next one
    for (auto* const waiting : {&lane.sends, &lane.receives}) {
      std::erase_if(*waiting, [&](Pending& pending) {
        if (pending.operation.deadline_ns > now) return false;
        cancel(pending, effects);
        const bool sends = pending.operation.kind == Operation::Kind::send;
        answer(pending,
               {fail(Error::timeout, "{} when the call's deadline approached",
                     sends ? "there was no room" : "no message had arrived")},
               now, effects);
        return true;
      });
    }
  }
}

void LaneMessages::on_time(TimeNs now, Effects& effects) {
  end_late(now, effects);
  on_descriptor(now, effects);  // and then settles
}

void LaneMessages::note_deadline(const Lane& lane) {
  TimeNs next = never;
  for (const Pending& pending : lane.sends) next = std::min(next, pending.operation.deadline_ns);
  for (const Pending& pending : lane.receives) {
    next = std::min(next, pending.operation.deadline_ns);
    if (pending.asked == 0 && pending.ask_at != 0) next = std::min(next, pending.ask_at);
  }
  lane_times_.set(lane.session, next);
}

MessageCounters LaneMessages::counters() const {
  MessageCounters all = counters_;
  all.lanes = lanes_.size();
  all.held_bytes = bytes_;
  return all;
}

}  // namespace offpath::task
