#include "pool/rows/moves.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pool/directory/placement.h"

namespace offpath::pool {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

void Moves::plan(const std::vector<std::string>& anew) {
  for (const auto& known : context_.directory.all()) {
    const std::string& name = known.first;
    const Definition& definition = known.second;
    if (context_.directory.is_own(definition)) continue;
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
      if (!to.empty() && (first || !stays)) queue_.add({name, held.keys, std::move(to), !stays});
    }
  }
}

void Moves::on_time(TimeNs now, Effects& effects) {
  while (has_room()) {
    std::optional<Move> next = queue_.take(now);
    if (!next) return;
    Move& move = *next;
    const Definition* const known = context_.directory.known(move.pool);
    const auto held = context_.table.held(move.pool, move.keys);
    if (known == nullptr || !held) continue;  // dropped meanwhile
    if (move.failures > 0) {                  // members may have changed since; moves for that change were planned then
      const std::vector<std::string> owners_now = Directory::owners(*known, move.keys.first);
      std::erase_if(move.to, [&](const std::string& member) { return !contains(owners_now, member); });
      if (move.to.empty()) continue;
    }
    if (!held->frame->unread) {
      start(move, *held, now, effects);
      continue;
    }
    const std::uint64_t number = context_.numbers.take();
    reading_.emplace(number, std::move(move));
    context_.table.read_back(
        held->frame, deadline_after(now, context_.options.put_wait_ns),
        [this, number, version = held->id.version()](Result<FramePtr> read, Effects& then) {
          on_read(number, version, read, context_.now, then);
        },
        effects);
  }
}

void Moves::on_read(std::uint64_t number, const Version& version, const Result<FramePtr>& read, TimeNs now,
                    Effects& effects) {
  Move move = std::move(reading_.extract(number).mapped());
  if (read) {
    auto there = context_.table.held(move.pool, move.keys);
    if (there && there->id.version() == version) {
      there->frame = *read;
      return start(move, *there, now, effects);
    }
    if (there) queue_.add(std::move(move));  // put again: the bytes that were read are outdated
    return context_.due(now);
  }
  log(move.failures == 0 ? LogLevel::warning : LogLevel::debug,
      "a row could not be moved to its owners, and stays here; the next attempt is in {} s: {}",
      context_.options.move_retry_ns / second_ns, read.error().message);
  // A lost object is not in the table any more; its move then ends in on_time.
  ++move.failures;
  move.begin_at = now + context_.options.move_retry_ns;
  queue_.add(std::move(move));
  context_.due(now);
}

void Moves::start(const Move& move, const FrameTable::Held& held, TimeNs now, Effects& effects) {
  Put put;
  put.place = {move.pool, move.keys.first, move.keys.second, context_.table.user_of(move.pool), held.keep, held.hidden};
  put.frame = held.frame;
  put.id = held.id;
  put.moves = true;
  put.drop_after = move.drop_after;
  put.failures = move.failures;
  put.owners = move.to;
  put.id.moved = true;
  puts_.start(std::move(put), now, effects);
}

void Moves::on_ended(const Put& put, const Status& status, TimeNs now) {
  context_.due(now);  // for the next one
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
      give_away_later(put.place, now);  // it was put again meanwhile
    return;
  }
  ++context_.counters.failed_moves;
  std::vector<std::string> left;
  for (const std::string& owner : put.owners)
    if (!put.done.contains(owner)) left.push_back(owner);
  log(put.failures == 0 ? LogLevel::warning : LogLevel::debug,
      "pool \"{}\": object ({}, {}) could not be moved to {}: {}; the next attempt is in {} s", put.place.pool,
      keys.first, keys.second, fmt::join(left, ", "), status.error().message,
      context_.options.move_retry_ns / second_ns);
  queue_.add(
      {put.place.pool, keys, std::move(left), put.drop_after, put.failures + 1, now + context_.options.move_retry_ns});
}

void Moves::give_away_later(const Place& place, TimeNs now) {
  const Definition* const known = context_.directory.known(place.pool);
  if (known == nullptr || !context_.directory.is_elsewhere(*known)) return;
  std::vector<std::string> all = Directory::owners(*known, place.row_key);
  if (all.empty() || std::ranges::find(all, context_.directory.self()) != all.end()) return;
  const TimeNs begin_at = now + context_.options.move_retry_ns;
  queue_.add({place.pool, {place.row_key, place.column_key}, std::move(all), true, 1, begin_at});
  context_.due(begin_at);
}

std::set<FrameTable::Keys> Moves::failed(const std::string& pool) const {
  std::set<FrameTable::Keys> keys;
  queue_.each(pool, [&](const Move& move) {
    if (move.failures > 0) keys.insert(move.keys);
  });
  return keys;
}

void Moves::add_pools(std::set<std::string_view>& names) const {
  queue_.add_pools(names);
  for (const auto& [number, move] : reading_) names.insert(move.pool);
}

}  // namespace offpath::pool
