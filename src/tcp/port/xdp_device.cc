#include "tcp/port/xdp_device.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "tcp/port/xdp_program.h"
#include "tcp/segment/ethernet.h"

namespace offpath::tcp {

namespace {

constexpr std::uint32_t queues_max = 64;
// The kernel keeps this much of each chunk in front of a frame (XDP_PACKET_HEADROOM).
constexpr std::uint32_t headroom = 256;
constexpr std::uint32_t chunk_bytes_least = 2048, chunk_bytes_most = 4096;  // the kernel takes a page at most
constexpr const char* license = "Apache-2.0";
constexpr int tries_max = 50;
constexpr std::chrono::milliseconds between_tries(10);

// The negative result of a call of libxdp or libbpf.
tl::unexpected<Failure> fail_xdp(int result, const std::string& interface, std::string_view call) {
  return fail_errno(-result, fmt::format("xdp:{}: {}", interface, call));
}

// libxdp opens descriptors that a program executed by this process would inherit, and so keep the queue.
Status close_on_exec(int fd) {
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, "FD_CLOEXEC of an AF_XDP socket");
  return {};
}

// Queries of ethtool to drivers; not all drivers support all.
template <class Asked>
bool ask_driver(int socket, const ifreq& named, Asked& asked) {
  ifreq request = named;
  request.ifr_data = reinterpret_cast<char*>(&asked);
  return ::ioctl(socket, SIOCETHTOOL, &request) == 0;
}

std::uint32_t chunk_bytes_for(std::uint16_t mtu) noexcept {
  return headroom + ethernet_header_bytes + mtu <= chunk_bytes_least ? chunk_bytes_least : chunk_bytes_most;
}

// How many queues cores send on.
std::uint32_t outlets_of(const XdpInterface& interface) noexcept {
  return std::min(interface.transmit_queues, interface.receive_queues);
}

}  // namespace

Result<XdpInterface> xdp_interface(const std::string& name) {
  XdpInterface found;
  found.name = name;
  ifreq named{};
  if (name.empty() || name.size() >= IFNAMSIZ)
    return fail(Error::invalid, "'{}' is not the name of an interface", brief(name));
  std::memcpy(named.ifr_name, name.data(), name.size());
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  const auto ask = [&](unsigned long what, const char* call, ifreq& answer) -> Status {
    answer = named;
    if (::ioctl(socket.get(), what, &answer) != 0) return fail_errno(errno, fmt::format("{} of {}", call, name));
    return {};
  };
  ifreq answer{};
  OFP_TRY(ask(SIOCGIFFLAGS, "SIOCGIFFLAGS", answer));
  if ((answer.ifr_flags & IFF_UP) == 0)
    return fail(Error::io, "xdp:{}: the interface is down: ip link set {} up", name, name);
  OFP_TRY(ask(SIOCGIFINDEX, "SIOCGIFINDEX", answer));
  found.index = static_cast<unsigned>(answer.ifr_ifindex);
  OFP_TRY(ask(SIOCGIFHWADDR, "SIOCGIFHWADDR", answer));
  std::memcpy(found.mac.data(), answer.ifr_hwaddr.sa_data, found.mac.size());
  OFP_TRY(ask(SIOCGIFMTU, "SIOCGIFMTU", answer));
  if (answer.ifr_mtu < 576) return fail(Error::unsupported, "the MTU of {} is {}, less than 576", name, answer.ifr_mtu);
  found.mtu = static_cast<std::uint16_t>(std::min(answer.ifr_mtu, 65'535));
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  found.driver = ask_driver(socket.get(), named, driver) ? driver.driver : "unknown";
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  if (ask_driver(socket.get(), named, channels)) {
    found.receive_queues = std::max(channels.rx_count + channels.combined_count, 1u);
    found.transmit_queues = std::max(channels.tx_count + channels.combined_count, 1u);
  }
  ethtool_value flags{ETHTOOL_GFLAGS, 0};
  // veth reports that too, but does not change its peer's frames.
  found.takes_tags_off =
      ask_driver(socket.get(), named, flags) && (flags.data & ETH_FLAG_RXVLAN) != 0 && found.driver != "veth";
  return found;
}

Status check_xdp_interface(const XdpInterface& interface, std::uint32_t cores) {
  if (interface.takes_tags_off)
    return fail(Error::unsupported,
                "xdp:{}: the device takes VLAN tags off, so frames of VLANs would look untagged: ethtool -K {} rxvlan "
                "off",
                interface.name, interface.name);
  if (interface.receive_queues > queues_max)
    return fail(Error::too_large,
                "xdp:{}: it has {} queues, and each takes packet memory; at most {}: ethtool -L {} combined {}",
                interface.name, interface.receive_queues, queues_max, interface.name, cores);
  return {};
}

XdpOutlet outlet_of(const XdpInterface& interface, std::uint32_t core) noexcept {
  const std::uint32_t outlets = outlets_of(interface);
  return {core % outlets, core / outlets};
}

std::uint32_t senders_of(const XdpInterface& interface, std::uint32_t queue, std::uint32_t cores) noexcept {
  const std::uint32_t outlets = outlets_of(interface);
  return queue < outlets ? (cores + outlets - 1 - queue) / outlets : 0;
}

// ---- a queue

void XdpQueue::Unmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }

Result<std::unique_ptr<XdpQueue>> XdpQueue::make(std::uint32_t cores, std::uint32_t senders,
                                                 std::uint32_t chunk_bytes) {
  std::unique_ptr<XdpQueue> made(new XdpQueue(cores, senders, chunk_bytes));
  const std::uint32_t chunks = receive_chunks + transmit_chunks * senders;
  const std::size_t bytes = std::size_t{chunks} * chunk_bytes;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "mmap of packet memory");
  made->memory_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
  // A forked child would get copies of all its pages, because they are pinned.
  if (::madvise(memory, bytes, MADV_DONTFORK) != 0) return fail_errno(errno, "MADV_DONTFORK of packet memory");
  xsk_umem_config wanted{};
  // The kernel tells how many chunks it has taken after it has told of frames in them. So a chunk may come back while
  // its last way through the ring still counts, each once.
  wanted.fill_size = 2 * receive_chunks;
  wanted.comp_size = std::bit_ceil(transmit_chunks * std::max(senders, 1u));
  wanted.frame_size = chunk_bytes;
  xsk_umem* umem = nullptr;
  const int result = xsk_umem__create(&umem, memory, bytes, &made->fill_, &made->completed_, &wanted);
  if (result == -EAFNOSUPPORT)
    return fail(Error::unsupported, "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS), or forbids it");
  if (result != 0)
    return fail_errno(-result, fmt::format("AF_XDP: {} KiB of packet memory, which are locked", bytes / 1024));
  made->umem_.reset(umem);
  OFP_TRY(close_on_exec(xsk_umem__fd(umem)));
  std::uint64_t address = 0;
  std::uint32_t at = 0;
  OFP_ASSERT(xsk_ring_prod__reserve(&made->fill_, receive_chunks, &at) == receive_chunks);
  for (std::uint32_t i = 0; i < receive_chunks; ++i, address += chunk_bytes)
    *xsk_ring_prod__fill_addr(&made->fill_, at + i) = address;
  xsk_ring_prod__submit(&made->fill_, receive_chunks);
  for (; address < bytes; address += chunk_bytes) made->free_of_owner(address).push_back(address);
  return made;
}

std::vector<std::uint64_t>& XdpQueue::free_of_owner(std::uint64_t address) noexcept {
  return free_[(address / chunk_bytes_ - receive_chunks) / transmit_chunks];
}

Result<XdpQueue::Socket> XdpQueue::join(const XdpInterface& interface, std::uint32_t queue, xsk_ring_cons& received,
                                        xsk_ring_prod* sent, bool zero_copy_only) {
  const std::lock_guard lock(mutex_);
  xsk_socket_config wanted{};
  // A core that reads nothing keeps its share of the chunks, and the others' frames find theirs.
  wanted.rx_size = std::bit_floor(receive_chunks / cores_);
  wanted.tx_size = transmit_chunks;
  wanted.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
  // By default the kernel tries zero-copy first, and copies otherwise.
  wanted.bind_flags = static_cast<std::uint16_t>(XDP_USE_NEED_WAKEUP | (zero_copy_only ? XDP_ZEROCOPY : 0));
  xsk_socket* socket = nullptr;
  int result = -EBUSY;
  // The kernel gives a queue back some time after its sockets were closed, as those of an agent that was restarted.
  for (int tries = 0; result == -EBUSY && tries < tries_max; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(between_tries);
    result = xsk_socket__create_shared(&socket, interface.name.c_str(), queue, umem_.get(), &received, sent, &fill_,
                                       &completed_, &wanted);
  }
  if (result == 0) {
    Socket joined(socket);
    OFP_TRY(close_on_exec(xsk_socket__fd(socket)));
    return joined;
  }
  if (result == -EBUSY)
    return fail(Error::exists, "xdp:{}: queue {} belongs to another AF_XDP socket", interface.name, queue);
  if (zero_copy_only && result != -EPERM)
    return fail(Error::unsupported, "its driver, {}, has no zero-copy ({})", interface.driver, std::strerror(-result));
  return fail_xdp(result, interface.name, fmt::format("a socket at queue {}", queue));
}

void XdpQueue::leave(Socket socket) {
  const std::lock_guard lock(mutex_);
  socket.reset();
}

void XdpQueue::give_back(std::span<const std::uint64_t> chunks, const xsk_socket* socket) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<std::uint32_t>(chunks.size());
  std::uint32_t at = 0;
  OFP_ASSERT(xsk_ring_prod__reserve(&fill_, count, &at) == count);  // it has room for all chunks twice
  for (std::uint32_t i = 0; i < count; ++i) *xsk_ring_prod__fill_addr(&fill_, at + i) = chunks[i];
  xsk_ring_prod__submit(&fill_, count);
  wake(socket);
}

void XdpQueue::wake(const xsk_socket* socket) const {
  if (xsk_ring_prod__needs_wakeup(&fill_) != 0)
    static_cast<void>(::recvfrom(xsk_socket__fd(socket), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr));
}

std::size_t XdpQueue::take(std::uint32_t sender, std::span<std::uint64_t> chunks) {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t>& free = free_[sender];
  if (free.size() < chunks.size()) {
    std::uint32_t at = 0;
    const std::uint32_t sent = xsk_ring_cons__peek(&completed_, completed_.size, &at);
    for (std::uint32_t i = 0; i < sent; ++i) {
      const std::uint64_t address = *xsk_ring_cons__comp_addr(&completed_, at + i);
      free_of_owner(address).push_back(address);
    }
    xsk_ring_cons__release(&completed_, sent);
  }
  const std::size_t count = std::min(chunks.size(), free.size());
  std::copy_n(free.end() - static_cast<std::ptrdiff_t>(count), count, chunks.begin());
  free.resize(free.size() - count);
  return count;
}

// ---- the device

Result<std::shared_ptr<XdpDevice>> XdpDevice::make(const XdpOptions& options) {
  std::shared_ptr<XdpDevice> made(new XdpDevice(options));
  OFP_ASSIGN(made->interface_, xdp_interface(options.interface));
  const XdpInterface& interface = made->interface_;
  OFP_TRY(check_xdp_interface(interface, options.cores));
  const std::uint32_t chunk_bytes = chunk_bytes_for(interface.mtu);
  made->mtu_ = static_cast<std::uint16_t>(
      std::min<std::uint32_t>(interface.mtu, chunk_bytes - headroom - ethernet_header_bytes));
  for (std::uint32_t queue = 0; queue < interface.receive_queues; ++queue) {
    OFP_ASSIGN(auto opened, XdpQueue::make(options.cores, senders_of(interface, queue, options.cores), chunk_bytes));
    made->queues_.push_back(std::move(opened));
  }
  made->sockets_ = Fd(::bpf_map_create(BPF_MAP_TYPE_XSKMAP, "offpath", sizeof(std::uint32_t), sizeof(std::uint32_t),
                                       made->queues() * options.cores, nullptr));
  if (!made->sockets_) return fail_xdp(-errno, interface.name, "BPF_MAP_CREATE");
  return made;
}

Status XdpDevice::connect(std::uint32_t queue, std::uint32_t core, const xsk_socket* socket) {
  const std::uint32_t at = queue * options_.cores + core;
  const int fd = xsk_socket__fd(socket);
  if (const int result = ::bpf_map_update_elem(sockets_.get(), &at, &fd, 0); result != 0)
    return fail_xdp(result, interface_.name, "BPF_MAP_UPDATE_ELEM");
  return {};
}

Status XdpDevice::begin() {
  const std::vector<bpf_insn> program = redirecting_program(options_.targets, options_.cores, sockets_.get());
  const Fd loaded(::bpf_prog_load(BPF_PROG_TYPE_XDP, "offpath", license, program.data(), program.size(), nullptr));
  if (!loaded) return fail_xdp(-errno, interface_.name, "BPF_PROG_LOAD");
  bpf_link_create_opts wanted{};
  wanted.sz = sizeof wanted;
  wanted.flags = XDP_FLAGS_DRV_MODE;
  link_ = Fd(::bpf_link_create(loaded.get(), static_cast<int>(interface_.index), BPF_XDP, &wanted));
  if (link_) return {};
  const int error = errno;
  if (error == EBUSY || error == EEXIST)
    return fail(Error::exists, "xdp:{}: it has another XDP program; ip link set {} xdp off takes that off",
                interface_.name, interface_.name);
  if (error == EOPNOTSUPP)
    return fail(Error::unsupported,
                "xdp:{}: its driver, {}, runs no XDP programs; AF_PACKET needs none: tcp.device = {}", interface_.name,
                interface_.driver, interface_.name);
  return fail_xdp(-error, interface_.name,
                  fmt::format("the driver, {}, does not take the program (BPF_LINK_CREATE)", interface_.driver));
}

}  // namespace offpath::tcp
