#include "pool/members/pools.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/cursor.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using wire::EntryKind;

namespace {

std::vector<std::string> among(std::vector<std::string> names, const std::vector<std::string>& others) {
  std::erase_if(names, [&](const std::string& name) { return std::ranges::find(others, name) == others.end(); });
  return names;
}

}  // namespace

Pools::Pools(const PoolsOptions& options, std::shared_ptr<service::BufferCache> buffers,
             std::function<bool(std::uint64_t)> room, std::function<std::uint64_t()> wanted,
             std::function<bool(std::uint64_t)> unused)
    : context_(options, *this),
      gets_(context_, remote_, buffers),
      arrivals_(context_, {versions_, remote_, moves_, comparisons_, kept_.reserves()}, buffers, room,
                std::move(unused)) {
  context_.table.deliver = [this](const FrameTable::Get& get, FramePtr frame, Effects& effects) {
    gets_.deliver(get, frame, context_.now, effects);
  };
  if (!context_.options.store) return;
  const auto wanted_here = [this, wanted = std::move(wanted)] {
    return std::max(wanted ? wanted() : 0, arrivals_.wanted());
  };
  context_.table.keep_on(std::make_unique<Disk>(context_.options.store, std::move(buffers)), {room, wanted_here});
  context_.table.on_lost(
      [this](const RecordPtr& record, Effects& effects) { repairs_.on_lost(record, context_.now, effects); });
  context_.table.unreadable = [this](FrameTable::Get get, Failure why, Effects& effects) {
    gets_.on_unreadable(std::move(get), std::move(why), context_.now, effects);
  };
}

void Pools::set_self(std::string name, std::uint64_t process) {
  context_.directory.set_self(std::move(name));
  puts_.set_process(process);
}

PoolsCounters Pools::counters() const {
  PoolsCounters all = context_.counters;
  all.puts_under_way = puts_.size();
  all.pulls_waiting = arrivals_.waiting();
  all.moves_waiting = moves_.size() + repairs_.size();
  all.comparisons_waiting = comparisons_.waiting();
  return all;
}

std::vector<Pools::PoolStatus> Pools::pools() const {
  std::vector<PoolStatus> all;
  for (const FrameTable::PoolStatus& held : context_.table.pools()) {
    const Definition* const known = context_.directory.known(held.name);
    const std::string text = known != nullptr ? known->text : held.name;
    all.push_back({held.name, held.user, held.frames, held.bytes, held.rows, held.spilled_bytes, held.arrow_frames,
                   text.substr(std::min(text.size(), held.name.size() + 1)),
                   known != nullptr ? known->members.size() : 1});
  }
  return all;
}

// ---- Store: streams of programs

Result<std::string> Pools::admit(const std::string& pool, uid_t user, Effects& effects) {
  OFP_TRY(check_not_reserved(pool));
  OFP_ASSIGN(Definition* const definition,
             context_.directory.define(pool, user, Access::write, By::program, context_.now, effects));
  ++definition->streams;
  definition->dropped = false;
  return definition->name.name;
}

void Pools::leave(const std::string& pool) {
  Definition* const known = context_.directory.known(pool);
  OFP_ASSERT(known != nullptr && known->streams > 0);
  --known->streams;
}

Result<mover::Stored> Pools::put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now,
                                 Effects& effects) {
  context_.now = now;
  return puts_.put(place, std::move(frame), token, now, effects);
}

Result<FramePtr> Pools::find(const std::string& pool, const std::string& row_key, const std::string& column_key,
                             uid_t user) {
  if (const Definition* const known = context_.directory.known(pool);
      known != nullptr && context_.directory.is_elsewhere(*known))
    return fail(Error::unsupported,
                "pool \"{}\": objects can be updated in place only in local pools of agents with one loop "
                "(agent.cores)",
                pool);
  return context_.table.find(pool, row_key, column_key, user);
}

Status Pools::end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank, std::uint32_t ranks,
                       TimeNs now, Effects& effects) {
  context_.now = now;
  return puts_.end_step(pool, row_key, rank, ranks, now, effects);
}

void Pools::rank_ended(const std::string& pool, std::uint32_t rank, const mover::Client& client) {
  const std::int64_t real_ns = context_.options.real_clock != nullptr ? context_.options.real_clock() : 0;
  context_.table.rank_ended(pool, rank, {client.program, client.host, client.pid, real_ns});
}

// ---- events between parts

void Pools::on_pool_made(const Definition& definition, uid_t user, bool by_program, TimeNs now, Effects& effects) {
  std::vector<std::string> others = context_.directory.others_of(definition);
  if (by_program && !others.empty()) puts_.define_first(definition.name.name, user, std::move(others), now, effects);
  remote_.pool_made(definition.name.name, now);
}

void Pools::on_move_ended(const Put& move, const Status& status, TimeNs now, Effects& effects) {
  moves_.on_ended(move, status, now);
  drops_.on_move_ended(move.number, move.place, move.owners, now, effects);
}

void Pools::on_put_divided(TimeNs now) { comparisons_.later(deadline_after(now, context_.options.move_retry_ns)); }

// ---- members

void Pools::on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now,
                       Effects& effects) {
  context_.now = now;
  std::vector<std::string> newcomers;
  for (const std::string& member : alive)
    if (member != context_.directory.self() &&
        (!context_.directory.is_alive(member) || std::ranges::find(anew, member) != anew.end()))
      newcomers.push_back(member);
  if (alive == context_.directory.alive() && newcomers.empty()) return;
  context_.directory.change_members(std::move(alive), now);
  versions_.begin_view(context_.clock.stamp(now));
  for (const auto& [name, definition] : context_.directory.all()) {
    if (std::vector<std::string> told = among(context_.directory.others_of(definition), newcomers); !told.empty())
      puts_.define(name, context_.table.user_of(name), std::move(told), now, effects);
  }
  if (!context_.directory.is_joining()) moves_.plan(anew);
  comparisons_.later(deadline_after(now, context_.options.compare_wait_ns));
  puts_.on_members(anew, now);
  removals_.on_newcomers(newcomers, now);
  gets_.on_members(now, effects);
  on_time(now, effects);
}

// ---- answers of members

void Pools::on_answer(std::uint64_t token, Result<Answer> answer, TimeNs now, Effects& effects) {
  context_.now = now;
  const auto node = context_.requests.take(token);
  if (!node) return;  // not wanted any more
  const Asking& asked = node.mapped();
  const auto status = [&]() -> Status {
    if (!answer) return tl::unexpected(answer.error());
    return {};
  };
  const auto done = [&]() -> Result<std::uint64_t> {
    OFP_TRY(answer);
    wire::Done word{};
    OFP_TRY(wire::decode(answer->payload, word));
    return word.value;
  };
  switch (asked.kind) {
    case Asking::Kind::put:
      return puts_.on_answer(asked, done(), now, effects);
    case Asking::Kind::compare:
      return comparisons_.on_answer(asked, done(), now);
    case Asking::Kind::get:
      return gets_.on_answer(asked.number, std::move(answer), now, effects);
    case Asking::Kind::gather:
      return gathers_.on_answer(asked.number, asked.member, std::move(answer), now, effects);
    case Asking::Kind::cancel:
      return;
    case Asking::Kind::listing:
      return listings_.on_answer(asked.number, asked.member, std::move(answer), now, effects);
    case Asking::Kind::follow:
      return drops_.on_answer(asked.number, answer, effects);
    case Asking::Kind::removal:
      return removals_.on_answer(asked, status(), now);
    case Asking::Kind::deliver:
      return Gets::on_delivered(asked.get, *asked.object, status(), effects);
  }
}

// ---- requests of programs

void Pools::on_channel_open(ChannelNumber channel, uid_t user) {
  channels_[channel] = user;
  context_.table.on_channel_open(channel, user);
}

void Pools::on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects) {
  context_.now = now;
  channels_.erase(channel);
  context_.table.on_channel_closed(channel);
  gets_.on_channel_closed(channel, now, effects);
  gathers_.on_channel_closed(channel);
  arrivals_.on_channel_closed(channel);
}

void Pools::on_request(const service::Request& asked, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(asked.entry.kind)) {
    case EntryKind::pool_get:
    case EntryKind::pool_list:
    case EntryKind::pool_drop:
    case EntryKind::pool_write:
    case EntryKind::pool_compute:
    case EntryKind::pool_cancel:
    case EntryKind::push_lease:
    case EntryKind::release:
      return on_request(asked.channel, asked.entry, now, effects);
    default:
      return on_peer_request(asked.channel, asked.entry, asked.is_member, now, effects);
  }
}

// Counted in each round: waiting requests see it in the next one.
bool Pools::on_round(TimeNs now, Effects& effects) {
  if (!has_disk()) return false;
  const std::uint64_t freed = context_.table.freed();
  const std::size_t before = effects.size();
  spill(now, effects);
  return effects.size() != before || freed != context_.table.freed();
}

void Pools::on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  context_.now = now;
  const auto kind = static_cast<EntryKind>(request.kind);
  if (kind == EntryKind::release || kind == EntryKind::push_lease)
    return context_.table.on_request(channel, request, now, effects);
  if (kind == EntryKind::pool_cancel) return gets_.cancel(channel, request, now, effects);
  // All of them begin with the pool's name.
  wire::Reader reader(request.payload);
  const std::string_view text = reader.take_text();
  if (text.starts_with("sift:/"))
    return PoolContext::refuse(
        channel, request.ticket,
        {Error::unsupported, fmt::format("pool \"{}\" splits its objects into tracks: read those", text)}, effects);
  if (Status may = check_not_reserved(text); !may)
    return PoolContext::refuse(channel, request.ticket, std::move(may).error(), effects);
  auto known = context_.directory.find(text, channels_.at(channel));
  // A get that names options makes the pool, so it can wait at the right member.
  if (known && *known == nullptr && (kind == EntryKind::pool_get || kind == EntryKind::pool_compute) &&
      text.find('?') != std::string_view::npos)
    known = context_.directory.define(text, channels_.at(channel), Access::read, By::program, context_.now, effects);
  if (!known) return PoolContext::refuse(channel, request.ticket, std::move(known).error(), effects);
  const bool local = *known != nullptr ? !context_.directory.is_elsewhere(**known)
                                       : text.starts_with("local:/") && context_.directory.cores().size() <= 1;
  if (kind == EntryKind::pool_compute)
    return gets_.compute(channel, channels_.at(channel), request, local, now, effects);
  if (local) return context_.table.on_request(channel, request, now, effects);
  switch (kind) {
    case EntryKind::pool_get:
      return gets_.get(channel, channels_.at(channel), request, now, effects);
    case EntryKind::pool_list:
      return gathers_.begin(channel, channels_.at(channel), request, false, now, effects);
    case EntryKind::pool_drop:
      return gathers_.begin(channel, channels_.at(channel), request, true, now, effects);
    case EntryKind::pool_write:
      return PoolContext::refuse(
          channel, request.ticket,
          {Error::unsupported,
           fmt::format("pool \"{}\" lies on several members: read its objects and write them here", text)},
          effects);
    default:
      OFP_ASSERT(!"a request of another service");
  }
}

// ---- requests of members: decoded and checked like a program's. Only agents of this agent's own user may act for
// other users

void Pools::on_peer_request(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                            Effects& effects) {
  context_.now = now;
  const auto serve = [&]() -> Status {
    if (!is_member)
      return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
    switch (static_cast<EntryKind>(request.kind)) {
      case EntryKind::peer_put:
        return arrivals_.serve_put(channel, request, now, effects);
      case EntryKind::peer_get:
        return gets_.serve(channel, request, now, effects);
      case EntryKind::peer_compute:
        return gets_.serve_compute(channel, request, now, effects);
      case EntryKind::peer_cancel:
        return gets_.serve_cancel(channel, request, effects);
      case EntryKind::peer_deliver:
        return arrivals_.serve_delivery(channel, request, now, effects);
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
          effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{0}});
        });
      default:
        OFP_ASSERT(!"a request of another service");
    }
  };
  if (Status served = serve(); !served)
    PoolContext::refuse(channel, request.ticket, std::move(served).error(), effects);
}

Status Pools::serve_step_end(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerStepEnd end{};
  OFP_TRY(wire::decode(request.payload, end));
  OFP_TRY(check_not_reserved(end.pool));
  OFP_TRY(context_.directory.may_be_named(end.pool));
  OFP_ASSIGN(const Definition* const definition,
             context_.directory.define_of_member(end.pool, end.user, end.user, Access::write, context_.now, effects));
  OFP_TRY(context_.table.end_step(definition->name.name, std::string(end.row_key), end.rank, end.ranks, now, effects));
  effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{0}});
  return {};
}

Status Pools::serve_definition(const channel::Entry& request, Effects& effects) {
  wire::PeerDefine message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_TRY(context_.directory.may_be_named(message.pool));
  OFP_TRY(context_.directory.define_of_member(message.pool, message.user, message.user, Access::write, context_.now,
                                              effects));
  return {};
}

// ---- of services beside this one

void Pools::cancel_part(const std::string& member, std::uint64_t number, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.requests.cancel(member, wire::PeerCancel::What::query, number, nullptr,
                           deadline_after(now, context_.options.ask_wait_ns), effects);
}

void Pools::serve_computes(Computes& computes) {
  gets_.serve_computes(computes);
  context_.table.shown = [this, &computes](const std::string& pool, const FrameTable::Keys& keys,
                                           const FramePtr& frame) {
    const Definition* const known = context_.directory.known(pool);
    const bool elsewhere = known != nullptr && context_.directory.is_elsewhere(*known);
    const bool first =
        !versions_.takes_moved() && (!elsewhere || context_.directory.is_first_owner(*known, keys.first));
    computes.on_shown(pool, keys, frame, first);
  };
}

void Pools::answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.answer(get, frame, effects);
}

// ---- time and completions

void Pools::on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  context_.now = now;
  if (service::service_of(token) == service::ServiceId::pool)
    return context_.table.on_transfer(token, std::move(status), effects);
  on_job(token, std::move(status), now, effects);
}

void Pools::on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  if (service::service_of(token) == service::ServiceId::disk) return on_disk_job(token, status, now, effects);
  context_.now = now;
  if (service::service_of(token) == service::ServiceId::pool)
    return context_.table.on_job(token, std::move(status), effects);
  arrivals_.on_pulled(token, status, now, effects);
}

void Pools::on_time(TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.on_time(now, effects);
  context_.next = never;
  puts_.on_time(now, effects);
  gets_.on_time(now, effects);
  arrivals_.on_time(now, effects);
  if (now >= context_.directory.joining_until()) {
    context_.directory.join_until(never);
    moves_.plan({});
  }
  comparisons_.on_time(now, effects);
  moves_.on_time(now, effects);
  removals_.on_time(now, effects);
  repairs_.on_time(now, effects);
  context_.due(std::min(context_.directory.joining_until(), comparisons_.at()));
  context_.due(puts_.tell_of_waits(now));
  if (moves_.has_room()) context_.due(moves_.first());  // otherwise when a running one ends
}

void Pools::on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.on_offer(channel, number, std::move(fd), effects);
  if (arrivals_.is_waiting()) arrivals_.admit(now, effects);
}

void Pools::on_memory_freed(TimeNs now, Effects& effects) {
  context_.now = now;
  arrivals_.admit(now, effects);
}

TimeNs Pools::next_deadline() const noexcept {
  if ((arrivals_.waits_for_budget() || puts_.waits_for_budget()) && puts_.has_freed())
    return context_.now;  // a drop frees budget even while readers hold the memory
  return std::min({context_.next, puts_.next_due(), remote_.next_due(), context_.table.next_deadline()});
}

// ---- removal of pools

// The pools that requests under way refer to.
void Pools::add_in_use(std::set<std::string_view>& names) const {
  puts_.add_pools(names);
  gets_.add_pools(names);
  gathers_.add_pools(names);
  listings_.add_pools(names);
  removals_.add_pools(names);
  for (const auto& [pool, reserve] : kept_.reserves().pools()) names.insert(pool);
  arrivals_.add_pools(names);
  moves_.add_pools(names);
}

void Pools::on_pool_gone(const std::string& pool) { arrivals_.on_pool_gone(pool); }

bool Pools::has_moves(const std::string& pool) const {
  return moves_.any(pool, [](const std::string&, const std::vector<std::string>&) { return true; });
}

bool Pools::is_settling() const { return moves_.size() > 0 || comparisons_.waiting() > 0; }

// ---- of the configuration

Status Pools::make(const std::string& text, uid_t user, Effects& effects) {
  OFP_TRY(check_not_reserved(text));
  OFP_ASSIGN(Definition* const definition,
             context_.directory.define(text, user, Access::write, By::program, context_.now, effects));
  definition->stays = true;
  return {};
}

// ---- with a disk

void Pools::spill(TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.lighten(now, effects);
}

void Pools::on_disk_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.disk()->on_job(token, status, now, effects);
}

// ---- at start

Status Pools::recover(TimeNs now, Effects& effects) {
  context_.now = now;
  if (context_.table.disk() == nullptr) return {};
  OFP_ASSIGN(const std::vector<RecordPtr> all, context_.table.disk()->scan());
  std::uint64_t left = 0;
  for (const RecordPtr& record : all) {
    const auto made = context_.directory.define(record->pool, record->pool_user, FrameTable::Access::write, By::disk,
                                                context_.now, effects);
    // The options may have changed since: the pool keeps those of its creation.
    if (!made && !context_.directory.known(record->pool.substr(0, record->pool.find('?')))) {
      if (left++ == 0) log(LogLevel::error, "{}: {}", record->described(), made.error().message);
      continue;
    }
    context_.clock.saw(record->id.counter);
    context_.table.recover(record, now);
  }
  const FrameTableCounters counters = context_.table.counters();
  // With an incomplete list of members, rows would move to the wrong ones.
  if (!all.empty()) {
    context_.directory.join_until(now + context_.options.join_wait_ns);
    context_.due(context_.directory.joining_until());
  }
  if (!all.empty())
    log(left > 0 ? LogLevel::error : LogLevel::info, "{} has {} objects of {} pools, {} bytes; {} could not be taken",
        context_.table.disk()->described(), counters.frames, context_.directory.all().size(), counters.bytes, left);
  return {};
}

}  // namespace offpath::pool
