// A disk for tests: objects in memory, with requested faults. Its contents outlive the agents that use it. Syncing
// follows pool/table/spill_directory.h: a lasting write and show() sync the directory, with all removals before them;
// the bytes of other files are never synced.
#pragma once

#include <cstring>
#include <functional>
#include <map>

#include "pool/table/object_store.h"
#include "testing/link/seeded_random.h"

namespace offpath::pool {

class MemoryStore final : public ObjectStore {
 public:
  static constexpr std::size_t unsynced_max = 64;  // removals
  struct File {
    ObjectRecord record;
    std::vector<std::byte> bytes;
    bool lasting;
    bool cut_off = false;  // its record is lost: the next scan sets it aside
  };

  Result<RecordPtr> write(ObjectRecord record, Bytes object, bool lasting) override {
    if (used() + object.size() > bytes_max) return fail(Error::no_space, "the disk is full");
    if (fails_writing && fails_writing()) return fail(Error::io, "the disk fails");
    record.crc32c = crc32c(object);
    files.insert_or_assign(record.number, File{record, {object.begin(), object.end()}, lasting});
    if (lasting) removed_.clear();
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
  Status read_part(const ObjectRecord& record, std::uint64_t offset, MutableBytes into) override {
    const auto at = files.find(record.number);
    if (at == files.end()) return fail(Error::protocol, "file {} is gone", record.number);
    if (fails_reading && fails_reading()) return fail(Error::io, "the disk fails");
    std::memcpy(into.data(), at->second.bytes.data() + offset, into.size());
    ++reads;
    return {};
  }
  Status show(const ObjectRecord& record) override {
    if (const auto at = files.find(record.number); at != files.end()) at->second.record.hidden = false;
    removed_.clear();
    return {};
  }
  Status remove(const ObjectRecord& record) override {
    if (auto file = files.extract(record.number)) removed_.insert(std::move(file));
    // A machine writes old removals to the disk without being asked.
    if (removed_.size() > unsynced_max) removed_.erase(removed_.begin());
    return {};
  }
  Result<std::vector<RecordPtr>> scan() override {
    largest_number_ = files.empty() ? 0 : files.rbegin()->first;
    std::erase_if(files, [](const auto& file) { return file.second.cut_off; });
    std::vector<RecordPtr> all;
    for (const auto& [number, file] : files) all.push_back(std::make_shared<const ObjectRecord>(file.record));
    return all;
  }
  std::uint64_t largest_number() const override { return largest_number_; }
  std::string described() const override { return "a disk in memory"; }
  std::string described(const ObjectRecord& record) const override { return fmt::format("file {}", record.number); }

  // A power cut after the agent's end: each unsynced change is kept or undone. A removed file is back or gone; a
  // written file is whole, truncated, changed, or gone.
  void power_cut(link::SeededRandom& random) {
    for (auto& [number, file] : std::exchange(removed_, {}))
      if (random.chance(0.5)) files.emplace(number, std::move(file));
    for (auto at = files.begin(); at != files.end();) {
      File& file = at->second;
      if (!file.lasting) {
        switch (random.below(4)) {
          case 0:
            at = files.erase(at);
            continue;
          case 1:
            file.cut_off = true;
            break;
          case 2:
            if (!file.bytes.empty()) file.bytes[random.below(file.bytes.size())] ^= std::byte{1};
            break;
          default:
            break;
        }
        file.lasting = true;
      }
      ++at;
    }
  }

  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t all = 0;
    for (const auto& [number, file] : files) all += file.bytes.size();
    return all;
  }

  std::map<std::uint64_t, File> files;
  std::uint64_t bytes_max = UINT64_MAX, writes = 0, reads = 0;
  std::function<bool()> fails_writing, fails_reading;

 private:
  std::map<std::uint64_t, File> removed_;  // since the directory was last synced
  std::uint64_t largest_number_ = 0;
};

}  // namespace offpath::pool
