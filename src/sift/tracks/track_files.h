// One member's part of a write: the tracks that it keeps, merged, as Parquet files of a directory. All rows of an
// identifier are in one file, and a file's rows are ordered by identifier and step. Used by jobs, one at a time; each
// step writes some megabytes to the disk, so that other jobs have their turn between them.
//
// If a disk hangs, the job is given up while its thread still has the files: `cancel` leaves their removal to that
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "frame/parquet.h"
#include "sift/tracks/dataset_directory.h"
#include "sift/tracks/track_reader.h"

namespace offpath::sift {

class TrackFiles {
 public:
  struct Target {
    std::string path;
    DatasetDirectory::Writer writer;
    std::uint64_t file_bytes_max = 1ull << 30;  // a file that has so many ends with its last identifier
    std::uint64_t step_bytes = 16ull << 20;     // rows that are read at a time
  };
  struct Written {
    std::uint64_t files = 0, rows = 0, bytes = 0;
    bool all = false;
  };

  TrackFiles(TrackSnapshot snapshot, Target target, FrameMemory memory);
  TrackFiles(const TrackFiles&) = delete;

  // Writes some more, and updates `written`. After a failure no file is left in the directory.
  [[nodiscard]] Status write_more();
  // As DatasetDirectory; all is written.
  [[nodiscard]] Status confirm();
  [[nodiscard]] Status publish();
  [[nodiscard]] Status finish();
  // From any thread: all steps fail from now on. True: one is under way, fails soon, and removes all files; otherwise
  // `abandon` does, once.
  [[nodiscard]] bool cancel() noexcept;
  void abandon();
  [[nodiscard]] const Written& written() const noexcept { return written_; }  // not while a step is under way

 private:
  enum class Use { none, step, last_step, over, removed };
  // One step at a time. After a failure, or if it was cancelled meanwhile, all files are removed.
  template <class Work>
  [[nodiscard]] Status step(const Work& work);
  void remove() noexcept;
  [[nodiscard]] Status write_some();
  [[nodiscard]] Status open();
  [[nodiscard]] Status begin_file();
  [[nodiscard]] Status end_file();
  [[nodiscard]] Status sync();
  [[nodiscard]] Status put(Bytes bytes);
  [[nodiscard]] Status add_rows(const RowsView& view, std::uint64_t first, std::uint64_t end);

  TrackSnapshot snapshot_;
  Target target_;
  FrameMemory memory_;
  std::shared_ptr<const frame::ParquetForm> form_;
  std::optional<TrackReader> reader_;
  std::optional<DatasetDirectory> directory_;
  Fd fd_;
  std::optional<frame::ParquetFile> file_;  // that is being written
  std::vector<std::byte> last_;             // identifier in it
  Written written_;
  std::atomic<Use> use_{Use::none};
};

}  // namespace offpath::sift
