#include "pool/table/frame_table.h"

#include <algorithm>
#include <utility>

#include "pool/directory/glob.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/stream_messages.h"

namespace offpath::pool {

using service::FailEffect;
using service::ReplyEffect;
using wire::EntryKind;

namespace {

// Programs may name a pool with its options anywhere.
std::string_view name_of(std::string_view pool) { return pool.substr(0, pool.find('?')); }
std::string without_options(std::string_view pool) { return std::string(name_of(pool)); }

bool says_all(std::string_view glob) noexcept { return glob.empty() || glob == "*"; }

Status check_globs(std::string_view row_glob, std::string_view column_glob) {
  OFP_TRY(check_glob(row_glob));
  return check_glob(column_glob);
}

}  // namespace

// ---- pools

Status FrameTable::may_use(const std::string& name, uid_t user, Access access) const {
  const Pool* const pool = index_.find(name);
  return pool == nullptr ? Status{} : ObjectIndex::may_use(*pool, user, access);
}

bool FrameTable::is_empty(const std::string& name) const {
  const Pool* const pool = index_.find(name);
  if (pool == nullptr) return true;
  return pool->objects.empty() && !steps_.any_wait(name) && !spilling_.is_keeping(name) &&
         pool->memory.writing_bytes == 0;
}

void FrameTable::forget(const std::string& name) {
  OFP_ASSERT(is_empty(name));
  spilling_.forget(name);
  index_.forget(name);
}

void FrameTable::add_waited_for(std::set<std::string_view>& pools) const {
  waiting_.add_pools(pools);
  writes_.add_pools(pools);
}

Status FrameTable::define(const std::string& name, const PoolOptions& options, uid_t user, std::uint64_t shares) {
  OFP_ASSIGN(Pool* const pool, index_.open(name, user, Access::write));
  pool->options = options;
  pool->budget_bytes = options.budget_bytes == 0 ? 0 : std::max<std::uint64_t>(options.budget_bytes / shares, 1);
  if (spilling_.spills(*pool)) spilling_.start(*pool);
  return {};
}

Status FrameTable::admit(const std::string& pool, uid_t user) {
  auto opened = index_.open(pool, user, Access::write);
  if (!opened) return tl::unexpected(std::move(opened).error());
  return {};
}

bool FrameTable::is_durable(const std::string& name) const {
  if (spilling_.disk() == nullptr) return false;
  const Pool* const pool = index_.find(name);
  return pool != nullptr && pool->options.spill == Spill::durable;
}

void FrameTable::let_go(const std::string& name, const Keys& keys) {
  Pool* const pool = index_.find(name);
  if (pool == nullptr) return;
  if (const auto object = pool->objects.find(keys); object != pool->objects.end())
    spilling_.let_go(*pool, object->second);
}

// ---- put

// Makes the object visible, as the newest of its pool; the oldest may have to go.
void FrameTable::show(const std::string& name, Pool& pool, Objects::iterator at, TimeNs now, Effects& effects) {
  if (at->second.file && at->second.file->hidden) spilling_.disk()->show(at->second.file);
  index_.show(pool, at);
  expire_later(pool, at, now);
  serve_waiting(name, at->first, at->second.frame, effects);
  if (shown) shown(name, at->first, at->second.frame);
}

void FrameTable::expire_later(const Pool& pool, Objects::iterator at, TimeNs now) {
  if (pool.options.ttl_ns > 0)
    expiries_.emplace(deadline_after(now, pool.options.ttl_ns),
                      Expiry{std::string(pool.name), at->first, at->second.sequence});
}

void FrameTable::keep_newest(Pool& pool, std::uint64_t keep) {
  while (keep > 0 && pool.by_sequence.size() > keep) spilling_.remove(pool, pool.by_sequence.begin()->second);
}

Status FrameTable::may_put(const Place& place, std::uint64_t bytes, const PutId& id) const {
  const Pool* const pool = index_.find(place.pool);
  return pool != nullptr ? may_put(*pool, place, bytes, id) : Status{};
}

Status FrameTable::may_put(const Pool& pool, const Place& place, std::uint64_t bytes, const PutId& id) const {
  const std::uint64_t budget = pool.budget_bytes;
  if (budget != 0 && bytes > budget)
    return fail(Error::too_large, "object ({}, {}) has {} bytes, pool \"{}\" has a budget of {} on each member",
                brief(place.row_key), brief(place.column_key), bytes, place.pool, budget);
  if (!has_room_for_keys(place)) [[unlikely]]
    return fail(Error::would_block, "keys of objects have {} bytes here, at most {} are allowed", index_.key_bytes(),
                limits_.key_bytes_max);
  if (pool.options.overwrite && budget == 0) return {};
  OFP_TRY(may_replace(pool, place, id));
  const auto before = pool.objects.find(KeysView{place.row_key, place.column_key});
  const bool there = before != pool.objects.end() && !before->second.frame->unread;
  const std::uint64_t others = pool.memory.bytes - (there ? before->second.frame->bytes : 0);
  if (budget == 0 || others + bytes <= budget) return {};
  if (spilling_.spills(pool)) spilling_.lack(pool, others + bytes - budget);
  return fail(Error::would_block, "pool \"{}\" has {} bytes of its budget of {} left, {} are needed{}", place.pool,
              budget - std::min(budget, others), budget, bytes,
              spilling_.spills(pool) && !spilling_.disk()->failure().empty()
                  ? "; nothing can leave for the disk: " + spilling_.disk()->failure()
                  : "");
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
  OFP_ASSIGN(Pool* const pool, index_.open(place.pool, place.user, Access::write));
  if (file) return put_file(*pool, place, std::move(frame), now, effects, id, file);
  OFP_TRY(may_put(*pool, place, frame->bytes, id));
  const KeysView keys{place.row_key, place.column_key};
  auto at = pool->objects.lower_bound(keys);
  if (at != pool->objects.end() && !KeyOrder()(keys, at->first)) {
    if (id != PutId{} && at->second.id == id && at->second.id.counter >= id.counter) return {};
    id.learn(at->second.id);
    spilling_.remove(*pool, at++);
  }
  add(*pool, at, Keys{place.row_key, place.column_key}, Object{std::move(frame), 0, place.keep, true, std::move(id)},
      place, now, effects);
  return {};
}

// An object in the table may have a later file.
Status FrameTable::put_file(Pool& pool, const Place& place, FramePtr frame, TimeNs now, Effects& effects, PutId id,
                            const RecordPtr& file) {
  Keys keys{place.row_key, place.column_key};
  const auto before = pool.objects.find(keys);
  const bool there = before != pool.objects.end();
  const bool same = there && id != PutId{} && before->second.id == id && before->second.id.counter >= id.counter;
  const bool newer = there && (before->second.id.counter != id.counter
                                   ? before->second.id.version() > id.version()
                                   : before->second.file && before->second.file->number > file->number);
  Status may = same || newer ? Status{} : may_replace(pool, place, id);
  if (same || newer || !may) {
    spilling_.disk()->remove(file);
    return may;
  }
  if (there) {
    id.learn(before->second.id);
    spilling_.remove(pool, before);
  }
  // An object without room in memory has left it already.
  const std::uint64_t budget = pool.budget_bytes;
  if (budget != 0 && pool.memory.bytes + frame->bytes > budget) {
    spilling_.lighten_pool(pool, pool.memory.bytes + frame->bytes - budget, now, effects);
    if (pool.memory.bytes + frame->bytes > budget) frame = spilling_.disk()->unread(file);
  }
  const auto behind = pool.objects.upper_bound(keys);
  add(pool, behind, std::move(keys), Object{std::move(frame), 0, place.keep, true, std::move(id), file}, place, now,
      effects);
  return {};
}

// `before`: the object that follows it.
void FrameTable::add(Pool& pool, Objects::iterator before, Keys&& keys, Object&& object, const Place& place, TimeNs now,
                     Effects& effects) {
  ++counters_.puts;
  const auto added = index_.add(pool, before, std::move(keys), std::move(object));
  if (!added->second.frame->unread) spilling_.enter_memory(pool, added->first, added->second);
  if (place.hidden) return;
  show(place.pool, pool, added, now, effects);
  keep_newest(pool, place.keep);
}

// In the order of writing, which is that of their numbers. A move may have been written after a later put: of two
// objects with versions the later put stays, of others the last one written.
void FrameTable::recover(const RecordPtr& record, TimeNs now) {
  Pool& pool = *index_.find(name_of(record->pool));
  Keys keys{record->row, record->column};
  if (const auto before = pool.objects.find(keys); before != pool.objects.end()) {
    const PutId& there = before->second.id;
    if (there.counter != 0 && record->id.counter != 0 && there.version() > record->id.version())
      return spilling_.disk()->remove(record);
    spilling_.remove(pool, before);
  }
  Object object{spilling_.disk()->unread(record), 0, record->keep, record->hidden, record->id, record};
  const auto behind = pool.objects.upper_bound(keys);
  const auto added = index_.add(pool, behind, std::move(keys), std::move(object));
  if (record->hidden) return;
  index_.show(pool, added);
  expire_later(pool, added, now);
}

// ---- objects of this agent

uid_t FrameTable::user_of(const std::string& name) const {
  const Pool* const pool = index_.find(name);
  return pool != nullptr ? pool->user : ObjectIndex::root;
}

std::vector<FrameTable::Held> FrameTable::held(const std::string& name) const {
  std::vector<Held> all;
  const Pool* const pool = index_.find(name);
  if (pool == nullptr) return all;
  for (const auto& [keys, object] : pool->objects)
    all.push_back({keys, object.frame, object.keep, object.hidden, object.id});
  return all;
}

std::optional<FrameTable::Held> FrameTable::held(const std::string& name, const Keys& keys) const {
  const auto* const found = index_.find(name, KeysView(keys));
  if (found == nullptr) return std::nullopt;
  const Object& object = found->second;
  return Held{keys, object.frame, object.keep, object.hidden, object.id};
}

const PutId* FrameTable::id_of(const std::string& name, const KeysView& keys) const {
  const auto* const found = index_.find(name, keys);
  return found != nullptr ? &found->second.id : nullptr;
}

void FrameTable::learn(const std::string& name, const KeysView& keys, const PutId& other) {
  if (Object* const object = index_.find(name, keys); object != nullptr) object->id.learn(other);
}

void FrameTable::remove(const std::string& name, const Keys& keys) {
  Pool* const pool = index_.find(name);
  if (pool == nullptr) return;
  if (const auto object = pool->objects.find(keys); object != pool->objects.end()) spilling_.remove(*pool, object);
}

Result<FramePtr> FrameTable::find(const std::string& name, const std::string& row_key, const std::string& column_key,
                                  uid_t user) {
  OFP_ASSIGN(Pool* const pool, index_.existing(name, user, Access::write));
  const auto at = pool->objects.find(KeysView{row_key, column_key});
  if (at == pool->objects.end())
    return fail(Error::not_found, "pool \"{}\" has no object ({}, {})", name, brief(row_key), brief(column_key));
  if (pool->options.spill != Spill::off)
    return fail(Error::unsupported,
                "pool \"{}\" has spill: objects on disk are not changed in place; put the object again", name);
  return at->second.frame;
}

Result<std::vector<QuerySource>> FrameTable::choose(const std::string& name, std::string_view row_glob,
                                                    std::string_view column_glob, uid_t user) {
  OFP_TRY(check_globs(row_glob, column_glob));
  OFP_ASSIGN(Pool* const pool, index_.existing(name, user, Access::read));
  auto chosen = ObjectIndex::choose(*pool, row_glob, column_glob);
  if (chosen.empty())
    return fail(Error::not_found, "pool \"{}\" has no objects whose keys match ({}, {})", name, brief(row_glob),
                brief(column_glob));
  return chosen;
}

Result<std::vector<QuerySource>> FrameTable::row(const std::string& name, const std::string& row,
                                                 const std::string& column, uid_t user) {
  OFP_ASSIGN(Pool* const pool, index_.existing(name, user, Access::read));
  std::vector<QuerySource> found;
  for (auto at = pool->objects.lower_bound(KeysView{row, column}); at != pool->objects.end() && at->first.first == row;
       ++at) {
    if (!column.empty() && at->first.second != column) break;
    if (at->second.hidden) continue;
    spilling_.touch(*pool, at->first, at->second);
    found.push_back({at->second.frame, row, at->first.second});
  }
  if (!found.empty()) return found;
  if (column.empty() && !holds_row(name, row) && !steps_.waits(name, row))
    return fail(Error::not_found, "pool \"{}\" has no objects in row \"{}\"", name, brief(row));
  return fail(Error::not_found, "{}", describe_absence({.pool = name, .keys = {row, column}}));
}

Status FrameTable::may_read(const std::string& pool, uid_t user) const {
  return index_.existing(pool, user, Access::read).map([](const Pool*) {});
}

Result<std::vector<QuerySource>> FrameTable::visible(const std::string& name, uid_t user) const {
  OFP_ASSIGN(const Pool* const pool, index_.existing(name, user, Access::read));
  return ObjectIndex::choose(*pool, "", "");
}

// ---- steps

Status FrameTable::end_step(const std::string& name, const std::string& row_key, std::uint32_t rank,
                            std::uint32_t ranks, TimeNs now, Effects& effects) {
  Pool* const pool = index_.find(name);
  if (pool == nullptr) return {};
  OFP_ASSIGN(const bool over, steps_.end(name, pool->user, row_key, rank, ranks, now));
  if (!over) return {};
  std::uint64_t keep = 0;
  for (auto object = pool->objects.lower_bound(KeysView{row_key, {}});
       object != pool->objects.end() && object->first.first == row_key; ++object) {
    if (!object->second.hidden) continue;
    show(name, *pool, object, now, effects);
    keep = std::max(keep, object->second.keep);
  }
  keep_newest(*pool, keep);
  return {};
}

std::vector<PoolSteps> FrameTable::steps() const {
  std::vector<PoolSteps> all;
  for (const auto& [name, pool] : index_.pools()) {
    PoolSteps& of_pool = all.emplace_back(PoolSteps{.pool = name, .newest = {}});
    if (!pool.by_sequence.empty()) of_pool.newest = brief(pool.by_sequence.rbegin()->second->first.first);
    steps_.list(name, of_pool);
  }
  return all;
}

// ---- channels

void FrameTable::on_channel_open(ChannelNumber channel, uid_t user) {
  users_[channel] = user;
  hand_overs_.on_channel_open(channel);
}

void FrameTable::on_channel_closed(ChannelNumber channel) {
  if (users_.erase(channel) == 0) return;
  hand_overs_.on_channel_closed(channel);
  counters_.waiting -= waiting_.take(channel).size();
  spilling_.drop_reads(channel);
  writes_.on_channel_closed(channel);
}

void FrameTable::on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, Effects& effects) {
  if (users_.contains(channel)) writes_.on_offer(channel, number, std::move(fd), effects);
}

void FrameTable::on_request(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::pool_get:
      return get(request, number, users_.at(number), now, effects);
    case EntryKind::pool_list:
      return list(request, number, users_.at(number), effects);
    case EntryKind::pool_drop:
      return drop(request, number, users_.at(number), effects);
    case EntryKind::pool_write:
      return writes_.on_request(number, users_.at(number), request, now, effects);
    case EntryKind::push_lease:
      return hand_overs_.on_push_lease(number, request, effects);
    case EntryKind::release:
      return hand_overs_.on_release(number, request);
    default:
      OFP_ASSERT(!"a request of another service");
  }
}

// ---- get

void FrameTable::get(const channel::Entry& request, ChannelNumber number, uid_t user, TimeNs now, Effects& effects) {
  wire::PoolGet asked{};
  if (auto status = wire::decode(request.payload, asked); !status) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  // A get of a present object does not copy names.
  if (Pool* const pool = index_.find(name_of(asked.pool));
      pool != nullptr && ObjectIndex::may_use(*pool, user, Access::read)) {
    const auto object = pool->objects.find(KeysView{asked.row_key, asked.column_key});
    if (object != pool->objects.end() && !object->second.hidden && !object->second.frame->unread) {
      ++counters_.gets;
      spilling_.touch(*pool, object->first, object->second);
      Get answered;
      answered.channel = number;
      answered.ticket = request.ticket;
      answered.user = user;
      return answer(answered, object->second.frame, effects);
    }
  }
  get({.channel = number,
       .ticket = request.ticket,
       .user = user,
       .pool = without_options(asked.pool),
       .keys = {std::string(asked.row_key), std::string(asked.column_key)},
       .wait_ns = asked.wait_ns,
       .deadline = deadline_after(now, asked.wait_ns),
       .asked_at = now},
      effects);
}

void FrameTable::get(Get get, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(failure)});
  };
  ++counters_.gets;
  if (Pool* const pool = index_.find(get.pool); pool != nullptr) {
    if (Status may = ObjectIndex::may_use(*pool, get.user, Access::read); !may) return refuse(std::move(may).error());
    const auto object = pool->objects.find(get.keys);
    if (object != pool->objects.end() && !object->second.hidden) {
      spilling_.touch(*pool, object->first, object->second);
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
  OFP_ASSIGN(get.charge, charge(get.user, ObjectIndex::bytes_of(get.keys) + more_bytes));
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
  const Pool* const pool = index_.find(get.pool);
  if (pool == nullptr) return fmt::format("there is no pool \"{}\"", get.pool);
  if (std::string step = steps_.describe(get.pool, row); !step.empty()) return step;
  if (pool->objects.contains(get.keys))
    return fmt::format("pool \"{}\": step \"{}\" has not been ended by any rank", get.pool, brief(row));
  return fmt::format("pool \"{}\" has no object ({}, {})", get.pool, brief(row), brief(column));
}

void FrameTable::answer(const Get& get, const FramePtr& frame, Effects& effects) {
  const bool ready = !frame->unread;
  if (ready && !get.of_member) return hand_overs_.hand_over(get.channel, get.ticket, frame, effects);
  if (!hand_overs_.is_open(get.channel)) return;
  if (!ready) return answer_unread(get, frame, effects);
  if (frame->bytes > get.inbox.length) return deliver(get, frame, effects);
  hand_overs_.push(get.channel, get.ticket, frame, get.inbox.region, get.inbox.offset, effects);
}

// It waits for the disk, and perhaps for memory, as other gets wait for their object.
void FrameTable::answer_unread(Get get, const FramePtr& frame, Effects& effects) {
  if (Status may = charge(get); !may)
    return effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(may).error()});
  const auto kept = std::make_shared<const Get>(std::move(get));
  spilling_.read_back(
      {frame, kept->wait_ns == 0 ? 0 : kept->deadline, kept->channel,
       [this, kept](Result<FramePtr> read, Effects& then) {
         if (read) return answer(*kept, *read, then);
         if (read.error().code == Error::io && unreadable) return unreadable(*kept, std::move(read).error(), then);
         then.push_back(FailEffect{kept->channel, kept->ticket, wire::any_reply, std::move(read).error()});
       },
       kept},
      effects);
}

void FrameTable::serve_waiting(const std::string& pool, const Keys& keys, const FramePtr& frame, Effects& effects) {
  for (const Get& get : waiting_.take(pool, keys)) {
    --counters_.waiting;
    if (Status allowed = may_use(pool, get.user, Access::read); !allowed)
      effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(allowed).error()});
    else
      answer(get, frame, effects);
  }
}

void FrameTable::on_time(TimeNs now, Effects& effects) {
  for (const Get& get : waiting_.take_late(now)) {
    --counters_.waiting;
    effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, {Error::timeout, describe_absence(get)}});
  }
  expire(now);
  spilling_.lighten(now, effects);
  writes_.on_time(now, effects);
}

void FrameTable::expire(TimeNs now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const Expiry over = std::move(expiries_.begin()->second);
    expiries_.erase(expiries_.begin());
    Pool* const pool = index_.find(over.pool);
    if (pool == nullptr) continue;
    const auto object = pool->objects.find(over.keys);
    if (object == pool->objects.end() || object->second.sequence != over.sequence) continue;
    spilling_.remove(*pool, object);
    ++counters_.expired;
  }
}

TimeNs FrameTable::next_deadline() const noexcept {
  return std::min({expiries_.empty() ? never : expiries_.begin()->first, waiting_.next_deadline(),
                   writes_.next_deadline(), spilling_.next_deadline()});
}

// ---- list, drop

Result<std::vector<FrameTable::Item>> FrameTable::list(const std::string& name, uid_t user, std::string_view row_glob,
                                                       std::string_view column_glob, std::uint64_t after,
                                                       std::size_t bytes_max, bool& more) {
  OFP_TRY(check_globs(row_glob, column_glob));
  OFP_ASSIGN(const Pool* const pool, index_.existing(name, user, Access::read));
  return ObjectIndex::list(*pool, row_glob, column_glob, after, bytes_max, more);
}

void FrameTable::list(const channel::Entry& request, ChannelNumber number, uid_t user, Effects& effects) {
  wire::PoolList asked{};
  bool more = false;
  auto items = wire::decode(request.payload, asked).and_then([&] {
    return list(without_options(asked.pool), user, asked.row_glob, asked.column_glob, asked.after, listed_bytes_max,
                more);
  });
  if (!items) return effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(items).error()});
  answer_list(number, request.ticket, std::move(*items), more, effects);
}

void FrameTable::answer_list(ChannelNumber channel, std::uint64_t ticket, std::vector<Item> items, bool more,
                             Effects& effects) {
  const auto kept = std::make_shared<std::vector<Item>>(std::move(items));
  wire::Listed listed{more, {}};
  for (const Item& item : *kept)
    listed.entries.push_back({item.sequence, item.bytes, item.rows, item.arrow, item.row, item.column, item.member});
  effects.push_back(service::ListedEffect{channel, ticket, std::move(listed), kept});
}

Result<std::vector<FrameTable::Keys>> FrameTable::drop(std::string_view name, uid_t user, std::string_view row_glob,
                                                       std::string_view column_glob) {
  const std::string_view row_prefix = glob_prefix(row_glob), column_prefix = glob_prefix(column_glob);
  const bool one_row = !row_glob.empty() && row_prefix == row_glob;
  const bool one_object = one_row && !column_glob.empty() && column_prefix == column_glob;
  if (!one_object) OFP_TRY(check_globs(row_glob, column_glob));
  OFP_ASSIGN(Pool* const pool, index_.existing(name, user, Access::write));
  if (!one_object && says_all(column_glob)) steps_.drop(name, row_glob);  // they do not wait for ranks any more
  std::vector<Keys> dropped;
  if (one_object) {
    if (const auto at = pool->objects.find(KeysView{row_glob, column_glob}); at != pool->objects.end())
      dropped.push_back(spilling_.remove(*pool, at));
    counters_.drops += dropped.size();
    return dropped;
  }
  // Only rows with the pattern's prefix are visited, so a drop of some objects does not visit all.
  for (auto at = pool->objects.lower_bound(KeysView{row_prefix, one_row ? column_prefix : ""});
       at != pool->objects.end();) {
    const auto& [row, column] = at->first;
    if (!row.starts_with(row_prefix) || (one_row && (row != row_glob || !column.starts_with(column_prefix)))) break;
    const auto next = std::next(at);
    if (glob_matches(row_glob, row) && glob_matches(column_glob, column))
      dropped.push_back(spilling_.remove(*pool, at));
    at = next;
  }
  counters_.drops += dropped.size();
  return dropped;
}

void FrameTable::drop(const channel::Entry& request, ChannelNumber number, uid_t user, Effects& effects) {
  wire::PoolDrop asked{};
  Status status = wire::decode(request.payload, asked);
  Result<std::vector<Keys>> dropped;
  if (status) {
    dropped = drop(name_of(asked.pool), user, asked.row_glob, asked.column_glob);
    if (!dropped) status = tl::unexpected(dropped.error());
  }
  if (status)
    effects.push_back(ReplyEffect{number, request.ticket, wire::Done{dropped->size()}});
  else
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(status).error()});
}

// ---- status

FrameTableCounters FrameTable::counters() const noexcept {
  FrameTableCounters all = counters_;
  all.pools = index_.pools().size();
  all.frames = index_.frames();
  all.bytes = index_.bytes();
  all.key_bytes = index_.key_bytes();
  all.leases = hand_overs_.leases();
  all.written_bytes = writes_.written_bytes();
  return all;
}

std::vector<FrameTable::PoolStatus> FrameTable::pools() const {
  std::vector<PoolStatus> all;
  for (const auto& [name, pool] : index_.pools()) {
    all.push_back({name, pool.user, pool.objects.size(), pool.bytes, 0, pool.bytes - pool.memory.bytes, 0});
    for (const auto& [keys, object] : pool.objects) {
      all.back().rows += object.frame->arrow ? object.frame->rows : 0;
      all.back().arrow_frames += object.frame->arrow ? 1 : 0;
    }
  }
  return all;
}

}  // namespace offpath::pool
