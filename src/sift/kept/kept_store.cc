#include "sift/kept/kept_store.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "sift/kept/copies.h"
#include "wire/limits.h"

namespace offpath::sift {

namespace {

constexpr TimeNs ask_again_ns = 200 * millisecond_ns;
constexpr TimeNs tell_after_ns = 5 * second_ns;

}  // namespace

KeptStore::KeptStore(Options options, const Geometry& geometry, pool::Pools& pools, Events events)
    : options_(std::move(options)),
      geometry_(geometry),
      pools_(pools),
      events_(std::move(events)),
      own_(own_name(options_.settings, options_.text, options_.user)),
      row_(kept_row(options_.self, options_.settings.replicas, geometry.members())) {}

void KeptStore::set_due(TimeNs at) {
  due_ = at;
  events_.changed();
}

void KeptStore::ended() {
  --under_way_;
  events_.changed();
}

// ---- the pool of the objects

Status KeptStore::open(TimeNs now, service::Effects& effects) {
  const auto members = geometry_.members();
  const bool copies = options_.settings.replicas > 1;
  std::vector<std::string> options;
  if (copies)
    options.push_back(fmt::format("members={}&replicas={}", fmt::join(members, ","), options_.settings.replicas));
  if (options_.settings.durable || options_.settings.spill_on) options.emplace_back("spill=durable");
  const std::string full = fmt::format("{}?{}", own_, fmt::join(options, "&"));
  if (full.size() > wire::pool_bytes_max)
    return fail(Error::too_large,
                "pool \"{}\": its copies are placed by the names of its {} members, which have {} bytes with its own, "
                "at most {} are allowed; name fewer members=, or keep it by spill=durable without replicas=",
                options_.name, members.size(), full.size(), wire::pool_bytes_max);
  OFP_TRY(reserve());
  if (Status opened = pools_.open(full, options_.user, now, effects); !opened) {
    pools_.unreserve(own_);
    return opened;
  }
  if (options_.settings.spill_on)
    for (const pool::FrameTable::Held& held : pools_.table().held(own_)) pools_.forget(own_, held.keys, now, effects);
  const bool on_disk = options_.settings.durable && pools_.table().holds(own_, {row_, std::string(identity_column)});
  if (copies && !on_disk)
    for (const std::string& member : members)
      if (member != options_.self) unasked_.insert(member);
  opened_at_ = now;
  tell_at_ = now + tell_after_ns;
  return {};
}

Status KeptStore::reserve() {
  const std::uint64_t bytes = copies_bytes(geometry_, geometry_.position_of(options_.self));
  if (bytes == 0) return {};
  const Status done = pools_.reserve(own_, bytes, copy_stays);
  if (done) return {};
  return fail(done.error().code,
              "pool \"{}\": {}; a smaller budget= ({}), fewer replicas= ({}) or a larger memory.bytes_max makes it fit",
              options_.name, done.error().message, options_.settings.budget_bytes, options_.settings.replicas);
}

// ---- objects from before a restart, and the members that have them

// Asks members that have not answered. When all have, the pool has the objects that were found, or is new.
void KeptStore::work(TimeNs now, service::Effects& effects) {
  set_due(never);
  if (state_ != State::looking) return;
  for (const std::string& member : unasked_) {
    if (!asked_.insert(member).second) continue;
    ++under_way_;
    pools_.list_at(
        member, own_, row_,
        [this, member](const Result<std::vector<pool::FrameTable::Item>>& items, TimeNs then, service::Effects&) {
          on_listed(member, items, then);
          ended();
        },
        now, effects);
  }
  if (unasked_.empty()) return begin_restore(now, effects);
  if (now >= tell_at_) {
    log(LogLevel::warning, "pool \"{}\": it waits for an answer of {}, which may have objects of this agent",
        options_.name, fmt::join(unasked_, ", "));
    tell_at_ = never;
  }
  set_due(std::min(tell_at_, deadline_after(now, ask_again_ns)));
}

void KeptStore::on_listed(const std::string& member, const Result<std::vector<pool::FrameTable::Item>>& items,
                          TimeNs now) {
  asked_.erase(member);
  if (!items) {  // it is absent; asked again later
    set_due(std::min(due_, deadline_after(now, ask_again_ns)));
    return;
  }
  unasked_.erase(member);
  for (const pool::FrameTable::Item& item : *items)
    elsewhere_.insert_or_assign(item.column, Elsewhere{member, item.bytes, item.rows});
  set_due(now);
}

void KeptStore::begin_restore(TimeNs now, service::Effects& effects) {
  state_ = State::restoring;
  std::map<std::string, KeptItem> items;
  for (const auto& [name, there] : elsewhere_) items[name] = {name, there.bytes, there.rows};
  for (const pool::FrameTable::Held& held : pools_.table().held(own_))
    if (held.keys.first == row_) items[held.keys.second] = {held.keys.second, held.frame->bytes, held.frame->rows};
  const bool known = items.erase(std::string(identity_column)) > 0;
  std::vector<KeptItem> all;
  for (auto& [name, item] : items) all.push_back(std::move(item));
  ++under_way_;
  if (known) {
    return pools_.read(
        own_, {row_, std::string(identity_column)}, member_with(identity_column),
        [this, all = std::move(all)](const Result<FramePtr>& object, TimeNs then, service::Effects& more) {
          const Result<Identity> identity = read_identity(object, options_.user);
          identified(identity.map([](const Identity& it) { return it.incarnation; }), all, then, more);
        },
        now, effects);
  }
  const FramePtr object = identity_object(options_.process, options_.user, options_.text, options_.memory);
  if (object == nullptr) return identified(fail(Error::no_memory, "no memory for its name"), {}, now, effects);
  pools_.keep(
      place_of(std::string(identity_column)), object,
      [this](const Status& status, TimeNs then, service::Effects& more) {
        identified(status.map([this] { return options_.process; }), {}, then, more);
      },
      now, effects);
}

void KeptStore::identified(const Result<std::uint64_t>& incarnation, const std::vector<KeptItem>& items, TimeNs now,
                           service::Effects& effects) {
  if (state_ == State::found) return ended();  // the pool was dropped meanwhile
  if (incarnation) {
    state_ = State::found;
    if (!items.empty())
      log(LogLevel::info, "pool \"{}\": {} kept pieces, splits and runs of tracks were found", options_.name,
          items.size());
    events_.found(*incarnation, items, now, effects);
  } else {
    log(LogLevel::warning, "pool \"{}\": it cannot start, and will be tried again: {}", options_.name,
        incarnation.error().message);
    state_ = State::looking;
    due_ = deadline_after(now, second_ns);
  }
  ended();
}

// ---- its objects

mover::Store::Place KeptStore::place_of(std::string name) const {
  return {own_, row_, std::move(name), options_.user, 0, false};
}

std::string KeptStore::member_with(std::string_view name) const {
  const auto at = elsewhere_.find(name);
  return at != elsewhere_.end() ? at->second.member : std::string();
}

void KeptStore::keep(KeepEffect effect, TimeNs now, service::Effects& effects) {
  ++under_way_;
  pools_.keep(
      place_of(std::move(effect.name)), std::move(effect.object),
      [this, token = effect.token](const Status& status, TimeNs then, service::Effects& more) {
        events_.kept(token, status, then, more);
        ended();
      },
      now, effects);
}

void KeptStore::read(const ReadEffect& effect, TimeNs now, service::Effects& effects) {
  const auto held = pools_.table().held(own_, {row_, effect.name});
  if (effect.unread && held && held->frame->unread) return events_.read(effect.token, held->frame, now, effects);
  ++under_way_;
  const std::string member = member_with(effect.name);
  pools_.read(
      own_, {row_, effect.name}, member,
      [this, token = effect.token, remote = !member.empty()](Result<FramePtr> object, TimeNs then,
                                                             service::Effects& more) {
        const bool moves =
            !object && remote && object.error().code == Error::not_found && then < opened_at_ + options_.moves_ns;
        if (moves) object = fail(Error::would_block, "{}", object.error().message);
        events_.read(token, std::move(object), then, more);
        ended();
      },
      now, effects);
}

void KeptStore::spill(SpillEffect effect, TimeNs now, service::Effects& effects) {
  if (auto unread = pools_.let_go(own_, {row_, effect.name}))
    return events_.spilled(effect.token, std::move(unread), now, effects);
  ++under_way_;
  pools_.keep(
      place_of(effect.name), std::move(effect.object),
      [this, token = effect.token, name = effect.name](const Status& status, TimeNs then, service::Effects& more) {
        events_.spilled(token, status ? pools_.let_go(own_, {row_, name}) : tl::unexpected(status.error()), then, more);
        ended();
      },
      now, effects);
}

void KeptStore::forget(std::string name, TimeNs now, service::Effects& effects) {
  pools_.forget(own_, {row_, std::move(name)}, now, effects);
}

void KeptStore::drop(TimeNs now, service::Effects& effects) {
  state_ = State::found;
  due_ = never;
  pools_.forget_all(own_, now, effects);
}

}  // namespace offpath::sift
