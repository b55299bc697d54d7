// Objects on disk: which leave memory and when, and how they come back.
//
//   spill=on        an object is written when memory of its pool or of the agent is wanted, the one that was longest
//                   unread first
//   spill=durable   it is written before it is put: it leaves memory without being written again
//
// In memory, on disk, or both: an object that leaves memory leaves an unread frame in its place, with everything but
// the bytes.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pool/table/frame_table.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::FailEffect;

namespace {

constexpr std::size_t looks_max = 64;  // at objects that somebody holds, before the search is given up
constexpr std::uint64_t high_eighths = 7, low_eighths = 6;  // of a budget: from where to where objects leave

}  // namespace

void FrameTable::keep_on(std::unique_ptr<Disk> disk, DiskUse use) {
  disk_ = std::move(disk);
  use_ = std::move(use);
}

bool FrameTable::is_durable(const std::string& pool) const {
  if (disk_ == nullptr) return false;
  const auto at = pools_.find(pool);
  return at != pools_.end() && at->second.options.spill == Spill::durable;
}

// ---- what is in memory

void FrameTable::start_spilling(Pool& pool, const std::string& name) {
  if (!spilling_.emplace(name, &pool).second) return;
  for (auto& [keys, object] : pool.objects)
    if (!object.frame->unread && object.used == 0) pool.by_use.emplace(object.used = next_use_++, keys);
}

void FrameTable::enter_memory(Pool& pool, const Keys& keys, Object& object) {
  pool.memory_bytes += object.frame->bytes;
  if (!spills(pool)) return;
  pool.by_use.emplace(object.used = next_use_++, keys);
  stirred_ = true;
}

void FrameTable::leave_memory(Pool& pool, Object& object) {
  pool.memory_bytes -= object.frame->bytes;
  if (object.used != 0) pool.by_use.erase(std::exchange(object.used, 0));
}

void FrameTable::touch(Pool& pool, const Keys& keys, Object& object) {
  object.read_meanwhile = true;
  if (object.used == 0) return;
  pool.by_use.erase(object.used);
  pool.by_use.emplace(object.used = next_use_++, keys);
}

void FrameTable::note_freed(const Pool& pool) {
  ++freed_;
  if (!freed_pools_.contains(pool.name)) freed_pools_.emplace(pool.name);
}

void FrameTable::evict(Pool& pool, Object& object) {
  leave_memory(pool, object);
  object.frame = disk_->unread(object.file);
  note_freed(pool);
}

void FrameTable::let_go(const std::string& name, const Keys& keys) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  const auto object = at->second.objects.find(keys);
  if (object != at->second.objects.end() && object->second.file && !object->second.frame->unread)
    evict(at->second, object->second);
}

// ---- leaving memory

void FrameTable::lighten(TimeNs now, Effects& effects) {
  if (!disk_) return;
  disk_->work(effects);
  if (!reads_waiting_.empty()) read_waiting(now, effects);
  std::uint64_t wanted = use_.wanted ? use_.wanted() : 0;
  wanted += reads_waiting_.bytes();
  if (!stirred_ && wanted == 0 && now < lighten_at_) return;
  stirred_ = false;
  lighten_at_ = never;
  for (const auto& [name, pool] : spilling_) {
    const std::uint64_t budget = pool->options.budget_bytes, lacking = std::exchange(pool->lacking, 0);
    if (budget == 0) continue;
    const std::uint64_t high = budget / 8 * high_eighths, low = budget / 8 * low_eighths;
    lighten_pool(name, *pool, std::max(lacking, pool->memory_bytes > high ? pool->memory_bytes - low : 0), now,
                 effects);
  }
  if (wanted > 0) lighten_all(wanted, now, effects);
}

void FrameTable::lighten_pool(const std::string& name, Pool& pool, std::uint64_t want, TimeNs now, Effects& effects) {
  want -= std::min(want, pool.writing_bytes);
  while (want > 0 && !pool.by_use.empty())
    if (!let_go(name, pool, pool.by_use.begin()->first, want, now, effects)) return;
}

// Of all pools, the object that was longest unread. One that is held leaves no memory free: those are passed over.
void FrameTable::lighten_all(std::uint64_t want, TimeNs now, Effects& effects) {
  for (const auto& [name, pool] : spilling_) want -= std::min(want, pool->writing_bytes);
  std::uint64_t after = 0;
  for (std::size_t held = 0; want > 0 && held < looks_max;) {
    std::map<std::string, Pool*>::const_iterator oldest = spilling_.end();
    std::uint64_t used = UINT64_MAX;
    for (auto at = spilling_.begin(); at != spilling_.end(); ++at) {
      const auto next = at->second->by_use.upper_bound(after);
      if (next == at->second->by_use.end() || next->first >= used) continue;
      used = next->first;
      oldest = at;
    }
    if (oldest == spilling_.end()) return;
    after = used;
    Pool& pool = *oldest->second;
    if (pool.objects.at(pool.by_use.at(used)).frame.use_count() > 1)
      ++held;
    else if (!let_go(oldest->first, pool, used, want, now, effects))
      return;
  }
}

// Takes what it leaves, or will, off `want`. False: nothing more can leave now.
bool FrameTable::let_go(const std::string& name, Pool& pool, std::uint64_t used, std::uint64_t& want, TimeNs now,
                        Effects& effects) {
  const Keys keys = pool.by_use.at(used);
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
  ObjectRecord record = record_of(name, pool, keys, pool.user, object.keep, object.hidden, object.id);
  object.writing = record.number;
  object.read_meanwhile = false;
  pool.writing_bytes += bytes;
  pool.by_use.erase(std::exchange(object.used, 0));
  const std::uint64_t number = record.number;
  disk_->write(
      std::move(record), object.frame, false,
      [this, name, keys, number, bytes](Result<RecordPtr> written, TimeNs, Effects& then) {
        on_spilled(name, keys, number, bytes, std::move(written), then);
      },
      effects);
  return true;
}

void FrameTable::on_spilled(const std::string& name, const Keys& keys, std::uint64_t number, std::uint64_t bytes,
                            Result<RecordPtr> record, Effects& effects) {
  Pool& pool = pools_.at(name);  // pools stay
  pool.writing_bytes -= bytes;
  stirred_ = true;
  const auto at = pool.objects.find(keys);
  if (at == pool.objects.end() || at->second.writing != number) {  // dropped meanwhile, or another was put
    if (record) disk_->remove(*record);
  } else {
    Object& object = at->second;
    object.writing = 0;
    pool.by_use.emplace(object.used = next_use_++, keys);
    if (record) {
      object.file = *record;
      if (object.file->hidden && !object.hidden) disk_->show(object.file);
      if (!object.read_meanwhile) evict(pool, object);
    }
  }
  disk_->work(effects);
}

ObjectRecord FrameTable::record_of(const std::string& name, const Pool& pool, const Keys& keys, uid_t user,
                                   std::uint64_t keep, bool hidden, PutId id) {
  ObjectRecord record;
  record.number = disk_->new_number();
  record.keep = keep;
  record.pool_user = pool.user;
  record.user = user;
  record.hidden = hidden;
  record.id = id;
  PoolName text;
  text.name = name;
  text.options = pool.options;
  record.pool = text.text();
  record.row = keys.first;
  record.column = keys.second;
  return record;
}

// ---- durable pools

void FrameTable::keep(const Place& place, const FramePtr& frame, PutId id, Disk::Written done, Effects& effects) {
  Pool& pool = pools_.at(place.pool);
  ObjectRecord record =
      record_of(place.pool, pool, {place.row_key, place.column_key}, place.user, place.keep, place.hidden, id);
  const std::uint64_t number = record.number;
  pool.keeping.push_back({number, std::move(done), std::nullopt});
  disk_->write(
      std::move(record), frame, true,
      [&pool, number](Result<RecordPtr> written, TimeNs now, Effects& then) {
        std::ranges::find(pool.keeping, number, &Keeping::number)->outcome.emplace(std::move(written));
        while (!pool.keeping.empty() && pool.keeping.front().outcome) {
          Keeping first = std::move(pool.keeping.front());
          pool.keeping.pop_front();
          first.done(std::move(*first.outcome), now, then);
        }
      },
      effects);
}

// An object that is there may have been put by one whose file is later.
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
    disk_->remove(file);
    return may;
  }
  if (there) {
    id.learn(before->second.id);
    remove(pool, before);
  }
  // What finds no room in memory has left it already.
  const std::uint64_t budget = pool.options.budget_bytes;
  if (budget != 0 && pool.memory_bytes + frame->bytes > budget) {
    lighten_pool(place.pool, pool, pool.memory_bytes + frame->bytes - budget, now, effects);
    if (pool.memory_bytes + frame->bytes > budget) frame = disk_->unread(file);
  }
  const auto behind = pool.objects.upper_bound(keys);
  add(place.pool, pool, behind, std::move(keys), Object{std::move(frame), 0, place.keep, true, std::move(id), file},
      place, now, effects);
  return {};
}

// ---- coming back

// It waits for the disk, and for memory perhaps, as another get waits for its object.
void FrameTable::answer_unread(Get get, const FramePtr& frame, Effects& effects) {
  if (Status may = charge(get); !may)
    return effects.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(may).error()});
  const TimeNs until = get.wait_ns == 0 ? 0 : get.deadline;
  const ChannelNumber channel = get.channel;
  read_now({frame, until, channel,
            [this, get = std::move(get)](Result<FramePtr> read, Effects& then) {
              if (read) return answer(get, *read, then);
              if (read.error().code == Error::io && unreadable) return unreadable(get, std::move(read).error(), then);
              then.push_back(FailEffect{get.channel, get.ticket, wire::any_reply, std::move(read).error()});
            }},
           effects);
}

void FrameTable::read_back(const FramePtr& frame, TimeNs until, Disk::Read done, Effects& effects) {
  read_now({frame, until, 0, std::move(done)}, effects);
}

void FrameTable::read_now(WaitingReads::Read read, Effects& effects) {
  if (use_.room && !use_.room(read.frame->bytes)) return reads_waiting_.add(std::move(read));
  const FramePtr& frame = read.frame;
  disk_->read(
      frame,
      [this, record = Disk::record_of(*frame), read](Result<FramePtr> outcome, Effects& then) mutable {
        if (outcome) {
          came_back(record, *outcome);
        } else if (outcome.error().code == Error::protocol) {
          outcome.error().code = Error::io;
          lose(record, then);
        } else if (outcome.error().code == Error::io) {  // nothing is known of the object: it is tried again
          ++read.failures;
          read.why = std::move(outcome).error().message;
          return reads_waiting_.add(std::move(read));
        }
        read.done(std::move(outcome), then);
      },
      effects);
}

void FrameTable::read_waiting(TimeNs now, Effects& effects) {
  for (WaitingReads::Read& each : reads_waiting_.take_due(now)) {
    if (each.failures > 0 && (now >= each.until || each.failures >= WaitingReads::failures_max))
      each.done(fail(Error::io, "{}; it was tried {} times, and stays on disk", each.why, each.failures), effects);
    else if (each.failures > 0 || use_.room(each.frame->bytes))
      read_now(std::move(each), effects);
    else
      each.done(fail(Error::would_block, "{} lies on disk, and there is no memory for its {} bytes",
                     Disk::record_of(*each.frame)->described(), each.frame->bytes),
                effects);
  }
  for (std::size_t left = reads_waiting_.size(); left > 0; --left) {
    auto next = reads_waiting_.take_smallest(use_.room);
    if (!next) return;
    read_now(std::move(*next), effects);
  }
}

// It stays in memory where nothing has to leave for it.
void FrameTable::came_back(const RecordPtr& record, const FramePtr& frame) {
  const auto at = pools_.find(record->pool.substr(0, record->pool.find('?')));
  if (at == pools_.end()) return;
  Pool& pool = at->second;
  const auto object = pool.objects.find(KeysView{record->row, record->column});
  if (object == pool.objects.end() || object->second.file != record || !object->second.frame->unread) return;
  const std::uint64_t budget = pool.options.budget_bytes;
  if (budget != 0 ? pool.memory_bytes + frame->bytes > budget / 8 * low_eighths : use_.wanted && use_.wanted() > 0)
    return;
  object->second.frame = frame;
  enter_memory(pool, object->first, object->second);
}

void FrameTable::lose(const RecordPtr& record, Effects& effects) {
  const auto at = pools_.find(record->pool.substr(0, record->pool.find('?')));
  if (at == pools_.end()) return;
  const auto object = at->second.objects.find(KeysView{record->row, record->column});
  if (object == at->second.objects.end() || object->second.file != record || !object->second.frame->unread) return;
  remove(at->second, object);
  if (lost_here) lost_here(record, effects);
}

// ---- start and end

// In the order of their numbers, which is that of writing. A move may have been written behind a later put: of two
// objects with versions the later put stays, of others the one that was written last.
void FrameTable::recover(const RecordPtr& record, TimeNs now) {
  const std::string name = record->pool.substr(0, record->pool.find('?'));
  Pool& pool = pools_.at(name);
  const Keys keys{record->row, record->column};
  if (const auto before = pool.objects.find(keys); before != pool.objects.end()) {
    const PutId& there = before->second.id;
    if (there.counter != 0 && record->id.counter != 0 && there.version() > record->id.version())
      return disk_->remove(record);
    remove(pool, before);
  }
  Object object{disk_->unread(record), 0, record->keep, record->hidden, record->id, record};
  pool.bytes += record->bytes;
  counters_.bytes += record->bytes;
  ++counters_.frames;
  counters_.key_bytes += keys.first.size() + keys.second.size();
  const auto added = pool.objects.emplace(keys, std::move(object)).first;
  if (record->hidden) return;
  added->second.sequence = next_sequence_++;
  pool.by_sequence.emplace(added->second.sequence, added);
  if (pool.options.ttl_ns > 0)
    expiries_.emplace(deadline_after(now, pool.options.ttl_ns), Expiry{name, keys, added->second.sequence});
}

void FrameTable::flush() {
  if (!disk_) return;
  disk_->finish_changes();
  std::uint64_t objects = 0, bytes = 0, lost = 0;
  for (const auto& [name, pool] : spilling_)
    for (auto& [keys, object] : pool->objects) {
      if (object.file) continue;
      auto written = disk_->write_now(record_of(name, *pool, keys, pool->user, object.keep, object.hidden, object.id),
                                      *object.frame);
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
