// Turns a request's buffers into the pieces of one read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "frame/plan.h"
#include "mover/options.h"
#include "mover/store.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

using service::BufferCache;

class Credit;
struct Operation;
struct Stream;

class Planner {
 public:
  Planner(const MoverOptions& options, BufferCache& cache, Store& store, const Credit& credit);

  // A request is decoded, and then planned before another one is decoded. Its memory is used again.
  [[nodiscard]] Status decode_send(Bytes request) { return wire::decode(request, send_); }
  [[nodiscard]] Status decode_move(Bytes request) { return wire::decode(request, move_); }
  [[nodiscard]] const wire::Send& send() const noexcept { return send_; }
  [[nodiscard]] const wire::Move& move() const noexcept { return move_; }

  // Remembers or finds the buffer set that the decoded send names.
  [[nodiscard]] Status take_set(Stream& stream, Operation& operation);
  // Takes the buffer of the decoded request, and sets the operation's pieces.
  [[nodiscard]] Status plan(const Stream& stream, Operation& operation);
  // The size of the frame of the stream's largest batch.
  [[nodiscard]] std::uint64_t largest_frame_bytes(const Stream& stream);

 private:
  [[nodiscard]] Status plan_send(const Stream& stream, Operation& operation);
  [[nodiscard]] Status plan_plain(const Stream& stream, Operation& operation);
  [[nodiscard]] Status plan_move(const Stream& stream, Operation& operation);
  [[nodiscard]] Status view_of(const Stream& stream);
  [[nodiscard]] Status pieces_of(Operation& operation, std::span<const wire::BufferRef> refs);
  [[nodiscard]] std::uint64_t scratch_bytes_for(const Operation& operation) const;
  [[nodiscard]] Status take_buffer(const Stream& stream, Operation& operation, std::uint64_t bytes,
                                   std::uint64_t charge);

  const MoverOptions& options_;
  BufferCache& cache_;
  Store& store_;
  const Credit& credit_;
  wire::Send send_;
  wire::Move move_;
  frame::BatchView view_;
  std::vector<frame::PlainColumn> plain_;
};

}  // namespace offpath::mover
