// A file of one object on disk: first the object's own bytes, so that whatever reads Arrow or bytes reads the file as
// it lies (pyarrow.ipc.open_stream of a memory map), then what an agent has to know of it.
//
//   0          n     the object: an Arrow IPC stream, or plain bytes
//   n          0-7   zeros, up to a multiple of 8
//              8     of Arrow: an end marker, whatever the object itself ends with. A reader of Arrow stops here
//              r     the record, as written below: numbers of fixed width, then texts with their lengths, then which
//                    put it is of (put_id.h), unless it was written before puts had versions
//   end - 24   24    bytes of the record u32 | their crc32c u32 | length of the file u64 | "OFPOBJ1\n"
//
// All little endian. The record has the crc32c of the object's n bytes. A file that was cut off has no tail, and is
// none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pool/directory/put_id.h"
#include "wire/limits.h"

namespace offpath::pool {

struct ObjectRecord {
  // Of its file; grows in the order of writing. Which of two objects with the same keys is the later put, `id` says;
  // where it has no counter, the larger number is.
  std::uint64_t number = 0;
  std::uint64_t bytes = 0, rows = 0, keep = 0;
  uid_t pool_user = 0, user = 0;
  bool arrow = false;
  bool hidden = false;  // until its step has ended; said by the file's name, for that can be changed at once
  PutId id;
  std::uint32_t crc32c = 0;  // of the object
  std::string pool;          // as it was made: with its options
  std::string row, column;

  bool operator==(const ObjectRecord&) const = default;
  [[nodiscard]] std::string described() const {
    return fmt::format("object ({}, {}) of pool \"{}\"", brief(row), brief(column), pool.substr(0, pool.find('?')));
  }
};
using RecordPtr = std::shared_ptr<const ObjectRecord>;

inline constexpr std::uint64_t object_tail_bytes = 24;
// More than what follows the bytes of any object.
inline constexpr std::uint64_t object_end_bytes_max =
    16 + 96 + 3 * 2 + 8 + 2 + put_over_bytes_max + wire::pool_bytes_max + 2 * wire::key_bytes_max + object_tail_bytes;

// The record behind the object in its file.
[[nodiscard]] std::vector<std::byte> encode_end(const ObjectRecord& record);
// `last` are the last bytes of a file of `file_bytes`: object_end_bytes_max of them, or all. Whatever is wrong is
// Error::protocol.
[[nodiscard]] Result<ObjectRecord> decode_end(Bytes last, std::uint64_t file_bytes);

}  // namespace offpath::pool
