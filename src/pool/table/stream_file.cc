#include "pool/table/stream_file.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "frame/parse.h"
#include "frame/template.h"
#include "loop/job_pool.h"

namespace offpath::pool {

namespace {

constexpr std::array<std::byte, page_bytes> zeros{};
constexpr std::size_t write_bytes_max = 4 << 20;  // of one system call

class Writer {
 public:
  Writer(int fd, const std::atomic<bool>& cancelled) : fd_(fd), cancelled_(cancelled) {}

  [[nodiscard]] Status check() const {
    if (cancelled_.load(std::memory_order_relaxed))
      return fail(Error::cancelled, "the write was cancelled after {} bytes", written_);
    return {};
  }
  Status put(Bytes bytes) {
    while (!bytes.empty()) {
      OFP_TRY(check());
      const ssize_t wrote = ::write(fd_, bytes.data(), std::min(bytes.size(), write_bytes_max));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) {
        const int error_number = errno;
        auto failure = fail_errno(error_number, "write").value();
        return fail(failure.code, "{} after {} bytes; the frames are still in the pool", failure.message, written_);
      }
      loop::JobPool::note_progress();
      written_ += static_cast<std::uint64_t>(wrote);
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
    return {};
  }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }

 private:
  int fd_;
  const std::atomic<bool>& cancelled_;
  std::uint64_t written_ = 0;
};

Status put_piece(Writer& writer, const frame::MessagePiece& piece) {
  OFP_TRY(writer.put(piece.prefix));
  OFP_TRY(writer.put(piece.metadata));
  for (std::uint64_t left = piece.padding_bytes; left > 0;) {
    const std::uint64_t some = std::min<std::uint64_t>(left, zeros.size());
    OFP_TRY(writer.put(Bytes(zeros).first(some)));
    left -= some;
  }
  return writer.put(piece.body);
}

}  // namespace

Result<std::uint64_t> write_stream(const std::vector<QuerySource>& objects, int fd,
                                   const std::atomic<bool>& cancelled) {
  if (objects.empty()) return fail(Error::not_found, "the pool has no frames to write");
  Writer writer(fd, cancelled);
  frame::Schema schema;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    OFP_TRY(writer.check());
    const auto& [frame_there, row, column, feed] = objects[i];
    if (!frame_there->arrow)
      return fail(Error::schema, "object ({}, {}) is plain bytes, not Arrow; a write with arrow_only leaves it out",
                  brief(row), brief(column));
    OFP_ASSIGN(const service::FramePtr frame, service::in_memory(frame_there));
    loop::JobPool::note_progress();
    const Bytes bytes = frame->buffer.bytes();
    OFP_ASSIGN(const frame::FrameView view, frame::parse_frame(bytes));
    OFP_ASSIGN(frame::Schema own, frame::read_schema(bytes, view));
    if (i == 0)
      schema = std::move(own);
    else if (own != schema)
      return fail(Error::schema, "object ({}, {}) has another schema than ({}, {})", brief(row), brief(column),
                  brief(objects.front().row_key), brief(objects.front().column_key));
    for (const frame::MessageRange& message : view.messages) {
      if (message.kind == frame::MessageKind::schema && i > 0) continue;
      OFP_TRY(put_piece(writer, frame::fit_message(bytes, message, writer.written(), frame::page_alignment)));
    }
  }
  OFP_TRY(writer.put(frame::end_marker));
  return writer.written();
}

}  // namespace offpath::pool
