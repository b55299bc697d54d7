// Kept objects of a pool are in a pool of their own (pool/members/pools.h), which provides copies and disk: `local:`
// with spill=durable, or `hash:` with replicas. There each member has a row (copies.h), of which it is the first owner.
// The row's columns are the names of the objects (journal.h), and "pool": the pool, and the source as which the member
// publishes in all its lives.
//
// Before anything of the pool is taken, every member reserves memory for the others' copies. Otherwise the credit of a
// stage, which depends on copies, could wait for memory of another stage or of a program.
//
// At its start an agent finds its row on its disk. Without a disk it asks all other members for it, and waits until all
// have answered, because a member that does not may be the only one that has it. Requests to the pool wait until then.
#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pool/directory/placement.h"
#include "sift/kept/copies.h"
#include "sift/sift_service.h"
#include "wire/cursor.h"

namespace offpath::sift {

namespace {

constexpr std::string_view identity_column = "pool";
constexpr TimeNs ask_again_ns = 200 * millisecond_ns;
constexpr TimeNs tell_after_ns = 5 * second_ns;

FramePtr identity_object(std::uint64_t incarnation, uid_t user, std::string_view text, const FrameMemory& memory) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  writer.put(incarnation);
  writer.put(std::uint64_t{user});
  writer.put_text(text);
  auto object = std::make_shared<service::Frame>();
  auto buffer = memory.cache->take(bytes.size(), memory.user);
  if (!buffer) return nullptr;
  object->buffer = std::move(*buffer);
  object->bytes = bytes.size();
  std::memcpy(object->buffer.data(), bytes.data(), bytes.size());
  return object;
}

struct Identity {
  std::uint64_t incarnation, user;
  std::string text;
};

// `user`: the pool's user, in a record that the agent wrote.
Result<Identity> read_identity(Bytes bytes, uid_t user) {
  wire::Reader reader(bytes);
  Identity identity{reader.take<std::uint64_t>(), reader.take<std::uint64_t>(), {}};
  identity.text = reader.take_text();
  if (!reader.done()) return fail(Error::protocol, "{} bytes that do not name a sift pool", bytes.size());
  if (identity.user != user)
    return fail(Error::denied, "its bytes name user {}, but it belongs to user {}", identity.user, user);
  return identity;
}

}  // namespace

// ---- at start

void SiftService::recover(TimeNs now, service::Effects& effects) {
  for (const pool::FrameTable::PoolStatus& each : pools_.table().pools()) {
    if (!pool::is_reserved(each.name)) continue;
    for (const pool::FrameTable::Held& held : pools_.table().held(each.name)) {
      const auto& [row, column] = held.keys;
      if (column == identity_column && row.substr(0, row.find('#')) == self_)
        unread_.emplace(each.name, Unread{row, each.user, now});
    }
  }
  read_identities(now, effects);
}

void SiftService::read_identities(TimeNs now, service::Effects& effects) {
  std::vector<std::pair<std::string, std::string>> due;
  for (auto& [own, unread] : unread_) {
    if (unread.again_at > now) continue;
    unread.again_at = never;
    due.emplace_back(own, unread.row);
  }
  for (const auto& [own, row] : due)
    pools_.read(
        own, {row, std::string(identity_column)}, {},
        [this, name = own](const Result<FramePtr>& object, TimeNs then, service::Effects& more) {
          on_identity(name, object, then, more);
        },
        now, effects);
}

void SiftService::on_identity(const std::string& own, const Result<FramePtr>& object, TimeNs now,
                              service::Effects& effects) {
  if (!object && !is_lost(object.error().code)) {
    log(LogLevel::warning, "pool \"{}\": its kept objects cannot be read, and are tried again: {}", own,
        object.error().message);
    unread_.at(own).again_at = deadline_after(now, second_ns);
    return;
  }
  const uid_t user = unread_.extract(own).mapped().user;
  const auto made = [&]() -> Status {
    OFP_TRY(object);
    OFP_ASSIGN(const Identity identity, read_identity({(*object)->buffer.data(), (*object)->bytes}, user));
    OFP_ASSIGN(const Settings settings, parse_settings(identity.text));
    if (const std::string name = own_name(settings, identity.text, user); name != own)
      return fail(Error::exists, "the kept objects of pool \"{}\" of user {} are in \"{}\"", identity.text, user, name);
    OFP_ASSIGN(Pool* const pool, define(identity.text, user, effects));
    if (pool->own != own) return fail(Error::exists, "another pool \"{}\" exists", identity.text);
    agree(*pool, now, effects);  // with its former definition
    return {};
  };
  if (const Status status = made(); !status)
    log(LogLevel::error, "pool \"{}\": its kept objects are not used: {}", own, status.error().message);
  make_awaited(now, effects);
}

// Refuses a pool whose name may belong to kept objects that are still being read: it would replace them.
Status SiftService::may_make(std::string_view text) const {
  for (const auto& [own, unread] : unread_) {
    const std::string_view name = std::string_view(own).substr(own.find(':'));
    if (name_in(text).substr(std::string_view("sift").size()) == name.substr(0, name.find(pool::kept_mark)))
      return fail(Error::would_block, "pool \"{}\": agent {} is still reading its kept objects", name_in(text), self_);
  }
  return {};
}

// For kept objects of a pool: two pools of one name, by other members or of other users, do not mix there.
std::string SiftService::own_name(const Settings& settings, std::string_view text, uid_t user) {
  return fmt::format("{}:{}{}{:08x}", settings.replicas > 1 ? "hash" : "local", settings.pool, pool::kept_mark,
                     pool::hash_of(fmt::format("{} {}", user, text)) & 0xFFFF'FFFF);
}

Status SiftService::open_own(Pool& pool, TimeNs now, service::Effects& effects) {
  if (!pool.settings.kept()) return {};
  const auto members = pool.sift->geometry().members();
  const bool copies = pool.settings.replicas > 1;
  pool.own = own_name(pool.settings, pool.text, pool.user);
  std::vector<std::string> options;
  if (copies) options.push_back(fmt::format("members={}&replicas={}", fmt::join(members, ","), pool.settings.replicas));
  if (pool.settings.durable) options.emplace_back("spill=durable");
  pool.row = kept_row(self_, pool.settings.replicas, members);
  OFP_TRY(set_aside(pool));
  if (Status opened = pools_.open(fmt::format("{}?{}", pool.own, fmt::join(options, "&")), pool.user, now, effects);
      !opened) {
    pools_.unreserve(pool.own);
    return opened;
  }
  const bool on_disk =
      pool.settings.durable && pools_.table().holds(pool.own, {pool.row, std::string(identity_column)});
  if (copies && !on_disk)
    for (const std::string& member : members)
      if (member != self_) pool.unasked.insert(member);
  pool.opened_at = pool.tell_at = now;
  pool.tell_at += tell_after_ns;
  set_due(pool, now);
  return {};
}

Status SiftService::set_aside(const Pool& pool) {
  const Geometry& geometry = pool.sift->geometry();
  const std::uint64_t bytes = copies_bytes(geometry, geometry.position_of(self_));
  if (bytes == 0) return {};
  const Status done = pools_.reserve(pool.own, bytes, copy_stays);
  if (done) return {};
  return fail(done.error().code,
              "pool \"{}\": {}; a smaller budget= ({}), fewer replicas= ({}) or a larger memory.bytes_max makes it fit",
              pool.name, done.error().message, pool.settings.budget_bytes, pool.settings.replicas);
}

// ---- kept objects and their place

// Asks members that have not answered. When all have, the pool has the objects that were found, or is new.
void SiftService::work_on_opening(Pool& pool, TimeNs now, service::Effects& effects) {
  set_due(pool, never);
  if (pool.own.empty() || !pool.agreed || pool.sift->is_restored() || pool.restoring) return;
  for (const std::string& member : pool.unasked) {
    if (!pool.asked.insert(member).second) continue;
    const std::uint64_t number = next_++;
    works_.emplace(number, Work{Work::Kind::open, &pool, 0});
    pools_.list_at(
        member, pool.own, pool.row,
        [this, number, member](const Result<std::vector<pool::FrameTable::Item>>& items, TimeNs then,
                               service::Effects&) { on_listed(number, member, items, then); },
        now, effects);
  }
  if (pool.unasked.empty()) return begin_restore(pool, now, effects);
  if (now >= pool.tell_at) {
    log(LogLevel::warning, "pool \"{}\": {} may have objects of this agent: it waits for their answer", pool.name,
        fmt::join(pool.unasked, ", "));
    pool.tell_at = never;
  }
  set_due(pool, std::min(pool.tell_at, deadline_after(now, ask_again_ns)));
}

void SiftService::on_listed(std::uint64_t number, const std::string& member,
                            const Result<std::vector<pool::FrameTable::Item>>& items, TimeNs now) {
  const auto node = works_.extract(number);
  if (!node) return;
  Pool& pool = *node.mapped().pool;
  pool.asked.erase(member);
  if (!items) {  // it is absent; asked again later
    set_due(pool, std::min(pool.due, deadline_after(now, ask_again_ns)));
    return;
  }
  pool.unasked.erase(member);
  for (const pool::FrameTable::Item& item : *items)
    pool.elsewhere.insert_or_assign(item.column, Elsewhere{member, item.bytes, item.rows});
  set_due(pool, now);
}

void SiftService::begin_restore(Pool& pool, TimeNs now, service::Effects& effects) {
  pool.restoring = true;
  std::map<std::string, KeptItem> items;
  for (const auto& [name, there] : pool.elsewhere) items[name] = {name, there.bytes, there.rows};
  for (const pool::FrameTable::Held& held : pools_.table().held(pool.own))
    if (held.keys.first == pool.row) items[held.keys.second] = {held.keys.second, held.frame->bytes, held.frame->rows};
  const bool known = items.erase(std::string(identity_column)) > 0;
  std::vector<KeptItem> all;
  for (auto& [name, item] : items) all.push_back(std::move(item));
  const std::uint64_t number = next_++;
  works_.emplace(number, Work{Work::Kind::open, &pool, 0});
  if (known) {
    return pools_.read(
        pool.own, {pool.row, std::string(identity_column)}, member_with(pool, identity_column),
        [this, number, user = pool.user, all = std::move(all)](Result<FramePtr> object, TimeNs then,
                                                               service::Effects& more) {
          const auto identity = [&]() -> Result<Identity> {
            OFP_TRY(object);
            return read_identity({(*object)->buffer.data(), (*object)->bytes}, user);
          }();
          if (identity)
            identified(number, identity->incarnation, all, then, more);
          else
            identified(number, tl::unexpected(identity.error()), all, then, more);
        },
        now, effects);
  }
  const FramePtr object = identity_object(process_, pool.user, pool.text, {buffers_, pool.user});
  if (object == nullptr) return identified(number, fail(Error::no_memory, "no memory for its name"), {}, now, effects);
  pools_.keep(
      place_of(pool, std::string(identity_column)), object,
      [this, number](const Status& status, TimeNs then, service::Effects& more) {
        if (status)
          identified(number, process_, {}, then, more);
        else
          identified(number, tl::unexpected(status.error()), {}, then, more);
      },
      now, effects);
}

void SiftService::identified(std::uint64_t number, Result<std::uint64_t> incarnation,
                             const std::vector<KeptItem>& items, TimeNs now, service::Effects& effects) {
  const auto node = works_.extract(number);
  if (!node) return;
  Pool& pool = *node.mapped().pool;
  if (pool.sift->is_restored()) {  // it was dropped
    forget_later_ = true;
    return;
  }
  if (!incarnation) {
    log(LogLevel::warning, "pool \"{}\": it cannot start, and is tried again: {}", pool.name,
        incarnation.error().message);
    pool.restoring = false;
    set_due(pool, deadline_after(now, second_ns));
    return;
  }
  if (!items.empty())
    log(LogLevel::info, "pool \"{}\": {} kept pieces, splits and runs of tracks were found", pool.name, items.size());
  pool.sift->restore(*incarnation, items, now, pool.pending);
  carry_out(pool, now, effects);
}

// ---- effects of a Sift

mover::Store::Place SiftService::place_of(const Pool& pool, std::string name) {
  return {pool.own, pool.row, std::move(name), pool.user, 0, false};
}

std::string SiftService::member_with(const Pool& pool, std::string_view name) {
  const auto at = pool.elsewhere.find(name);
  return at != pool.elsewhere.end() ? at->second.member : std::string();
}

void SiftService::keep(Pool& pool, KeepEffect& effect, TimeNs now, service::Effects& effects) {
  if (effect.object == nullptr)
    return pool.sift->on_kept(effect.token, fail(Error::no_memory, "no memory for {}", effect.name), now, pool.pending);
  const std::uint64_t number = next_++;
  works_.emplace(number, Work{Work::Kind::keep, &pool, effect.token});
  pools_.keep(
      place_of(pool, std::move(effect.name)), std::move(effect.object),
      [this, number](const Status& status, TimeNs then, service::Effects& more) {
        const auto node = works_.extract(number);
        if (!node) return;
        Pool& of = *node.mapped().pool;
        of.sift->on_kept(node.mapped().token, status, then, of.pending);
        carry_out(of, then, more);
        forget_later_ = true;
      },
      now, effects);
}

void SiftService::read(Pool& pool, const ReadEffect& effect, TimeNs now, service::Effects& effects) {
  const std::uint64_t number = next_++;
  works_.emplace(number, Work{Work::Kind::read, &pool, effect.token});
  const std::string member = member_with(pool, effect.name);
  pools_.read(
      pool.own, {pool.row, effect.name}, member,
      [this, number, remote = !member.empty()](Result<FramePtr> object, TimeNs then, service::Effects& more) {
        const auto node = works_.extract(number);
        if (!node) return;
        Pool& of = *node.mapped().pool;
        // Rows move between owners when members change: the row may be on its way here.
        const bool moves = !object && remote && object.error().code == Error::not_found &&
                           then < of.opened_at + options_.piece_wait_ns;
        if (moves) object = fail(Error::would_block, "{}", object.error().message);
        of.sift->on_read(node.mapped().token, std::move(object), then, of.pending);
        carry_out(of, then, more);
        forget_later_ = true;
      },
      now, effects);
}

// ---- requests before the pool is ready

// Members would answer requests to a pool that is not agreed on as if it were.
Result<bool> SiftService::must_wait(Pool& pool, TimeNs now, ChannelNumber channel, const channel::Entry& request,
                                    bool is_member) {
  if (is_ready(pool)) return false;
  if (!pool.agreed) OFP_TRY(may_put(pool, now));
  pool.deferred.emplace_back([this, channel, kind = request.kind, ticket = request.ticket, is_member,
                              payload = std::vector<std::byte>(request.payload.begin(), request.payload.end())](
                                 TimeNs then, service::Effects& effects) {
    if (!channels_.contains(channel)) return;
    channel::Entry again = {};
    again.kind = kind;
    again.ticket = ticket;
    again.payload = payload;
    on_request(channel, again, is_member, then, effects);
  });
  return true;
}

void SiftService::serve_deferred(Pool& pool, TimeNs now, service::Effects& effects) {
  if (pool.deferred.empty() || !is_ready(pool)) return;
  for (const auto& serve : std::exchange(pool.deferred, {})) serve(now, effects);
}

}  // namespace offpath::sift
