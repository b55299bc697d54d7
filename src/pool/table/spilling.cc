#include "pool/table/spilling.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace offpath::pool {

namespace {

constexpr std::size_t looks_max = 64;                       // held objects visited before the search is given up
constexpr std::uint64_t high_eighths = 7, low_eighths = 6;  // parts of a budget: objects leave from the first down to
                                                            // the second

}  // namespace

void Spilling::keep_on(std::unique_ptr<Disk> disk, DiskUse use) {
  disk_ = std::move(disk);
  use_ = std::move(use);
}

// ---- objects in memory

void Spilling::start(Pool& pool) {
  if (!pools_.emplace(pool.name, &pool).second) return;
  for (auto& [keys, object] : pool.objects)
    if (!object.frame->unread && object.used == 0) pool.memory.by_use.emplace(object.used = next_use_++, keys);
}

void Spilling::enter_memory(Pool& pool, const Keys& keys, Object& object) {
  pool.memory.bytes += object.frame->bytes;
  if (!spills(pool)) return;
  pool.memory.by_use.emplace(object.used = next_use_++, keys);
  stirred_ = true;
}

void Spilling::leave_memory(Pool& pool, Object& object) {
  pool.memory.bytes -= object.frame->bytes;
  if (object.used != 0) pool.memory.by_use.erase(std::exchange(object.used, 0));
}

void Spilling::evict(Pool& pool, Object& object) {
  leave_memory(pool, object);
  object.frame = disk_->unread(object.file);
  index_.note_freed(pool);
}

Spilling::Keys Spilling::remove(Pool& pool, Objects::iterator at) {
  if (!at->second.frame->unread) leave_memory(pool, at->second);
  if (at->second.file) disk_->remove(at->second.file);
  return index_.remove(pool, at);
}

// ---- leaving memory

void Spilling::let_go(Pool& pool, Object& object) {
  if (object.file && !object.frame->unread) evict(pool, object);
}

void Spilling::lighten(TimeNs now, Effects& effects) {
  if (!disk_) return;
  disk_->work(effects);
  if (!reads_waiting_.empty()) read_waiting(now, effects);
  std::uint64_t wanted = use_.wanted ? use_.wanted() : 0;
  wanted += reads_waiting_.bytes();
  if (!stirred_ && wanted == 0 && now < lighten_at_) return;
  stirred_ = false;
  lighten_at_ = never;
  for (const auto& [name, pool] : pools_) {
    const std::uint64_t budget = pool->budget_bytes, lacking = std::exchange(pool->memory.lacking, 0);
    if (budget == 0) continue;
    const std::uint64_t high = budget / 8 * high_eighths, low = budget / 8 * low_eighths;
    lighten_pool(*pool, std::max(lacking, pool->memory.bytes > high ? pool->memory.bytes - low : 0), now, effects);
  }
  if (wanted > 0) lighten_all(wanted, now, effects);
}

void Spilling::lighten_pool(Pool& pool, std::uint64_t want, TimeNs now, Effects& effects) {
  want -= std::min(want, pool.memory.writing_bytes);
  while (want > 0 && !pool.memory.by_use.empty())
    if (!leave(pool, pool.memory.by_use.begin()->first, want, now, effects)) return;
}

// The longest unread object of all pools. Held objects are skipped, because removing them frees no memory.
void Spilling::lighten_all(std::uint64_t want, TimeNs now, Effects& effects) {
  for (const auto& [name, pool] : pools_) want -= std::min(want, pool->memory.writing_bytes);
  std::uint64_t after = 0;
  for (std::size_t held = 0; want > 0 && held < looks_max;) {
    std::map<std::string, Pool*>::const_iterator oldest = pools_.end();
    std::uint64_t used = UINT64_MAX;
    for (auto at = pools_.begin(); at != pools_.end(); ++at) {
      const auto next = at->second->memory.by_use.upper_bound(after);
      if (next == at->second->memory.by_use.end() || next->first >= used) continue;
      used = next->first;
      oldest = at;
    }
    if (oldest == pools_.end()) return;
    after = used;
    Pool& pool = *oldest->second;
    if (pool.objects.at(pool.memory.by_use.at(used)).frame.use_count() > 1)
      ++held;
    else if (!leave(pool, used, want, now, effects))
      return;
  }
}

// Subtracts the freed bytes from `want`. False: no further object can leave now.
bool Spilling::leave(Pool& pool, std::uint64_t used, std::uint64_t& want, TimeNs now, Effects& effects) {
  const Keys keys = pool.memory.by_use.at(used);
  Object& object = pool.objects.at(keys);
  const std::uint64_t bytes = object.frame->bytes;
  if (!object.file) {
    if (disk_->rests(now)) lighten_at_ = disk_->rests_until();
    if (disk_->rests(now) || disk_->counters().writing >= disk_->writing_max()) {
      stirred_ = !disk_->rests(now);
      return false;
    }
  }
  want -= std::min(want, bytes);
  if (object.file) {
    evict(pool, object);
    return true;
  }
  ObjectRecord record = record_of(pool, keys, pool.user, object.keep, object.hidden, object.id);
  object.writing = record.number;
  object.read_meanwhile = false;
  pool.memory.writing_bytes += bytes;
  pool.memory.by_use.erase(std::exchange(object.used, 0));
  const std::uint64_t number = record.number;
  disk_->write(
      std::move(record), object.frame, false,
      [this, name = std::string(pool.name), keys, number, bytes](Result<RecordPtr> written, TimeNs, Effects& then) {
        on_spilled(name, keys, number, bytes, std::move(written), then);
      },
      effects);
  return true;
}

void Spilling::on_spilled(const std::string& name, const Keys& keys, std::uint64_t number, std::uint64_t bytes,
                          Result<RecordPtr> record, Effects& effects) {
  Pool& pool = *index_.find(name);  // pools stay
  pool.memory.writing_bytes -= bytes;
  stirred_ = true;
  const auto at = pool.objects.find(keys);
  if (at == pool.objects.end() || at->second.writing != number) {  // dropped or replaced meanwhile
    if (record) disk_->remove(*record);
  } else {
    Object& object = at->second;
    object.writing = 0;
    pool.memory.by_use.emplace(object.used = next_use_++, keys);
    if (record) {
      object.file = *record;
      if (object.file->hidden && !object.hidden) disk_->show(object.file);
      if (!object.read_meanwhile) evict(pool, object);
    }
  }
  disk_->work(effects);
}

ObjectRecord Spilling::record_of(const Pool& pool, const Keys& keys, uid_t user, std::uint64_t keep, bool hidden,
                                 PutId id) {
  ObjectRecord record;
  record.number = disk_->new_number();
  record.keep = keep;
  record.pool_user = pool.user;
  record.user = user;
  record.hidden = hidden;
  record.id = id;
  PoolName text;
  text.name = pool.name;
  text.options = pool.options;
  record.pool = text.text();
  record.row = keys.first;
  record.column = keys.second;
  return record;
}

// ---- durable pools

void Spilling::keep(const mover::Store::Place& place, const FramePtr& frame, PutId id, Disk::Written done,
                    Effects& effects) {
  const Pool& pool = *index_.find(place.pool);
  ObjectRecord record =
      record_of(pool, {place.row_key, place.column_key}, place.user, place.keep, place.hidden, std::move(id));
  const std::uint64_t number = record.number;
  keeping_[place.pool].push_back({number, std::move(done), std::nullopt});
  disk_->write(
      std::move(record), frame, true,
      [this, name = place.pool, number](Result<RecordPtr> written, TimeNs now, Effects& then) {
        on_kept(name, number, std::move(written), now, then);
      },
      effects);
}

void Spilling::on_kept(const std::string& name, std::uint64_t number, Result<RecordPtr> written, TimeNs now,
                       Effects& effects) {
  const auto of_pool = keeping_.find(name);
  auto& keeping = of_pool->second;
  std::ranges::find(keeping, number, &Keeping::number)->outcome.emplace(std::move(written));
  while (!keeping.empty() && keeping.front().outcome) {
    Keeping first = std::move(keeping.front());
    keeping.pop_front();
    first.done(std::move(*first.outcome), now, effects);
  }
  if (keeping.empty()) keeping_.erase(of_pool);
}

// ---- coming back

void Spilling::read_back(WaitingReads::Read read, Effects& effects) {
  if (use_.room && !use_.room(read.frame->bytes)) return reads_waiting_.add(std::move(read));
  const FramePtr& frame = read.frame;
  const std::uint64_t number = next_reading_++;
  if (read.get) reading_.emplace(number, read.get);
  disk_->read(
      frame,
      [this, number, record = Disk::record_of(*frame), read](Result<FramePtr> outcome, Effects& then) mutable {
        reading_.erase(number);
        if (outcome) {
          came_back(record, *outcome);
        } else if (outcome.error().code == Error::protocol) {
          outcome.error().code = Error::io;
          lose(record, then);
        } else if (outcome.error().code == Error::io) {  // the object may be intact: tried again
          ++read.failures;
          read.why = std::move(outcome).error().message;
          return reads_waiting_.add(std::move(read));
        }
        read.done(std::move(outcome), then);
      },
      effects);
}

void Spilling::read_waiting(TimeNs now, Effects& effects) {
  for (WaitingReads::Read& each : reads_waiting_.take_due(now)) {
    if (each.failures > 0 && (now >= each.until || each.failures >= WaitingReads::failures_max))
      each.done(fail(Error::io, "{}; it was tried {} times, and stays on disk", each.why, each.failures), effects);
    else if (each.failures > 0 || use_.room(each.frame->bytes))
      read_back(std::move(each), effects);
    else
      each.done(fail(Error::would_block, "{} lies on disk, and there is no memory for its {} bytes",
                     Disk::record_of(*each.frame)->described(), each.frame->bytes),
                effects);
  }
  for (std::size_t left = reads_waiting_.size(); left > 0; --left) {
    auto next = reads_waiting_.take_smallest(use_.room);
    if (!next) return;
    read_back(std::move(*next), effects);
  }
}

std::pair<Spilling::Pool*, Spilling::Objects::iterator> Spilling::unread_object(const RecordPtr& record) {
  Pool* const pool = index_.find(std::string_view(record->pool).substr(0, record->pool.find('?')));
  if (pool == nullptr) return {};
  const auto object = pool->objects.find(ObjectIndex::KeysView{record->row, record->column});
  if (object == pool->objects.end() || object->second.file != record || !object->second.frame->unread) return {};
  return {pool, object};
}

// It stays in memory if no other object has to leave for it.
void Spilling::came_back(const RecordPtr& record, const FramePtr& frame) {
  const auto found = unread_object(record);
  if (found.first == nullptr) return;
  Pool& pool = *found.first;
  const std::uint64_t budget = pool.budget_bytes;
  if (budget != 0 ? pool.memory.bytes + frame->bytes > budget / 8 * low_eighths : use_.wanted && use_.wanted() > 0)
    return;
  found.second->second.frame = frame;
  enter_memory(pool, found.second->first, found.second->second);
}

void Spilling::lose(const RecordPtr& record, Effects& effects) {
  const auto found = unread_object(record);
  if (found.first == nullptr) return;
  remove(*found.first, found.second);
  if (lost_here) lost_here(record, effects);
}

void Spilling::flush() {
  if (!disk_) return;
  disk_->finish_changes();
  std::uint64_t objects = 0, bytes = 0, lost = 0;
  for (const auto& [name, pool] : pools_)
    for (auto& [keys, object] : pool->objects) {
      if (object.file) continue;
      auto written =
          disk_->write_now(record_of(*pool, keys, pool->user, object.keep, object.hidden, object.id), *object.frame);
      if (written) {
        object.file = std::move(*written);
        ++objects;
        bytes += object.frame->bytes;
      } else if (++lost == 1) {
        log(LogLevel::error, "{}", written.error().message);
      }
    }
  if (objects + lost > 0)
    log(lost > 0 ? LogLevel::error : LogLevel::info,
        "{} objects of {} bytes were in memory and are on disk now; {} could not be written", objects, bytes, lost);
}

}  // namespace offpath::pool
