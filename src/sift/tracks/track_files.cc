#include "sift/tracks/track_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/files/file_bytes.h"
#include "loop/job_pool.h"

namespace offpath::sift {

namespace {

constexpr std::size_t call_bytes_max = 4 << 20;  // of one system call

}  // namespace

TrackFiles::TrackFiles(TrackSnapshot snapshot, Target target, FrameMemory memory)
    : snapshot_(std::move(snapshot)), target_(std::move(target)), memory_(std::move(memory)) {}

Status TrackFiles::open() {
  OFP_ASSIGN(directory_, DatasetDirectory::open(target_.path, target_.writer));
  if (snapshot_.form() == nullptr) return {};
  const RowForm& answers = *snapshot_.form()->answers;
  std::vector<std::uint32_t> ordered{answers.key_column(), 0};  // column 0: the step
  if (!is_integer(answers.schema().fields[answers.key_column()].type)) ordered.clear();
  OFP_ASSIGN(form_, frame::ParquetForm::make(answers.schema(), std::move(ordered)));
  const std::uint64_t rows_max = std::max<std::uint64_t>(target_.step_bytes / answers.row_bytes(), 1);
  reader_.emplace(snapshot_, TrackQuery{}, rows_max);
  return {};
}

template <class Work>
Status TrackFiles::step(const Work& work) {
  const Failure cancelled{Error::cancelled, "the write was cancelled"};
  Use use = Use::none;
  if (!use_.compare_exchange_strong(use, Use::step)) return tl::unexpected(cancelled);
  Status status = loop::guarded(work);
  if (!status) remove();
  use = Use::step;
  if (use_.compare_exchange_strong(use, Use::none)) return status;
  remove();
  use_ = Use::removed;
  return tl::unexpected(cancelled);
}

bool TrackFiles::cancel() noexcept {
  Use use = use_;
  while (use == Use::none || use == Use::step)
    if (use_.compare_exchange_weak(use, use == Use::step ? Use::last_step : Use::over)) return use == Use::step;
  return use == Use::last_step;
}

void TrackFiles::abandon() {
  Use use = Use::over;
  if (use_.compare_exchange_strong(use, Use::removed)) remove();
}

void TrackFiles::remove() noexcept {
  file_.reset();
  fd_.reset();
  (void)loop::guarded([this]() -> Status {
    if (directory_) directory_->abandon();
    directory_.reset();
    return {};
  });
}

Status TrackFiles::write_more() {
  return step([this]() -> Status { return write_some(); });
}

Status TrackFiles::confirm() {
  return step([this]() -> Status { return directory_->confirm(); });
}

Status TrackFiles::publish() {
  return step([this]() -> Status { return directory_->publish(); });
}

Status TrackFiles::finish() {
  return step([this]() -> Status {
    directory_->finish();
    directory_.reset();
    return {};
  });
}

Status TrackFiles::write_some() {
  if (!directory_) OFP_TRY(open());
  OFP_TRY(directory_->confirm());
  FramePtr frame;
  if (reader_) {
    OFP_ASSIGN(frame, reader_->next(memory_));
  }
  if (frame == nullptr) {
    if (file_) OFP_TRY(end_file());
    written_.all = true;
    reader_.reset();
    snapshot_ = TrackSnapshot(nullptr, 1);  // and its memory
    return {};
  }
  OFP_ASSIGN(const RowsView view, snapshot_.form()->answers->view({frame->buffer.data(), frame->bytes}));
  std::uint64_t first = 0;
  if (file_ && file_->bytes() >= target_.file_bytes_max) {
    // The rest of the identifier that the file ended with.
    while (first < view.rows && compare(view.value_of_id(first), last_) == 0) ++first;
    if (first > 0) OFP_TRY(add_rows(view, 0, first));
    if (first < view.rows) OFP_TRY(end_file());
  }
  if (first == view.rows) return {};
  if (!file_) OFP_TRY(begin_file());
  OFP_TRY(add_rows(view, first, view.rows));
  return sync();
}

Status TrackFiles::begin_file() {
  OFP_ASSIGN(fd_, directory_->begin_file());
  file_.emplace(form_, [this](Bytes bytes) { return put(bytes); });
  ++written_.files;
  return {};
}

Status TrackFiles::end_file() {
  OFP_TRY(file_->end());
  OFP_TRY(sync());
  file_.reset();
  fd_.reset();
  return {};
}

// At each step, so that no step waits for more than its own bytes.
Status TrackFiles::sync() {
  if (fdatasync(fd_.get()) != 0) return fail_errno(errno, fmt::format("fdatasync in {}", target_.path));
  loop::JobPool::note_progress();
  return {};
}

Status TrackFiles::put(Bytes bytes) {
  std::uint64_t at = file_->bytes() - bytes.size();  // it counts them first
  while (!bytes.empty()) {
    if (use_.load(std::memory_order_relaxed) == Use::last_step)
      return fail(Error::cancelled, "the write was cancelled");
    const Bytes some = bytes.first(std::min(bytes.size(), call_bytes_max));
    if (Status status = write_all(fd_.get(), some, at); !status)
      return fail(status.error().code, "writing to directory {}: {}", target_.path, status.error().message);
    loop::JobPool::note_progress();
    at += some.size();
    written_.bytes += some.size();
    bytes = bytes.subspan(some.size());
  }
  return {};
}

Status TrackFiles::add_rows(const RowsView& view, std::uint64_t first, std::uint64_t end) {
  std::vector<frame::ParquetFile::Values> columns;
  for (const Column& column : view.columns)  // only identifiers are text
    columns.push_back({column.values + first * column.value_bytes, view.text});
  OFP_TRY(file_->add_group(end - first, columns));
  const Bytes last = view.value_of_id(end - 1);
  last_.assign(last.begin(), last.end());
  written_.rows += end - first;
  return {};
}

}  // namespace offpath::sift
