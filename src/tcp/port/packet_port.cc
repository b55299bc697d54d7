#include "tcp/port/packet_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tcp/port/packet_filter.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/neighbour_discovery.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {
namespace {

// Precedes each frame, in the machine's byte order (Virtual I/O Device 1.2, 5.1.6). The kernel's own header file is not
// valid C++.
//
//   0 flags  1 gso_type  2 header_bytes  4 segment_bytes  6 checksum_start  8 checksum_offset
struct VirtioHeader {
  std::uint8_t flags = 0, gso_type = 0;
  std::uint16_t header_bytes = 0, segment_bytes = 0, checksum_start = 0, checksum_offset = 0;
};
constexpr std::size_t virtio_bytes = sizeof(VirtioHeader);
static_assert(virtio_bytes == 10);
constexpr std::uint8_t needs_checksum = 1, checksum_is_valid = 2;  // flags
constexpr std::uint8_t gso_tcp_ipv4 = 1, gso_tcp_ipv6 = 4, gso_ecn = 0x80;
constexpr std::size_t tcp_flags_offset = 13;

Result<ifreq> request_of(const std::string& name) {
  if (name.empty() || name.size() >= IFNAMSIZ)
    return fail(Error::invalid, "'{}' is not the name of an interface", brief(name));
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

Result<std::uint16_t> mtu_of(int socket, const ifreq& named) {
  ifreq request = named;
  if (::ioctl(socket, SIOCGIFMTU, &request) != 0)
    return fail_errno(errno, fmt::format("SIOCGIFMTU of {}", named.ifr_name));
  if (request.ifr_mtu < 576)
    return fail(Error::unsupported, "the MTU of {} is {}, less than 576", named.ifr_name, request.ifr_mtu);
  return static_cast<std::uint16_t>(std::min(request.ifr_mtu, 65'535));
}

VirtioHeader header_of(const FrameToSend& frame) noexcept {
  VirtioHeader header;
  if (frame.checksum_partial) {
    header.flags = needs_checksum;
    header.checksum_start = frame.tcp_offset;
    header.checksum_offset = tcp_checksum_offset;
  }
  if (frame.segment_bytes != 0) {
    header.gso_type = read_ethernet_header(frame.header.data()).type == ethertype_ipv4 ? gso_tcp_ipv4 : gso_tcp_ipv6;
    // CWR is set in the first segment only.
    if ((frame.header[frame.tcp_offset + tcp_flags_offset] & std::byte{flag::cwr}) != std::byte{0})
      header.gso_type |= gso_ecn;
    header.segment_bytes = frame.segment_bytes;
    header.header_bytes = frame.header_bytes;
  }
  return header;
}

// The interface receives frames to these groups as long as the socket is open.
Status join_groups(int socket, int interface, const IpAddress& address) {
  for (const MacAddress& group : {group_mac(address), multicast_mac(all_nodes)}) {
    packet_mreq wanted{};
    wanted.mr_ifindex = interface;
    wanted.mr_type = PACKET_MR_MULTICAST;
    wanted.mr_alen = group.size();
    std::ranges::copy(group, wanted.mr_address);
    if (::setsockopt(socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof wanted) != 0)
      return fail_errno(errno, "PACKET_ADD_MEMBERSHIP");
  }
  return {};
}

// One sendmsg: virtio-net header, headers, payload.
struct Message {
  VirtioHeader virtio;
  std::array<iovec, 4> parts;
  explicit Message(const FrameToSend& frame) noexcept : virtio(header_of(frame)) {
    const auto part = [](const void* at, std::size_t bytes) { return iovec{const_cast<void*>(at), bytes}; };
    parts = {part(nullptr, virtio_bytes), part(frame.header.data(), frame.header_bytes),
             part(frame.payload[0].data(), frame.payload[0].size()),
             part(frame.payload[1].data(), frame.payload[1].size())};
  }
  Message() = default;
  iovec* vector() noexcept {
    parts[0].iov_base = &virtio;  // its final address
    return parts.data();
  }
};

}  // namespace

Result<std::unique_ptr<PacketPort>> PacketPort::open_interface(const std::string& name,
                                                               const std::optional<FrameTargets>& targets,
                                                               Fanout* fanout) {
  OFP_ASSIGN(const ifreq named, request_of(name));
  Fd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));  // takes nothing before it is bound
  if (!fd && errno == EAFNOSUPPORT) return fail(Error::denied, "this process may not open packet sockets");
  if (!fd) return fail_errno(errno, "socket(AF_PACKET)");
  ifreq index = named, hardware = named;
  if (::ioctl(fd.get(), SIOCGIFINDEX, &index) != 0) return fail_errno(errno, "SIOCGIFINDEX of " + name);
  if (::ioctl(fd.get(), SIOCGIFHWADDR, &hardware) != 0) return fail_errno(errno, "SIOCGIFHWADDR of " + name);
  OFP_ASSIGN(const std::uint16_t mtu, mtu_of(fd.get(), named));
  const int on = 1, buffer_bytes = 8 << 20;
  if (::setsockopt(fd.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0)
    return fail_errno(errno, "PACKET_VNET_HDR of " + name);
  // Larger queues than the default; without the privilege, as large as permitted.
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE, SO_RCVBUF, SO_SNDBUF}) {
    if (::setsockopt(fd.get(), SOL_SOCKET, option, &buffer_bytes, sizeof buffer_bytes) == 0 && option == SO_SNDBUFFORCE)
      break;
  }
  // Outgoing frames are then not copied for the filter, which drops them all. Kernels before Linux 4.20 lack the
  // option.
  static_cast<void>(::setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on));
  sockaddr_ll place{};
  place.sll_family = AF_PACKET;
  place.sll_protocol = htons(ETH_P_ALL);
  place.sll_ifindex = index.ifr_ifindex;
  OFP_TRY(fanout == nullptr ? take_frames(fd.get(), targets)
                            : take_nothing(fd.get()));  // one of several sockets takes nothing until all have joined
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0)
    return fail_errno(errno, "bind to " + name);
  if (fanout != nullptr) OFP_TRY(fanout->join(fd.get()));
  if (targets && !targets->v6.is_unspecified()) OFP_TRY(join_groups(fd.get(), index.ifr_ifindex, targets->v6));
  PortCapabilities capabilities;
  std::copy_n(hardware.ifr_hwaddr.sa_data, 6, reinterpret_cast<char*>(capabilities.mac.data()));
  capabilities.mtu = mtu;
  capabilities.checksum = true;
  capabilities.segmentation_bytes = 65'000;
  return std::unique_ptr<PacketPort>(new PacketPort(std::move(fd), capabilities, false));
}

Result<std::unique_ptr<PacketPort>> PacketPort::open_tap(const std::string& name, const MacAddress& mac) {
  OFP_ASSIGN(const ifreq named, request_of(name));
  Fd fd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno(errno, "open /dev/net/tun");
  ifreq device = named;
  device.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(fd.get(), TUNSETIFF, &device) != 0) return fail_errno(errno, "TUNSETIFF of " + name);
  const int header_bytes = virtio_bytes;
  if (::ioctl(fd.get(), TUNSETVNETHDRSZ, &header_bytes) != 0) return fail_errno(errno, "TUNSETVNETHDRSZ of " + name);
  if (::ioctl(fd.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
    return fail_errno(errno, "TUNSETOFFLOAD of " + name);
  Fd control(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return fail_errno(errno, "socket");
  OFP_ASSIGN(const std::uint16_t mtu, mtu_of(control.get(), named));
  ifreq flags = named;
  if (::ioctl(control.get(), SIOCGIFFLAGS, &flags) != 0) return fail_errno(errno, "SIOCGIFFLAGS of " + name);
  flags.ifr_flags |= IFF_UP;
  if (::ioctl(control.get(), SIOCSIFFLAGS, &flags) != 0) return fail_errno(errno, "SIOCSIFFLAGS of " + name);
  const PortCapabilities capabilities{mac, mtu, true, 65'000};
  return std::unique_ptr<PacketPort>(new PacketPort(std::move(fd), capabilities, true));
}

bool PacketPort::take(std::size_t buffer, std::size_t bytes, ReceivedFrame& frame) {
  if (bytes <= virtio_bytes || bytes > frame_bytes_max) return false;
  const auto header = load<VirtioHeader>(buffers_[buffer].get());
  // A checksum that is still to be completed belongs to a frame of this machine, which nothing can have damaged.
  frame.checksum_verified = (header.flags & (needs_checksum | checksum_is_valid)) != 0;
  frame.segment_bytes = header.gso_type != 0 ? header.segment_bytes : std::uint16_t{0};
  frame.bytes = Bytes(buffers_[buffer].get() + virtio_bytes, bytes - virtio_bytes);
  ++counters_.frames_in;
  counters_.bytes_in += frame.bytes.size();
  return true;
}

std::size_t PacketPort::receive_packets(std::size_t count, std::array<std::size_t, burst>& bytes) {
  std::array<mmsghdr, burst> messages{};
  std::array<iovec, burst> parts;
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = {buffers_[i].get(), frame_bytes_max};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int got = ::recvmmsg(fd_.get(), messages.data(), static_cast<unsigned>(count), MSG_DONTWAIT, nullptr);
  for (int i = 0; i < got; ++i) {
    const auto at = static_cast<std::size_t>(i);
    bytes[at] = messages[at].msg_hdr.msg_flags & MSG_TRUNC ? 0 : messages[at].msg_len;
  }
  return static_cast<std::size_t>(std::max(got, 0));
}

std::size_t PacketPort::receive_tap(std::size_t count, std::array<std::size_t, burst>& bytes) {
  std::size_t got = 0;
  for (; got < count; ++got) {
    const ssize_t size = ::read(fd_.get(), buffers_[got].get(), frame_bytes_max);
    if (size < 0) break;
    bytes[got] = static_cast<std::size_t>(size);
  }
  return got;
}

std::size_t PacketPort::receive(std::span<ReceivedFrame> frames, TimeNs) {
  if (!fd_) return 0;
  const std::size_t count = std::min(frames.size(), burst);
  for (std::size_t i = 0; i < count; ++i)
    if (buffers_[i] == nullptr) buffers_[i] = std::make_unique<std::byte[]>(frame_bytes_max);
  std::array<std::size_t, burst> bytes{};
  const std::size_t got = tap_ ? receive_tap(count, bytes) : receive_packets(count, bytes);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < got; ++i) {
    if (take(i, bytes[i], frames[taken])) {
      ++taken;
    } else {
      ++counters_.dropped_in;
    }
  }
  return taken;
}

std::size_t PacketPort::transmit(std::span<const FrameToSend> frames, TimeNs) {
  if (!fd_) return frames.size();
  std::array<Message, burst> messages;
  std::array<mmsghdr, burst> headers{};
  const std::size_t count = std::min(frames.size(), burst);
  std::size_t sent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    messages[i] = Message(frames[i]);
    headers[i].msg_hdr.msg_iov = messages[i].vector();
    headers[i].msg_hdr.msg_iovlen = messages[i].parts.size();
  }
  int error = 0;
  while (sent < count && error == 0) {
    const int done = tap_ ? (::writev(fd_.get(), messages[sent].vector(), 4) < 0 ? -1 : 1)
                          : ::sendmmsg(fd_.get(), &headers[sent], static_cast<unsigned>(count - sent), MSG_DONTWAIT);
    if (done > 0) {
      sent += static_cast<std::size_t>(done);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  // A frame that the device can never send is dropped, as a network may: keeping it would block the frames behind it.
  const bool later = error == EAGAIN || error == ENOBUFS;
  for (std::size_t i = 0; i < sent; ++i) counters_.bytes_out += frames[i].bytes();
  counters_.frames_out += sent;
  if (error != 0 && !later) {
    ++counters_.dropped_out;
    ++sent;
  }
  return sent;
}

PortCounters PacketPort::counters() const {
  PortCounters counters = counters_;
  tpacket_stats kernel{};
  socklen_t bytes = sizeof kernel;
  if (!tap_ && fd_ && ::getsockopt(fd_.get(), SOL_PACKET, PACKET_STATISTICS, &kernel, &bytes) == 0)
    dropped_by_kernel_ += kernel.tp_drops;
  counters.dropped_in += dropped_by_kernel_;
  return counters;
}

}  // namespace offpath::tcp
