// The directory of a data set that several agents write: each its own files, under names that readers of data sets pass
// over, until all have written theirs.
//
//   part-a-0000.parquet                       a file of member a
//   .part-a-0001.parquet.00000000000000f3.7   one that is being written: the agent's process, the number of its write
//
// An agent writes for its own user alone, so the kernel decides where that user may write; the directory itself has to
// be the user's, because whoever owns it could exchange the files. Blocks: used by jobs, one at a time.
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
  // Who writes: `process` differs between two lives of an agent, `number` between its writes.
  struct Writer {
    std::string member;
    std::uint64_t process = 0, number = 0;
  };

  // Makes the directory if its parent is there. Removes what an earlier process of this member left unfinished.
  // Error::denied: it belongs to another user. Error::exists: files are in it; with `replace` only files that no write
  // of tracks has made.
  [[nodiscard]] static Result<DatasetDirectory> open(const std::string& path, Writer writer, bool replace);

  // The next file of this member, empty.
  [[nodiscard]] Result<Fd> begin_file();
  // Gives all files their names; with `clear`, removes the files of earlier writes first, of all members.
  [[nodiscard]] Status publish(bool clear);
  void abandon();  // removes all files of this write

  [[nodiscard]] std::size_t files() const noexcept { return files_.size(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  DatasetDirectory(std::string path, Fd directory, Writer writer);
  [[nodiscard]] Result<std::vector<std::string>> names() const;
  [[nodiscard]] std::string final_name(std::size_t file) const;
  [[nodiscard]] std::string unfinished_name(std::size_t file) const;
  [[nodiscard]] bool is_left_over(std::string_view name) const;

  std::string path_;
  Fd directory_;
  Writer writer_;
  std::string member_;       // as file names have it
  std::vector<bool> files_;  // those that were begun: whether they have their names
};

}  // namespace offpath::sift
