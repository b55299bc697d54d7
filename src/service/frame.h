// What services hand each other and what pools keep: one object in memory, or on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "service/buffer_cache.h"

namespace offpath::service {

struct Frame;

// Bytes of a frame that lie on disk (src/pool). Thread-safe.
class Unread {
 public:
  virtual ~Unread() = default;
  // The frame in memory. Blocks: in a job. Error::io: it cannot be had from here any more.
  [[nodiscard]] virtual Result<std::shared_ptr<Frame>> read() const = 0;
};

// What a pool keeps: one object. Immutable once stored, so what was checked once stays true. The exception is an object
// that a create of bytes made (ofp_move): its user updates it in place, and readers who mapped it see that. Such an
// object is never Arrow, and whoever works on its bytes here copies them first.
struct Frame {
  Buffer buffer;
  std::uint64_t bytes = 0;
  std::uint64_t rows = 0;
  bool arrow = false;                      // an Arrow IPC stream of its own
  bool updatable = false;                  // made by a create of bytes
  std::shared_ptr<const Unread> unread{};  // null: the bytes are in `buffer`
  // what it takes of memory that was set aside (pool/table/reserve.h); null: nothing
  std::shared_ptr<const void> room{};
};
using FramePtr = std::shared_ptr<Frame>;

// The frame, or what is read for it: for those who work in a job on bytes that must not change under them.
[[nodiscard]] inline Result<FramePtr> in_memory(FramePtr frame) {
  if (frame->updatable)
    return fail(Error::unsupported,
                "an object of {} bytes may be updated in place while it is read; send it instead of "
                "creating it by a move",
                frame->bytes);
  return frame->unread ? frame->unread->read() : Result<FramePtr>(std::move(frame));
}

}  // namespace offpath::service
