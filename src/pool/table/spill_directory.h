// Objects as files of a directory that belongs to one agent alone.
//
//   lock                          held while an agent uses the directory
//   00000000000000a7.arrow        an object, by its number (object_record.h); .bytes if it is no Arrow
//   00000000000000a8.hidden.arrow one whose step has not ended
//   *.part                        being written; removed at start
//   *.corrupt                     set aside for inspection; never read again
//
// Names do not contain keys, so keys may be any bytes. A file is written under another name, then renamed, so there are
// no partial files, unless the disk loses synced data. Checksums cover every byte: the object's is checked when it is
// read back, the record's at start. A file is set aside for wrong contents, never because it could not be read.
#pragma once

#include "base/fd.h"
#include "pool/table/object_store.h"

namespace offpath::pool {

class SpillDirectory final : public ObjectStore {
 public:
  // Makes it if its parent exists. Error::denied: it belongs to another user, is open to others, or is a symbolic link.
  // Error::exists: another agent uses it.
  [[nodiscard]] static Result<std::unique_ptr<SpillDirectory>> open(const std::string& path);

  [[nodiscard]] Result<RecordPtr> write(ObjectRecord record, Bytes object, bool lasting) override;
  [[nodiscard]] Status read(const ObjectRecord& record, MutableBytes into) override;
  [[nodiscard]] Status read_part(const ObjectRecord& record, std::uint64_t offset, MutableBytes into) override;
  [[nodiscard]] Status show(const ObjectRecord& record) override;
  [[nodiscard]] Status remove(const ObjectRecord& record) override;
  [[nodiscard]] Result<std::vector<RecordPtr>> scan() override;
  [[nodiscard]] std::uint64_t largest_number() const override { return largest_number_; }
  [[nodiscard]] std::string described() const override { return path_; }
  [[nodiscard]] std::string described(const ObjectRecord& record) const override;

 private:
  SpillDirectory(std::string path, Fd directory, Fd lock)
      : path_(std::move(path)), directory_(std::move(directory)), lock_(std::move(lock)) {}
  [[nodiscard]] Result<Fd> open_file(const ObjectRecord& record, std::string& name) const;
  [[nodiscard]] Result<ObjectRecord> read_record(const std::string& name) const;
  [[nodiscard]] Status write_file(const std::string& name, const ObjectRecord& record, Bytes object,
                                  bool lasting) const;
  [[nodiscard]] Status sync_names() const;
  void set_aside(const std::string& name, const std::string& why) const;

  std::string path_;
  Fd directory_, lock_;
  std::uint64_t largest_number_ = 0;
};

}  // namespace offpath::pool
