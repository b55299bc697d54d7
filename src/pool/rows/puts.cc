#include "pool/rows/puts.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pool/directory/glob.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"

namespace offpath::pool {

using mover::Stored;
using service::AskedMemory;
using wire::EntryKind;

Result<Stored> Puts::put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now, Effects& effects) {
  const Definition* const known = context_.directory.known(place.pool);
  if (known == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", place.pool);
  const Definition& definition = *known;
  OFP_TRY(context_.directory.check_members(definition));
  const PoolOptions& options = definition.name.options;
  if (!context_.directory.is_elsewhere(definition) && options.spill != Spill::durable && options.min_copies <= 1 &&
      !untold_.contains(place.pool)) {
    // Numbered, so that another put of these keys is not taken for a repetition.
    const Status status = context_.table.put(
        place, frame, now, effects,
        {process_, context_.numbers.take(), context_.directory.is_own(definition) ? 0 : context_.clock.stamp(now)});
    if (status) return Stored::now;
    if (status.error().code != Error::would_block) return tl::unexpected(status.error());
  }
  Put put;
  put.place = place;
  put.frame = std::move(frame);
  put.token = token;
  put.owners = context_.directory.is_elsewhere(definition) ? Directory::owners(definition, place.row_key)
                                                           : std::vector{context_.directory.self()};
  start(std::move(put), now, effects);
  return Stored::later;
}

Status Puts::end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank, std::uint32_t ranks,
                      TimeNs now, Effects& effects) {
  const Definition* const known = context_.directory.known(pool);
  if (known == nullptr) return {};
  const Definition& definition = *known;
  OFP_TRY(context_.directory.check_members(definition));
  if (!context_.directory.is_elsewhere(definition))
    return context_.table.end_step(pool, row_key, rank, ranks, now, effects);
  const uid_t user = context_.table.user_of(pool);
  EndsUnderWay& under_way = ends_under_way_[user];
  if (under_way.count >= context_.options.table.user_steps_max)
    return fail(Error::too_large,
                "{} ends of steps of user {} are on their way to other members, which is the limit of each user "
                "(limits.user_steps_max)",
                under_way.count, user);
  if (under_way.key_bytes + row_key.size() > context_.options.table.waiting_key_bytes_max)
    return fail(Error::too_large,
                "ends of steps of user {} that are on their way to other members have keys of {} bytes, at most {} are "
                "allowed",
                user, under_way.key_bytes + row_key.size(), context_.options.table.waiting_key_bytes_max);
  ++under_way.count;
  under_way.key_bytes += row_key.size();
  Put put;
  put.what = Put::What::step_end;
  put.place = {pool, row_key, "", context_.table.user_of(pool), 0, false};
  put.rank = rank;
  put.ranks = ranks;
  put.owners = Directory::owners(definition, row_key);
  start(std::move(put), now, effects);
  return {};
}

void Puts::define(const std::string& pool, uid_t user, std::vector<std::string> members, TimeNs now, Effects& effects) {
  Put tell;
  tell.what = Put::What::definition;
  tell.place = {pool, "", "", user, 0, false};
  tell.owners = std::move(members);
  start(std::move(tell), now, effects);
}

void Puts::define_first(const std::string& pool, uid_t user, std::vector<std::string> members, TimeNs now,
                        Effects& effects) {
  untold_[pool].insert(members.begin(), members.end());
  define(pool, user, std::move(members), now, effects);
}

// Any answer counts. A member that refuses the pool, or is silent, is told again, and no put waits for it.
void Puts::on_told(const std::string& pool, const std::string& member) {
  const auto at = untold_.find(pool);
  if (at == untold_.end()) return;
  at->second.erase(member);
  if (!at->second.empty()) return;
  untold_.erase(at);
  for (const auto& [number, put] : puts_)
    if (put.place.pool == pool && put.waits()) times_.set(number, 0);
}

// Asks all owners again: an object is stored only when all owners have the same version.
void Puts::stamp_again(Put& put, std::uint64_t later, TimeNs now) noexcept {
  context_.clock.saw(std::min(later, put_counter_max));
  put.id.counter = context_.clock.stamp(now);
  put.done.clear();
}

void Puts::start(Put put, TimeNs now, Effects& effects) {
  put.number = context_.numbers.take();
  if (put.what == Put::What::object && !put.moves) put.id = {process_, put.number, context_.clock.stamp(now)};
  put.deadline = deadline_after(now, context_.options.put_wait_ns);
  const std::uint64_t number = put.number;
  if (put.moves) moving_.insert(number);
  if (put.waits()) context_.due(now + WaitsTold::silent_ns);
  if (put.token != 0) by_token_.emplace(put.token, number);
  puts_.emplace(number, std::move(put));
  work(number, now, effects);
}

// Asks members that lack it and are not being asked.
void Puts::work(std::uint64_t number, TimeNs now, Effects& effects) {
  const auto at = puts_.find(number);
  if (at == puts_.end()) return;
  Put& put = at->second;
  put.retry_at = never;
  end_budget_wait(put);
  if (put.owners.empty() && put.what != Put::What::definition) {
    put.last = {Error::not_found,
                fmt::format("pool \"{}\": none of its members is alive", context_.directory.text_of(put.place.pool))};
    put.retry_at = now + context_.options.retry_ns;
  }
  bool is_lost = false;  // an owner of a move: its row was planned anew when the owner died
  for (const std::string& owner : put.owners) {
    if (put.done.contains(owner) || put.asked.contains(owner)) continue;
    if (put.moves && !context_.directory.is_alive(owner)) {
      put.last = {Error::peer_lost, fmt::format("member {} is gone", owner)};
      is_lost = true;
      continue;
    }
    if (owner != context_.directory.self()) {
      if (now >= put.deadline) continue;
      put.asked.insert(owner);
      ask_owner(put, owner, now, effects);
      continue;
    }
    Status status = put_here(put, now, effects);
    if (status)
      put.done.insert(owner);
    else if (!PoolContext::may_pass(status.error().code))
      return finish(number, std::move(status), now, effects);
    else {
      budget_waiting_.emplace(context_.table.has_room_for_keys(put.place) ? put.place.pool : "", number);
      put.last = std::move(status).error();
    }
  }
  const bool all =
      has_copies(put) &&
      std::ranges::all_of(put.owners, [&](const std::string& owner) { return put.done.contains(owner); }) &&
      is_pool_known(put);  // last, because an owner's own reason is more specific
  if (all && (!put.owners.empty() || put.what == Put::What::definition)) return finish(number, {}, now, effects);
  if (is_lost && put.asked.empty()) return finish(number, tl::unexpected(put.last), now, effects);
  const TimeNs end = deadline_after(put.deadline, context_.options.ask_wait_ns);
  // An owner without room answers at the deadline, with the reason; only a silent owner is given up.
  if (now >= put.deadline && (put.asked.empty() || now >= end))
    return finish(number, tl::unexpected(put.last), now, effects);
  set_due(put, now);
}

// Enough members live for the object to be stored.
bool Puts::has_copies(Put& put) const {
  if (put.what != Put::What::object || put.moves) return true;
  const PoolOptions& options = context_.directory.known(put.place.pool)->name.options;
  if (put.owners.size() >= options.min_copies) return true;
  put.last = {Error::timeout,
              fmt::format("pool \"{}\": object ({}, {}) needs min_copies={} before it is stored, and {} of its members "
                          "are alive: {}",
                          put.place.pool, brief(put.place.row_key), brief(put.place.column_key), options.min_copies,
                          put.owners.size(), fmt::join(put.owners, ", "))};
  return false;
}

// Sent to all members that were told of the pool.
bool Puts::is_pool_known(Put& put) const {
  const auto untold = put.waits() ? untold_.find(put.place.pool) : untold_.end();
  if (untold == untold_.end()) return true;
  put.last = {Error::timeout,
              fmt::format("pool \"{}\": not all members have confirmed that they know it", put.place.pool)};
  return false;
}

void Puts::set_due(const Put& put, TimeNs now) {
  times_.set(put.number,
             std::min(put.retry_at,
                      now < put.deadline ? put.deadline : deadline_after(put.deadline, context_.options.ask_wait_ns)));
}

void Puts::end_budget_wait(const Put& put) {
  if (budget_waiting_.empty()) return;
  budget_waiting_.erase({put.place.pool, put.number});
  budget_waiting_.erase({"", put.number});
}

// Puts into pools with newly freed bytes. Keys are counted over all pools.
void Puts::take_budget_waiting(std::vector<std::uint64_t>& ready) {
  auto freed = context_.table.take_freed();
  freed.emplace("");
  for (const std::string& pool : freed)
    for (auto at = budget_waiting_.lower_bound({pool, 0}); at != budget_waiting_.end() && at->first == pool; ++at)
      ready.push_back(at->second);
}

Status Puts::put_here(Put& put, TimeNs now, Effects& effects) {
  switch (put.what) {
    case Put::What::object:
      if (const auto later = versions_.not_wanted(put.place, put.id)) {
        if (*later == 0) return {};
        stamp_again(put, *later, now);
      }
      if (context_.table.is_durable(put.place.pool)) return put_on_disk(put, now, effects);
      return context_.table.put(put.place, put.frame, now, effects, put.id);
    case Put::What::step_end:
      return context_.table.end_step(put.place.pool, put.place.row_key, put.rank, put.ranks, now, effects);
    case Put::What::definition:
      return {};
  }
  return {};
}

Status Puts::put_on_disk(Put& put, TimeNs now, Effects& effects) {
  const Disk& disk = *context_.table.disk();
  if (put.keeping) return fail(Error::would_block, "{} is still writing the object to disk", context_.directory.self());
  if (disk.rests(now)) {
    put.retry_at = disk.rests_until();
    return fail(Error::no_space, "member {}: {}", context_.directory.self(), disk.failure());
  }
  if (!disk.failure().empty() && disk.counters().writing >= disk.writing_max()) {
    put.retry_at = now + context_.options.retry_ns;
    return fail(Error::no_space, "member {}: {}", context_.directory.self(), disk.failure());
  }
  OFP_TRY(context_.table.may_put(put.place, put.frame->bytes, put.id));
  put.keeping = true;
  context_.table.keep(
      put.place, put.frame, put.id,
      [this, number = put.number](Result<RecordPtr> file, TimeNs then, Effects& more) {
        on_disk(number, std::move(file), then, more);
      },
      effects);
  return fail(Error::would_block, "{} is writing the object to disk", context_.directory.self());
}

void Puts::on_disk(std::uint64_t number, Result<RecordPtr> file, TimeNs now, Effects& effects) {
  const auto at = puts_.find(number);
  const bool wanted =
      at != puts_.end() && std::ranges::find(at->second.owners, context_.directory.self()) != at->second.owners.end();
  if (at != puts_.end()) at->second.keeping = false;
  if (!wanted) {  // its time is over, or it belongs to other members now
    if (file) context_.table.disk()->remove(*file);
    return at != puts_.end() ? work(number, now, effects) : void();
  }
  Put& put = at->second;
  if (!file) {
    put.last = {file.error().code, fmt::format("member {}: {}", context_.directory.self(), file.error().message)};
    put.retry_at = std::max(context_.table.disk()->rests_until(), now + context_.options.retry_ns);
    return set_due(put, now);
  }
  std::optional<std::uint64_t> later = versions_.not_wanted(put.place, put.id);
  if (later && *later != 0) stamp_again(put, *later, now);
  const bool stamped_again = (*file)->id.counter != put.id.counter;  // the file on disk has an earlier one
  if (later || stamped_again) context_.table.disk()->remove(*file);
  if (later && *later == 0) put.done.insert(context_.directory.self());
  if (later || stamped_again) return work(number, now, effects);
  Status taken = context_.table.put(put.place, put.frame, now, effects, put.id, *file);
  if (!taken) return finish(number, std::move(taken), now, effects);
  put.done.insert(context_.directory.self());
  work(number, now, effects);
}

void Puts::ask_owner(const Put& put, const std::string& owner, TimeNs now, Effects& effects) {
  Asking asking{Asking::Kind::put, put.number, owner};
  asking.counter = put.id.counter;
  const std::uint64_t user = put.place.user;
  if (put.what == Put::What::definition) {
    context_.requests.ask(
        asking, EntryKind::peer_define, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
        [user, text = context_.directory.text_of(put.place.pool)](const AskedMemory&, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerDefine{user, text}, payload);
        },
        effects);
    return;
  }
  if (put.what == Put::What::step_end) {
    context_.requests.ask(
        asking, EntryKind::peer_step_end, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
        [user, rank = put.rank, ranks = put.ranks, text = context_.directory.text_of(put.place.pool),
         row = put.place.row_key](const AskedMemory&, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerStepEnd{user, rank, ranks, text, row}, payload);
        },
        effects);
    return;
  }
  if (!put.asked.empty() && put.asked.size() + put.done.size() > put.owners.size()) ++context_.counters.retries;
  ++context_.counters.remote_puts;
  context_.counters.remote_bytes += put.frame->bytes;
  const std::int64_t wait_ns = std::max<TimeNs>(put.deadline - now, 1);
  context_.requests.ask(
      asking, EntryKind::peer_put, deadline_after(put.deadline, context_.options.ask_wait_ns), put.frame, 0,
      [place = put.place, owner = context_.table.user_of(put.place.pool),
       text = context_.directory.text_of(put.place.pool), id = put.id, over = encode_over(put.id.over),
       moved = put.moves, rows = put.frame->rows, arrow = put.frame->arrow, bytes = put.frame->bytes,
       wait_ns](const AskedMemory& memory, std::vector<std::byte>& payload) {
        wire::PeerPut message{.user = place.user,
                              .owner = owner,
                              .writer = id.writer,
                              .number = id.number,
                              .rows = rows,
                              .keep = place.keep,
                              .wait_ns = wait_ns,
                              .arrow = arrow,
                              .hidden = place.hidden,
                              .moved = moved,
                              .offer = memory.offer,
                              .object = memory.bytes,
                              .pool = text,
                              .row_key = place.row_key,
                              .column_key = place.column_key,
                              .counter = id.counter,
                              .over = over};
        message.object.length = bytes;
        wire::encode(message, payload);
      },
      effects);
}

void Puts::on_answer(const Asking& asked, Result<std::uint64_t> later, TimeNs now, Effects& effects) {
  const auto at = puts_.find(asked.number);
  if (at == puts_.end()) return;
  Put& put = at->second;
  put.asked.erase(asked.member);
  if (put.what == Put::What::definition) on_told(put.place.pool, asked.member);
  if (later) {
    if (*later != 0 && put.what == Put::What::object && !put.moves) {
      if (*later >= put.id.counter) stamp_again(put, *later, now);
    } else if (asked.counter == put.id.counter) {  // otherwise the member has it under an earlier stamp
      put.done.insert(asked.member);
    }
    return work(asked.number, now, effects);
  }
  if (!PoolContext::may_pass(later.error().code))
    return finish(asked.number, tl::unexpected(std::move(later).error()), now, effects);
  put.last = std::move(later).error();
  ++context_.counters.retries;
  put.retry_at = now + context_.options.retry_ns;
  set_due(put, now);
}

void Puts::finish(std::uint64_t number, Status status, TimeNs now, Effects& effects) {
  const auto node = puts_.extract(number);
  const Put& put = node.mapped();
  times_.erase(number);
  if (put.token != 0) by_token_.erase(put.token);
  end_budget_wait(put);
  if (put.what == Put::What::step_end) {
    const auto under_way = ends_under_way_.find(put.place.user);
    under_way->second.key_bytes -= put.place.row_key.size();
    if (--under_way->second.count == 0) ends_under_way_.erase(under_way);
  }
  if (put.what == Put::What::definition)
    for (const std::string& member : put.owners) on_told(put.place.pool, member);
  if (put.what == Put::What::definition && !status && !PoolContext::may_pass(status.error().code))
    log(LogLevel::warning, "pool \"{}\" is not what another member has under this name: {}", put.place.pool,
        status.error().message);
  if (put.moves) {
    moving_.erase(number);
    ends_.on_move_ended(put, status, now, effects);
  }
  // They come to one object.
  if (!status && put.what == Put::What::object && !put.moves && !put.kept && !put.done.empty())
    ends_.on_put_divided(now);
  // If it is on disk, its service decides whether it stays in memory.
  if (put.kept && status) context_.table.let_go(put.place.pool, {put.place.row_key, put.place.column_key});
  if (put.kept) put.kept(status, now, effects);
  if (put.token != 0) effects.push_back(service::StoredEffect{put.token, std::move(status)});
}

std::vector<std::uint64_t> Puts::under_way(const std::string& pool, std::string_view row_glob,
                                           std::string_view column_glob) const {
  std::vector<std::uint64_t> matching;
  for (const std::uint64_t number : moving_) {
    const Place& place = puts_.at(number).place;
    if (place.pool == pool && glob_matches(row_glob, place.row_key) && glob_matches(column_glob, place.column_key))
      matching.push_back(number);
  }
  return matching;
}

void Puts::cancel_kept(const std::string& pool, TimeNs now, Effects& effects) {
  std::vector<std::uint64_t> open;
  for (const auto& [number, put] : puts_)
    if (put.kept && put.place.pool == pool) open.push_back(number);
  for (const std::uint64_t number : open)
    finish(number, fail(Error::cancelled, "pool \"{}\" was dropped", pool), now, effects);
}

void Puts::on_members(const std::vector<std::string>& anew, TimeNs now) {
  for (auto& [number, put] : puts_) {
    if (put.what == Put::What::definition) {
      const auto gone = std::stable_partition(put.owners.begin(), put.owners.end(), [&](const std::string& owner) {
        return context_.directory.is_alive(owner);
      });
      for (auto member = gone; member != put.owners.end(); ++member) on_told(put.place.pool, *member);
      put.owners.erase(gone, put.owners.end());
    } else if (!put.moves) {
      const Definition* const at = context_.directory.known(put.place.pool);
      if (at != nullptr) put.owners = Directory::owners(*at, put.place.row_key);
    }
    for (const std::string& member : anew) put.done.erase(member);
    put.retry_at = now;
    set_due(put, now);
  }
}

void Puts::on_time(TimeNs now, Effects& effects) {
  std::vector<std::uint64_t> ready = times_.take(now);
  if (std::exchange(freed_seen_, context_.table.freed()) != context_.table.freed()) take_budget_waiting(ready);
  std::ranges::sort(ready);  // the oldest first
  ready.erase(std::unique(ready.begin(), ready.end()), ready.end());
  for (const std::uint64_t number : ready) work(number, now, effects);
}

void Puts::add_pools(std::set<std::string_view>& names) const {
  for (const auto& [number, put] : puts_) names.insert(put.place.pool);
}

}  // namespace offpath::pool
