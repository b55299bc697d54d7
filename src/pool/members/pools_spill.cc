// Pools with a disk: what is put into durable ones, what was there before this start, and objects that cannot be read
// back.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pool/members/pools.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::ReplyEffect;

void Pools::keep_arrived(Incoming incoming, FramePtr frame, Effects& effects) {
  const auto held = std::make_shared<Incoming>(std::move(incoming));
  context_.table.keep(
      held->place, frame, held->id,
      [this, held, frame](Result<RecordPtr> file, TimeNs then, Effects& more) {
        context_.now = then;
        const auto kept = [&]() -> Result<std::uint64_t> {
          if (!file)  // the member tries again: a full disk may be emptied
            return fail(Error::no_space, "member {}: {}", context_.directory.self(), file.error().message);
          if (const auto later = versions_.not_wanted(held->place, held->id)) {  // another came while it was written
            context_.table.disk()->remove(*file);
            return *later;
          }
          OFP_TRY(take(held->place, frame, held->id, then, more, *file));
          return 0;
        }();
        if (held->repairs)
          end_repair(held->repairs, kept ? Status{} : tl::unexpected(kept.error()), true);
        else if (kept)
          more.push_back(ReplyEffect{held->object.channel, held->ticket, wire::Done{*kept}});
        else
          PoolContext::refuse(held->object.channel, held->ticket, kept.error(), more);
      },
      effects);
}

// ---- time and completions

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
    const auto made =
        context_.directory.define(record->pool, record->pool_user, Access::write, By::disk, context_.now, effects);
    // With other options by now: the pool is what it was made as first.
    if (!made && !context_.directory.known(record->pool.substr(0, record->pool.find('?')))) {
      if (left++ == 0) log(LogLevel::error, "{}: {}", record->described(), made.error().message);
      continue;
    }
    context_.clock.saw(record->id.counter);
    context_.table.recover(record, now);
  }
  const FrameTableCounters& counters = context_.table.counters();
  // One that knows half of the members would send half of its rows to wrong ones.
  if (!all.empty()) {
    context_.directory.join_until(now + context_.options.join_wait_ns);
    context_.due(context_.directory.joining_until());
  }
  if (!all.empty())
    log(left > 0 ? LogLevel::error : LogLevel::info, "{} has {} objects of {} pools, {} bytes; {} could not be taken",
        context_.table.disk()->described(), counters.frames, context_.directory.all().size(), counters.bytes, left);
  return {};
}

// ---- what is lost here may be elsewhere

void Pools::on_unreadable(FrameTable::Get get, Failure why, Effects& effects) {
  log(LogLevel::error, "{}", why.message);
  const Definition* const known = context_.directory.known(get.pool);
  if (get.of_member || known == nullptr || known->members.size() < 2)
    return PoolContext::refuse(get.channel, get.ticket, std::move(why), effects);  // a member asks another owner
  const std::uint64_t number = context_.numbers.take();
  RemoteGet remote{.get = std::move(get), .tried = {context_.directory.self()}};
  remote.note(std::move(why));
  gets_.add(number, std::move(remote));
  ask_next(number, context_.now, effects);
}

// What another owner has is put in its place.
void Pools::on_lost(const RecordPtr& record, Effects& effects) {
  const std::string pool = record->pool.substr(0, record->pool.find('?'));
  const Definition* const known = context_.directory.known(pool);
  if (known == nullptr || known->name.options.replicas < 2 || record->hidden) return;
  repairs_.insert_or_assign({pool, {record->row, record->column}}, Repair{record});
  ask_for_copy(record, effects);
}

void Pools::ask_for_copy(const RecordPtr& record, Effects& effects) {
  const std::uint64_t number = context_.numbers.take();
  gets_.add(number, {.get = {.user = record->pool_user,
                             .pool = record->pool.substr(0, record->pool.find('?')),
                             .keys = {record->row, record->column}},
                     .repairs = record,
                     .tried = {context_.directory.self()}});
  ask_next(number, context_.now, effects);
}

void Pools::ask_for_copies_again(TimeNs now, Effects& effects) {
  std::vector<RecordPtr> ready;
  for (auto at = repairs_.begin(); at != repairs_.end();) {
    if (at->second.again_at <= now &&
        (!context_.directory.known(at->first.first) || context_.table.holds(at->first.first, at->first.second))) {
      at = repairs_.erase(at);  // dropped, put anew or moved here meanwhile
      continue;
    }
    if (at->second.again_at <= now) {
      at->second.again_at = never;
      ready.push_back(at->second.lost);
    }
    context_.due(at->second.again_at);
    ++at;
  }
  for (const RecordPtr& record : ready) ask_for_copy(record, effects);
}

// Not `again`: all owners say that they have none. One that is away compares what it has when it is back.
void Pools::end_repair(const RecordPtr& record, const Status& status, bool again) {
  const auto at = repairs_.find({record->pool.substr(0, record->pool.find('?')), {record->row, record->column}});
  if (at == repairs_.end()) return;
  if (!status)
    log(LogLevel::warning, "{}: no copy is kept here again{}: {}", record->described(),
        again ? fmt::format(" yet; it is tried again in {} s", context_.options.move_retry_ns / second_ns) : "",
        status.error().message);
  if (status || !again)
    repairs_.erase(at);
  else
    context_.due(at->second.again_at = deadline_after(context_.now, context_.options.move_retry_ns));
}

void Pools::repair(const RecordPtr& record, const std::string& from, FramePtr frame, TimeNs now, Effects& effects) {
  Incoming incoming;
  incoming.place = {
      record->pool.substr(0, record->pool.find('?')), record->row, record->column, record->user, record->keep, false};
  incoming.id = record->id;
  incoming.id.moved = true;  // it was shown once: no trigger calls for it again
  incoming.repairs = record;
  if (context_.table.holds(incoming.place.pool, {record->row, record->column}))  // put anew meanwhile
    return end_repair(record, {}, false);
  log(LogLevel::info, "{}: member {} has it, and it is kept here again", record->described(), from);
  if (context_.table.is_durable(incoming.place.pool))
    return keep_arrived(std::move(incoming), std::move(frame), effects);
  const Status put = versions_.restore(incoming.place, std::move(frame), record->id, now, effects);
  end_repair(record, put, true);
}

}  // namespace offpath::pool
