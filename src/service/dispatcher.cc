#include "service/dispatcher.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "wire/messages/replies.h"

namespace offpath::service {

using channel::AgentEnd;
using channel::Entry;
using wire::EntryKind;

namespace {

std::string job_text(const wire::JobLabels& labels) {
  if (labels.job.empty()) return {};
  return ", job " + labels.job + (labels.step.empty() ? "" : "." + labels.step);
}

}  // namespace

Dispatcher::Dispatcher(const channel::AgentEndOptions& channels, bool (*memory_is_there)(), StartJob start_job)
    : look_budget_(channels.look_out_percent),
      channel_options_(channels),
      memory_is_there_now_(memory_is_there),
      start_job_(std::move(start_job)) {
  channel_options_.look_budget = &look_budget_;
  to_tell_.reserve(services_max);
}

Dispatcher::~Dispatcher() = default;

// ---- setup

void Dispatcher::serve(ServiceId id, Service& service) {
  by_id_[static_cast<std::size_t>(id)] = &service;
  if (std::ranges::find(services(), &service) == services().end()) in_turn_[count_++] = &service;
}

void Dispatcher::watch_memory(std::function<std::uint64_t()> free, std::vector<Service*> in_order) {
  memory_free_ = std::move(free);
  want_memory_ = std::move(in_order);
}

void Dispatcher::serve_members(uid_t owner, AskMember ask) {
  owner_ = owner;
  ask_ = std::move(ask);
}

Service* Dispatcher::service(ServiceId id) const noexcept {
  const auto place = static_cast<std::size_t>(id);
  return place < services_max ? by_id_[place] : nullptr;
}

// ---- channels

std::uint64_t Dispatcher::add_channel(std::unique_ptr<link::AgentLink> link, const wire::ChannelLayout& layout,
                                      const Client& client, TimeNs now) {
  const std::uint64_t number = next_channel_++;
  auto end = std::make_unique<AgentEnd>(number, client.program, std::move(link), layout, *this, channel_options_);
  const OpenedChannel opened{number, client, layout.streams_max, end->pull_ahead_bytes(),
                             end->traits().name == "local"};
  for (Service* each : services()) each->on_opened(opened);
  polled_.reserve(members_.size() + 1);
  Member& member = members_.emplace(number, Member{std::move(end), client, now}).first->second;
  polled_.push_back(&member);
  const AgentEnd& added = *member.end;
  log(LogLevel::info, "channel {}: {} (process {}, user {}{}) over {}: {}", number, client.program, client.pid,
      client.user, job_text(client.job_labels), added.traits().name, added.traits().reason);
  if (on_added) on_added(added);
  members_.at(number).end->poll(now);
  carry_out(now);
  return number;
}

void Dispatcher::close_channel(std::uint64_t number, Failure why, bool tells) {
  if (AgentEnd* end = find(number)) end->close(std::move(why), tells);
}

AgentEnd* Dispatcher::find(std::uint64_t number) noexcept {
  const auto at = members_.find(number);
  return at != members_.end() ? at->second.end.get() : nullptr;
}

// One channel's requests may take more memory than there is, including the reserve of a loop (base/memory_reserve.h).
// Then that channel ends with an error. If there is no memory even for that, the process cannot go on.
bool Dispatcher::serve(Member& member, TimeNs now) {
  bool did = false;
  try {
    did = member.end->poll(now);
    // Effects are carried out after each channel, so that a batch does not wait for the polls of other channels.
    if (!effects_.empty()) {
      carry_out(now);
      did = true;
    }
  } catch (const std::bad_alloc&) {
    if (member.end->closed()) throw;
    member.end->close({Error::no_memory, "no memory"});  // a short text, which allocates nothing
    did = true;
  }
  if (!to_tell_.empty()) {
    for (Service* each : to_tell_) each->on_transfers_told(now, effects_);
    to_tell_.clear();
    carry_out(now);
    did = true;
  }
  return did;
}

// Requests in their rings take no memory, and running requests return theirs.
void Dispatcher::look_for_memory() {
  if (memory_is_there_now_ == nullptr) return;
  const bool is_there = memory_is_there_now_();
  if (is_there == std::exchange(memory_is_there_, is_there)) return;
  log(LogLevel::warning, "{}",
      is_there ? "memory is available again: requests are accepted"
               : "out of memory: new requests wait in their rings");
  for (Member* each : polled_) each->end->hold_requests(is_held(each->end->number()));
}

bool Dispatcher::is_held(std::uint64_t channel) const {
  return !memory_is_there_ ||
         std::ranges::any_of(bounded_, [channel](const Service* each) { return each->is_full(channel); });
}

bool Dispatcher::poll(TimeNs now) {
  bool did = false;
  look_for_memory();
  expects_more_ = false;
  while (!look_outs_.empty() && look_outs_.begin()->first <= now)
    members_.at(look_outs_.extract(look_outs_.begin()).value().second).end->end_rest();
  for (std::size_t place = 0; place < polled_.size();) {  // channels whose rest ends are added at the end
    Member& member = *polled_[place];
    if (serve(member, now)) {
      did = true;
      expects_more_ |= !member.end->background();
    } else if (may_rest() && rest(place, now)) {
      continue;
    }
    ++place;
  }
  for (Service* each : services()) {
    if (each->next_deadline() > now) continue;
    each->on_time(now, effects_);
    did = true;
  }
  // Each finished batch returns a buffer: services that do not wait for memory are not called.
  if (memory_free_) {
    const std::uint64_t free = memory_free_();
    if (free > std::exchange(free_bytes_before_, free)) {
      for (Service* each : want_memory_)
        if (each->waits_for_memory()) each->on_memory_freed(now, effects_);
      // A channel whose requests all got memory and failed has no transfer that would look at this.
      for (Member* each : polled_)
        if (each->end->holds_requests() && !is_held(each->end->number())) {
          each->end->hold_requests(false);
          expects_more_ = true;
        }
    }
  }
  for (Service* each : services())
    if (each->on_round(now, effects_)) did = expects_more_ = true;
  carry_out(now);
  if (!closed_.empty()) remove_closed();
  return did;
}

void Dispatcher::remove_closed() {
  for (const std::uint64_t number : std::exchange(closed_, {})) {
    const auto member = members_.find(number);
    if (member == members_.end()) continue;
    timed_ -= member->second.timed.size();
    std::erase(polled_, &member->second);
    members_.erase(member);
  }
}

bool Dispatcher::fall_asleep(TimeNs now) {
  bool all = true;
  for (std::size_t place = 0; place < polled_.size();) {
    if (may_rest() && rest(place, now)) continue;
    all &= polled_[place++]->end->fall_asleep(now);
  }
  return all;
}

bool Dispatcher::rest(std::size_t place, TimeNs now) {
  AgentEnd& end = *polled_[place]->end;
  // A program that has just opened its channel is about to use it.
  const TimeNs idle_since = std::max(end.idle_since(), polled_[place]->opened_at);
  if (now - idle_since < channel_options_.idle_before_rest_ns || !end.rest(now)) return false;
  if (const TimeNs look_out = end.next_look_out(); look_out != never) look_outs_.emplace(look_out, end.number());
  polled_.erase(polled_.begin() + static_cast<std::ptrdiff_t>(place));
  return true;
}

TimeNs Dispatcher::next_deadline() const {
  TimeNs first = never;
  for (const Service* each : services()) first = std::min(first, each->next_deadline());
  for (const Member* each : polled_) first = std::min(first, each->end->next_look_out());
  return look_outs_.empty() ? first : std::min(first, look_outs_.begin()->first);
}

// ---- events

Status Dispatcher::check(const Entry& request) const {
  if (row_of(request.kind) != nullptr) return {};
  return fail(Error::protocol, "request {} has the unknown kind {}", request.ticket, request.kind);
}

Status Dispatcher::check(const RequestRow& row, const Request& request) const {
  const std::uint64_t bytes = request.entry.payload.size();
  if (bytes > row.bytes_max)
    return fail(Error::too_large, "a request {} of {} bytes, at most {} are allowed", row.name, bytes, row.bytes_max);
  if (row.who != Who::member || request.is_member) return {};
  return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
}

void Dispatcher::route(const Request& request, TimeNs now) {
  const RequestRow* row = row_of(request.entry.kind);
  OFP_ASSERT(row != nullptr);
  Service* const one = service(service_of(*row, request.entry.payload));
  if (Status may = one != nullptr ? check(*row, request) : without_service(*row); !may)
    return answer_outcome(effects_, request.channel, request.entry.ticket, std::move(may));
  for (const ServiceId each : {row->also, row->also_third})
    if (Service* also = service(each); also != nullptr) also->on_request(request, now, effects_);
  one->on_request(request, now, effects_);
}

// The error for a request whose service this agent does not have.
Status Dispatcher::without_service(const RequestRow& row) const {
  const bool needs_group = row.service == ServiceId::group || row.service == ServiceId::resources;
  if ((row.who == Who::member || needs_group) && !owner_)
    return fail(Error::unsupported, "this agent belongs to no group");
  return fail(Error::unsupported, "this agent does not serve {} requests", row.name);
}

void Dispatcher::on_request(AgentEnd& channel, const Entry& entry, TimeNs now) {
  Member& member = members_.at(channel.number());
  const Client& client = member.client;
  if (LatencyHistogram* const histogram = latency_of(static_cast<EntryKind>(entry.kind)); histogram != nullptr) {
    if (member.timed.size() == timed_max)
      member.timed.pop_front();
    else
      ++timed_;
    member.timed.push_back({entry.ticket, histogram, now});
  }
  const bool is_member = owner_ && (client.user == *owner_ || client.user == 0);
  channel.set_background(is_background(static_cast<EntryKind>(entry.kind)));
  route({channel.number(), entry, client.program, client.user, is_member}, now);
  // At once: the request's bytes belong to the reader, and its pull may start in this round.
  carry_out(now);
  channel.hold_requests(is_held(channel.number()));
}

LatencyHistogram* Dispatcher::latency_of(EntryKind kind) noexcept {
  return kind == EntryKind::pool_get ? &latencies_.get : kind == EntryKind::pool_query ? &latencies_.query : nullptr;
}

void Dispatcher::on_transfer(AgentEnd& channel, std::uint64_t token, Status status, TimeNs now) {
  pushing_.erase(token);
  Service* const one = service(service_of(token));
  OFP_ASSERT(one != nullptr);
  one->on_transfer(token, std::move(status), now, effects_);
  if (std::ranges::find(to_tell_, one) == to_tell_.end()) to_tell_.push_back(one);
  carry_out(now);
  channel.hold_requests(is_held(channel.number()));
}

void Dispatcher::on_rest_ended(AgentEnd& channel) noexcept {
  look_outs_.erase({channel.next_look_out(), channel.number()});
  polled_.push_back(&members_.at(channel.number()));
  if (!memory_is_there_) channel.hold_requests(true);  // no other service held it when its rest began
}

void Dispatcher::on_offer(AgentEnd& channel, std::uint64_t number, Result<Fd> fd, TimeNs now) {
  for (Service* each : services()) each->on_descriptor(channel.number(), number, fd, now, effects_);
  carry_out(now);
}

void Dispatcher::on_closing(AgentEnd& channel) {
  if (on_closing_channel) on_closing_channel(channel);
}

void Dispatcher::on_closed(AgentEnd& channel, const Failure& why, TimeNs now) {
  const bool usual = why.code == Error::closed || why.code == Error::peer_lost;  // a program that ends is no error
  log(usual ? LogLevel::info : LogLevel::warning, "channel {}: {} ended: {}", channel.number(), channel.program(),
      why.message);
  for (Service* each : services()) each->on_closed(channel.number(), usual, now, effects_);
  closed_.push_back(channel.number());
}

void Dispatcher::on_job(std::uint64_t token, Status status, TimeNs now) {
  pass_job(token, std::move(status), now);
  carry_out(now);
}

void Dispatcher::pass_job(std::uint64_t token, Status status, TimeNs now) {
  Service* const one = service(service_of(token));
  OFP_ASSERT(one != nullptr);
  one->on_job(token, std::move(status), now, effects_);
}

void Dispatcher::on_answer(std::uint64_t token, Result<Answer> answer, TimeNs now) {
  Service* const one = service(service_of(token));
  OFP_ASSERT(one != nullptr);
  one->on_answer(token, std::move(answer), now, effects_);
  carry_out(now);
}

void Dispatcher::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now) {
  Service* const one = service(service_of(token));
  OFP_ASSERT(one != nullptr);
  one->on_called(token, std::move(outcome), now, effects_);
}

// ---- parts of this agent

std::uint64_t Dispatcher::open_own(uid_t user) {
  const std::uint64_t number = next_channel_++;
  const Client client{.program = "this agent", .user = user};
  for (Service* each : services()) each->on_opened({number, client});
  own_.open(number, client);
  return number;
}

void Dispatcher::close_own(std::uint64_t channel, TimeNs now) {
  own_.close(channel);
  for (Service* each : services()) each->on_closed(channel, true, now, effects_);
  carry_out(now);
}

void Dispatcher::ask_own(std::uint64_t channel, EntryKind kind, Bytes payload, std::vector<std::byte> body, TimeNs now,
                         OwnChannels::Replied replied) {
  const Client& client = own_.client(channel);
  const Entry entry{own_.expect(channel, std::move(body), std::move(replied)), static_cast<std::uint8_t>(kind),
                    payload};
  route({channel, entry, client.program, client.user, false}, now);
  carry_out(now);
}

std::size_t Dispatcher::channels_of(uid_t user) const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(members_, [user](const auto& each) { return each.second.client.user == user; }));
}

std::vector<Dispatcher::ChannelStatus> Dispatcher::channels() const {
  std::vector<ChannelStatus> all;
  for (const auto& [number, member] : members_)
    all.push_back({number, member.client, member.end->traits(), member.end->counters(), member.end->asleep(),
                   member.end->requests_full(), member.end->replies_full(),
                   memory_is_there_ ? member.end->why_requests_wait() : "the agent is out of memory"});
  return all;
}

}  // namespace offpath::service
