// A reliable queue pair between a program and its agent, made by rdmacm with minimal access rights.
//
// | queue pair | what the other side may do        | reads outstanding  |
// |------------|-----------------------------------|--------------------|
// | the host's | RDMA READ, RDMA WRITE; no atomics | the agent's        |
// | the agent's| nothing                           | -                  |
//
// Each key then says which bytes may be read and written, and it is useless on another channel's queue pair:
//
// | end                           | protection domain       | keys                                                    |
// |-------------------------------|-------------------------|---------------------------------------------------------|
// | a program                     | of this connection      | of regions                                              |
// | an agent, as host to another  | of the device, shared   | of windows bound to the queue pair (verbs_device.h)     |
// | the same, without windows     | of this connection      | of regions                                              |
// | an agent, to its programs     | of the device, shared   | none                                                    |
//
// A queue pair made by rdmacm itself would have more rights than these for a while. So the queue pair is made and moved
// through its states by hand, with rdmacm's attributes except for the rights.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "link/verbs/verbs_device.h"
#include "link/verbs/verbs_handles.h"
#include "link/verbs/verbs_link.h"

namespace offpath::link {

struct ConnectionEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  std::vector<std::byte> said;  // private data
  unsigned reads_granted = 0;   // of a request: reads that this side may have outstanding
};

// Memory of this side that the other side may access by a key, until this object is destroyed.
class RemoteMemory {
 public:
  RemoteMemory() = default;
  RemoteMemory(std::shared_ptr<VerbsRegion> region, MemoryWindow window) noexcept
      : region_(std::move(region)), window_(std::move(window)) {}
  RemoteMemory(RemoteMemory&&) noexcept = default;
  RemoteMemory& operator=(RemoteMemory&& other) noexcept {
    std::swap(region_, other.region_);  // what was here ends in the destructor's order
    std::swap(window_, other.window_);
    return *this;
  }
  ~RemoteMemory() = default;
  [[nodiscard]] explicit operator bool() const noexcept { return region_ != nullptr; }
  [[nodiscard]] std::uint32_t key() const noexcept { return window_ ? window_->rkey : region_->remote_key(); }
  // In a forked child: the objects are the parent's.
  void release() noexcept {
    (void)window_.release();
    if (region_) region_->abandon();
  }

 private:
  std::shared_ptr<VerbsRegion> region_;
  MemoryWindow window_;  // ends before the region; null: the region itself has remote rights
};

// In order of dependence; destroyed from the last to the first. Memory regions of the domain have to be released
// before: their owner calls break_off(), frees them, then calls close(). Windows end before break_off(): a device may
// keep a queue pair as long as windows are bound to it.
struct VerbsConnection {
  VerbsCallsPtr calls;
  EventChannel events;
  ConnectionId listener;  // the agent's, until the program has connected
  ConnectionId id;
  std::shared_ptr<CardDevices> devices;  // of an agent; null: the connection opens the device for itself
  std::shared_ptr<VerbsDevice> device;
  ProtectionDomain own_domain;  // null: the connection uses the device's
  bool has_windows = false;     // keys are those of windows
  std::uint64_t binds = 0;      // of windows, so far
  CompletionChannel completions;
  CompletionQueue queue;
  QueuePair pair;
  unsigned send_requests_max = 0;
  unsigned inline_bytes_max = 0;
  ibv_mtu packet_max = IBV_MTU_4096;  // the smaller limit of both ports
  TimeNs silence_ns = 0;              // of the control connection: bounds the retries

  [[nodiscard]] ibv_pd* domain() const noexcept { return own_domain ? own_domain.get() : device->domain(); }
  // The host's side: memory that the other side may read, and write if `written`, from when this returns.
  [[nodiscard]] Result<RemoteMemory> expose(MutableBytes memory, bool written);
  // The next event, without blocking.
  [[nodiscard]] Result<std::optional<ConnectionEvent>> next_event();
  // After it returns nothing accesses this side's memory any more, and the other side is informed.
  void break_off() noexcept;
  void close() noexcept;
  // In a forked child: closes the child's copies of descriptors, so that only the parent keeps the queue pair alive,
  // and leaves every object unchanged, because it is the parent's.
  void abandon() noexcept;
};

// Opens the device and makes the queue pair. `posts`: the agent's side.
[[nodiscard]] Status open_queue_pair(VerbsConnection& connection, ibv_device* device, bool posts);

// ---- the agent's side

// Listens at the address at which the control connection arrived. `devices` may be null.
[[nodiscard]] Result<VerbsConnection> listen_for_queue_pair(const ControlSocket& socket,
                                                            std::shared_ptr<CardDevices> devices);
[[nodiscard]] std::uint16_t port_of(const VerbsConnection& connection) noexcept;
// Handles new events; true once the queue pair may be used. Connections of strangers are rejected and forgotten.
[[nodiscard]] Result<bool> advance_accept(VerbsConnection& connection, const VerbsProofs& proofs);

// ---- the host's side

// `devices`: of an agent that is the host; null for a program. `reads_out`: the number of outstanding reads of the
// agent's memory. A program reads none; tests try to.
[[nodiscard]] Result<VerbsConnection> connect_queue_pair(const ControlSocket& socket, std::uint16_t port,
                                                         const VerbsProofs& proofs,
                                                         std::shared_ptr<CardDevices> devices, TimeNs deadline,
                                                         unsigned reads_out = 0);

}  // namespace offpath::link
