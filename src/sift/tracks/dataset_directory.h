// The directory of a data set that several agents write: each its own files, under names that readers of data sets pass
// over, until all have written theirs.
//
//   part-a-0000.parquet                       a file of member a
//   .part-a-0001.parquet.00000000000000f3.7   one that is being written: the asker's process, the number of its write
//   .offpath-write -> 00000000000000f3.7      the write that has the directory, while it is under way
//
// The claim is a link, because one call makes it with its text. A write that finds another write's claim fails. A write
// refreshes its claim, so one that was not refreshed for minutes belongs to a killed process, and is replaced.
//
// An agent writes for its own user alone, so the kernel decides where that user may write. The directory has to belong
// to the user, because its owner could exchange the files. Blocks: used by jobs, one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::sift {

class DatasetDirectory {
 public:
  static constexpr std::int64_t claim_stale_s = 120;  // without being refreshed

  // The identity of a write: all its members have the same `process`, of the asking agent, and `number`.
  struct Writer {
    std::string member;
    std::uint64_t process = 0, number = 0;
  };

  // Makes the directory if its parent exists, and claims it. Removes this member's unfinished files of other writes.
  // Error::denied: it belongs to another user. Error::exists: files are in it, or another write has it.
  [[nodiscard]] static Result<DatasetDirectory> open(const std::string& path, Writer writer);
  DatasetDirectory(DatasetDirectory&&) noexcept = default;
  DatasetDirectory& operator=(DatasetDirectory&&) noexcept = default;
  ~DatasetDirectory();  // removes unpublished files

  // The next file of this member, empty.
  [[nodiscard]] Result<Fd> begin_file();
  [[nodiscard]] Status confirm() const;  // checks that the directory is this write's; refreshes the claim
  [[nodiscard]] Status publish();        // gives all files their names
  void finish();                         // the write is over: another one may claim the directory
  void abandon();                        // removes all files of this member, and finishes

 private:
  struct File {
    std::uint64_t device, inode;
  };
  DatasetDirectory(std::string path, Fd directory, Writer writer);
  [[nodiscard]] Result<std::vector<std::string>> names() const;
  [[nodiscard]] Status claim();
  [[nodiscard]] std::string claimed_by() const;  // empty: none
  [[nodiscard]] Result<bool> is_stale() const;
  [[nodiscard]] bool is_file(const std::string& name, const File& file) const;
  [[nodiscard]] Status give_name(std::size_t file) const;
  [[nodiscard]] std::string final_name(std::size_t file) const;
  [[nodiscard]] std::string unfinished_name(std::size_t file) const;
  [[nodiscard]] bool is_left_over(std::string_view name) const;

  std::string path_;
  Fd directory_;
  Writer writer_;
  std::string member_;  // as file names have it
  std::string own_;     // claim
  std::vector<File> files_;
  bool published_ = false;
};

}  // namespace offpath::sift
