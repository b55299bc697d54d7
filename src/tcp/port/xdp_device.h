// The state that the ports of one interface share: its queues with their packet memory, and the program at its driver.
// Only xdp_port.cc and xdp_device.cc include this; both are built with libxdp alone.
#pragma once

#include <xdp/xsk.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"
#include "tcp/port/xdp_port.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

// An interface as the kernel describes it.
struct XdpInterface {
  std::string name, driver;
  unsigned index = 0;
  MacAddress mac{};
  std::uint16_t mtu = 0;
  std::uint32_t receive_queues = 1, transmit_queues = 1;
  bool takes_tags_off = false;  // frames of VLANs look as if they had none
};
[[nodiscard]] Result<XdpInterface> xdp_interface(const std::string& name);
// Whether AF_XDP can have it for so many cores. Error::unsupported: frames of VLANs would be taken for untagged ones.
// Error::too_large: it has too many queues.
[[nodiscard]] Status check_xdp_interface(const XdpInterface& interface, std::uint32_t cores);

// A core sends on one queue, its outlet, as one of that queue's senders, which are numbered from 0.
struct XdpOutlet {
  std::uint32_t queue, sender;
};
[[nodiscard]] XdpOutlet outlet_of(const XdpInterface& interface, std::uint32_t core) noexcept;
[[nodiscard]] std::uint32_t senders_of(const XdpInterface& interface, std::uint32_t queue,
                                       std::uint32_t cores) noexcept;

// The packet memory of a queue, in chunks of one frame each, and the two rings by which chunks reach the kernel for
// frames to come, and return from it after frames were sent. Cores use it from their threads: each function that
// changes a ring locks.
class XdpQueue {
 public:
  struct DeleteSocket {
    void operator()(xsk_socket* socket) const noexcept { xsk_socket__delete(socket); }
  };
  using Socket = std::unique_ptr<xsk_socket, DeleteSocket>;

  // For frames that arrive for `cores`, and frames of `senders` of them. Error::denied: CAP_NET_RAW is missing, or more
  // memory would be locked than permitted.
  [[nodiscard]] static Result<std::unique_ptr<XdpQueue>> make(std::uint32_t cores, std::uint32_t senders,
                                                              std::uint32_t chunk_bytes);
  XdpQueue(const XdpQueue&) = delete;
  XdpQueue& operator=(const XdpQueue&) = delete;

  // A core's socket at this queue, which has number `queue`. The rings outlive it. `sent`: null if the socket only
  // receives.
  [[nodiscard]] Result<Socket> join(const XdpInterface& interface, std::uint32_t queue, xsk_ring_cons& received,
                                    xsk_ring_prod* sent, bool zero_copy_only);
  void leave(Socket socket);

  [[nodiscard]] std::byte* at(std::uint64_t address) const noexcept { return memory_.get() + address; }
  // Chunks of received frames go back. `socket` belongs to this queue.
  void give_back(std::span<const std::uint64_t> chunks, const xsk_socket* socket);
  // Tells the kernel that there are chunks for frames to come, if it asks for that.
  void wake(const xsk_socket* socket) const;
  // Fills `chunks` from the front with the sender's chunks for frames to be sent, and returns how many.
  [[nodiscard]] std::size_t take(std::uint32_t sender, std::span<std::uint64_t> chunks);

  static constexpr std::uint32_t receive_chunks = 2048;   // of all cores
  static constexpr std::uint32_t transmit_chunks = 1024;  // of each sender

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const noexcept;
  };
  struct DeleteUmem {
    void operator()(xsk_umem* umem) const noexcept { static_cast<void>(xsk_umem__delete(umem)); }
  };
  XdpQueue(std::uint32_t cores, std::uint32_t senders, std::uint32_t chunk_bytes)
      : cores_(cores), chunk_bytes_(chunk_bytes), free_(senders) {}
  [[nodiscard]] std::vector<std::uint64_t>& free_of_owner(std::uint64_t address) noexcept;

  const std::uint32_t cores_, chunk_bytes_;
  std::mutex mutex_;
  std::unique_ptr<std::byte, Unmap> memory_;
  xsk_ring_prod fill_{};
  xsk_ring_cons completed_{};
  std::unique_ptr<xsk_umem, DeleteUmem> umem_;
  std::vector<std::vector<std::uint64_t>> free_;  // of each sender: chunks for frames to be sent
};

// The queues of an interface, and the program, which begins when every core has its sockets.
class XdpDevice {
 public:
  [[nodiscard]] static Result<std::shared_ptr<XdpDevice>> make(const XdpOptions& options);

  [[nodiscard]] const XdpInterface& interface() const noexcept { return interface_; }
  [[nodiscard]] std::uint32_t queues() const noexcept { return static_cast<std::uint32_t>(queues_.size()); }
  [[nodiscard]] XdpQueue& queue(std::uint32_t number) noexcept { return *queues_[number]; }
  [[nodiscard]] std::uint16_t mtu() const noexcept { return mtu_; }
  // Frames that the program finds to be of `core`, arrived at this queue, go to the socket.
  [[nodiscard]] Status connect(std::uint32_t queue, std::uint32_t core, const xsk_socket* socket);
  [[nodiscard]] Status begin();

 private:
  explicit XdpDevice(const XdpOptions& options) : options_(options) {}

  XdpOptions options_;
  XdpInterface interface_;
  std::uint16_t mtu_ = 0;
  std::vector<std::unique_ptr<XdpQueue>> queues_;
  Fd sockets_, link_;  // the map, and what keeps the program at the driver
};

}  // namespace offpath::tcp
