#include "pool/table/disk.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace offpath::pool {

namespace {

constexpr TimeNs rest_ns = second_ns;
constexpr int tries_again = 2;             // of what failed
constexpr std::size_t changes_max = 1024;  // of one job
constexpr std::size_t held_max = 1024;     // cleaned up beyond this number

void describe(ObjectRecord& record, const service::Frame& frame) {
  record.bytes = frame.bytes;
  record.rows = frame.rows;
  record.arrow = frame.arrow;
}

class OnDisk final : public service::Unread {
 public:
  OnDisk(std::shared_ptr<ObjectStore> store, std::shared_ptr<service::BufferCache> buffers, RecordPtr record)
      : store_(std::move(store)), buffers_(std::move(buffers)), record_(std::move(record)) {}

  Result<FramePtr> read() const override {
    auto frame = load();
    if (!frame && frame.error().code == Error::protocol) frame.error().code = Error::io;
    return frame;
  }
  Status read_part(std::uint64_t offset, MutableBytes into) const override {
    Status read = store_->read_part(*record_, offset, into);
    for (int again = 0; again < tries_again && !read && read.error().code == Error::io; ++again)
      read = store_->read_part(*record_, offset, into);
    return read;
  }
  std::string described() const override { return store_->described(*record_); }
  // Error::protocol: it is lost. A failed read is tried again at once, for callers that cannot wait.
  [[nodiscard]] Result<FramePtr> load() const {
    auto frame = std::make_shared<service::Frame>();
    OFP_ASSIGN(frame->buffer, buffers_->take(record_->bytes, record_->user));
    Status read = store_->read(*record_, frame->buffer.bytes());
    for (int again = 0; again < tries_again && !read && read.error().code == Error::io; ++again)
      read = store_->read(*record_, frame->buffer.bytes());
    OFP_TRY(read);
    frame->bytes = record_->bytes;
    frame->rows = record_->rows;
    frame->arrow = record_->arrow;
    return frame;
  }
  [[nodiscard]] const RecordPtr& record() const noexcept { return record_; }

 private:
  std::shared_ptr<ObjectStore> store_;
  std::shared_ptr<service::BufferCache> buffers_;
  RecordPtr record_;
};

}  // namespace

FramePtr Disk::unread(const RecordPtr& record) const {
  auto frame = std::make_shared<service::Frame>();
  frame->bytes = record->bytes;
  frame->rows = record->rows;
  frame->arrow = record->arrow;
  frame->unread = std::make_shared<const OnDisk>(store_, buffers_, record);
  return frame;
}

RecordPtr Disk::record_of(const service::Frame& unread) noexcept {
  const auto* on_disk = dynamic_cast<const OnDisk*>(unread.unread.get());
  return on_disk != nullptr ? on_disk->record() : nullptr;
}

void Disk::write(ObjectRecord record, FramePtr frame, bool lasting, Written written, Effects& effects) {
  describe(record, *frame);
  const std::uint64_t token = next_token();
  const auto outcome = std::make_shared<Result<RecordPtr>>();
  writings_.emplace(token, Writing{outcome, std::move(written)});
  ++counters_.writing;
  effects.push_back(service::JobEffect{
      token,
      [store = store_, outcome, lasting, record = std::move(record), frame = std::move(frame)]() mutable -> Status {
        *outcome = store->write(std::move(record), frame->buffer.bytes(), lasting);
        frame.reset();
        return {};
      }});
}

void Disk::read(const FramePtr& unread, Read done, Effects& effects) {
  const RecordPtr record = record_of(*unread);
  OFP_ASSERT(record != nullptr);
  if (const auto held = held_.find(record->number); held != held_.end())
    if (FramePtr frame = held->second.lock()) return done(std::move(frame), effects);
  if (const auto asked = reading_files_.find(record->number); asked != reading_files_.end()) {
    readings_.at(asked->second).done.push_back(std::move(done));
    return;
  }
  const std::uint64_t token = next_token();
  const auto outcome = std::make_shared<FramePtr>();
  Reading& reading = readings_[token];
  reading.outcome = outcome;
  reading.file = record->number;
  reading.done.push_back(std::move(done));
  reading_files_.emplace(record->number, token);
  ++counters_.reading;
  effects.push_back(service::JobEffect{token, [unread, outcome]() -> Status {
                                         OFP_ASSIGN(*outcome, static_cast<const OnDisk&>(*unread->unread).load());
                                         return {};
                                       }});
}

void Disk::remove(RecordPtr record) {
  --counters_.objects;
  counters_.bytes -= record->bytes;
  changes_.push_back({std::move(record), true});
}

void Disk::make(ObjectStore& store, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    const auto change_once = [&] { return change.removes ? store.remove(*change.record) : store.show(*change.record); };
    Status done = change_once();
    for (int again = 0; again < tries_again && !done; ++again) done = change_once();
    if (!done) log(LogLevel::warning, "{}", done.error().message);
  }
}

void Disk::work(Effects& effects) {
  if (!has_work()) return;
  const std::size_t some = std::min(changes_.size(), changes_max);
  std::vector<Change> changes(std::make_move_iterator(changes_.begin()),
                              std::make_move_iterator(changes_.begin() + static_cast<std::ptrdiff_t>(some)));
  changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(some));
  changing_ = true;
  change_token_ = next_token();
  effects.push_back(service::JobEffect{change_token_, [store = store_, changes = std::move(changes)]() -> Status {
                                         make(*store, changes);
                                         return {};
                                       }});
}

void Disk::note(const Result<RecordPtr>& outcome, TimeNs now) {
  if (outcome) {
    ++counters_.objects;
    ++counters_.written;
    counters_.bytes += (*outcome)->bytes;
    counters_.written_bytes += (*outcome)->bytes;
    if (!failure_.empty()) log(LogLevel::info, "{}: objects can be written again", described());
    failure_.clear();
    return;
  }
  ++counters_.failures;
  rests_until_ = deadline_after(now, rest_ns);
  if (failure_.empty())
    log(LogLevel::error, "objects stay in memory, and programs are held back when it is full: {}",
        outcome.error().message);
  failure_ = outcome.error().message;
}

void Disk::on_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  if (token == change_token_) {
    changing_ = false;
    return work(effects);
  }
  if (auto node = writings_.extract(token)) {
    --counters_.writing;
    if (!status) *node.mapped().outcome = tl::unexpected(status.error());
    note(*node.mapped().outcome, now);
    return node.mapped().done(std::move(*node.mapped().outcome), now, effects);
  }
  auto node = readings_.extract(token);
  if (!node) return;
  --counters_.reading;
  reading_files_.erase(node.mapped().file);
  if (status) {
    ++counters_.read;
    counters_.read_bytes += (*node.mapped().outcome)->bytes;
    if (held_.size() >= held_max) std::erase_if(held_, [](const auto& each) { return each.second.expired(); });
    held_.insert_or_assign(node.mapped().file, *node.mapped().outcome);
  } else if (status.error().code == Error::protocol) {
    ++counters_.corrupt;
  }
  for (const Read& done : node.mapped().done)
    done(status ? Result<FramePtr>(*node.mapped().outcome) : Result<FramePtr>(tl::unexpected(status.error())), effects);
}

Result<std::vector<RecordPtr>> Disk::scan() {
  OFP_ASSIGN(std::vector<RecordPtr> all, store_->scan());
  for (const RecordPtr& record : all) {
    ++counters_.objects;
    counters_.bytes += record->bytes;
  }
  next_file_ = std::max(next_file_, store_->largest_number() + 1);
  counters_.recovered = all.size();
  return all;
}

Result<RecordPtr> Disk::write_now(ObjectRecord record, const service::Frame& frame) {
  describe(record, frame);
  Result<RecordPtr> written = store_->write(record, frame.buffer.bytes(), true);
  for (int again = 0; again < tries_again && !written && written.error().code == Error::io; ++again)
    written = store_->write(record, frame.buffer.bytes(), true);
  return written;
}

void Disk::finish_changes() { make(*store_, std::exchange(changes_, {})); }

}  // namespace offpath::pool
