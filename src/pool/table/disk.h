// Pools' objects on disk, as the loop sees them: writes, reads back, shows and removes objects, each in a job, and
// reports the results. Spilling decides which objects, and when.
//
// A full or failing disk is not tried for a while: objects stay in memory, and requests for room keep waiting.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "pool/table/object_store.h"
#include "service/effects.h"

namespace offpath::pool {

using service::Effects;
using service::FramePtr;

struct DiskCounters {
  std::uint64_t objects = 0, bytes = 0;  // on disk, in memory too or not
  std::uint64_t written = 0, written_bytes = 0, read = 0, read_bytes = 0;
  std::uint64_t failures = 0, corrupt = 0;  // writes that failed; objects that could not be read back
  std::uint64_t recovered = 0;              // at start
  std::uint64_t writing = 0, reading = 0;   // under way
};

class Disk {
 public:
  using Written = std::function<void(Result<RecordPtr> record, TimeNs now, Effects& effects)>;
  using Read = std::function<void(Result<FramePtr> frame, Effects& effects)>;

  Disk(std::shared_ptr<ObjectStore> store, std::shared_ptr<service::BufferCache> buffers)
      : store_(std::move(store)), buffers_(std::move(buffers)) {}

  // Numbers grow, in the order of writing.
  [[nodiscard]] std::uint64_t new_number() noexcept { return next_file_++; }
  // `record` has number, owner and keys; the rest comes from the frame.
  void write(ObjectRecord record, FramePtr frame, bool lasting, Written written, Effects& effects);
  // Reads a frame that unread() made. Readers of one object share its frame. Error::protocol: it is lost here.
  void read(const FramePtr& unread, Read done, Effects& effects);
  [[nodiscard]] FramePtr unread(const RecordPtr& record) const;
  [[nodiscard]] static RecordPtr record_of(const service::Frame& unread) noexcept;
  // Both are done when `work` is called next, one after the other.
  void show(RecordPtr record) { changes_.push_back({std::move(record), false}); }
  void remove(RecordPtr record);
  void work(Effects& effects);
  [[nodiscard]] bool has_work() const noexcept { return !changes_.empty() && !changing_; }
  // A job of this service has ended.
  void on_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);

  // ---- without jobs: at start and at the end
  [[nodiscard]] Result<std::vector<RecordPtr>> scan();
  // A failed call is repeated at once, because there is no later occasion.
  [[nodiscard]] Result<RecordPtr> write_now(ObjectRecord record, const service::Frame& frame);
  void finish_changes();

  // It was full, or failed, a short time ago.
  [[nodiscard]] bool rests(TimeNs now) const noexcept { return now < rests_until_; }
  // With room for one write, several could each take a part and all fail. So only one runs until one succeeds.
  [[nodiscard]] std::uint64_t writing_max() const noexcept { return failure_.empty() ? 4 : 1; }
  [[nodiscard]] TimeNs rests_until() const noexcept { return rests_until_; }
  [[nodiscard]] const std::string& failure() const noexcept {
    return failure_;
  }  // of the last write; empty: it succeeded
  [[nodiscard]] const DiskCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::string described() const { return store_->described(); }

 private:
  struct Change {
    RecordPtr record;
    bool removes;
  };
  struct Writing {
    std::shared_ptr<Result<RecordPtr>> outcome;
    Written done;
  };
  struct Reading {
    std::shared_ptr<FramePtr> outcome;
    std::uint64_t file;
    std::vector<Read> done;
  };
  [[nodiscard]] std::uint64_t next_token() noexcept { return service::token_of(service::ServiceId::disk, next_job_++); }
  void note(const Result<RecordPtr>& outcome, TimeNs now);
  static void make(ObjectStore& store, const std::vector<Change>& changes);

  std::shared_ptr<ObjectStore> store_;
  std::shared_ptr<service::BufferCache> buffers_;
  std::unordered_map<std::uint64_t, Writing> writings_;  // by token, as readings_
  std::unordered_map<std::uint64_t, Reading> readings_;
  std::unordered_map<std::uint64_t, std::uint64_t> reading_files_;         // file -> token
  std::unordered_map<std::uint64_t, std::weak_ptr<service::Frame>> held_;  // by file: frames that may still be held
  std::vector<Change> changes_;
  bool changing_ = false;
  std::uint64_t change_token_ = 0;
  std::uint64_t next_file_ = 1, next_job_ = 1;
  TimeNs rests_until_ = 0;
  std::string failure_;
  DiskCounters counters_;
};

}  // namespace offpath::pool
