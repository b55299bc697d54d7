// A file of one object on disk: first the object's own bytes, so that any reader of Arrow or bytes can read the file
// directly (pyarrow.ipc.open_stream of a memory map), then the agent's record of it.
//
//   0          n     the object: an Arrow IPC stream, or plain bytes
//   n          0-7   zeros, up to a multiple of 8
//              8     Arrow only: an end marker, at which readers of Arrow stop
//              r     the record, as written below: numbers of fixed width, then texts with their lengths, then which
//                    put it is of (put_id.h), unless it was written before puts had versions
//   end - 24   24    bytes of the record u32 | their crc32c u32 | length of the file u64 | "OFPOBJ1\n"
//
// All little endian. The record has the crc32c of the object's n bytes. A truncated file has no tail, and is not valid.
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
  // The number of its file; grows in the order of writing. Of two objects under the same keys, the later put is
  // determined by `id`, or without a counter by the larger number.
  std::uint64_t number = 0;
  std::uint64_t bytes = 0, rows = 0, keep = 0;
  uid_t pool_user = 0, user = 0;
  bool arrow = false;
  bool hidden = false;  // until its step has ended; in the file's name, which can be changed atomically
  PutId id;
  std::uint32_t crc32c = 0;  // of the object
  std::string pool;          // as at its creation, with options
  std::string row, column;

  bool operator==(const ObjectRecord&) const = default;
  [[nodiscard]] std::string described() const {
    return fmt::format("object ({}, {}) of pool \"{}\"", brief(row), brief(column), pool.substr(0, pool.find('?')));
  }
};
using RecordPtr = std::shared_ptr<const ObjectRecord>;

inline constexpr std::uint64_t object_tail_bytes = 24;
// An upper bound on the bytes behind any object.
inline constexpr std::uint64_t object_end_bytes_max =
    16 + 96 + 3 * 2 + 8 + 2 + put_over_bytes_max + wire::pool_bytes_max + 2 * wire::key_bytes_max + object_tail_bytes;

// The record behind the object in its file.
[[nodiscard]] std::vector<std::byte> encode_end(const ObjectRecord& record);
// `last` are the last bytes of a file of `file_bytes`: object_end_bytes_max of them, or all. Any mistake is
// Error::protocol.
[[nodiscard]] Result<ObjectRecord> decode_end(Bytes last, std::uint64_t file_bytes);

}  // namespace offpath::pool
