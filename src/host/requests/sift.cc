// Sift pools as a program sees them.
#include <optional>
#include <vector>

#include "host/requests/frame.h"
#include "host/send/stream.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::host {

namespace {

Result<std::uint64_t> ask(Connection& connection, wire::EntryKind kind, const std::vector<std::byte>& payload,
                          std::int64_t wait_ns) {
  // The agent ends its part in time; this is for one that does not answer at all.
  const TimeNs deadline = deadline_after(connection.deadline(wait_ns), second_ns);
  OFP_ASSIGN(const channel::Reply reply, connection.end.call(kind, payload, deadline));
  wire::Done done{};
  if (reply.kind != wire::ReplyKind::done)
    return fail(Error::protocol, "the agent answered a question about a sift pool with reply kind {}",
                static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, done));
  return done.value;
}

// Error::would_block: the agent has not answered in time. Error::timeout is the write's own end.
Result<wire::Written> ask_written(Connection& connection, std::uint64_t number, std::int64_t wait_ns, bool cancel) {
  const auto slow = [](const Failure& why) {
    return why.code == Error::timeout ? Failure{Error::would_block, why.message} : why;
  };
  std::vector<std::byte> payload;
  wire::encode(wire::SiftWritten{number, wait_ns < 0 ? never : wait_ns, cancel}, payload);
  const TimeNs deadline = deadline_after(connection.deadline(wait_ns), second_ns);
  const auto ticket = connection.end.ask(wire::EntryKind::sift_written, payload, deadline);
  if (!ticket) return tl::unexpected(slow(ticket.error()));
  std::optional<channel::Reply> told;
  Status waited;
  while (!(told = connection.end.take_reply(*ticket)) && waited) {
    const auto found = connection.end.wait_reply({&*ticket, 1}, deadline);
    if (!found)
      waited = tl::unexpected(found.error());
    else if (!*found && monotonic_ns() >= deadline)
      waited = fail(Error::would_block, "the agent did not report the progress of the write in time");
  }
  if (!told) {
    connection.end.forget(*ticket);
    return tl::unexpected(waited.error());
  }
  OFP_ASSIGN(const channel::Reply reply, channel::unfailed(std::move(*told)));
  wire::Written written{};
  if (reply.kind != wire::ReplyKind::written)
    return fail(Error::protocol, "the agent answered a question about a write with reply kind {}",
                static_cast<int>(reply.kind));
  OFP_TRY(wire::decode(reply.payload, written));
  return written;
}

Result<std::string_view> sift_name(const char* pool) {
  OFP_ASSIGN(const std::string_view name, checked_key(pool, "the pool's name", wire::pool_bytes_max));
  if (!name.starts_with("sift:/"))
    return fail(Error::invalid, "pool \"{}\" is not a sift pool; their names are like sift:/tracks", name);
  return name;
}

}  // namespace

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_sift_elements(ofp_channel* channel, const char* pool, int64_t wait_ns, uint32_t* elements, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(elements, "elements"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const std::string_view name, sift_name(pool));
    std::vector<std::byte> payload;
    wire::encode(wire::SiftInfo{name}, payload);
    OFP_ASSIGN(const std::uint64_t told, ask(*channel->connection, wire::EntryKind::sift_info, payload, wait_ns));
    *elements = static_cast<uint32_t>(told);
    return {};
  });
}

int ofp_sift_flush(ofp_channel* channel, const char* pool, int64_t wait_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const std::string_view name, sift_name(pool));
    std::vector<std::byte> payload;
    wire::encode(wire::SiftFlush{wait_ns, name}, payload);
    OFP_ASSIGN([[maybe_unused]] const std::uint64_t told,
               ask(*channel->connection, wire::EntryKind::sift_flush, payload, wait_ns));
    return {};
  });
}

int ofp_sift_tracks(ofp_channel* channel, const char* pool, uint32_t element, const uint64_t* identifiers,
                    uint32_t count, int64_t first_step, int64_t last_step, int64_t wait_ns, ofp_frame** frame,
                    ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(frame, "frame"));
    *frame = nullptr;
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const std::string_view name, sift_name(pool));
    if (count > wire::tracks_asked_max)
      return fail(Error::too_large, "{} identifiers, at most {} are allowed at a time", count, wire::tracks_asked_max);
    wire::SiftTracks asked{.element = element,
                           .all = identifiers == nullptr,
                           .first_step = first_step,
                           .last_step = last_step,
                           .pool = name,
                           .identifiers = {}};
    if (identifiers != nullptr) asked.identifiers.assign(identifiers, identifiers + count);
    FrameOperation tracks(channel->connection, wire::EntryKind::sift_tracks, channel->connection->deadline(wait_ns));
    wire::encode(asked, tracks.request);
    OFP_ASSIGN(auto got, tracks.run());
    if (got == nullptr) return fail(Error::protocol, "the agent answered a request for tracks without any");
    *frame = new ofp_frame{std::move(got)};
    return {};
  });
}

int ofp_sift_write(ofp_channel* channel, const char* pool, const char* directory, int64_t wait_ns, uint64_t* number,
                   ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(number, "number"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const std::string_view name, sift_name(pool));
    OFP_ASSIGN(const std::string_view path, checked_key(directory, "the directory", wire::directory_bytes_max));
    if (!path.starts_with('/'))
      return fail(Error::invalid,
                  "the directory \"{}\" is not an absolute path, and members have other current directories", path);
    std::vector<std::byte> payload;
    wire::encode(wire::SiftWrite{wait_ns, name, path}, payload);
    OFP_ASSIGN(*number, ask(*channel->connection, wire::EntryKind::sift_write, payload, wait_ns));
    return {};
  });
}

int ofp_sift_written(ofp_channel* channel, uint64_t number, int64_t wait_ns, ofp_sift_progress* progress,
                     ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(progress, "progress"));
    OFP_TRY(channel->connection->here());
    OFP_ASSIGN(const wire::Written told, ask_written(*channel->connection, number, wait_ns, false));
    *progress = {.over = told.over ? 1u : 0u,
                 .members = told.members,
                 .members_over = told.members_over,
                 .zero = 0,
                 .files = told.files,
                 .rows = told.rows,
                 .bytes = told.bytes};
    return {};
  });
}

int ofp_sift_write_cancel(ofp_channel* channel, uint64_t number, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    const auto told = ask_written(*channel->connection, number, second_ns, true);
    if (!told && told.error().code != Error::cancelled) return tl::unexpected(told.error());
    return {};
  });
}

}  // extern "C"
