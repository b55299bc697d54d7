#include "connections/slow_path_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "link/address.h"
#include "link/handshake/handshake.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/tcp_messages.h"

namespace offpath::channel {

Result<std::unique_ptr<SlowPathChannel>> SlowPathChannel::connect(const std::string& address,
                                                                  const wire::TcpSlowLayout& layout, TimeNs deadline) {
  OFP_ASSIGN(const link::Address where, link::Address::parse(address));
  if (where.kind != link::Address::Kind::unix_socket)
    return fail(Error::unsupported, "a slow path needs an agent on this machine (unix:/path), not {}", address);
  link::HostOptions host;
  host.name = "slow-path";
  OFP_ASSIGN(auto link, link::connect(where, host, deadline));
  std::unique_ptr<SlowPathChannel> made(new SlowPathChannel);
  made->end_ = std::make_unique<HostEnd>(std::move(link), host.layout);
  HostEnd& end = *made->end_;
  OFP_ASSIGN(const wire::RegionId region, end.allocate(layout.bytes(), deadline));
  made->memory_ = end.segment(region);
  std::vector<std::byte> payload;
  wire::encode(
      wire::TcpSlowPathOpen{{.region = region, .length = layout.bytes()}, wire::tcp_slow_version, layout.ring_bytes},
      payload);
  OFP_ASSIGN(const Reply reply, end.call(wire::EntryKind::tcp_slow_path, payload, deadline));
  OFP_ASSIGN(made->wake_, end.take_descriptor(reply.ticket, deadline));
  return made;
}

SlowPathChannel::~SlowPathChannel() {
  if (end_) end_->close(0);
}

void SlowPathChannel::wake() const noexcept {
  static_cast<void>(::send(wake_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

Status SlowPathChannel::sleep(TimeNs until, TimeNs now) const {
  pollfd descriptor{wake_.get(), POLLIN, 0};
  const TimeNs left = until == never ? 3600 * second_ns : std::max<TimeNs>(until - now, 0);
  const timespec limit{left / second_ns, left % second_ns};
  static_cast<void>(::ppoll(&descriptor, 1, &limit, nullptr));
  if (descriptor.revents == 0) return {};
  char bytes[16];
  for (;;) {
    const ssize_t got = ::recv(wake_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got < 0 && errno == EAGAIN) return {};
    return fail(Error::peer_lost, "the agent is gone, or has ended this slow path");
  }
}

}  // namespace offpath::channel
