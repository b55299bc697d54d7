#include "tcp/port/xdp_port.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "tcp/port/fanout.h"
#include "tcp/port/packet_port.h"
#include "tcp/port/xdp_device.h"
#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

namespace {

constexpr std::size_t burst = 64;
// The packet socket has ARP and the like: it is looked at this often at most, for so many frames.
constexpr TimeNs look_beside_ns = 50 * microsecond_ns;
constexpr std::size_t beside_max = 16;
// The next notification of the kernel about frames that it did not take, as while the link is down.
constexpr TimeNs again_soon_ns = 20 * microsecond_ns, again_late_ns = 10 * millisecond_ns;
// A device that takes nothing for this long drops frames, like an unplugged cable.
constexpr TimeNs stuck_ns = 10 * millisecond_ns;

// A sender on this machine leaves checksums to its device, which writes the sum of the pseudo header into the field.
// veth passes such frames on, and AF_XDP does not mark them.
bool is_left_to_device(Bytes frame) noexcept {
  IpPacket packet;
  if (frame.size() < ethernet_header_bytes ||
      read_ip(read_ethernet_header(frame.data()).type, frame.subspan(ethernet_header_bytes), packet) != Drop::none ||
      packet.payload.size() < tcp_header_bytes)
    return false;
  Checksum sum;
  sum.add_pseudo_header(packet.source, packet.target, protocol_tcp, static_cast<std::uint32_t>(packet.payload.size()));
  return load_be16(packet.payload.data() + tcp_checksum_offset) == sum.sum();
}

// A core's socket at one queue.
struct Inlet {
  XdpQueue& queue;
  xsk_ring_cons received{};
  xsk_ring_prod sent{};  // of one inlet of a core
  XdpQueue::Socket socket;
  std::array<std::uint64_t, burst> lent{};  // chunks of frames that the stack reads
  std::size_t lent_count = 0;

  explicit Inlet(XdpQueue& of) noexcept : queue(of) {}
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;
  ~Inlet() {
    if (socket) queue.leave(std::move(socket));
  }

  [[nodiscard]] int fd() const noexcept { return xsk_socket__fd(socket.get()); }
  void give_back() {
    if (lent_count > 0) queue.give_back({lent.data(), std::exchange(lent_count, 0)}, socket.get());
  }
  // After give_back().
  std::size_t receive(std::span<ReceivedFrame> frames, bool may_lack_checksums) {
    std::uint32_t at = 0;
    const std::uint32_t count =
        xsk_ring_cons__peek(&received, static_cast<std::uint32_t>(std::min(frames.size(), burst)), &at);
    for (std::uint32_t i = 0; i < count; ++i) {
      const xdp_desc& arrived = *xsk_ring_cons__rx_desc(&received, at + i);
      frames[i] = {Bytes(queue.at(arrived.addr), arrived.len)};
      frames[i].checksum_verified = may_lack_checksums && is_left_to_device(frames[i].bytes);
      lent[i] = arrived.addr;
    }
    xsk_ring_cons__release(&received, count);
    // The driver may have found no chunk after the last ones went back, and nothing arrives until it looks again.
    if (count == 0) queue.wake(socket.get());
    return lent_count = count;
  }
  // Frames in the ring that the kernel has not looked at.
  [[nodiscard]] std::uint32_t waiting() const noexcept {
    return sent.cached_prod - __atomic_load_n(sent.consumer, __ATOMIC_ACQUIRE);
  }
  [[nodiscard]] bool is_zero_copy() const noexcept {
    xdp_options options{};
    socklen_t bytes = sizeof options;
    return ::getsockopt(fd(), SOL_XDP, XDP_OPTIONS, &options, &bytes) == 0 &&
           (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
  }
};

class XdpPort final : public Port {
 public:
  XdpPort(std::shared_ptr<XdpDevice> device, std::unique_ptr<PacketPort> beside)
      : device_(std::move(device)),
        beside_(std::move(beside)),
        may_lack_checksums_(device_->interface().driver == "veth") {
    capabilities_.mac = device_->interface().mac;
    capabilities_.mtu = device_->mtu();
  }
  [[nodiscard]] Status join(std::uint32_t core, bool zero_copy_only);
  [[nodiscard]] bool is_zero_copy() const noexcept { return inlets_.front()->is_zero_copy(); }

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override;
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override;
  [[nodiscard]] PortCapabilities capabilities() const override { return capabilities_; }
  [[nodiscard]] int wait_descriptor() const override { return waits_.get(); }
  [[nodiscard]] PortCounters counters() const override;
  void close() override;
  [[nodiscard]] TimeNs next_due() const override { return kick_at_; }

 private:
  void kick(TimeNs now);
  [[nodiscard]] std::size_t write(std::span<const FrameToSend> frames);

  std::shared_ptr<XdpDevice> device_;
  std::unique_ptr<PacketPort> beside_;
  bool may_lack_checksums_;
  PortCapabilities capabilities_;
  std::vector<std::unique_ptr<Inlet>> inlets_;  // one for each queue; empty: closed
  XdpOutlet outlet_{};                          // its queue is that of the inlet that sends
  std::size_t first_ = 0;                       // which is looked at first, in turn
  Fd waits_;                                    // an epoll set of all sockets
  TimeNs look_beside_at_ = 0;
  TimeNs kick_at_ = never;  // frames in the ring are still to be taken
  TimeNs stuck_since_ = never;
  PortCounters counters_;
};

Status XdpPort::join(std::uint32_t core, bool zero_copy_only) {
  const XdpInterface& interface = device_->interface();
  outlet_ = outlet_of(interface, core);
  waits_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!waits_) return fail_errno(errno, "epoll_create1");
  const auto watch = [&](int fd) -> Status {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (::epoll_ctl(waits_.get(), EPOLL_CTL_ADD, fd, &wanted) != 0) return fail_errno(errno, "EPOLL_CTL_ADD");
    return {};
  };
  for (std::uint32_t number = 0; number < device_->queues(); ++number) {
    auto inlet = std::make_unique<Inlet>(device_->queue(number));
    OFP_ASSIGN(inlet->socket, inlet->queue.join(interface, number, inlet->received,
                                                number == outlet_.queue ? &inlet->sent : nullptr, zero_copy_only));
    // Room for all frames that may be on their way; without the privilege, as much as permitted.
    const int buffer_bytes = 8 << 20;
    for (const int option : {SO_SNDBUFFORCE, SO_SNDBUF})
      if (::setsockopt(inlet->fd(), SOL_SOCKET, option, &buffer_bytes, sizeof buffer_bytes) == 0) break;
    OFP_TRY(device_->connect(number, core, inlet->socket.get()));
    OFP_TRY(watch(inlet->fd()));
    inlets_.push_back(std::move(inlet));
  }
  return watch(beside_->wait_descriptor());
}

void XdpPort::close() {
  waits_.reset();
  inlets_.clear();
  beside_->close();
  kick_at_ = never;
}

std::size_t XdpPort::receive(std::span<ReceivedFrame> frames, TimeNs now) {
  if (inlets_.empty()) return 0;
  if (kick_at_ <= now) kick(now);
  for (const auto& inlet : inlets_) inlet->give_back();
  std::size_t taken = 0;
  if (look_beside_at_ <= now) {
    taken = beside_->receive(frames.first(std::min(frames.size(), beside_max)), now);
    look_beside_at_ = now + look_beside_ns;
  }
  const std::size_t beside = taken;
  for (std::size_t i = 0; i < inlets_.size() && taken < frames.size(); ++i)
    taken += inlets_[(first_ + i) % inlets_.size()]->receive(frames.subspan(taken), may_lack_checksums_);
  first_ = (first_ + 1) % inlets_.size();
  for (const ReceivedFrame& frame : frames.subspan(beside, taken - beside)) counters_.bytes_in += frame.bytes.size();
  counters_.frames_in += taken - beside;
  return taken;
}

// Tells the kernel of frames in the ring if it wants to be told. Copying, it takes some of them at a time.
void XdpPort::kick(TimeNs now) {
  const Inlet& outlet = *inlets_[outlet_.queue];
  kick_at_ = never;
  while (xsk_ring_prod__needs_wakeup(&outlet.sent) != 0) {
    const std::uint32_t before = outlet.waiting();
    if (before == 0 || ::sendto(outlet.fd(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0) return;
    const int error = errno;
    if (error == EINTR || outlet.waiting() < before) continue;
    const bool soon = error == EAGAIN || error == EBUSY || error == ENOBUFS;
    kick_at_ = now + (soon ? again_soon_ns : again_late_ns);
    return;
  }
}

// Puts as many as have room into the ring, and returns how many.
std::size_t XdpPort::write(std::span<const FrameToSend> frames) {
  Inlet& outlet = *inlets_[outlet_.queue];
  std::array<std::uint64_t, burst> chunks;
  const auto wanted = static_cast<std::uint32_t>(std::min(frames.size(), burst));
  const std::uint32_t room = std::min(xsk_prod_nb_free(&outlet.sent, wanted), wanted);
  const auto count = static_cast<std::uint32_t>(outlet.queue.take(outlet_.sender, {chunks.data(), room}));
  std::uint32_t at = 0;
  if (count == 0 || xsk_ring_prod__reserve(&outlet.sent, count, &at) != count) return 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const FrameToSend& frame = frames[i];
    OFP_ASSERT(frame.bytes() <= ethernet_header_bytes + std::size_t{capabilities_.mtu});
    std::byte* to = outlet.queue.at(chunks[i]);
    std::memcpy(to, frame.header.data(), frame.header_bytes);
    to += frame.header_bytes;
    for (const Bytes& part : frame.payload) to = std::ranges::copy(part, to).out;
    *xsk_ring_prod__tx_desc(&outlet.sent, at + i) = {chunks[i], static_cast<std::uint32_t>(frame.bytes()), 0};
    counters_.bytes_out += frame.bytes();
  }
  xsk_ring_prod__submit(&outlet.sent, count);
  counters_.frames_out += count;
  return count;
}

std::size_t XdpPort::transmit(std::span<const FrameToSend> frames, TimeNs now) {
  if (inlets_.empty() || frames.empty()) return frames.size();
  const std::size_t count = write(frames);
  kick(now);
  stuck_since_ = count > 0 ? never : std::min(stuck_since_, now);
  if (stuck_since_ == never || now - stuck_since_ < stuck_ns) return count;
  counters_.dropped_out += frames.size();
  return frames.size();
}

PortCounters XdpPort::counters() const {
  PortCounters counters = beside_->counters();
  counters.frames_in += counters_.frames_in, counters.bytes_in += counters_.bytes_in;
  counters.frames_out += counters_.frames_out, counters.bytes_out += counters_.bytes_out;
  counters.dropped_out += counters_.dropped_out;
  for (const auto& inlet : inlets_) {
    xdp_statistics kernel{};
    socklen_t bytes = sizeof kernel;
    if (::getsockopt(inlet->fd(), SOL_XDP, XDP_STATISTICS, &kernel, &bytes) != 0) continue;
    counters.dropped_in += kernel.rx_dropped + kernel.rx_ring_full;
    counters.dropped_out += kernel.tx_invalid_descs;
  }
  return counters;
}

}  // namespace

Result<std::vector<std::unique_ptr<Port>>> open_xdp(const XdpOptions& options) {
  OFP_ASSIGN(const auto device, XdpDevice::make(options));
  FrameTargets beside = options.targets;
  beside.tcp = false;
  beside.steered = options.cores > 1;
  Fanout fanout;
  std::vector<std::unique_ptr<Port>> ports;
  bool is_zero_copy = false;
  for (std::uint32_t core = 0; core < options.cores; ++core) {
    OFP_ASSIGN(auto socket,
               PacketPort::open_interface(options.interface, beside, options.cores > 1 ? &fanout : nullptr));
    auto port = std::make_unique<XdpPort>(device, std::move(socket));
    OFP_TRY(port->join(core, options.zero_copy_only));
    is_zero_copy = port->is_zero_copy();
    ports.push_back(std::move(port));
  }
  if (options.cores > 1) OFP_TRY(fanout.begin(beside));
  OFP_TRY(device->begin());
  const XdpInterface& interface = device->interface();
  log(LogLevel::info, "xdp:{}: driver {}, {} queue{}, {}, MTU {}", interface.name, interface.driver, device->queues(),
      device->queues() == 1 ? "" : "s", is_zero_copy ? "zero-copy" : "frames copied by the kernel", device->mtu());
  return ports;
}

}  // namespace offpath::tcp
