// Frames of a pool as one Arrow IPC stream in a file.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "channel/offered_file.h"
#include "frame/parse.h"
#include "frame/template.h"
#include "host/requests/frame.h"
#include "host/requests/pool.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

namespace offpath::host {

namespace {

constexpr std::uint64_t write_bytes_max = 1u << 30;  // of one system call
constexpr std::array<std::byte, page_bytes> zeros{};

class FileWriter {
 public:
  explicit FileWriter(int fd) : fd_(fd) {}

  Status put(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(fd_, bytes.data(), std::min<std::uint64_t>(bytes.size(), write_bytes_max));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) {
        const Failure failure = fail_errno(errno, "write").value();
        return fail(failure.code, "{} after {} bytes; the frames are still in the pool", failure.message, written_);
      }
      written_ += static_cast<std::uint64_t>(wrote);
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
    return {};
  }
  Status put(const frame::MessagePiece& piece) {
    OFP_TRY(put(piece.prefix));
    OFP_TRY(put(piece.metadata));
    for (std::uint64_t left = piece.padding_bytes; left > 0;) {
      const std::uint64_t some = std::min<std::uint64_t>(left, zeros.size());
      OFP_TRY(put(Bytes(zeros).first(some)));
      left -= some;
    }
    return put(piece.body);
  }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }

 private:
  int fd_;
  std::uint64_t written_ = 0;
};

// The frames come here one by one, and this program writes them: over a network, and to files that an agent does not
// write.
Result<std::uint64_t> write_here(const ConnectionPtr& connection, std::string_view pool, int fd, TimeNs deadline) {
  ListOperation list(pool, "*", "*", deadline);
  OFP_TRY(run(connection->end, list));
  const std::vector<PoolEntry>& entries = list.entries;
  if (entries.empty()) return fail(Error::not_found, "pool \"{}\" has no frames to write", pool);
  FileWriter writer(fd);
  frame::Schema schema;
  for (const PoolEntry& entry : entries) {
    const TimeNs now = connection->end.now();
    if (now >= deadline)
      return fail(Error::timeout, "{} bytes of pool \"{}\" were written in time", writer.written(), pool);
    OFP_ASSIGN(const auto frame, PoolFrame::get(connection, pool, entry.row_key, entry.column_key,
                                                deadline == never ? -1 : deadline - now));
    if (!frame->arrow())
      return fail(Error::schema, "object ({}, {}) is plain bytes, not Arrow; a write with arrow_only leaves it out",
                  entry.row_key, entry.column_key);
    OFP_ASSIGN(const frame::FrameView view, frame::parse_frame(frame->bytes()));
    OFP_ASSIGN(frame::Schema own, frame::read_schema(frame->bytes(), view));
    const bool first = &entry == &entries.front();
    if (first)
      schema = std::move(own);
    else if (own != schema)
      return fail(Error::schema, "object ({}, {}) of pool \"{}\" has another schema than ({}, {})", entry.row_key,
                  entry.column_key, pool, entries.front().row_key, entries.front().column_key);
    for (const frame::MessageRange& message : view.messages)
      if (first || message.kind != frame::MessageKind::schema)
        OFP_TRY(writer.put(frame::fit_message(frame->bytes(), message, writer.written(), frame::page_alignment)));
  }
  OFP_TRY(writer.put(Bytes(frame::end_marker)));
  return writer.written();
}

}  // namespace

Result<std::uint64_t> write_pool(const ConnectionPtr& connection, std::string_view pool, int fd, TimeNs deadline) {
  if (const Status may = channel::check_offered_file(fd); !may && may.error().code == Error::unsupported)
    return write_here(connection, pool, fd, deadline);
  auto offered = connection->end.offer(fd);
  if (!offered && offered.error().code == Error::unsupported) return write_here(connection, pool, fd, deadline);
  if (!offered) return tl::unexpected(std::move(offered).error());
  std::vector<std::byte> payload;
  wire::encode(wire::PoolWrite{pool, *offered}, payload);
  auto reply = connection->end.call(wire::EntryKind::pool_write, payload, deadline);
  // An agent in another mount namespace may not know the file system. It has written nothing then.
  if (!reply && reply.error().code == Error::unsupported) return write_here(connection, pool, fd, deadline);
  if (!reply) return tl::unexpected(std::move(reply).error());
  return done_of(*reply, "write");
}

}  // namespace offpath::host
