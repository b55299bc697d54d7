// Decides which objects leave memory, and when, and reads them back.
//
//   spill=on        an object is written when its pool or the agent needs memory, the longest
//                   unread first
//   spill=durable   it is written before it is put: it leaves memory without being written again
//
// An object is in memory, on disk, or both. An object that leaves memory is replaced by an unread frame, which has
// everything but the bytes. Without a disk this only counts objects in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "mover/store.h"
#include "pool/table/disk.h"
#include "pool/table/object_index.h"
#include "pool/table/waiting_reads.h"
#include "service/effects.h"

namespace offpath::pool {

class Spilling {
 public:
  using Pool = ObjectIndex::Pool;
  using Objects = ObjectIndex::Objects;
  using Object = ObjectIndex::Object;
  using Keys = ObjectIndex::Keys;
  struct DiskUse {
    std::function<bool(std::uint64_t bytes)> room;  // whether so many bytes of memory may be taken for reading back
    std::function<std::uint64_t()> wanted;          // bytes of memory that objects should free
  };

  explicit Spilling(ObjectIndex& index) : index_(index) {}
  void keep_on(std::unique_ptr<Disk> disk, DiskUse use);
  [[nodiscard]] Disk* disk() noexcept { return disk_.get(); }  // null without a disk
  [[nodiscard]] const Disk* disk() const noexcept { return disk_.get(); }
  [[nodiscard]] bool spills(const Pool& pool) const noexcept {
    return disk_ != nullptr && pool.options.spill != Spill::off;
  }
  void start(Pool& pool);  // by its present options
  void forget(const std::string& pool) { pools_.erase(pool); }

  // ---- objects in memory
  void enter_memory(Pool& pool, const Keys& keys, Object& object);
  void touch(Pool& pool, const Keys& keys, Object& object) {
    object.read_meanwhile = true;
    if (object.used == 0) return;
    pool.memory.by_use.erase(object.used);
    pool.memory.by_use.emplace(object.used = next_use_++, keys);
  }
  // A put was refused for lack of so many bytes.
  void lack(const Pool& pool, std::uint64_t bytes) const {
    pool.memory.lacking = bytes;
    stirred_ = true;
  }
  // Removes it from memory, disk and index; returns its keys.
  Keys remove(Pool& pool, Objects::iterator at);

  // ---- leaving memory
  void let_go(Pool& pool, Object& object);  // if it is on disk
  // Moves objects out of full memory, the longest unread first.
  void lighten(TimeNs now, Effects& effects);
  void lighten_pool(Pool& pool, std::uint64_t want, TimeNs now, Effects& effects);
  // Writes all objects of pools with spill that are in memory only. Blocks; called at the end.
  void flush();

  // Writes an object of a durable pool to disk before it is put into the index. Several are written at a time, but
  // results are reported in the order of the calls, which is the storing order.
  void keep(const mover::Store::Place& place, const FramePtr& frame, PutId id, Disk::Written done, Effects& effects);
  [[nodiscard]] bool is_keeping(const std::string& pool) const {
    const auto at = keeping_.find(pool);
    return at != keeping_.end() && !at->second.empty();
  }

  // ---- coming back
  // See FrameTable::read_back.
  void read_back(WaitingReads::Read read, Effects& effects);
  void drop_reads(service::ChannelNumber channel) { reads_waiting_.drop(channel); }
  // Calls `visit` with each get that waits for its object to be read back, and the reason.
  template <class Visit>
  void visit_reads(const Visit& visit) const {
    reads_waiting_.visit([&](const WaitingReads::Read& read) {
      if (read.get) visit(*read.get, read.describe());
    });
    for (const auto& [number, get] : reading_) visit(*get, std::string("it is being read"));
  }
  // Called for an object that was lost here, after its removal from the pool.
  std::function<void(const RecordPtr& record, Effects& effects)> lost_here;

  [[nodiscard]] TimeNs next_deadline() const noexcept { return std::min(reads_waiting_.next_deadline(), lighten_at_); }

 private:
  struct Keeping {
    std::uint64_t number;
    Disk::Written done;
    std::optional<Result<RecordPtr>> outcome;  // empty while it is being written
  };

  void leave_memory(Pool& pool, Object& object);
  void evict(Pool& pool, Object& object);
  [[nodiscard]] bool leave(Pool& pool, std::uint64_t used, std::uint64_t& want, TimeNs now, Effects& effects);
  void lighten_all(std::uint64_t want, TimeNs now, Effects& effects);
  void on_spilled(const std::string& name, const Keys& keys, std::uint64_t number, std::uint64_t bytes,
                  Result<RecordPtr> record, Effects& effects);
  [[nodiscard]] ObjectRecord record_of(const Pool& pool, const Keys& keys, uid_t user, std::uint64_t keep, bool hidden,
                                       PutId id);
  void on_kept(const std::string& name, std::uint64_t number, Result<RecordPtr> written, TimeNs now, Effects& effects);
  // The object with these bytes; null if it is gone or in memory.
  [[nodiscard]] std::pair<Pool*, Objects::iterator> unread_object(const RecordPtr& record);
  void came_back(const RecordPtr& record, const FramePtr& frame);
  void lose(const RecordPtr& record, Effects& effects);
  void read_waiting(TimeNs now, Effects& effects);

  ObjectIndex& index_;
  std::unique_ptr<Disk> disk_;
  DiskUse use_;
  std::map<std::string, Pool*, std::less<>> pools_;                  // with spill
  std::map<std::string, std::deque<Keeping>, std::less<>> keeping_;  // of durable pools, in the order of the puts
  WaitingReads reads_waiting_;
  std::map<std::uint64_t, std::shared_ptr<const Get>> reading_;  // reads of gets that are under way
  std::uint64_t next_reading_ = 1;
  std::uint64_t next_use_ = 1;
  mutable bool stirred_ = false;  // objects may have to leave memory
  TimeNs lighten_at_ = never;     // the next attempt of failed writes
};

}  // namespace offpath::pool
