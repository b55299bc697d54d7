#include "pool/table/frame_table.h"

#include <algorithm>
#include <utility>

#include "channel/offered_file.h"
#include "pool/directory/glob.h"
#include "pool/table/stream_file.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/stream_messages.h"

namespace offpath::pool {

using service::FailEffect;
using service::HandOverEffect;
using service::ReplyEffect;
using wire::EntryKind;

namespace {

constexpr std::size_t offers_max = 1024;      // of one channel
constexpr std::size_t later_writes_max = 64;  // of one user
constexpr uid_t root = 0;

// Programs may say a pool's options wherever they name it.
std::string_view name_of(std::string_view pool) { return pool.substr(0, pool.find('?')); }
std::string without_options(std::string_view pool) { return std::string(name_of(pool)); }

bool says_all(std::string_view glob) noexcept { return glob.empty() || glob == "*"; }

std::uint64_t bytes_of(const FrameTable::Keys& keys) noexcept { return keys.first.size() + keys.second.size(); }

Status check_globs(std::string_view row_glob, std::string_view column_glob) {
  OFP_TRY(check_glob(row_glob));
  return check_glob(column_glob);
}

}  // namespace

// ---- pools

Result<FrameTable::Pool*> FrameTable::open(const std::string& name, uid_t user, Access access) {
  auto [at, fresh] = pools_.try_emplace(name);
  Pool& pool = at->second;
  if (fresh) {
    pool.name = at->first;
    pool.user = user;
    ++counters_.pools;
    ++accounts_[user].pools;
  }
  OFP_TRY(may_use(name, pool, user, access));
  return &pool;
}

Status FrameTable::may_use(std::string_view name, const Pool& pool, uid_t user, Access access) {
  if (pool.user == user || user == root) return {};
  if (access == Access::read && std::ranges::find(pool.options.readers, user) != pool.options.readers.end()) return {};
  return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}{}", name, pool.user, user,
              access == Access::read ? ", who is not among its readers" : "");
}

Result<FrameTable::Pool*> FrameTable::existing(std::string_view name, uid_t user, Access access) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return fail(Error::not_found, "there is no pool \"{}\"", name);
  OFP_TRY(may_use(name, at->second, user, access));
  return &at->second;
}

Status FrameTable::may_use(const std::string& pool, uid_t user, Access access) const {
  const auto at = pools_.find(pool);
  return at == pools_.end() ? Status{} : may_use(pool, at->second, user, access);
}

std::size_t FrameTable::pools_of(uid_t user) const {
  const auto account = accounts_.find(user);
  return account == accounts_.end() ? 0 : account->second.pools;
}

bool FrameTable::is_empty(const std::string& name) const {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return true;
  const Pool& pool = at->second;
  return pool.objects.empty() && pool.steps.empty() && pool.keeping.empty() && pool.writing_bytes == 0;
}

void FrameTable::forget(const std::string& name) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  OFP_ASSERT(is_empty(name));
  const auto account = accounts_.find(at->second.user);
  if (--account->second.pools == 0) accounts_.erase(account);
  --counters_.pools;
  spilling_.erase(name);
  pools_.erase(at);
}

void FrameTable::add_waited_for(std::set<std::string_view>& pools) const {
  waiting_.add_pools(pools);
  for (const Write& write : writes_) pools.insert(write.pool);
}

Status FrameTable::define(const std::string& name, const PoolOptions& options, uid_t user) {
  OFP_ASSIGN(Pool* const pool, open(name, user, Access::write));
  pool->options = options;
  if (spills(*pool)) start_spilling(*pool, name);
  return {};
}

Status FrameTable::admit(const std::string& pool, uid_t user) {
  auto opened = open(pool, user, Access::write);
  if (!opened) return tl::unexpected(std::move(opened).error());
  return {};
}

FrameTable::Keys FrameTable::remove(Pool& pool, Objects::iterator at) {
  note_freed(pool);
  pool.bytes -= at->second.frame->bytes;
  counters_.bytes -= at->second.frame->bytes;
  counters_.key_bytes -= bytes_of(at->first);
  --counters_.frames;
  if (!at->second.frame->unread) leave_memory(pool, at->second);
  if (at->second.file) disk_->remove(at->second.file);
  if (!at->second.hidden) pool.by_sequence.erase(at->second.sequence);
  return std::move(pool.objects.extract(at).key());
}

// Readers see it from now on; it is the newest of its pool, and the oldest may have to leave.
void FrameTable::show(const std::string& name, Pool& pool, Objects::iterator at, TimeNs now, Effects& effects) {
  at->second.hidden = false;
  if (at->second.file && at->second.file->hidden) disk_->show(at->second.file);
  at->second.sequence = next_sequence_++;
  pool.by_sequence.emplace_hint(pool.by_sequence.end(), at->second.sequence, at);
  if (pool.options.ttl_ns > 0)
    expiries_.emplace(deadline_after(now, pool.options.ttl_ns), Expiry{name, at->first, at->second.sequence});
  serve_waiting(name, at->first, at->second.frame, effects);
  if (shown) shown(name, at->first, at->second.frame);
}

void FrameTable::keep_newest(Pool& pool, std::uint64_t keep) {
  while (keep > 0 && pool.by_sequence.size() > keep) remove(pool, pool.by_sequence.begin()->second);
}

Status FrameTable::may_put(const Place& place, std::uint64_t bytes, const PutId& id) const {
  const auto at = pools_.find(place.pool);
  return at != pools_.end() ? may_put(at->second, place, bytes, id) : Status{};
}

Status FrameTable::may_put(const Pool& pool, const Place& place, std::uint64_t bytes, const PutId& id) const {
  const std::uint64_t budget = pool.options.budget_bytes;
  if (budget != 0 && bytes > budget)
    return fail(Error::too_large, "object ({}, {}) has {} bytes, pool \"{}\" has a budget of {} on each member",
                brief(place.row_key), brief(place.column_key), bytes, place.pool, budget);
  if (!has_room_for_keys(place)) [[unlikely]]
    return fail(Error::would_block, "keys of objects have {} bytes here, at most {} are allowed", counters_.key_bytes,
                limits_.key_bytes_max);
  if (pool.options.overwrite && budget == 0) return {};
  OFP_TRY(may_replace(pool, place, id));
  const auto before = pool.objects.find(KeysView{place.row_key, place.column_key});
  const bool there = before != pool.objects.end() && !before->second.frame->unread;
  const std::uint64_t others = pool.memory_bytes - (there ? before->second.frame->bytes : 0);
  if (budget == 0 || others + bytes <= budget) return {};
  if (spills(pool)) {
    pool.lacking = others + bytes - budget;
    stirred_ = true;
  }
  return fail(Error::would_block, "pool \"{}\" has {} bytes of its budget of {} left, {} are needed{}", place.pool,
              budget - std::min(budget, others), budget, bytes,
              spills(pool) && !disk_->failure().empty() ? "; nothing can leave for the disk: " + disk_->failure() : "");
}

Status FrameTable::may_replace(const Pool& pool, const Place& place, const PutId& id) const {
  if (pool.options.overwrite || id.moved) return {};
  const auto before = pool.objects.find(KeysView{place.row_key, place.column_key});
  if (before != pool.objects.end() && (before->second.id != id || id == PutId{}))
    return fail(Error::exists, "pool \"{}\" has an object ({}, {}) already, and overwrite=no", place.pool,
                brief(place.row_key), brief(place.column_key));
  return {};
}

Status FrameTable::put(const Place& place, FramePtr frame, TimeNs now, Effects& effects, PutId id,
                       const RecordPtr& file) {
  OFP_ASSIGN(Pool* const pool, open(place.pool, place.user, Access::write));
  if (file) return put_file(*pool, place, std::move(frame), now, effects, id, file);
  OFP_TRY(may_put(*pool, place, frame->bytes, id));
  const KeysView keys{place.row_key, place.column_key};
  auto at = pool->objects.lower_bound(keys);
  if (at != pool->objects.end() && !KeyOrder()(keys, at->first)) {
    if (id != PutId{} && at->second.id == id && at->second.id.counter >= id.counter) return {};
    id.learn(at->second.id);
    remove(*pool, at++);
  }
  add(place.pool, *pool, at, Keys{place.row_key, place.column_key},
      Object{std::move(frame), 0, place.keep, true, std::move(id)}, place, now, effects);
  return {};
}

// `before`: which object it comes before.
void FrameTable::add(const std::string& name, Pool& pool, Objects::iterator before, Keys keys, Object object,
                     const Place& place, TimeNs now, Effects& effects) {
  pool.bytes += object.frame->bytes;
  counters_.bytes += object.frame->bytes;
  ++counters_.frames;
  ++counters_.puts;
  counters_.key_bytes += bytes_of(keys);
  const auto added = pool.objects.emplace_hint(before, std::move(keys), std::move(object));
  if (!added->second.frame->unread) enter_memory(pool, added->first, added->second);
  if (place.hidden) return;
  show(name, pool, added, now, effects);
  keep_newest(pool, place.keep);
}

uid_t FrameTable::user_of(const std::string& pool) const {
  const auto at = pools_.find(pool);
  return at != pools_.end() ? at->second.user : root;
}

bool FrameTable::holds(const std::string& pool, const Keys& keys) const {
  const auto at = pools_.find(pool);
  return at != pools_.end() && at->second.objects.contains(keys);
}

std::vector<FrameTable::Held> FrameTable::held(const std::string& name) const {
  std::vector<Held> all;
  const auto at = pools_.find(name);
  if (at == pools_.end()) return all;
  for (const auto& [keys, object] : at->second.objects)
    all.push_back({keys, object.frame, object.keep, object.hidden, object.id});
  return all;
}

std::optional<FrameTable::Held> FrameTable::held(const std::string& name, const Keys& keys) const {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return std::nullopt;
  const auto object = at->second.objects.find(keys);
  if (object == at->second.objects.end()) return std::nullopt;
  return Held{keys, object->second.frame, object->second.keep, object->second.hidden, object->second.id};
}

const PutId* FrameTable::id_of(const std::string& name, const KeysView& keys) const {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return nullptr;
  const auto object = at->second.objects.find(keys);
  return object != at->second.objects.end() ? &object->second.id : nullptr;
}

void FrameTable::learn(const std::string& name, const KeysView& keys, const PutId& other) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  if (const auto object = at->second.objects.find(keys); object != at->second.objects.end())
    object->second.id.learn(other);
}

void FrameTable::remove(const std::string& name, const Keys& keys) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  if (const auto object = at->second.objects.find(keys); object != at->second.objects.end()) remove(at->second, object);
}

Result<FramePtr> FrameTable::find(const std::string& name, const std::string& row_key, const std::string& column_key,
                                  uid_t user) {
  OFP_ASSIGN(Pool* const pool, existing(name, user, Access::write));
  const auto at = pool->objects.find(KeysView{row_key, column_key});
  if (at == pool->objects.end())
    return fail(Error::not_found, "pool \"{}\" has no object ({}, {})", name, brief(row_key), brief(column_key));
  if (pool->options.spill != Spill::off)
    return fail(Error::unsupported,
                "pool \"{}\" has spill: what is on disk is not changed in place; put the object anew", name);
  return at->second.frame;
}

Result<std::vector<QuerySource>> FrameTable::choose(const std::string& name, std::string_view row_glob,
                                                    std::string_view column_glob, uid_t user) {
  OFP_TRY(check_globs(row_glob, column_glob));
  OFP_ASSIGN(Pool* const pool, existing(name, user, Access::read));
  std::vector<QuerySource> chosen;
  for (const auto& [sequence, at] : pool->by_sequence) {
    const auto& [row, column] = at->first;
    if (glob_matches(row_glob, row) && glob_matches(column_glob, column))
      chosen.push_back({at->second.frame, row, column});
  }
  if (chosen.empty())
    return fail(Error::not_found, "pool \"{}\" has no objects whose keys match ({}, {})", name, brief(row_glob),
                brief(column_glob));
  return chosen;
}

Result<std::vector<QuerySource>> FrameTable::row(const std::string& name, const std::string& row,
                                                 const std::string& column, uid_t user) {
  OFP_ASSIGN(Pool* const pool, existing(name, user, Access::read));
  std::vector<QuerySource> found;
  for (auto at = pool->objects.lower_bound(KeysView{row, column}); at != pool->objects.end() && at->first.first == row;
       ++at) {
    if (!column.empty() && at->first.second != column) break;
    if (at->second.hidden) continue;
    touch(*pool, at->first, at->second);
    found.push_back({at->second.frame, row, at->first.second});
  }
  if (!found.empty()) return found;
  if (column.empty() && !holds_row(name, row) && !pool->steps.contains(row))
    return fail(Error::not_found, "pool \"{}\" has no objects in row \"{}\"", name, brief(row));
  return fail(Error::not_found, "{}", describe_absence({.pool = name, .keys = {row, column}}));
}

bool FrameTable::holds_row(const std::string& name, const std::string& row) const {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return false;
  const auto object = at->second.objects.lower_bound(KeysView{row, {}});
  return object != at->second.objects.end() && object->first.first == row;
}

Status FrameTable::end_step(const std::string& name, const std::string& row_key, std::uint32_t rank,
                            std::uint32_t ranks, TimeNs now, Effects& effects) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return {};
  Pool& pool = at->second;
  rank_began(name, rank);  // whatever was known of it: it lives
  auto step = pool.steps.find(row_key);
  const bool begun = step != pool.steps.end(), repeated = begun && step->second.ended.contains(rank);
  const std::size_t others = begun ? step->second.ended.size() - (repeated ? 1 : 0) : 0;
  if (others + 1 < std::max(ranks, begun ? step->second.ranks : 0)) {
    if (repeated) return {};
    Account& account = accounts_[pool.user];
    if (account.step_ends >= limits_.user_steps_max)
      return fail(Error::too_large,
                  "{} ends of steps of user {} wait for other ranks, which is the limit of each user "
                  "(limits.user_steps_max); drop "
                  "the rows whose ranks do not come",
                  account.step_ends, pool.user);
    if (!begun && account.step_key_bytes + row_key.size() > limits_.waiting_key_bytes_max)
      return fail(Error::too_large,
                  "steps of user {} that wait for ranks have keys of {} bytes, at most {} are allowed; drop the rows "
                  "whose ranks do "
                  "not come",
                  pool.user, account.step_key_bytes, limits_.waiting_key_bytes_max);
    if (!begun) account.step_key_bytes += row_key.size();
    ++account.step_ends;
    Step& waiting = begun ? step->second : pool.steps[row_key];
    waiting.ranks = std::max(waiting.ranks, ranks);
    waiting.ended.insert(rank);
    return {};
  }
  if (begun) forget_step(pool, step);
  std::uint64_t keep = 0;
  for (auto object = pool.objects.lower_bound(KeysView{row_key, {}});
       object != pool.objects.end() && object->first.first == row_key; ++object) {
    if (!object->second.hidden) continue;
    show(name, pool, object, now, effects);
    keep = std::max(keep, object->second.keep);
  }
  keep_newest(pool, keep);
  return {};
}

void FrameTable::forget_step(Pool& pool, std::map<std::string, Step>::iterator step) {
  Account& account = accounts_.at(pool.user);
  account.step_ends -= step->second.ended.size();
  account.step_key_bytes -= step->first.size();
  pool.steps.erase(step);
}

// ---- channels

void FrameTable::on_channel_open(ChannelNumber channel, uid_t user) { channels_[channel].user = user; }

void FrameTable::on_channel_closed(ChannelNumber channel) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  counters_.leases -= at->second.leases.size();
  channels_.erase(at);
  counters_.waiting -= waiting_.take(channel).size();
  reads_waiting_.drop(channel);
  std::erase_if(writes_, [channel](const Write& each) { return each.channel == channel; });
  std::erase_if(later_writes_, [channel](const LaterWrite& each) { return each.write.channel == channel; });
  for (const auto& [token, transfer] : transfers_)
    if (transfer.channel == channel && transfer.written) transfer.written->cancelled = true;
}

void FrameTable::on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, Effects& effects) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  const auto asked =
      std::ranges::find_if(writes_, [&](const Write& each) { return each.channel == channel && each.offer == number; });
  if (asked != writes_.end()) {
    const Write write = std::move(*asked);
    writes_.erase(asked);
    return begin_write(write, at->second.user, std::move(fd), effects);
  }
  at->second.offers.emplace(number, std::move(fd));
  // What is offered is named next. That many are more than a member names at a time, so the oldest was forgotten.
  if (at->second.offers.size() > offers_max) at->second.offers.erase(at->second.offers.begin());
}

Fd FrameTable::take_offer(ChannelNumber channel, std::uint64_t number) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return {};
  const auto node = at->second.offers.extract(number);
  return node && node.mapped() ? std::move(*node.mapped()) : Fd{};
}

void FrameTable::on_request(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  Channel& channel = channels_.at(number);
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::pool_get:
      return get(channel, request, number, now, effects);
    case EntryKind::pool_list:
      return list(channel, request, number, effects);
    case EntryKind::pool_drop:
      return drop(channel, request, number, effects);
    case EntryKind::pool_write:
      return write(channel, request, number, now, effects);
    case EntryKind::push_lease:
      return push(channel, request, number, effects);
    case EntryKind::release: {
      wire::Release release{};
      if (wire::decode(request.payload, release)) counters_.leases -= channel.leases.erase(release.lease);
      return;
    }
    default:
      OFP_ASSERT(!"a request of another service");
  }
}

// ---- get

void FrameTable::get(const Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now,
                     Effects& effects) {
  wire::PoolGet asked{};
  if (auto status = wire::decode(request.payload, asked); !status) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  // What is there is answered without a copy of its names.
  if (const auto pool = pools_.find(name_of(asked.pool));
      pool != pools_.end() && may_use(pool->first, pool->second, channel.user, Access::read)) {
    const auto object = pool->second.objects.find(KeysView{asked.row_key, asked.column_key});
    if (object != pool->second.objects.end() && !object->second.hidden && !object->second.frame->unread) {
      ++counters_.gets;
      touch(pool->second, object->first, object->second);
      Get answered;
      answered.channel = number;
      answered.ticket = request.ticket;
      answered.user = channel.user;
      return answer(answered, object->second.frame, effects);
    }
  }
  get({.channel = number,
       .ticket = request.ticket,
       .user = channel.user,
       .pool = without_options(asked.pool),
       .keys = {std::string(asked.row_key), std::string(asked.column_key)},
       .wait_ns = asked.wait_ns,
       .deadline = deadline_after(now, asked.wait_ns)},
      effects);
}

void FrameTable::get(Get get, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(failure)});
  };
  ++counters_.gets;
  if (const auto at = pools_.find(get.pool); at != pools_.end()) {
    if (auto pool = open(get.pool, get.user, Access::read); !pool) return refuse(std::move(pool).error());
    const auto object = at->second.objects.find(get.keys);
    if (object != at->second.objects.end() && !object->second.hidden) {
      touch(at->second, object->first, object->second);
      return answer(get, object->second.frame, effects);
    }
  }
  if (get.wait_ns == 0) return refuse({Error::not_found, describe_absence(get)});
  if (Status may = charge(get); !may) return refuse(std::move(may).error());
  waiting_.add(std::move(get));
  ++counters_.waiting;
}

Status FrameTable::charge(Get& get, std::uint64_t more_bytes) {
  if (get.charge) return {};
  OFP_ASSIGN(get.charge, charge(get.user, bytes_of(get.keys) + more_bytes));
  return {};
}

std::vector<FrameTable::Get> FrameTable::take_waiting(const std::function<bool(const Get&)>& chosen) {
  std::vector<Get> taken = waiting_.take_if(chosen);
  counters_.waiting -= taken.size();
  return taken;
}

std::vector<FrameTable::Get> FrameTable::take_waiting(ChannelNumber channel, bool of_member, std::uint64_t name) {
  std::vector<Get> taken = waiting_.take(channel, of_member, name);
  counters_.waiting -= taken.size();
  return taken;
}

std::string FrameTable::describe_absence(const Get& get) const {
  const auto& [row, column] = get.keys;
  const auto at = pools_.find(get.pool);
  if (at == pools_.end()) return fmt::format("there is no pool \"{}\"", get.pool);
  if (const auto step = at->second.steps.find(row); step != at->second.steps.end())
    return describe_step(get.pool, row, step->second);
  if (at->second.objects.contains(get.keys))
    return fmt::format("pool \"{}\": step \"{}\" has not been ended by any rank", get.pool, brief(row));
  return fmt::format("pool \"{}\" has no object ({}, {})", get.pool, brief(row), brief(column));
}

void FrameTable::answer(const Get& get, const FramePtr& frame, Effects& effects) {
  const auto channel = channels_.find(get.channel);
  if (channel == channels_.end()) return;
  if (frame->unread) return answer_unread(get, frame, effects);
  if (get.of_member && frame->bytes > get.inbox.length) return deliver(get, frame, effects);
  if (get.of_member) return push(get.channel, get.ticket, frame, get.inbox.region, get.inbox.offset, effects);
  if (frame->bytes <= wire::enclosed_bytes_max) {
    const wire::Got got{.how = wire::Got::How::enclosed,
                        .arrow = frame->arrow,
                        .lease = 0,
                        .length = frame->bytes,
                        .rows = frame->rows};
    return effects.push_back(HandOverEffect{get.channel, get.ticket, frame, got});
  }
  auto& leases = channel->second.leases;
  if (leases.size() >= limits_.leases_max) {
    Failure full{Error::too_large,
                 fmt::format("the program holds {} frames, which is the limit; release some", leases.size())};
    effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(full)});
    return;
  }
  const wire::Got got{.how = wire::Got::How::descriptor,
                      .arrow = frame->arrow,
                      .lease = next_lease_++,
                      .length = frame->bytes,
                      .rows = frame->rows};
  leases.emplace(got.lease, frame);
  ++counters_.leases;
  effects.push_back(HandOverEffect{get.channel, get.ticket, frame, got});
}

// What could not be handed over.
void FrameTable::push(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects) {
  wire::PushLease asked{};
  Status status = wire::decode(request.payload, asked);
  auto lease = status ? channel.leases.extract(asked.lease) : decltype(channel.leases)::node_type{};
  if (status && !lease)
    status = fail(Error::not_found, "there is no lease {} whose bytes could be pushed", asked.lease);
  if (!status) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  --counters_.leases;
  push(number, request.ticket, lease.mapped(), asked.segment, 0, effects);
}

void FrameTable::push(ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, wire::RegionId region,
                      std::uint64_t offset, Effects& effects) {
  const std::uint64_t token = next_token_++;
  const wire::Got got{
      .how = wire::Got::How::pushed, .arrow = frame->arrow, .lease = 0, .length = frame->bytes, .rows = frame->rows};
  transfers_.emplace(token, Transfer{channel, ticket, got});
  effects.push_back(service::PushEffect{channel,
                                        service::token_of(service::ServiceId::pool, token),
                                        {{region, offset, frame->buffer.data(), frame->bytes}},
                                        frame});
}

void FrameTable::serve_waiting(const std::string& pool, const Keys& keys, const FramePtr& frame, Effects& effects) {
  for (const Get& get : waiting_.take(pool, keys)) {
    --counters_.waiting;
    if (auto allowed = open(pool, get.user, Access::read); !allowed)
      effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(allowed).error()});
    else
      answer(get, frame, effects);
  }
}

void FrameTable::on_transfer(std::uint64_t token, Status status, Effects& effects) {
  const auto at = transfers_.find(service::number_of(token));
  if (at == transfers_.end()) return;
  const Transfer transfer = at->second;
  transfers_.erase(at);
  if (status)
    effects.push_back(ReplyEffect{transfer.channel, transfer.ticket, transfer.got});
  else
    effects.push_back(FailEffect{transfer.channel, transfer.ticket, wire::any_reply, std::move(status).error()});
}

void FrameTable::on_time(TimeNs now, Effects& effects) {
  for (const Get& get : waiting_.take_late(now)) {
    --counters_.waiting;
    effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, {Error::timeout, describe_absence(get)}});
  }
  expire(now);
  if (disk_) lighten(now, effects);
  std::erase_if(writes_, [&](const Write& write) {
    if (write.deadline > now) return false;
    Failure why{Error::invalid, fmt::format("no descriptor was offered under number {}", write.offer)};
    effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(why)});
    return true;
  });
}

void FrameTable::expire(TimeNs now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const Expiry over = std::move(expiries_.begin()->second);
    expiries_.erase(expiries_.begin());
    const auto at = pools_.find(over.pool);
    if (at == pools_.end()) continue;
    const auto object = at->second.objects.find(over.keys);
    if (object == at->second.objects.end() || object->second.sequence != over.sequence) continue;
    remove(at->second, object);
    ++counters_.expired;
  }
}

TimeNs FrameTable::next_deadline() const noexcept {
  return std::min({expiries_.empty() ? never : expiries_.begin()->first, waiting_.next_deadline(),
                   writes_.empty() ? never : writes_.front().deadline, reads_waiting_.next_deadline(), lighten_at_});
}

// ---- list, drop, write

Result<std::vector<FrameTable::Item>> FrameTable::list(const std::string& name, uid_t user, std::string_view row_glob,
                                                       std::string_view column_glob, std::uint64_t after,
                                                       std::size_t bytes_max, bool& more) {
  OFP_TRY(check_globs(row_glob, column_glob));
  OFP_ASSIGN(const Pool* const pool, existing(name, user, Access::read));
  std::vector<Item> items;
  std::size_t bytes = 0;
  more = false;
  for (auto at = pool->by_sequence.upper_bound(after); at != pool->by_sequence.end() && !more; ++at) {
    const auto& [row, column] = at->second->first;
    if (!glob_matches(row_glob, row) || !glob_matches(column_glob, column)) continue;
    bytes += 29 + row.size() + column.size();
    more = bytes > bytes_max && !items.empty();
    if (more) break;
    const Object& object = at->second->second;
    items.push_back({at->first, object.frame->bytes, object.frame->rows, object.frame->arrow, row, column});
  }
  return items;
}

void FrameTable::list(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects) {
  wire::PoolList asked{};
  bool more = false;
  auto items = wire::decode(request.payload, asked).and_then([&] {
    return list(without_options(asked.pool), channel.user, asked.row_glob, asked.column_glob, asked.after,
                listed_bytes_max, more);
  });
  if (!items) return effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(items).error()});
  answer_list(number, request.ticket, std::move(*items), more, effects);
}

void FrameTable::answer_list(ChannelNumber channel, std::uint64_t ticket, std::vector<Item> items, bool more,
                             Effects& effects) {
  const auto kept = std::make_shared<std::vector<Item>>(std::move(items));
  wire::Listed listed{more, {}};
  for (const Item& item : *kept)
    listed.entries.push_back({item.sequence, item.bytes, item.rows, item.arrow, item.row, item.column});
  effects.push_back(service::ListedEffect{channel, ticket, std::move(listed), kept});
}

Result<std::vector<FrameTable::Keys>> FrameTable::drop(std::string_view name, uid_t user, std::string_view row_glob,
                                                       std::string_view column_glob) {
  const std::string_view row_prefix = glob_prefix(row_glob), column_prefix = glob_prefix(column_glob);
  const bool one_row = !row_glob.empty() && row_prefix == row_glob;
  const bool one_object = one_row && !column_glob.empty() && column_prefix == column_glob;
  if (!one_object) OFP_TRY(check_globs(row_glob, column_glob));
  OFP_ASSIGN(Pool* const pool, existing(name, user, Access::write));
  auto step = pool->steps.lower_bound(std::string(row_prefix));
  while (!one_object && says_all(column_glob) && step != pool->steps.end() && step->first.starts_with(row_prefix)) {
    const auto dropped_step = step++;  // it waits for its ranks no more
    if (glob_matches(row_glob, dropped_step->first)) forget_step(*pool, dropped_step);
  }
  std::vector<Keys> dropped;
  if (one_object) {
    if (const auto at = pool->objects.find(KeysView{row_glob, column_glob}); at != pool->objects.end())
      dropped.push_back(remove(*pool, at));
    counters_.drops += dropped.size();
    return dropped;
  }
  // Only rows that begin as the pattern does are looked at: a drop of some objects does not cost a look at all.
  for (auto at = pool->objects.lower_bound(KeysView{row_prefix, one_row ? column_prefix : ""});
       at != pool->objects.end();) {
    const auto& [row, column] = at->first;
    if (!row.starts_with(row_prefix) || (one_row && (row != row_glob || !column.starts_with(column_prefix)))) break;
    const auto next = std::next(at);
    if (glob_matches(row_glob, row) && glob_matches(column_glob, column)) dropped.push_back(remove(*pool, at));
    at = next;
  }
  counters_.drops += dropped.size();
  return dropped;
}

void FrameTable::drop(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects) {
  wire::PoolDrop asked{};
  Status status = wire::decode(request.payload, asked);
  Result<std::vector<Keys>> dropped;
  if (status) {
    dropped = drop(name_of(asked.pool), channel.user, asked.row_glob, asked.column_glob);
    if (!dropped) status = tl::unexpected(dropped.error());
  }
  if (status)
    effects.push_back(ReplyEffect{number, request.ticket, wire::Done{dropped->size()}});
  else
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(status).error()});
}

void FrameTable::write(Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now,
                       Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(failure)});
  };
  wire::PoolWrite write{};
  if (auto status = wire::decode(request.payload, write); !status) return refuse(std::move(status).error());
  if (auto pool = existing(without_options(write.pool), channel.user, Access::read); !pool)
    return refuse(std::move(pool).error());
  Write asked{number, request.ticket, without_options(write.pool), write.offer,
              deadline_after(now, limits_.offer_wait_ns)};
  if (const auto offer = channel.offers.find(write.offer); offer != channel.offers.end()) {
    Result<Fd> fd = std::move(offer->second);
    channel.offers.erase(offer);
    return begin_write(asked, channel.user, std::move(fd), effects);
  }
  const auto waits = [number](const Write& each) { return each.channel == number; };
  if (const auto other = std::ranges::find_if(writes_, waits); other != writes_.end())
    return refuse({Error::too_large, fmt::format("a write waits for descriptor {}; one at a time, not {} too",
                                                 other->offer, write.offer)});
  writes_.push_back(std::move(asked));
}

// One of each user at a time: a slow disk, or large pools, leave others a thread.
void FrameTable::begin_write(const Write& write, uid_t user, Result<Fd> offered, Effects& effects) {
  const auto of_user = [user](const auto& each) { return each.user == user; };
  const auto writes = [&](const auto& each) { return each.second.written && of_user(each.second); };
  Fd descriptor = offered ? std::move(*offered) : Fd();
  Status may = offered ? channel::check_offered_file(descriptor.get()) : tl::unexpected(std::move(offered).error());
  const bool later = std::ranges::any_of(transfers_, writes);
  if (may && later && std::ranges::count_if(later_writes_, of_user) >= static_cast<std::ptrdiff_t>(later_writes_max))
    may =
        fail(Error::too_large, "{} writes of user {} wait for their turn, which is the limit", later_writes_max, user);
  if (!may)
    effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(may).error()});
  else if (later)
    later_writes_.push_back({write, user, std::move(descriptor)});
  else
    start_write(write, user, std::move(descriptor), effects);
}

void FrameTable::start_write(const Write& write, uid_t user, Fd descriptor, Effects& effects) {
  auto pool = may_write(write.pool, user);
  if (!pool)
    return effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(pool).error()});
  std::vector<QuerySource> objects;
  for (const auto& [sequence, at] : (*pool)->by_sequence)
    objects.push_back({at->second.frame, at->first.first, at->first.second});
  const auto written = std::make_shared<Written>();
  const std::uint64_t token = next_token_++;
  transfers_.emplace(token, Transfer{write.channel, write.ticket, {}, user, written});
  const auto work = [objects = std::move(objects), fd = std::make_shared<Fd>(std::move(descriptor)), written] {
    return write_stream(objects, fd->get(), written->cancelled).map([&](auto bytes) { written->bytes = bytes; });
  };
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::pool, token), work});
}

void FrameTable::on_job(std::uint64_t token, Status status, Effects& effects) {
  const auto at = transfers_.find(service::number_of(token));
  if (at == transfers_.end()) return;
  const Transfer transfer = at->second;
  transfers_.erase(at);
  if (status) {
    counters_.written_bytes += transfer.written->bytes;
    effects.push_back(ReplyEffect{transfer.channel, transfer.ticket, wire::Done{transfer.written->bytes}});
  } else {
    if (status.error().code == Error::timeout) hanging_.insert_or_assign(transfer.user, transfer.written);
    transfer.written->cancelled = true;
    effects.push_back(FailEffect{transfer.channel, transfer.ticket, wire::any_reply, std::move(status).error()});
  }
  // One that fails at once has begun nothing: the next one's turn, then.
  const auto of_user = [&transfer](const LaterWrite& each) { return each.user == transfer.user; };
  for (auto next = later_writes_.begin();
       (next = std::find_if(next, later_writes_.end(), of_user)) != later_writes_.end();) {
    const std::size_t before = transfers_.size();
    LaterWrite later = std::move(*next);
    next = later_writes_.erase(next);
    start_write(later.write, later.user, std::move(later.descriptor), effects);
    if (transfers_.size() > before) return;
  }
}

std::vector<FrameTable::PoolStatus> FrameTable::pools() const {
  std::vector<PoolStatus> all;
  for (const auto& [name, pool] : pools_) {
    all.push_back({name, pool.user, pool.objects.size(), pool.bytes, 0, pool.bytes - pool.memory_bytes, 0});
    for (const auto& [keys, object] : pool.objects) {
      all.back().rows += object.frame->arrow ? object.frame->rows : 0;
      all.back().arrow_frames += object.frame->arrow ? 1 : 0;
    }
  }
  return all;
}

}  // namespace offpath::pool
