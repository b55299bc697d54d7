#include "pool/rows/intake.h"

#include <fcntl.h>

#include <utility>

#include "base/files/file_bytes.h"

namespace offpath::pool {

namespace {

constexpr std::uint64_t inline_bytes_max = 256 * 1024;  // a longer descriptor is read in a job

Status read_object(int fd, MutableBytes to) {
  Status read = read_all(fd, to, 0);
  return read ? read : fail(read.error().code, "a member's object: {}", read.error().message);
}

}  // namespace

Status Intake::may_fit(std::uint64_t bytes) const {
  if (bytes <= bytes_max_) return {};
  return fail(Error::too_large, "an object of {} bytes; the agent it is for has memory for {} (memory.bytes_max)",
              bytes, bytes_max_);
}

// Short-lived objects use the reserve first, others last, so that it stays free for objects that pass through.
bool Intake::find_room(const Object& object, std::shared_ptr<const void>& room) const {
  if (object.stays && room_(object.bytes)) return true;
  const std::uint64_t pages = align_up(object.bytes, page_bytes);
  if (object.reserve && (!unused_ || unused_(pages))) room = object.reserve->take(pages);
  return room != nullptr || (!object.stays && room_(object.bytes));
}

Result<Intake::Begun> Intake::begin(std::uint64_t token, Object& object, TimeNs now, service::Effects& effects) {
  OFP_TRY(may_fit(object.bytes));
  if (object.offer != 0 && !object.descriptor) {
    object.descriptor = take_offer_(object.channel, object.offer);
    if (!object.descriptor && now >= object.offer_until)
      return fail(Error::invalid, "no descriptor was offered under number {}", object.offer);
    if (!object.descriptor) return Begun::not_yet;
  }
  std::shared_ptr<const void> room;
  if (!find_room(object, room)) return Begun::not_yet;
  Fd fd = std::move(object.descriptor);
  // Reading memory never blocks; reading a file may.
  if (fd && fcntl(fd.get(), F_GET_SEALS) < 0)
    return fail(Error::invalid, "the descriptor offered under number {} cannot be sealed, a memfd is needed",
                object.offer);
  OFP_ASSIGN(service::Buffer taken, buffers_->take(object.bytes, object.user));
  const auto buffer = std::make_shared<service::Buffer>(std::move(taken));
  taken_.insert_or_assign(token, Taken{buffer, std::move(room)});
  if (object.bytes == 0) return Begun::now;
  if (object.offer == 0) {
    effects.push_back(service::PullEffect{object.channel,
                                          token,
                                          {{object.from.region, object.from.generation, object.from.offset,
                                            buffer->data(), object.bytes, !buffer->is_shared()}}});
    return Begun::later;
  }
  if (object.bytes <= inline_bytes_max) {
    Status read = read_object(fd.get(), buffer->bytes());
    if (read) return Begun::now;
    forget(token);
    return tl::unexpected(std::move(read).error());
  }
  effects.push_back(service::JobEffect{
      token, [buffer, fd = std::make_shared<Fd>(std::move(fd))] { return read_object(fd->get(), buffer->bytes()); }});
  return Begun::later;
}

Result<service::FramePtr> Intake::end(std::uint64_t token, const Status& status) {
  auto node = taken_.extract(token);
  OFP_ASSERT(node);
  if (!status) return tl::unexpected(status.error());
  auto frame = std::make_shared<service::Frame>();
  frame->bytes = node.mapped().buffer->length();
  frame->buffer = std::move(*node.mapped().buffer);
  frame->room = std::move(node.mapped().room);
  return frame;
}

}  // namespace offpath::pool
