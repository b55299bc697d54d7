// A disk for tests: objects in memory, with faults that are asked for. What it holds outlives the agents that use it.
#pragma once

#include <cstring>
#include <functional>
#include <map>

#include "pool/table/object_store.h"

namespace offpath::pool {

class MemoryStore final : public ObjectStore {
 public:
  struct File {
    ObjectRecord record;
    std::vector<std::byte> bytes;
    bool lasting;
  };

  Result<RecordPtr> write(ObjectRecord record, Bytes object, bool lasting) override {
    if (used() + object.size() > bytes_max) return fail(Error::no_space, "the disk is full");
    if (fails_writing && fails_writing()) return fail(Error::io, "the disk fails");
    record.crc32c = crc32c(object);
    files.insert_or_assign(record.number, File{record, {object.begin(), object.end()}, lasting});
    ++writes;
    return std::make_shared<const ObjectRecord>(std::move(record));
  }
  Status read(const ObjectRecord& record, MutableBytes into) override {
    const auto at = files.find(record.number);
    if (at == files.end()) return fail(Error::protocol, "file {} is gone", record.number);
    if (fails_reading && fails_reading()) return fail(Error::io, "the disk fails");
    if (crc32c(at->second.bytes) != record.crc32c) {
      files.erase(at);
      return fail(Error::protocol, "file {} is corrupt", record.number);
    }
    std::memcpy(into.data(), at->second.bytes.data(), into.size());
    ++reads;
    return {};
  }
  Status show(const ObjectRecord& record) override {
    if (const auto at = files.find(record.number); at != files.end()) at->second.record.hidden = false;
    return {};
  }
  Status remove(const ObjectRecord& record) override {
    files.erase(record.number);
    return {};
  }
  Result<std::vector<RecordPtr>> scan() override {
    std::vector<RecordPtr> all;
    for (const auto& [number, file] : files) all.push_back(std::make_shared<const ObjectRecord>(file.record));
    return all;
  }
  std::uint64_t largest_number() const override { return files.empty() ? 0 : files.rbegin()->first; }
  std::string described() const override { return "a disk in memory"; }

  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t all = 0;
    for (const auto& [number, file] : files) all += file.bytes.size();
    return all;
  }

  std::map<std::uint64_t, File> files;
  std::uint64_t bytes_max = UINT64_MAX, writes = 0, reads = 0;
  std::function<bool()> fails_writing, fails_reading;
};

}  // namespace offpath::pool
