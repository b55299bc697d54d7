#include "pool/rows/repairs.h"

#include <vector>

#include "base/log.h"

namespace offpath::pool {

// Another owner's object replaces it.
void Repairs::on_lost(const RecordPtr& record, TimeNs now, Effects& effects) {
  const std::string pool = record->pool.substr(0, record->pool.find('?'));
  const Definition* const known = context_.directory.known(pool);
  if (known == nullptr || known->name.options.replicas < 2 || record->hidden) return;
  lost_.insert_or_assign({pool, {record->row, record->column}}, Lost{record});
  ask(record, now, effects);
}

void Repairs::ask(const RecordPtr& record, TimeNs now, Effects& effects) {
  gets_.fetch_copy(
      record,
      [this, record](const std::string& from, Result<FramePtr> frame, bool unsure, TimeNs then_now, Effects& then) {
        if (frame)
          repair(record, from, std::move(*frame), then_now, then);
        else
          end(record, tl::unexpected(frame.error()), unsure, then_now);
      },
      now, effects);
}

void Repairs::on_time(TimeNs now, Effects& effects) {
  std::vector<RecordPtr> ready;
  for (auto at = lost_.begin(); at != lost_.end();) {
    if (at->second.again_at <= now &&
        (!context_.directory.known(at->first.first) || context_.table.holds(at->first.first, at->first.second))) {
      at = lost_.erase(at);  // dropped, put anew or moved here meanwhile
      continue;
    }
    if (at->second.again_at <= now) {
      at->second.again_at = never;
      ready.push_back(at->second.record);
    }
    context_.due(at->second.again_at);
    ++at;
  }
  for (const RecordPtr& record : ready) ask(record, now, effects);
}

// Without `again` no owner has it. An absent owner compares its objects when it is back.
void Repairs::end(const RecordPtr& record, const Status& status, bool again, TimeNs now) {
  const auto at = lost_.find({record->pool.substr(0, record->pool.find('?')), {record->row, record->column}});
  if (at == lost_.end()) return;
  if (!status)
    log(LogLevel::warning, "{}: its copy here was not restored{}: {}", record->described(),
        again ? fmt::format("; the next attempt is in {} s", context_.options.move_retry_ns / second_ns) : "",
        status.error().message);
  if (status || !again)
    lost_.erase(at);
  else
    context_.due(at->second.again_at = deadline_after(now, context_.options.move_retry_ns));
}

void Repairs::repair(const RecordPtr& record, const std::string& from, FramePtr frame, TimeNs now, Effects& effects) {
  const Place place{
      record->pool.substr(0, record->pool.find('?')), record->row, record->column, record->user, record->keep, false};
  if (context_.table.holds(place.pool, {record->row, record->column}))  // put again meanwhile
    return end(record, {}, false, now);
  log(LogLevel::info, "{}: its copy here is restored from member {}", record->described(), from);
  if (!context_.table.is_durable(place.pool))
    return end(record, versions_.restore(place, std::move(frame), record->id, now, effects), true, now);
  PutId id = record->id;
  id.moved = true;  // it was visible before: no trigger calls for it again
  arrivals_.keep(
      place, id, frame,
      [this, record](const Result<std::uint64_t>& later, TimeNs then_now, Effects&) {
        end(record, later ? Status{} : tl::unexpected(later.error()), true, then_now);
      },
      effects);
}

}  // namespace offpath::pool
