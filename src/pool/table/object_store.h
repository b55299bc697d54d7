// The interface of a store of objects on disk, one file each. All calls block and belong into jobs; they may come from
// several threads. A kept object is never changed, only replaced by another file or removed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pool/table/object_record.h"
#include "service/buffer_cache.h"

namespace offpath::pool {

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Atomic: Error::no_space and Error::io leave no file. `lasting`: after the return the object survives a power cut.
  // record.crc32c is ignored; the checksum of the written bytes is returned.
  [[nodiscard]] virtual Result<RecordPtr> write(ObjectRecord record, Bytes object, bool lasting) = 0;
  // Reads into memory of record.bytes. Error::protocol: the bytes differ from those written and the file was set aside,
  // or the file is gone. After any other error the object stays, and may be read later.
  [[nodiscard]] virtual Status read(const ObjectRecord& record, MutableBytes into) = 0;
  // Reads some of its bytes, without checking the checksum.
  [[nodiscard]] virtual Status read_part(const ObjectRecord& record, std::uint64_t offset, MutableBytes into) = 0;
  // Makes it visible.
  [[nodiscard]] virtual Status show(const ObjectRecord& record) = 0;
  // A missing file is not an error.
  [[nodiscard]] virtual Status remove(const ObjectRecord& record) = 0;
  // All objects, by number. Other files are set aside and logged. An unreadable file is logged, and stays for the next
  // scan.
  [[nodiscard]] virtual Result<std::vector<RecordPtr>> scan() = 0;
  // The largest number of any file that scan() met, unreadable ones included.
  [[nodiscard]] virtual std::uint64_t largest_number() const = 0;
  // For messages: the store, and the file of one object.
  [[nodiscard]] virtual std::string described() const = 0;
  [[nodiscard]] virtual std::string described(const ObjectRecord& record) const = 0;
};

}  // namespace offpath::pool
