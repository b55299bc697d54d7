#include "agent/services/dispatcher.h"

#include <algorithm>
#include <utility>

#include "agent/services/resource_sections.h"

namespace offpath::agent {

using service::ServiceId;

namespace {

constexpr std::uint64_t keys_share = 8;      // keys may take an eighth as much as the memory, in addition to it
constexpr std::uint64_t reserves_share = 2;  // at most half of the memory is reserved for copies
// an eighth of the memory is kept for objects of other members, if there are any
constexpr std::uint64_t members_share = 8;

DispatcherOptions with_limits(DispatcherOptions options) {
  options.pools.object_bytes_max = options.sifts.object_bytes_max = options.mover.memory_bytes_max;
  options.pools.real_clock = options.real_clock;
  options.mover.clock = options.channels.clock;
  options.pools.reserved_bytes_max = options.mover.memory_bytes_max / reserves_share;
  options.sifts.user_pools_max = options.pools.table.user_pools_max;
  options.pools.table.key_bytes_max = options.mover.memory_bytes_max / keys_share;
  return options;
}

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, StartJob start_job)
    : service::Dispatcher(options.channels, options.memory_is_there, std::move(start_job)),
      options_(with_limits(options)),
      buffers_(service::BufferCache::make(options.buffers)),
      pools_(
          options_.pools, buffers_, [this](std::uint64_t bytes) { return mover_.credit().make_free(bytes); },
          [this] { return memory_wanted(); },
          [this](std::uint64_t bytes) { return mover_.credit().make_unused(bytes); }),
      sifts_(
          options_.sifts, buffers_, [this](std::uint64_t bytes) { return mover_.credit().make_free(bytes); }, pools_),
      queries_(options.queries, buffers_, track_queries_),
      computes_(options.computes, buffers_, pools_,
                [this](std::uint64_t bytes) { return mover_.credit().make_free_for_programs(bytes); }),
      tasks_(options.tasks, buffers_,
             [this](std::uint64_t bytes) { return mover_.credit().make_free_for_programs(bytes); }),
      exchanges_(options.exchanges, options.nonce, options.channels.clock, options.suspended),
      mover_(options_.mover, buffers_, stores_),
      gauges_(options.gauges_interval_ns, options.real_clock) {
  mover_.credit().set_aside([this] { return mover::Credit::Aside{pools_.reserved(), pools_.reserved_left()}; });
  tasks_.messages().set_take_offer(
      [this](std::uint64_t channel, std::uint64_t number) { return pools_.take_offer(channel, number); });
  tasks_.set_memory_max([this] { return mover_.credit().memory_max_for_programs(); });

  // The order in which services get events that are for all. Pools are first: they hold descriptors that sift pieces
  // and messages look up, and they spill before the mover drops buffers. The mover is last: credit returned by a closed
  // channel may be granted after the others have released their memory. A group is served from serve_group on.
  serve(ServiceId::pool, pools_);
  serve(ServiceId::peers, pools_);
  serve(ServiceId::disk, pools_);
  serve(ServiceId::sift, sifts_);
  serve(ServiceId::gauges, gauges_);
  serve(ServiceId::query, queries_);
  serve(ServiceId::compute, computes_);
  serve(ServiceId::tcp, tcp_);
  serve(ServiceId::task, tasks_);
  serve(ServiceId::message, tasks_.messages());
  serve(ServiceId::exchange, exchanges_);
  serve(ServiceId::asked, own_puts_);
  serve(ServiceId::mover, mover_);
  hold_by({&mover_});
  measure_by(options.channels.clock);
  watch_memory([this] { return mover_.credit().memory_free(); }, {&mover_, &pools_, &sifts_, &tasks_});
}

Dispatcher::~Dispatcher() { drop_channels(); }

// The memory to free so that streams find room: from an eighth of the memory to a quarter, or the largest unmet demand.
std::uint64_t Dispatcher::memory_wanted() const {
  const std::uint64_t all = options_.mover.memory_bytes_max, free = mover_.credit().memory_reach_for_programs();
  const std::uint64_t tasks = tasks_.memory_wanted();
  const std::uint64_t wanted =
      std::max({free < all / 8 ? all / 4 - free : 0, mover_.credit().memory_lacking(), tasks - std::min(tasks, free)});
  return wanted - std::min(wanted, buffers_->leaving_bytes());  // those are about to be freed anyway
}

Status Dispatcher::make_pool(const std::string& name, uid_t user) {
  return sift::SiftService::is_own(name) ? sifts_.make(name, user, effects()) : pools_.make(name, user, effects());
}

Status Dispatcher::recover(TimeNs now) {
  OFP_TRY(pools_.recover(now, effects()));
  sifts_.recover(now, effects());
  carry_out(now);
  return {};
}

// ---- the group

void Dispatcher::GroupRequests::on_closed(service::ChannelNumber channel, bool /*usual*/, TimeNs, service::Effects&) {
  group->on_channel_closed(channel);
}

void Dispatcher::GroupRequests::on_request(const service::Request& asked, TimeNs now, service::Effects& effects) {
  group->on_request(asked.channel, asked.entry, asked.is_member, now, effects);
}

void Dispatcher::GroupRequests::on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) {
  group->on_transfer(token, status, now, effects);
}

void Dispatcher::serve_group(group::Group& group, uid_t owner, TimeNs now) {
  group_.group = &group;
  serve(ServiceId::group, group_);
  serve(ServiceId::resources, resources_);
  resources_.set_self(group.membership().self().id.name, group.membership().self().id.process);
  for (group::ResourceSection& each : member_sections(group)) resources_.add(std::move(each));
  resources_.add(pool_section(pools_));
  resources_.add(sift_section(sifts_));
  resources_.add(exchange_section(exchanges_));
  serve_members(owner, [this](service::AskEffect ask) { ask_group(ask); });
  const group::Identity& self = group.membership().self().id;
  pools_.set_self(self.name, self.process);
  pools_.set_cores(options_.cores);
  sifts_.set_cores(options_.cores);
  sifts_.set_self(self.name, self.process);
  sifts_.set_places([&membership = group.membership()](const std::string& member) -> sift::MemberPlace {
    const group::Member* const known = membership.find(member);
    if (known == nullptr) return {};
    return {known->id.rack, known->id.role == group::Role::dpu};
  });
  pools_.set_own_user(owner);
  exchanges_.set_self(self.name, owner);
  tasks_.messages().set_self(self.name, self.process);
  group.on_change([this](const group::Change& change, TimeNs at) { on_change(change, at); });
  tell_exchanges(now);  // before the first program asks for one
}

void Dispatcher::ask_group(service::AskEffect& ask) {
  group::Request request;
  request.kind = ask.kind;
  request.deadline = ask.deadline;
  request.inbox_bytes = ask.inbox_bytes;
  request.payload_bytes = ask.payload_bytes;
  request.body = std::move(ask.body);
  if (ask.object) {
    request.object = Bytes(ask.object->buffer.data(), ask.object->bytes);
    request.object_fd = [object = ask.object] { return object->buffer.share(); };
    request.owner = ask.object;
  }
  if (!ask.memory.empty()) {
    request.object = ask.memory;
    request.object_fd = [fd = ask.memory_fd] { return fd; };
    request.owner = std::move(ask.owner);
  }
  request.compose = std::move(ask.compose);
  request.answer = [this, token = ask.token](Result<service::Answer> answer, TimeNs now) {
    on_answer(token, std::move(answer), now);
  };
  group_.group->post(ask.member, std::move(request));
}

// A suspected member still counts: it may refute that, and moving rows is expensive.
void Dispatcher::on_change(const group::Change& change, TimeNs now) {
  const group::Membership& membership = group_.group->membership();
  std::vector<std::string> alive{membership.self().id.name};
  for (const auto& [name, member] : membership.others())
    if (member.state == group::MemberState::alive || member.state == group::MemberState::suspect) alive.push_back(name);
  std::ranges::sort(alive);
  std::vector<std::string> anew;
  if (change.instead_of && change.instead_of->process != change.member.process) anew.push_back(change.member.name);
  mover_.keep_for_members(alive.size() > 1 ? options_.mover.memory_bytes_max / members_share : 0, now, effects());
  sifts_.on_members(alive, anew, now, effects());
  std::optional<std::pair<std::string, std::uint64_t>> before;
  if (!anew.empty()) before.emplace(anew.front(), change.instead_of->process);
  tasks_.messages().on_members(alive, before, now, effects());
  pools_.on_members(std::move(alive), anew, now, effects());
  carry_out(now);
  tell_exchanges(now);
}

// Dead members are expected: an exchange reports them as missing. Members that have left are not.
void Dispatcher::tell_exchanges(TimeNs now) {
  if (!exchanges_.is_any()) return;
  const auto host_of = [](const std::string& address) {
    const std::size_t from = address.find(':') + 1, to = address.rfind(':');
    return address.starts_with("unix:") || to <= from ? std::string() : address.substr(from, to - from);
  };
  const group::Membership& membership = group_.group->membership();
  const auto of = [&](const group::Identity& id, bool is_up) {
    return exchange::GroupMember{id.name, host_of(id.address), is_up, id.rack};
  };
  std::vector<exchange::GroupMember> members{of(membership.self().id, true)};
  for (const auto& [name, member] : membership.others())
    if (member.state != group::MemberState::left)
      members.push_back(of(member.id, member.state != group::MemberState::dead));
  exchanges_.on_members(members, now, effects());
  carry_out(now);
}

// ---- functions of plug-ins

void Dispatcher::on_operation(plugin::Operation operation, TimeNs now) {
  tasks_.messages().on_operation(std::move(operation), now, effects());
  carry_out(now);
}

void Dispatcher::on_call_ended(plugin::CallNumber call, TimeNs now) {
  tasks_.messages().on_call_ended(call, now, effects());
  carry_out(now);
}

// ---- TCP

void Dispatcher::TcpPrograms::on_closed(service::ChannelNumber channel, bool usual, TimeNs now, service::Effects&) {
  if (requests.on_channel_closed) requests.on_channel_closed(channel, usual, now);
}

void Dispatcher::TcpPrograms::on_request(const service::Request& asked, TimeNs now, service::Effects& effects) {
  channel::AgentEnd* const end = dispatcher.find(asked.channel);
  if (requests.on_request && end != nullptr) return requests.on_request(*end, asked.entry, asked.user, now);
  service::answer(effects, asked.channel, asked.entry.ticket,
                  fail(Error::unsupported, "this agent has no device for TCP connections (tcp.device)"));
}

void Dispatcher::TcpPrograms::on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects&) {
  if (requests.on_transfer) requests.on_transfer(token, std::move(status), now);
}

// ---- puts of this agent's parts

void Dispatcher::OwnPuts::on_stored(std::uint64_t token, Status status, TimeNs, service::Effects&) {
  if (const auto node = putting.extract(token)) node.mapped()(std::move(status));
}

void Dispatcher::put(mover::Store::Place place, service::FramePtr frame, TimeNs now, std::function<void(Status)> done) {
  auto admitted = stores_.admit(place.pool, place.user, effects());
  if (!admitted) return done(tl::unexpected(std::move(admitted).error()));
  place.pool = std::move(*admitted);
  const std::uint64_t token = service::token_of(ServiceId::asked, own_puts_.next++);
  const auto stored = stores_.put(place, std::move(frame), token, now, effects());
  stores_.leave(place.pool);
  if (stored && *stored == mover::Stored::later)
    own_puts_.putting.emplace(token, std::move(done));
  else
    done(stored ? Status{} : tl::unexpected(stored.error()));
  carry_out(now);  // other requests may have waited for it
}

}  // namespace offpath::agent
