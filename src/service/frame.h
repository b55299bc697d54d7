// The object that services pass to each other and that pools keep, in memory or on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "service/buffer_cache.h"

namespace offpath::service {

struct Frame;

// Bytes of a frame that are on disk (src/pool). Thread-safe.
class Unread {
 public:
  virtual ~Unread() = default;
  // The frame in memory. Blocks: call it in a job. Error::io: it can no longer be read here.
  [[nodiscard]] virtual Result<std::shared_ptr<Frame>> read() const = 0;
  // Some of its bytes, without a look at the checksum of all: for objects whose parts have checksums. Blocks, too.
  // Error::protocol: its file is gone.
  [[nodiscard]] virtual Status read_part(std::uint64_t offset, MutableBytes into) const = 0;
  // For people: the file that has its bytes.
  [[nodiscard]] virtual std::string described() const = 0;
};

// One object of a pool. Immutable once stored, so earlier checks stay true. The exception is an object made by a create
// of bytes (ofp_move): its user updates it in place, and readers that mapped it see that. Such an object is never
// Arrow, and code that works on its bytes here copies them first.
struct Frame {
  Buffer buffer;
  std::uint64_t bytes = 0;
  std::uint64_t rows = 0;
  bool arrow = false;                      // an Arrow IPC stream of its own
  bool updatable = false;                  // made by a create of bytes
  std::shared_ptr<const Unread> unread{};  // null: the bytes are in `buffer`
  // its share of reserved memory (pool/table/reserve.h); null: none
  std::shared_ptr<const void> room{};
};
using FramePtr = std::shared_ptr<Frame>;

// The frame in memory: for jobs that need bytes that do not change.
[[nodiscard]] inline Result<FramePtr> in_memory(FramePtr frame) {
  if (frame->updatable)
    return fail(Error::unsupported,
                "an object of {} bytes may be updated in place while it is read; send it instead of "
                "creating it by a move",
                frame->bytes);
  return frame->unread ? frame->unread->read() : Result<FramePtr>(std::move(frame));
}

}  // namespace offpath::service
