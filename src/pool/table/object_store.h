// Where objects are kept that are not in memory, or not in memory alone: one file each. All of it blocks and belongs
// into jobs; all of it may be called from several threads. What is kept is never changed, only put beside it or taken
// away.
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

  // Whole, or not at all: Error::no_space, Error::io. `lasting`: when it returns, the object is there after a power cut
  // too. record.crc32c is not looked at: what was written is returned.
  [[nodiscard]] virtual Result<RecordPtr> write(ObjectRecord record, Bytes object, bool lasting) = 0;
  // Into memory of record.bytes. Error::protocol: it is not what was written, and has been set aside, or its file is
  // gone. Whatever else fails says nothing of the object: it stays, and may be read later.
  [[nodiscard]] virtual Status read(const ObjectRecord& record, MutableBytes into) = 0;
  // It is hidden no more.
  [[nodiscard]] virtual Status show(const ObjectRecord& record) = 0;
  // One that is not there is none to be removed.
  [[nodiscard]] virtual Status remove(const ObjectRecord& record) = 0;
  // All there are, by number. What is none of them is set aside, and logged. What cannot be read is logged, and stays
  // for the next scan.
  [[nodiscard]] virtual Result<std::vector<RecordPtr>> scan() = 0;
  // Of all files that scan() met, those it left out too.
  [[nodiscard]] virtual std::uint64_t largest_number() const = 0;
  // For people.
  [[nodiscard]] virtual std::string described() const = 0;
};

}  // namespace offpath::pool
