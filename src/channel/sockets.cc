#include "channel/sockets.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "link/address.h"
#include "link/handshake.h"
#include "wire/message_kinds.h"
#include "wire/tcp_messages.h"

namespace offpath::channel {

Result<std::unique_ptr<Sockets>> Sockets::open(HostEnd& end, const SocketOptions& options, TimeNs deadline) {
  const wire::TcpAreaLayout layout = SocketArea::layout_of(options);
  OFP_TRY(wire::check_tcp_area(layout));
  if (!std::has_single_bit(options.ring_bytes) || options.ring_bytes < wire::tcp_ring_bytes_min || options.ring_bytes > wire::tcp_ring_bytes_max)
    return fail(Error::invalid, "rings of {} bytes; powers of two from {} to {} are allowed", options.ring_bytes, wire::tcp_ring_bytes_min,
                wire::tcp_ring_bytes_max);
  OFP_ASSIGN(const wire::RegionId region, end.allocate(layout.bytes, deadline));
  std::unique_ptr<Sockets> made(new Sockets(end, region));
  made->area_.emplace(end.segment(region), options, [fd = &made->wake_] {
    static_cast<void>(::send(fd->get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));  // full: the agent has enough to read
  });
  std::vector<std::byte> payload;
  wire::encode(wire::TcpOpen{{.region = region, .length = layout.bytes}, wire::tcp_area_version, layout.wish_slots, layout.news_slots, layout.flows}, payload);
  OFP_ASSIGN(const Reply reply, end.call(wire::EntryKind::tcp_open, payload, deadline));
  made->opened_ = true;
  OFP_ASSIGN(made->wake_, end.take_descriptor(reply.ticket, deadline));
  return made;
}

Result<std::unique_ptr<Sockets>> Sockets::connect(const std::string& address, const std::string& name, const SocketOptions& options,
                                                  TimeNs deadline) {
  OFP_ASSIGN(const link::Address where, link::Address::parse(address));
  if (where.kind != link::Address::Kind::unix_socket)
    return fail(Error::unsupported, "connections want an agent on this machine (unix:/path), not {}", address);
  link::HostOptions host;
  host.name = name;
  OFP_ASSIGN(auto link, link::connect(where, host, deadline));
  auto end = std::make_unique<HostEnd>(std::move(link), host.layout);
  OFP_ASSIGN(auto made, open(*end, options, deadline));
  made->own_end_ = std::move(end);
  return made;
}

// The memory goes back when the agent has let go of it: it would take what is withdrawn under open connections for nonsense.
Sockets::~Sockets() {
  if (mark_.in_child()) return;  // they are the parent's
  if (opened_) {
    std::vector<std::byte> payload;
    wire::encode(wire::TcpClose{wire::tcp_area_version}, payload);
    static_cast<void>(end_.call(wire::EntryKind::tcp_close, payload, deadline_after(end_.now(), second_ns)));
  }
  area_.reset();
  end_.free(region_);
}

Status Sockets::clear() {
  char bytes[16];
  for (;;) {
    const ssize_t got = ::recv(wake_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got < 0 && errno == EAGAIN) return {};
    return fail(Error::peer_lost, "the agent is gone, or has ended this program's connections");
  }
}

Status Sockets::wait(TimeNs deadline, TimeNs spin_ns) {
  const TimeNs spin_until = deadline_after(monotonic_ns(), spin_ns);
  for (;;) {
    if (area_->take_in()) return {};
    const TimeNs now = monotonic_ns();
    if (now >= deadline) return fail(Error::timeout, "nothing was told about any connection");
    if (now < spin_until || !area_->fall_asleep()) continue;
    pollfd descriptor{wake_.get(), POLLIN, 0};
    const TimeNs left = deadline == never ? 3600 * second_ns : deadline - now;
    const timespec limit{left / second_ns, left % second_ns};
    static_cast<void>(::ppoll(&descriptor, 1, &limit, nullptr));
    if (descriptor.revents != 0) OFP_TRY(clear());
  }
}

}  // namespace offpath::channel
