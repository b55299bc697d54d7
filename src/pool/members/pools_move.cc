// Rows whose owners change when members come and go.
//
// Of the owners before, the first that still lives sends each of its rows to the owners that have not got it; an owner
// before that is none any more sends to all, and drops its own when they have it. Of what arrives and what is there the
// later put stays (put_id.h). A move that fails is tried again: its row has fewer copies than it is to have until then.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pool/directory/glob.h"
#include "pool/directory/placement.h"
#include "pool/members/pools.h"

namespace offpath::pool {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

void Pools::plan_moves(const std::vector<std::string>& anew) {
  for (const auto& known : context_.directory.all()) {
    const std::string& name = known.first;
    const Definition& definition = known.second;
    if (definition.name.policy == Policy::local) continue;
    for (const FrameTable::Held& held : context_.table.held(name)) {
      const std::vector<std::string> now = Directory::owners(definition, held.keys.first);
      std::vector<std::string> before =
          owners_of(definition.name.policy, definition.name.options.replicas, held.keys.first, definition.before);
      std::erase_if(before, [&](const std::string& owner) {
        return !contains(definition.members, owner) || contains(anew, owner);
      });
      const bool stays = contains(now, context_.directory.self());
      std::vector<std::string> to;
      for (const std::string& owner : now)
        if (owner != context_.directory.self() && (!stays || !contains(before, owner))) to.push_back(owner);
      const bool first = before.empty() || before.front() == context_.directory.self();
      if (!to.empty() && (first || !stays)) moves_.add({name, held.keys, std::move(to), !stays});
    }
  }
}

void Pools::start_moves(TimeNs now, Effects& effects) {
  while (has_room_to_move()) {
    std::optional<Move> next = moves_.take(now);
    if (!next) return;
    Move& move = *next;
    const Definition* const known = context_.directory.known(move.pool);
    const auto held = context_.table.held(move.pool, move.keys);
    if (known == nullptr || !held) continue;  // dropped meanwhile
    if (move.failures > 0) {  // members may have changed since it was planned; what that asks for was planned then
      const std::vector<std::string> owners_now = Directory::owners(*known, move.keys.first);
      std::erase_if(move.to, [&](const std::string& member) { return !contains(owners_now, member); });
      if (move.to.empty()) continue;
    }
    if (!held->frame->unread) {
      start_move(move, *held, now, effects);
      continue;
    }
    const std::uint64_t number = context_.numbers.take();
    reading_.emplace(number, std::move(move));
    context_.table.read_back(
        held->frame, deadline_after(now, context_.options.put_wait_ns),
        [this, number, version = held->id.version()](Result<FramePtr> read, Effects& then) {
          Move read_for = std::move(reading_.extract(number).mapped());
          if (read) {
            auto there = context_.table.held(read_for.pool, read_for.keys);
            if (there && there->id.version() == version) {
              there->frame = *read;
              return start_move(read_for, *there, context_.now, then);
            }
            if (there) moves_.add(std::move(read_for));  // put anew: what was read are the bytes before
            return context_.due(context_.now);
          }
          log(read_for.failures == 0 ? LogLevel::warning : LogLevel::debug,
              "a row that belongs to other members stays here, and is tried again in {} s: {}",
              context_.options.move_retry_ns / second_ns, read.error().message);
          // An object that is lost here is in the table no more: then its move ends above.
          ++read_for.failures;
          read_for.begin_at = context_.now + context_.options.move_retry_ns;
          moves_.add(std::move(read_for));
          context_.due(context_.now);
        },
        effects);
  }
}

void Pools::start_move(const Move& move, const FrameTable::Held& held, TimeNs now, Effects& effects) {
  Put put;
  put.place = {move.pool, move.keys.first, move.keys.second, context_.table.user_of(move.pool), held.keep, held.hidden};
  put.frame = held.frame;
  put.id = held.id;
  put.moves = true;
  put.drop_after = move.drop_after;
  put.failures = move.failures;
  put.owners = move.to;
  put.id.moved = true;
  start(std::move(put), now, effects);
}

void Pools::moved(const Put& put, const Status& status) {
  context_.due(context_.now);  // for the next one
  const FrameTable::Keys keys{put.place.row_key, put.place.column_key};
  const Definition* const known = context_.directory.known(put.place.pool);
  if (status) {
    ++context_.counters.moved_rows;
    // again, meanwhile
    const bool is_owner =
        known != nullptr && contains(Directory::owners(*known, keys.first), context_.directory.self());
    const PutId* const here = context_.table.id_of(put.place.pool, keys);
    if (!put.drop_after || is_owner || here == nullptr) return;
    if (here->version() == put.id.version())
      context_.table.remove(put.place.pool, keys);
    else
      give_away_later(put.place);  // it was put anew meanwhile
    return;
  }
  ++context_.counters.failed_moves;
  std::vector<std::string> left;
  for (const std::string& owner : put.owners)
    if (!put.done.contains(owner)) left.push_back(owner);
  log(put.failures == 0 ? LogLevel::warning : LogLevel::debug,
      "pool \"{}\": object ({}, {}) could not be moved to {}: {}; it is tried again in {} s", put.place.pool,
      keys.first, keys.second, fmt::join(left, ", "), status.error().message,
      context_.options.move_retry_ns / second_ns);
  moves_.add({put.place.pool, keys, std::move(left), put.drop_after, put.failures + 1,
              context_.now + context_.options.move_retry_ns});
}

std::vector<std::uint64_t> Pools::under_way(const std::string& pool, std::string_view row_glob,
                                            std::string_view column_glob) const {
  std::vector<std::uint64_t> matching;
  for (const std::uint64_t number : moving_) {
    const Place& place = puts_.at(number).place;
    if (place.pool == pool && glob_matches(row_glob, place.row_key) && glob_matches(column_glob, place.column_key))
      matching.push_back(number);
  }
  return matching;
}

// ---- which of two objects of the same keys stays

std::optional<std::uint64_t> Pools::not_wanted(const Place& place, PutId& id) {
  const FrameTable::KeysView keys{place.row_key, place.column_key};
  // From a member that has not heard yet that it is no more.
  if (id.moved && removals_.contains(place)) return 0;
  const PutId* const here = context_.table.id_of(place.pool, keys);
  if (here == nullptr) {
    if (!id.moved) id.view = context_.directory.view();
    return std::nullopt;
  }
  if (*here == id && *here != PutId{})
    return here->counter >= id.counter ? std::optional<std::uint64_t>{0} : std::nullopt;
  const bool stays = here->version() > id.version();
  if (!id.moved) {
    if (!stays || here->counter == 0) return std::nullopt;
    return here->knows(id.version()) ? 0 : here->counter;
  }
  if (!stays) {
    if (here->version() == id.version()) return 0;
    return std::nullopt;
  }
  // What was put where nothing was is later than what a move brings from before. What was put since, elsewhere, was put
  // by members that saw others: those here may never have noticed that they were cut off.
  if (!here->knows(id.version()) && (here->view != context_.directory.view() || id.counter > view_began_))
    note_conflict(place, *here, id);
  context_.table.learn(place.pool, keys, id);
  return 0;
}

// What another member has put, and is wanted.
Status Pools::take(const Place& place, FramePtr frame, PutId id, TimeNs now, Effects& effects, const RecordPtr& file) {
  const PutId* const here = context_.table.id_of(place.pool, FrameTable::KeysView{place.row_key, place.column_key});
  const std::optional<PutId> replaced =
      here != nullptr && id.moved && !id.knows(here->version()) ? std::optional(*here) : std::nullopt;
  taking_moved_ = id.moved;
  const Status taken = context_.table.put(place, std::move(frame), now, effects, id, file);
  taking_moved_ = false;
  if (!taken) return taken;
  if (replaced) note_conflict(place, id, *replaced);
  if (id.moved) compare_later(deadline_after(now, context_.options.compare_wait_ns));  // other owners may lack it, too
  give_away_later(place);
  return {};
}

void Pools::note_conflict(const Place& place, const PutId& stays, const PutId& goes) {
  constexpr std::uint64_t logged_max = 16;              // until members change again; all are counted
  if (stays.counter == 0 || goes.counter == 0) return;  // of a time before there were versions
  ++context_.counters.conflicts;
  if (++conflicts_logged_ > logged_max) return;
  log(LogLevel::warning,
      "pool \"{}\": object ({}, {}) was put on both sides of a cut: put {}.{:016x} stays, {}.{:016x} is given up{}",
      place.pool, brief(place.row_key), brief(place.column_key), stays.counter, stays.writer, goes.counter, goes.writer,
      conflicts_logged_ == logged_max ? "; further ones are counted only (pool_conflicts_total)" : "");
}

}  // namespace offpath::pool
