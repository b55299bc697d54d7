#include "tcp/port/dpdk_port.h"

#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/log.h"
#include "base/sleep_flag.h"
#include "tcp/port/core_of_frame.h"
#include "tcp/port/dpdk_port_eal.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t burst = 64;
constexpr int bursts_max = 4;                // of other cores' frames, before the own core goes on
constexpr std::uint16_t descriptors = 1024;  // for each direction, or as many as the device has
constexpr std::uint16_t mtu_max = 9216;
constexpr std::size_t frame_bytes_max = 65'536 + 64;
constexpr std::uint32_t segmentation_bytes_max = 65'000;

// A device whose interrupts cannot be armed is polled: after an idle time, again an eighth of that time later, within
// these bounds.
constexpr TimeNs look_soonest_ns = 20 * microsecond_ns, look_latest_ns = millisecond_ns;
// A device that accepts nothing for this long drops what it is given, as an unplugged cable would.
constexpr TimeNs stuck_ns = 10 * millisecond_ns;

constexpr std::uint64_t transmit_offloads = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
                                            RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
constexpr std::uint64_t receive_offloads = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
constexpr std::uint64_t spread_by = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_TCP;

tl::unexpected<Failure> fail_dpdk(std::string_view device, std::string_view call, int result) {
  return fail(result == -ENODEV || result == -ENOENT ? Error::not_found : Error::io, "dpdk:{}: {}: {}", device, call,
              what_eal_said(-result));
}

// ---- handles, each with one owner

// A device that DPDK has probed.
class Probed {
 public:
  Probed() = default;
  explicit Probed(std::uint16_t port) noexcept : port_(port) {}
  Probed(Probed&& other) noexcept : port_(std::exchange(other.port_, none)) {}
  Probed& operator=(Probed&& other) noexcept {
    Probed old(std::exchange(port_, std::exchange(other.port_, none)));
    return *this;
  }
  ~Probed() {
    if (port_ == none) return;
    rte_eth_dev_info info{};
    const bool known = rte_eth_dev_info_get(port_, &info) == 0;
    static_cast<void>(rte_eth_dev_stop(port_));
    static_cast<void>(rte_eth_dev_close(port_));
    if (known && info.device != nullptr) static_cast<void>(rte_dev_remove(info.device));
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  static constexpr std::uint16_t none = RTE_MAX_ETHPORTS;
  std::uint16_t port_ = none;
};

struct FreePool {
  void operator()(rte_mempool* pool) const noexcept { rte_mempool_free(pool); }
};
using Pool = std::unique_ptr<rte_mempool, FreePool>;

std::vector<std::uint16_t> ports_of(const std::string& device) {
  std::vector<std::uint16_t> ports;
  rte_dev_iterator iterator;
  std::uint16_t port;
  RTE_ETH_FOREACH_MATCHING_DEV(port, device.c_str(), &iterator) { ports.push_back(port); }
  return ports;
}

// The device's only port. A card with several ports must be given with the name of one.
Result<Probed> probe(const std::string& device) {
  if (!ports_of(device).empty())
    return fail(Error::exists, "dpdk:{}: this process has opened the device already",
                device);  // DPDK itself accepts a second probe
  if (const int result = rte_dev_probe(device.c_str()); result != 0) return fail_dpdk(device, "rte_dev_probe", result);
  const std::vector<std::uint16_t> ports = ports_of(device);
  if (ports.empty())
    return fail(Error::not_found, "dpdk:{}: DPDK has the device, but the device has no network port", device);
  Probed found(ports.front());
  if (ports.size() > 1)
    return fail(Error::invalid, "dpdk:{}: the device has {} ports; name one of them (representor=…)", device,
                ports.size());
  return found;
}

// The MTU of the kernel's interface behind a device, if there is one; not all DPDK drivers query it.
std::uint16_t mtu_of_interface(unsigned index) {
  ifreq request{};
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (index == 0 || !socket || ::if_indextoname(index, request.ifr_name) == nullptr ||
      ::ioctl(socket.get(), SIOCGIFMTU, &request) != 0)
    return mtu_max;
  return static_cast<std::uint16_t>(std::clamp<int>(request.ifr_mtu, 0, mtu_max));
}

// ---- the device

// Frames of one core that arrived at other cores' queues, and what wakes it to look at them.
class Inbox {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Inbox>> make(const std::string& name, int socket) {
    std::unique_ptr<Inbox> made(new Inbox());
    made->ring_.reset(rte_ring_create(name.c_str(), descriptors, socket, RING_F_SC_DEQ));
    if (!made->ring_) return fail(Error::no_memory, "a ring of DPDK: {}", what_eal_said(rte_errno));
    made->bell_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!made->bell_) return fail_errno(errno, "eventfd");
    return made;
  }
  ~Inbox() {
    std::array<rte_mbuf*, burst> left;
    while (const std::uint16_t count = take(left)) rte_pktmbuf_free_bulk(left.data(), count);
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // ---- other cores: false if it is full
  [[nodiscard]] bool put(rte_mbuf* frame) noexcept { return rte_ring_enqueue(ring_.get(), frame) == 0; }
  void wake() noexcept {  // after fence_before_look()
    if (flag_.take()) static_cast<void>(::eventfd_write(bell_.get(), 1));
  }

  // ---- its core
  [[nodiscard]] std::uint16_t take(std::span<rte_mbuf*> frames) noexcept {
    return static_cast<std::uint16_t>(rte_ring_sc_dequeue_burst(ring_.get(), reinterpret_cast<void**>(frames.data()),
                                                                static_cast<unsigned>(frames.size()), nullptr));
  }
  [[nodiscard]] int bell() const noexcept { return bell_.get(); }
  void fall_asleep() noexcept { flag_.set(); }  // it looks once more afterwards
  void wake_up() noexcept {
    flag_.clear();
    eventfd_t rung;
    static_cast<void>(::eventfd_read(bell_.get(), &rung));
  }

 private:
  struct FreeRing {
    void operator()(rte_ring* ring) const noexcept { rte_ring_free(ring); }
  };
  Inbox() = default;

  std::unique_ptr<rte_ring, FreeRing> ring_;
  Fd bell_;
  std::uint64_t asleep_ = 0;
  SleepFlag flag_{asleep_};
};

// A device, which its ports share.
class DpdkDevice {
 public:
  DpdkDevice(Probed device, std::uint32_t cores) noexcept
      : device_(std::move(device)), cores_(static_cast<std::uint16_t>(cores)) {}
  [[nodiscard]] Status start(const std::string& name);

  [[nodiscard]] std::uint16_t port() const noexcept { return device_.port(); }
  [[nodiscard]] std::uint16_t cores() const noexcept { return cores_; }
  [[nodiscard]] rte_mempool* pool() const noexcept { return pool_.get(); }
  [[nodiscard]] const PortCapabilities& capabilities() const noexcept { return capabilities_; }
  [[nodiscard]] std::uint64_t offloads() const noexcept { return transmit_offloads_; }
  [[nodiscard]] bool has_interrupts() const noexcept { return interrupts_; }
  [[nodiscard]] const char* driver() const noexcept { return driver_; }
  [[nodiscard]] Inbox* inbox(std::uint32_t core) noexcept { return inboxes_.empty() ? nullptr : inboxes_[core].get(); }
  [[nodiscard]] bool link_up() const;

 private:
  [[nodiscard]] int configure(const rte_eth_dev_info& info, bool interrupts, std::uint16_t mtu);

  Pool pool_;                                    // destroyed after the device and the inboxes, which hold buffers of it
  std::vector<std::unique_ptr<Inbox>> inboxes_;  // for each core; none if there is one
  Probed device_;
  std::uint16_t cores_;
  PortCapabilities capabilities_;
  std::uint64_t transmit_offloads_ = 0;
  std::uint16_t receive_descriptors_ = descriptors, transmit_descriptors_ = descriptors;
  bool interrupts_ = false;
  const char* driver_ = "";
  std::array<std::uint8_t, 256> key_{};
};

int DpdkDevice::configure(const rte_eth_dev_info& info, bool interrupts, std::uint16_t mtu) {
  const std::uint16_t port = device_.port();
  rte_eth_conf wanted{};
  wanted.rxmode.mtu = mtu;
  wanted.rxmode.offloads = receive_offloads & info.rx_offload_capa;
  wanted.txmode.offloads = transmit_offloads_;
  wanted.intr_conf.rxq = interrupts;
  if (cores_ > 1 && (info.flow_type_rss_offloads & spread_by) != 0) {
    // A key whose 16-bit words are equal gives both directions of a flow the same hash.
    for (std::size_t i = 0; i < key_.size(); ++i) key_[i] = i % 2 == 0 ? 0x6d : 0x5a;
    wanted.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    wanted.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & spread_by;
    if (info.hash_key_size > 0) {
      wanted.rx_adv_conf.rss_conf.rss_key = key_.data();
      wanted.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
    }
  }
  int result = rte_eth_dev_configure(port, cores_, cores_, &wanted);
  if (result == 0) result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive_descriptors_, &transmit_descriptors_);
  if (result != 0) return result;
  const int socket = rte_eth_dev_socket_id(port);
  const auto memory_of = static_cast<unsigned>(socket);
  if (!pool_) {
    // One buffer holds a whole frame. The pool has as many as the device may hold in both directions, plus those that
    // the stacks read or that wait for another core, plus one burst to send: sending never waits for a buffer that only
    // a later call would free.
    const auto room = static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM +
                                                 std::max<std::size_t>(2048, ethernet_header_bytes + mtu + 8u));
    const unsigned per_frame = transmit_offloads_ & RTE_ETH_TX_OFFLOAD_TCP_TSO ? segmentation_bytes_max / 2048 + 2 : 1;
    const unsigned waiting = cores_ > 1 ? descriptors : 0;
    const unsigned count = receive_descriptors_ + transmit_descriptors_ + waiting + 2u * burst + burst * per_frame;
    pool_.reset(rte_pktmbuf_pool_create(fmt::format("offpath{}", port).c_str(), count * cores_, 0, 0, room, socket));
    if (!pool_) return -rte_errno;
  }
  for (std::uint16_t queue = 0; result == 0 && queue < cores_; ++queue) {
    result = rte_eth_rx_queue_setup(port, queue, receive_descriptors_, memory_of, nullptr, pool_.get());
    if (result == 0) result = rte_eth_tx_queue_setup(port, queue, transmit_descriptors_, memory_of, nullptr);
  }
  return result == 0 ? rte_eth_dev_start(port) : result;
}

Status DpdkDevice::start(const std::string& name) {
  const std::uint16_t port = device_.port();
  rte_eth_dev_info info{};
  if (const int result = rte_eth_dev_info_get(port, &info); result != 0)
    return fail_dpdk(name, "rte_eth_dev_info_get", result);
  if (const unsigned queues = std::min(info.max_rx_queues, info.max_tx_queues); queues < cores_)
    return fail(Error::unsupported,
                "dpdk:{}: it has {} queue{} and tcp.cores = {} takes one for each core: use fewer cores, or more "
                "queues (virtual devices: qpairs={}, queues={})",
                name, queues, queues == 1 ? "," : "s,", cores_, cores_, cores_);
  driver_ = info.driver_name;
  std::uint16_t mtu = 0;
  if (const int result = rte_eth_dev_get_mtu(port, &mtu); result != 0)
    return fail_dpdk(name, "rte_eth_dev_get_mtu", result);
  mtu = std::min({mtu, mtu_of_interface(info.if_index), mtu_max, info.max_mtu});
  if (mtu < 576) return fail(Error::unsupported, "dpdk:{}: the MTU is {}, less than 576", name, mtu);
  transmit_offloads_ = transmit_offloads & info.tx_offload_capa;
  // net_tap takes the MTU for the longest frame, and refuses full segments that it would have to cut.
  constexpr std::uint64_t segmentation =
      RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  const bool segments =
      (transmit_offloads_ & segmentation) == segmentation && std::string_view(info.driver_name) != "net_tap";
  if (!segments) transmit_offloads_ &= RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
  interrupts_ = true;
  int result = configure(info, interrupts_, mtu);
  if (result != 0) {
    interrupts_ = false;
    result = configure(info, interrupts_, mtu);
  }
  if (result != 0) return fail_dpdk(name, "it cannot be configured and started", result);
  rte_ether_addr mac{};
  if (const int got = rte_eth_macaddr_get(port, &mac); got != 0) return fail_dpdk(name, "rte_eth_macaddr_get", got);
  std::memcpy(capabilities_.mac.data(), mac.addr_bytes, capabilities_.mac.size());
  capabilities_.mtu = mtu;
  capabilities_.checksum = (transmit_offloads_ & RTE_ETH_TX_OFFLOAD_TCP_CKSUM) != 0;
  if (transmit_offloads_ & RTE_ETH_TX_OFFLOAD_TCP_TSO) {
    const std::uint32_t pieces = info.tx_desc_lim.nb_seg_max == 0 ? 64u : info.tx_desc_lim.nb_seg_max;
    const std::uint32_t room = rte_pktmbuf_data_room_size(pool_.get()) - RTE_PKTMBUF_HEADROOM;
    // one piece less: the headers take it
    const std::uint32_t bytes = std::min<std::uint32_t>(segmentation_bytes_max, (pieces - 1) * room);
    capabilities_.segmentation_bytes = bytes >= 2u * mtu ? bytes : 0;
  }
  for (std::uint16_t core = 0; cores_ > 1 && core < cores_; ++core) {
    OFP_ASSIGN(auto inbox, Inbox::make(fmt::format("offpath{}.{}", port, core), rte_eth_dev_socket_id(port)));
    inboxes_.push_back(std::move(inbox));
  }
  return {};
}

bool DpdkDevice::link_up() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(device_.port(), &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

// ---- the port

class DpdkPort final : public Port {
 public:
  DpdkPort(std::shared_ptr<DpdkDevice> device, std::uint16_t core) noexcept
      : device_(std::move(device)), queue_(core), inbox_(device_->inbox(core)) {}
  ~DpdkPort() override { close(); }
  DpdkPort(const DpdkPort&) = delete;
  DpdkPort& operator=(const DpdkPort&) = delete;

  [[nodiscard]] Status start();
  [[nodiscard]] bool is_polled() const noexcept { return polled_; }

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override;
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override;
  [[nodiscard]] PortCapabilities capabilities() const override { return capabilities_; }
  [[nodiscard]] int wait_descriptor() const override {
    if (waits_) return waits_.get();
    return interrupts_ ? interrupts_.get() : open_ && inbox_ != nullptr ? inbox_->bell() : -1;
  }
  [[nodiscard]] bool fall_asleep(TimeNs now) override;
  [[nodiscard]] bool link_up() const override { return open_ && device_->link_up(); }
  [[nodiscard]] PortCounters counters() const override;
  void close() override;
  [[nodiscard]] TimeNs next_due() const override { return polled_ && open_ ? look_at_ : never; }

 private:
  void find_interrupts();
  void wake_up();
  [[nodiscard]] bool look(std::size_t room, TimeNs now);
  [[nodiscard]] std::uint16_t hand_over(std::uint16_t first, std::uint16_t count);
  [[nodiscard]] bool take(rte_mbuf* arrived, ReceivedFrame& frame);
  [[nodiscard]] rte_mbuf* mbuf_of(const FrameToSend& frame);
  [[nodiscard]] static bool append(rte_mbuf* first, rte_mbuf*& last, rte_mempool* pool, Bytes bytes);
  void give_back() noexcept;

  std::shared_ptr<DpdkDevice> device_;  // empty: closed
  std::uint16_t queue_;
  Inbox* inbox_;  // null: this is the only core
  bool open_ = false;
  PortCapabilities capabilities_;

  std::array<rte_mbuf*, burst> arrived_;  // the first ones belong to the caller until the next receive
  std::uint16_t arrived_count_ = 0;
  bool looked_ = false;                        // frames were found before falling asleep and are still to be returned
  std::vector<std::vector<std::byte>> whole_;  // copies of frames that arrived in several buffers

  Fd interrupts_, waits_;  // DPDK's epoll set; a set of that and the inbox's bell, if there are both
  bool polled_ = false;    // the device wakes nobody
  bool asleep_ = false;
  TimeNs busy_at_ = 0, look_at_ = 0;
  TimeNs stuck_since_ = never;
  PortCounters counters_;
};

Status DpdkPort::start() {
  open_ = true;
  capabilities_ = device_->capabilities();
  if (device_->has_interrupts()) find_interrupts();
  polled_ = !interrupts_;
  if (polled_ || inbox_ == nullptr) return {};
  waits_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!waits_) return fail_errno(errno, "epoll_create1");
  for (const int fd : {interrupts_.get(), inbox_->bell()}) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (::epoll_ctl(waits_.get(), EPOLL_CTL_ADD, fd, &wanted) != 0) return fail_errno(errno, "EPOLL_CTL_ADD");
  }
  return {};
}

// A device whose interrupts cannot be armed is polled periodically, even if it has a descriptor.
void DpdkPort::find_interrupts() {
  if (rte_eth_dev_rx_intr_enable(device_->port(), queue_) != 0) return;
  static_cast<void>(rte_eth_dev_rx_intr_disable(device_->port(), queue_));
  // An epoll set of DPDK's: it knows how to read each driver's descriptor.
  Fd set(::epoll_create1(EPOLL_CLOEXEC));
  if (set && rte_eth_dev_rx_intr_ctl_q(device_->port(), queue_, set.get(), RTE_INTR_EVENT_ADD, nullptr) == 0)
    interrupts_ = std::move(set);
}

void DpdkPort::wake_up() {
  asleep_ = false;
  if (inbox_ != nullptr) inbox_->wake_up();
  if (!interrupts_) return;
  rte_epoll_event event;
  static_cast<void>(rte_epoll_wait(interrupts_.get(), &event, 1, 0));
  static_cast<void>(rte_eth_dev_rx_intr_disable(device_->port(), queue_));
}

void DpdkPort::give_back() noexcept {
  if (arrived_count_ > 0) rte_pktmbuf_free_bulk(arrived_.data(), arrived_count_);
  arrived_count_ = 0;
}

void DpdkPort::close() {
  if (!std::exchange(open_, false)) return;
  give_back();
  if (interrupts_)
    static_cast<void>(
        rte_eth_dev_rx_intr_ctl_q(device_->port(), queue_, interrupts_.get(), RTE_INTR_EVENT_DEL, nullptr));
  waits_.reset();
  interrupts_.reset();
  device_.reset();
}

// The device's own counts are in the first core's counters.
PortCounters DpdkPort::counters() const {
  PortCounters counters = counters_;
  rte_eth_stats device{};
  if (!open_ || queue_ != 0 || rte_eth_stats_get(device_->port(), &device) != 0) return counters;
  counters.dropped_in += device.imissed + device.ierrors + device.rx_nombuf;
  return counters;
}

// ---- receiving

// Gives frames of other cores to these, and returns how many of its own are left, from `first`.
std::uint16_t DpdkPort::hand_over(std::uint16_t first, std::uint16_t count) {
  std::uint64_t others = 0;  // a bit for each
  std::uint16_t own = 0;
  for (std::uint16_t i = first; i < first + count; ++i) {
    rte_mbuf* const frame = arrived_[i];
    const std::uint32_t core =
        core_of_frame(Bytes(rte_pktmbuf_mtod(frame, const std::byte*), frame->data_len), device_->cores());
    if (core == queue_) {
      arrived_[first + own++] = frame;
    } else if (device_->inbox(core)->put(frame)) {
      others |= std::uint64_t{1} << core;
    } else {
      rte_pktmbuf_free(frame);
      ++counters_.dropped_in;
    }
  }
  if (others != 0) fence_before_look();
  for (std::uint32_t core = 0; others >> core != 0; ++core)
    if ((others >> core & 1) != 0) device_->inbox(core)->wake();
  return own;
}

// Whether the queue or the inbox had frames, of whichever core. Its own are in arrived_.
bool DpdkPort::look(std::size_t room, TimeNs now) {
  give_back();
  const auto most = static_cast<std::uint16_t>(std::min<std::size_t>(room, burst));
  const auto take_handed = [&](std::size_t until) {
    if (inbox_ == nullptr) return;
    const std::uint16_t count = inbox_->take(std::span(arrived_).first(until).subspan(arrived_count_));
    arrived_count_ = static_cast<std::uint16_t>(arrived_count_ + count);
  };
  // A full inbox leaves half of the room to the queue, where frames of other cores wait as well.
  take_handed(most / 2u);
  bool found = false;
  // Frames of other cores take no room, so the queue may have more after a full burst of them.
  for (int left = bursts_max; left > 0 && arrived_count_ < most; --left) {
    const auto wanted = static_cast<std::uint16_t>(most - arrived_count_);
    const std::uint16_t count = rte_eth_rx_burst(device_->port(), queue_, &arrived_[arrived_count_], wanted);
    found = found || count > 0;
    const std::uint16_t own = inbox_ == nullptr ? count : hand_over(arrived_count_, count);
    arrived_count_ = static_cast<std::uint16_t>(arrived_count_ + own);
    if (count < wanted || own > 0) break;
  }
  take_handed(most);
  found = found || arrived_count_ > 0;
  if (found) busy_at_ = now;
  return found;
}

bool DpdkPort::fall_asleep(TimeNs now) {
  if (wait_descriptor() < 0) return true;
  if (!asleep_ && interrupts_ && rte_eth_dev_rx_intr_enable(device_->port(), queue_) != 0) return false;
  asleep_ = true;
  if (inbox_ != nullptr) inbox_->fall_asleep();
  // Frames that arrived before the interrupt was armed raise none. Behind those of other cores there may be more.
  const bool found = looked_ || look(burst, now);
  looked_ = arrived_count_ > 0;
  return !found;
}

bool DpdkPort::take(rte_mbuf* arrived, ReceivedFrame& frame) {
  // The device removed a VLAN tag: the frame belongs to another network.
  if (arrived->ol_flags & (RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED)) return false;
  const std::size_t bytes = rte_pktmbuf_pkt_len(arrived);
  if (bytes > frame_bytes_max) return false;
  if (arrived->nb_segs == 1) {
    frame.bytes = Bytes(rte_pktmbuf_mtod(arrived, const std::byte*), bytes);
  } else {
    std::vector<std::byte>& whole = whole_.emplace_back();
    whole.reserve(bytes);
    for (const rte_mbuf* piece = arrived; piece != nullptr; piece = piece->next) {
      const auto* const at = rte_pktmbuf_mtod(piece, const std::byte*);
      whole.insert(whole.end(), at, at + piece->data_len);
    }
    frame.bytes = Bytes(whole);
  }
  // The checksum is good, or the sender is on this machine and did not complete it (NONE, in DPDK's words). The stack
  // checks and counts a bad one.
  const std::uint64_t checksum = arrived->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
  frame.checksum_verified = checksum == RTE_MBUF_F_RX_L4_CKSUM_GOOD || checksum == RTE_MBUF_F_RX_L4_CKSUM_NONE;
  frame.segment_bytes = arrived->ol_flags & RTE_MBUF_F_RX_LRO ? arrived->tso_segsz : std::uint16_t{0};
  ++counters_.frames_in;
  counters_.bytes_in += bytes;
  return true;
}

std::size_t DpdkPort::receive(std::span<ReceivedFrame> frames, TimeNs now) {
  if (!open_) return 0;
  if (asleep_) wake_up();
  if (!looked_) static_cast<void>(look(frames.size(), now));
  looked_ = false;
  look_at_ = now + std::clamp((now - busy_at_) / 8, look_soonest_ns, look_latest_ns);
  whole_.clear();
  std::size_t taken = 0;
  for (std::size_t i = 0; i < arrived_count_; ++i) {
    if (taken < frames.size() && take(arrived_[i], frames[taken]))
      ++taken;
    else
      ++counters_.dropped_in;
  }
  return taken;
}

// ---- transmitting

bool DpdkPort::append(rte_mbuf* first, rte_mbuf*& last, rte_mempool* pool, Bytes bytes) {
  while (!bytes.empty()) {
    if (rte_pktmbuf_tailroom(last) == 0) {
      rte_mbuf* const next = rte_pktmbuf_alloc(pool);
      if (next == nullptr) return false;
      last->next = next;
      last = next;
      ++first->nb_segs;
    }
    const auto size = static_cast<std::uint16_t>(std::min<std::size_t>(bytes.size(), rte_pktmbuf_tailroom(last)));
    std::memcpy(rte_pktmbuf_mtod_offset(last, std::byte*, last->data_len), bytes.data(), size);
    last->data_len = static_cast<std::uint16_t>(last->data_len + size);
    first->pkt_len += size;
    bytes = bytes.subspan(size);
  }
  return true;
}

// Null if no buffer is left.
rte_mbuf* DpdkPort::mbuf_of(const FrameToSend& frame) {
  rte_mbuf* const first = rte_pktmbuf_alloc(device_->pool());
  if (first == nullptr) return nullptr;
  rte_mbuf* last = first;
  bool good = append(first, last, device_->pool(), Bytes(frame.header).first(frame.header_bytes));
  for (const Bytes& part : frame.payload) good = good && append(first, last, device_->pool(), part);
  if (!good) {
    rte_pktmbuf_free(first);
    return nullptr;
  }
  if (!frame.checksum_partial) return first;
  first->l2_len = ethernet_header_bytes;
  first->l3_len = ipv4_header_bytes;
  first->l4_len = static_cast<std::uint64_t>(frame.header_bytes - frame.tcp_offset) & 0xff;
  first->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_TCP_CKSUM;
  auto* const ip = rte_pktmbuf_mtod_offset(first, rte_ipv4_hdr*, ethernet_header_bytes);
  if (frame.segment_bytes != 0 && frame.payload_bytes() > frame.segment_bytes) {
    first->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
    first->tso_segsz = frame.segment_bytes;
    if (device_->offloads() & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) {
      first->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
      ip->hdr_checksum = 0;
    }
  }
  // DPDK wants the pseudo header without a length if the frame is to be segmented.
  const std::uint16_t sum = rte_ipv4_phdr_cksum(ip, first->ol_flags);
  std::memcpy(rte_pktmbuf_mtod_offset(first, std::byte*, frame.tcp_offset + tcp_checksum_offset), &sum, sizeof sum);
  return first;
}

std::size_t DpdkPort::transmit(std::span<const FrameToSend> frames, TimeNs now) {
  if (!open_) return frames.size();
  std::array<rte_mbuf*, burst> mbufs;
  std::uint16_t made = 0, sent = 0;
  const std::size_t count = std::min<std::size_t>(frames.size(), burst);
  while (made < count && (mbufs[made] = mbuf_of(frames[made])) != nullptr) ++made;
  bool room = made == count;
  while (sent < made) {
    const std::uint16_t ready =
        rte_eth_tx_prepare(device_->port(), queue_, &mbufs[sent], static_cast<std::uint16_t>(made - sent));
    const std::uint16_t taken = rte_eth_tx_burst(device_->port(), queue_, &mbufs[sent], ready);
    for (const FrameToSend& frame : frames.subspan(sent, taken)) counters_.bytes_out += frame.bytes();
    counters_.frames_out += taken;
    sent = static_cast<std::uint16_t>(sent + taken);
    room = room && taken == ready;
    if (taken < ready) break;
    if (sent == made) break;
    rte_pktmbuf_free(mbufs[sent++]);  // a frame that the device can never send is dropped
    ++counters_.dropped_out;
  }
  if (sent < made) rte_pktmbuf_free_bulk(&mbufs[sent], made - sent);
  if (count > 0) busy_at_ = now;  // an answer may arrive soon
  if (sent > 0 || room)
    stuck_since_ = never;
  else
    stuck_since_ = std::min(stuck_since_, now);
  if (stuck_since_ == never || now - stuck_since_ < stuck_ns) return sent;
  counters_.dropped_out += frames.size();
  return frames.size();
}

}  // namespace

Result<std::vector<std::unique_ptr<Port>>> open_dpdk(const DpdkOptions& options) {
  if (options.device.empty() || options.device.find('\0') != std::string::npos)
    return fail(Error::invalid, "'dpdk:{}' does not name a device", brief(options.device));
  OFP_TRY(begin_eal(options.arguments));
  OFP_ASSIGN(Probed probed, probe(options.device));
  const auto device = std::make_shared<DpdkDevice>(std::move(probed), options.cores);
  OFP_TRY(device->start(options.device));
  std::vector<std::unique_ptr<Port>> ports;
  bool is_polled = false;
  for (std::uint16_t core = 0; core < device->cores(); ++core) {
    auto port = std::make_unique<DpdkPort>(device, core);
    OFP_TRY(port->start());
    is_polled = port->is_polled();
    ports.push_back(std::move(port));
  }
  const PortCapabilities& capabilities = device->capabilities();
  log(LogLevel::info, "dpdk:{}: driver {}, {} queue{}, MTU {}, checksums {}, segmentation {}, {}, link {}",
      options.device, device->driver(), device->cores(), device->cores() == 1 ? "" : "s", capabilities.mtu,
      capabilities.checksum ? "by it" : "in software", capabilities.segmentation_bytes != 0 ? "by it" : "in software",
      is_polled ? "polled" : "wakes the agent", device->link_up() ? "up" : "down");
  static_cast<void>(what_eal_said(0));  // discards messages of calls that succeeded
  return ports;
}

}  // namespace offpath::tcp
