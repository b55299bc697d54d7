#include "service/dispatcher.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::agent {

using channel::AgentEnd;
using channel::Entry;
using mover::Service;
using wire::EntryKind;

namespace {

bool is_of_sift(const Entry& request) noexcept {
  const auto kind = static_cast<EntryKind>(request.kind);
  if (kind >= EntryKind::peer_piece && kind <= EntryKind::sift_info) return true;
  wire::PeerDefine definition{};
  wire::PeerDrop peer{};
  wire::PoolDrop drop{};
  if (kind == EntryKind::peer_define)
    return wire::decode(request.payload, definition) && sift::SiftService::is_own(definition.pool);
  if (kind == EntryKind::peer_drop) return wire::decode(request.payload, peer) && sift::SiftService::is_own(peer.pool);
  return kind == EntryKind::pool_drop && wire::decode(request.payload, drop) && sift::SiftService::is_own(drop.pool);
}

bool is_of_peer(EntryKind kind) noexcept {
  return (kind >= EntryKind::peer_put && kind <= EntryKind::peer_define) || kind == EntryKind::peer_compute ||
         kind == EntryKind::peer_compare || kind == EntryKind::peer_cancel;
}

bool is_of_pool(EntryKind kind) noexcept {
  return kind == EntryKind::pool_get || kind == EntryKind::pool_list || kind == EntryKind::pool_drop ||
         kind == EntryKind::pool_write || kind == EntryKind::pool_compute || kind == EntryKind::push_lease ||
         kind == EntryKind::release || kind == EntryKind::pool_cancel;
}

bool is_of_queries(const Entry& request) noexcept {
  const auto kind = static_cast<EntryKind>(request.kind);
  wire::PeerCancel cancel{};
  return kind == EntryKind::pool_query || kind == EntryKind::query_next || kind == EntryKind::peer_query ||
         kind == EntryKind::peer_query_next ||
         (kind == EntryKind::peer_cancel && wire::decode(request.payload, cancel) &&
          cancel.what == wire::PeerCancel::What::query) ||
         (kind == EntryKind::release && pool::QueryService::is_own(request));
}

bool is_of_exchange(EntryKind kind) noexcept {
  return kind >= EntryKind::exchange_open && kind <= EntryKind::peer_exchange;
}

bool is_of_lanes(const Entry& request) noexcept {
  const auto kind = static_cast<EntryKind>(request.kind);
  wire::PeerCancel cancel{};
  return (kind >= EntryKind::peer_lanes && kind <= EntryKind::peer_message) ||
         (kind == EntryKind::peer_cancel && wire::decode(request.payload, cancel) &&
          cancel.what == wire::PeerCancel::What::receive);
}

bool is_of_tasks(EntryKind kind) noexcept { return kind >= EntryKind::task_open && kind <= EntryKind::task_close; }

constexpr std::uint64_t keys_share = 8;      // as much as an eighth of the memory, besides it, may be taken by keys
constexpr std::uint64_t reserves_share = 2;  // at most half of the memory is set aside for copies
// an eighth of the memory is kept for objects of other members, if there are any
constexpr std::uint64_t members_share = 8;

DispatcherOptions with_limits(DispatcherOptions options) {
  options.pools.object_bytes_max = options.sifts.object_bytes_max = options.mover.memory_bytes_max;
  options.pools.real_clock = options.real_clock;
  options.pools.reserved_bytes_max = options.mover.memory_bytes_max / reserves_share;
  options.sifts.user_pools_max = options.pools.table.user_pools_max;
  options.pools.table.key_bytes_max = options.mover.memory_bytes_max / keys_share;
  return options;
}

std::string job_text(const wire::JobLabels& labels) {
  if (labels.job.empty()) return {};
  return ", job " + labels.job + (labels.step.empty() ? "" : "." + labels.step);
}

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, StartJob start_job)
    : options_(with_limits(options)),
      start_job_(std::move(start_job)),
      buffers_(mover::BufferCache::make(options.buffers)),
      pools_(
          options_.pools, buffers_, [this](std::uint64_t bytes) { return mover_.memory_free() >= bytes; },
          [this] { return memory_wanted(); }, [this](std::uint64_t bytes) { return mover_.memory_unused() >= bytes; }),
      sifts_(
          options_.sifts, buffers_, [this](std::uint64_t bytes) { return mover_.memory_free() >= bytes; }, pools_),
      queries_(options.queries, buffers_, track_queries_),
      computes_(options.computes, buffers_, pools_,
                [this](std::uint64_t bytes) { return mover_.memory_free_for_programs() >= bytes; }),
      tasks_(options.tasks, buffers_,
             [this](std::uint64_t bytes) { return mover_.memory_free_for_programs() >= bytes; }),
      exchanges_(options.exchanges, options.nonce, options.channels.clock, options.suspended),
      mover_(options.mover, buffers_, stores_),
      gauges_(options.gauges_interval_ns) {
  mover_.set_aside([this] { return mover::Mover::Aside{pools_.reserved(), pools_.reserved_left()}; });
  tasks_.messages().set_take_offer(
      [this](std::uint64_t channel, std::uint64_t number) { return pools_.take_offer(channel, number); });
  tasks_.set_memory_max([this] { return mover_.memory_max_for_programs(); });
}

Dispatcher::~Dispatcher() = default;

std::uint64_t Dispatcher::add_channel(std::unique_ptr<link::AgentLink> link, const wire::ChannelLayout& layout,
                                      const mover::Client& client, TimeNs now) {
  const std::uint64_t number = next_channel_++;
  auto end = std::make_unique<AgentEnd>(number, client.program, std::move(link), layout, *this, options_.channels);
  mover_.on_channel_open(number, client, layout.streams_max, end->pull_ahead_bytes());
  pools_.on_channel_open(number, client.user);
  sifts_.on_channel_open(number, client.user);
  queries_.on_channel_open(number, client.user);
  tasks_.on_channel_open(number, client.user, client.group);
  exchanges_.on_channel_open(number, client.user, end->traits().name == "local");
  const auto& added = *members_.emplace(number, Member{std::move(end), client}).first->second.end;
  log(LogLevel::info, "channel {}: {} (process {}, user {}{}) over {}: {}", number, client.program, client.pid,
      client.user, job_text(client.job_labels), added.traits().name, added.traits().reason);
  if (on_added) on_added(added);
  members_.at(number).end->poll(now);
  carry_out(now);
  return number;
}

void Dispatcher::close_channel(std::uint64_t number, Failure why) {
  if (AgentEnd* end = find(number)) end->close(std::move(why));
}

AgentEnd* Dispatcher::find(std::uint64_t number) noexcept {
  const auto at = members_.find(number);
  return at != members_.end() ? at->second.end.get() : nullptr;
}

// What one channel's requests take may be more than there is, the reserve of a loop's memory (base/memory_reserve.h)
// included. That channel ends, and is told why. One that has no memory to end cannot be served by anybody.
bool Dispatcher::serve(Member& member, TimeNs now) {
  bool did = false;
  try {
    did = member.end->poll(now);
    // Effects are carried out channel by channel, so that a batch of one does not wait for the looks at the others.
    if (!effects_.empty()) {
      carry_out(now);
      did = true;
    }
  } catch (const std::bad_alloc&) {
    if (member.end->closed()) throw;
    member.end->close({Error::no_memory, "no memory"});  // so short that it takes none
    did = true;
  }
  if (mover_.has_pulled()) {
    mover_.finish_pulled(now, effects_);
    carry_out(now);
    did = true;
  }
  return did;
}

// Requests that wait in their rings take none, and those under way give theirs back.
void Dispatcher::look_for_memory() {
  if (options_.memory_is_there == nullptr) return;
  const bool is_there = options_.memory_is_there();
  if (is_there == std::exchange(memory_is_there_, is_there)) return;
  log(LogLevel::warning, "{}",
      is_there ? "there is memory again: requests are taken"
               : "no memory is left: new requests wait until there is some");
  for (auto& [number, member] : members_) member.end->hold_requests(!is_there || mover_.is_full(number));
}

bool Dispatcher::poll(TimeNs now) {
  bool did = false;
  look_for_memory();
  for (auto& [number, member] : members_) did |= serve(member, now);
  if (sifts_.next_deadline() <= now) {
    sifts_.on_time(now, effects_);
    did = true;
  }
  if (pools_.next_deadline() <= now) {
    pools_.on_time(now, effects_);
    did = true;
  }
  if (queries_.next_deadline() <= now) {
    queries_.on_time(now, effects_);
    did = true;
  }
  if (computes_.next_deadline() <= now) {
    computes_.on_time(now, effects_);
    did = true;
  }
  if (tasks_.next_deadline() <= now) {
    tasks_.on_time(now, effects_);
    did = true;
  }
  if (tasks_.messages().next_deadline() <= now) {
    tasks_.messages().on_time(now, effects_);
    did = true;
  }
  if (gauges_.next_deadline() <= now) {
    channel::Effects effects;
    gauges_.on_time(now, effects);
    carry_out(effects, Service::gauges);
    did = true;
  }
  if (exchanges_.next_deadline() <= now) {
    exchange::ServiceEffects effects;
    exchanges_.on_time(now, effects);
    carry_out(effects);
    did = true;
  }
  // Each batch gives a buffer back: who waits for none is not bothered with it.
  const std::uint64_t free = mover_.memory_free();
  if (free > std::exchange(free_bytes_before_, free)) {
    mover_.on_memory_freed(effects_);
    if (pools_.waits_for_memory()) pools_.on_memory_freed(now, effects_);
    if (sifts_.waits_for_memory()) sifts_.on_memory_freed(now, effects_);
    if (tasks_.waits_for_memory()) tasks_.on_memory_freed(now, effects_);
  }
  if (pools_.has_disk()) {
    const std::uint64_t freed = pools_.table().freed();
    pools_.spill(now, effects_);
    did |= !effects_.empty() || freed != pools_.table().freed();  // who waits for that is told in the next round
  }
  mover_.drop_buffers(effects_);
  carry_out(now);
  if (!closed_.empty()) remove_closed();
  return did;
}

void Dispatcher::remove_closed() {
  for (const std::uint64_t number : std::exchange(closed_, {})) members_.erase(number);
}

bool Dispatcher::fall_asleep(TimeNs now) {
  bool all = true;
  for (auto& [number, member] : members_) all &= member.end->fall_asleep(now);
  return all;
}

TimeNs Dispatcher::next_deadline() const {
  return std::min({pools_.next_deadline(), queries_.next_deadline(), computes_.next_deadline(), sifts_.next_deadline(),
                   exchanges_.next_deadline(), tasks_.next_deadline(), tasks_.messages().next_deadline(),
                   gauges_.next_deadline()});
}

// ---- events

void Dispatcher::on_request(AgentEnd& channel, const Entry& request, TimeNs now) {
  const auto kind = static_cast<EntryKind>(request.kind);
  if (kind == EntryKind::member_table) return ask_group(channel, request);
  if (kind == EntryKind::tcp_open || kind == EntryKind::tcp_close || kind == EntryKind::tcp_slow_path) {
    if (tcp_.on_request) return tcp_.on_request(channel, request, members_.at(channel.number()).client.user, now);
    return channel.reply_failure(request.ticket, wire::any_reply,
                                 {Error::unsupported, "this agent has no device for TCP connections (tcp.device)"});
  }
  if (kind == EntryKind::gauges_open || kind == EntryKind::gauges_close) {
    channel::Effects effects;
    gauges_.on_request(channel.number(), channel.program(), request, now, effects);
    return carry_out(effects, Service::gauges);
  }
  if (is_of_exchange(kind)) {
    exchange::ServiceEffects effects;
    exchanges_.on_request(channel.number(), request, is_member(channel), now, effects);
    return carry_out(effects);
  }
  if (kind == EntryKind::pool_cancel)
    queries_.on_request(channel.number(), request, false, now, effects_);  // or it is of a get: below
  if (is_of_lanes(request))
    tasks_.messages().on_peer_request(channel.number(), request, is_member(channel), now, effects_);
  else if (is_of_tasks(kind))
    tasks_.on_request(channel.number(), request, now, effects_);
  else if (is_of_queries(request))
    queries_.on_request(channel.number(), request, is_member(channel), now, effects_);
  else if (is_of_sift(request))
    sifts_.on_request(channel.number(), request, is_member(channel), now, effects_);
  else if (is_of_pool(kind))
    pools_.on_request(channel.number(), request, now, effects_);
  else if (is_of_peer(kind))
    pools_.on_peer_request(channel.number(), request, is_member(channel), now, effects_);
  else
    mover_.on_request(channel.number(), request, now, effects_);
  // At once: the request's bytes are the reader's, and its pull may start in this very round.
  carry_out(now);
  channel.hold_requests(!memory_is_there_ || mover_.is_full(channel.number()));
}

void Dispatcher::on_transfer(AgentEnd& channel, std::uint64_t token, Status status, TimeNs now) {
  pushing_.erase(token);
  const Service service = mover::service_of(token);
  if (service == Service::group) {
    channel::Effects effects;
    group_->on_transfer(mover::number_of(token), status, now, effects);
    return carry_out(effects, service);
  }
  if (service == Service::gauges) {
    channel::Effects effects;
    gauges_.on_transfer(mover::number_of(token), status, now,
                        options_.real_clock != nullptr ? options_.real_clock() : now, effects);
    return carry_out(effects, service);
  }
  if (service == Service::exchange) {
    exchange::ServiceEffects effects;
    exchanges_.on_transfer(mover::number_of(token), status, now, effects);
    return carry_out(effects);
  }
  if (service == Service::message)
    tasks_.messages().on_transfer(token, status, now, effects_);
  else if (service == Service::task)
    tasks_.on_transfer(token, status, now, effects_);
  else if (service == Service::mover)
    mover_.on_transfer(channel.number(), token, std::move(status), now, effects_);
  else if (service == Service::query)
    queries_.on_transfer(token, std::move(status), now, effects_);
  else if (service == Service::sift)
    sifts_.on_transfer(token, status, now, effects_);
  else
    pools_.on_transfer(token, std::move(status), now, effects_);
  carry_out(now);
  channel.hold_requests(!memory_is_there_ || mover_.is_full(channel.number()));
}

// So much that streams find room: from an eighth of the memory to a quarter, or what the hungriest of them lacks.
std::uint64_t Dispatcher::memory_wanted() const {
  const std::uint64_t all = options_.mover.memory_bytes_max, free = mover_.memory_free_for_programs();
  const std::uint64_t tasks = tasks_.memory_wanted();
  const std::uint64_t wanted =
      std::max({free < all / 8 ? all / 4 - free : 0, mover_.memory_lacking(), tasks - std::min(tasks, free)});
  return wanted - std::min(wanted, buffers_->leaving_bytes());  // which will be free without anybody's help
}

Status Dispatcher::recover(TimeNs now) {
  OFP_TRY(pools_.recover(now, effects_));
  sifts_.recover(now, effects_);
  carry_out(now);
  return {};
}

void Dispatcher::on_offer(AgentEnd& channel, std::uint64_t number, Result<Fd> fd, TimeNs now) {
  pools_.on_offer(channel.number(), number, std::move(fd), now, effects_);
  sifts_.on_descriptor(now, effects_);
  tasks_.messages().on_descriptor(now, effects_);
  carry_out(now);
}

void Dispatcher::on_closing(AgentEnd& channel) {
  if (on_closing_channel) on_closing_channel(channel);
}

void Dispatcher::on_closed(AgentEnd& channel, const Failure& why, TimeNs now) {
  const bool usual = why.code == Error::closed || why.code == Error::peer_lost;  // programs end
  log(usual ? LogLevel::info : LogLevel::warning, "channel {}: {} ended: {}", channel.number(), channel.program(),
      why.message);
  pools_.on_channel_closed(channel.number(), now, effects_);
  sifts_.on_channel_closed(channel.number(), now, effects_);
  if (group_ != nullptr) group_->on_channel_closed(channel.number());
  gauges_.on_channel_closed(channel.number());
  queries_.on_channel_closed(channel.number(), now, effects_);
  computes_.on_channel_closed(channel.number(), effects_);
  if (tcp_.on_channel_closed) tcp_.on_channel_closed(channel.number(), usual, now);
  tasks_.on_channel_closed(channel.number(), now, effects_);
  tasks_.messages().on_channel_closed(channel.number(), now, effects_);
  exchange::ServiceEffects left;
  exchanges_.on_channel_closed(channel.number(), now, left);
  carry_out(left);
  mover_.on_channel_closed(channel.number(), now, effects_);
  closed_.push_back(channel.number());
}

void Dispatcher::on_job(std::uint64_t token, Status status, TimeNs now) {
  pass_job(token, std::move(status), now);
  carry_out(now);
}

void Dispatcher::pass_job(std::uint64_t token, Status status, TimeNs now) {
  const Service service = mover::service_of(token);
  if (service == Service::mover)
    mover_.on_job(token, std::move(status), now, effects_);
  else if (service == Service::compute)
    computes_.on_job(token, std::move(status), now, effects_);
  else if (service == Service::query)
    queries_.on_job(token, std::move(status), now, effects_);
  else if (service == Service::sift)
    sifts_.on_job(token, status, now, effects_);
  else if (service == Service::disk)
    pools_.on_disk_job(token, status, now, effects_);
  else
    pools_.on_job(token, std::move(status), now, effects_);
}

// ---- the group

void Dispatcher::ask_group(AgentEnd& channel, const Entry& request) {
  if (group_ == nullptr)
    return channel.reply_failure(request.ticket, wire::any_reply,
                                 {Error::unsupported, "this agent belongs to no group"});
  channel::Effects effects;
  group_->on_request(channel.number(), request, is_member(channel), effects);
  carry_out(effects, Service::group);
}

bool Dispatcher::is_member(const AgentEnd& channel) const {
  const uid_t user = members_.at(channel.number()).client.user;
  return group_ != nullptr && (user == owner_ || user == 0);
}

void Dispatcher::serve_group(group::Group& group, uid_t owner, TimeNs now) {
  group_ = &group;
  owner_ = owner;
  const group::Identity& self = group.membership().self().id;
  pools_.set_self(self.name, self.process);
  sifts_.set_self(self.name, self.process);
  pools_.set_own_user(owner);
  exchanges_.set_self(self.name, owner);
  tasks_.messages().set_self(self.name, self.process);
  group.on_change([this](const group::Change& change, TimeNs at) { on_change(change, at); });
  tell_exchanges(now);  // before the first program asks for one
}

Status Dispatcher::make_pool(const std::string& name, uid_t user) {
  return sift::SiftService::is_own(name) ? sifts_.make(name, user, effects_) : pools_.make(name, user, effects_);
}

// A suspect is a member yet: it is one opinion, and moving rows for it would be dear.
void Dispatcher::on_change(const group::Change& change, TimeNs now) {
  const group::Membership& membership = group_->membership();
  std::vector<std::string> alive{membership.self().id.name};
  for (const auto& [name, member] : membership.others())
    if (member.state == group::MemberState::alive || member.state == group::MemberState::suspect) alive.push_back(name);
  std::ranges::sort(alive);
  std::vector<std::string> anew;
  if (change.instead_of && change.instead_of->process != change.member.process) anew.push_back(change.member.name);
  mover_.keep_for_members(alive.size() > 1 ? options_.mover.memory_bytes_max / members_share : 0, effects_);
  sifts_.on_members(alive, anew, now, effects_);
  std::optional<std::pair<std::string, std::uint64_t>> before;
  if (!anew.empty()) before.emplace(anew.front(), change.instead_of->process);
  tasks_.messages().on_members(alive, before, now, effects_);
  pools_.on_members(std::move(alive), anew, now, effects_);
  carry_out(now);
  tell_exchanges(now);
}

// The dead are expected: an exchange says that they are missing. Who has left is not.
void Dispatcher::tell_exchanges(TimeNs now) {
  if (!exchanges_.is_any()) return;
  const auto host_of = [](const std::string& address) {
    const std::size_t from = address.find(':') + 1, to = address.rfind(':');
    return address.starts_with("unix:") || to <= from ? std::string() : address.substr(from, to - from);
  };
  const group::Membership& membership = group_->membership();
  std::vector<exchange::GroupMember> members{{membership.self().id.name, host_of(membership.self().id.address), true}};
  for (const auto& [name, member] : membership.others())
    if (member.state != group::MemberState::left)
      members.push_back({name, host_of(member.id.address), member.state != group::MemberState::dead});
  exchange::ServiceEffects effects;
  exchanges_.on_members(members, now, effects);
  carry_out(effects);
}

void Dispatcher::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now) {
  if (mover::service_of(token) == Service::task)
    tasks_.on_called(token, std::move(outcome), now, effects_);
  else
    computes_.on_called(token, std::move(outcome), now, effects_);
}

void Dispatcher::on_operation(plugin::Operation operation, TimeNs now) {
  tasks_.messages().on_operation(std::move(operation), now, effects_);
  carry_out(now);
}

void Dispatcher::on_call_ended(plugin::CallNumber call, TimeNs now) {
  tasks_.messages().on_call_ended(call, now, effects_);
  carry_out(now);
}

// ---- asked otherwise

void Dispatcher::put(mover::Store::Place place, mover::FramePtr frame, TimeNs now, std::function<void(Status)> done) {
  auto admitted = stores_.admit(place.pool, place.user, effects_);
  if (!admitted) return done(tl::unexpected(std::move(admitted).error()));
  place.pool = std::move(*admitted);
  const std::uint64_t token = mover::token_of(Service::asked, next_put_++);
  const auto stored = stores_.put(place, std::move(frame), token, now, effects_);
  stores_.leave(place.pool);
  if (stored && *stored == mover::Stored::later)
    putting_.emplace(token, std::move(done));
  else
    done(stored ? Status{} : tl::unexpected(stored.error()));
  carry_out(now);  // it may have been waited for
}

void Dispatcher::on_stored(std::uint64_t token, Status status, TimeNs now) {
  if (mover::service_of(token) == Service::mover) return mover_.on_stored(token, std::move(status), now, effects_);
  if (mover::service_of(token) == Service::compute) return computes_.on_stored(token, std::move(status), now, effects_);
  if (const auto node = putting_.extract(token)) node.mapped()(std::move(status));
}

std::uint64_t Dispatcher::open_own(uid_t user) {
  const std::uint64_t number = next_channel_++;
  own_.open(number);
  pools_.on_channel_open(number, user);
  sifts_.on_channel_open(number, user);
  queries_.on_channel_open(number, user);
  return number;
}

void Dispatcher::close_own(std::uint64_t channel, TimeNs now) {
  own_.close(channel);
  pools_.on_channel_closed(channel, now, effects_);
  sifts_.on_channel_closed(channel, now, effects_);
  queries_.on_channel_closed(channel, now, effects_);
  carry_out(now);
}

void Dispatcher::ask_own(std::uint64_t channel, EntryKind kind, Bytes payload, std::vector<std::byte> body, TimeNs now,
                         OwnChannels::Replied replied) {
  const Entry request{own_.expect(channel, std::move(body), std::move(replied)), static_cast<std::uint8_t>(kind),
                      payload};
  if (is_of_queries(request))
    queries_.on_request(channel, request, false, now, effects_);
  else if (is_of_sift(request))
    sifts_.on_request(channel, request, false, now, effects_);
  else
    pools_.on_request(channel, request, now, effects_);
  carry_out(now);
}

std::size_t Dispatcher::channels_of(uid_t user) const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(members_, [user](const auto& each) { return each.second.client.user == user; }));
}

std::vector<Dispatcher::ChannelStatus> Dispatcher::channels() const {
  std::vector<ChannelStatus> all;
  for (const auto& [number, member] : members_)
    all.push_back({number, member.client, member.end->traits(), member.end->counters(), member.end->asleep()});
  return all;
}

}  // namespace offpath::agent
