// An RDMA device as this process has opened it: a context besides the one that librdmacm keeps for all connections of
// the process, so that its descriptors can be closed, and one protection domain. Read card/card_device.h first.
//
// An agent opens each device once. **No region of the shared domain may be written remotely**: its key would be usable
// on another channel's queue pair, and other channels belong to other users or members. Memory that a member may
// access has a window, which the device binds to that member's queue pair. Windows of one piece of memory share its
// registration. Where a device has no such windows each host's end has a domain and regions of its own.
//
// The exception is memory that this process itself may only read (outputs of functions), for which the kernel allows no
// windows. Its region has the right to be read, while it is announced: by every member, which may ask for the object
// anyway, and by no program, whose queue pairs have no remote rights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "link/card/card_device.h"
#include "link/verbs/verbs_handles.h"

namespace offpath::link {

// Registered memory, counted by its device, which has to outlive it.
class VerbsRegion {
 public:
  VerbsRegion(CardCounters& counters, MemoryRegion region) noexcept
      : count_(counters, region->length), region_(std::move(region)) {}
  [[nodiscard]] ibv_mr* get() const noexcept { return region_.get(); }
  [[nodiscard]] std::uint32_t local_key() const noexcept { return region_->lkey; }
  [[nodiscard]] std::uint32_t remote_key() const noexcept { return region_->rkey; }
  // In a forked child: the region is the parent's.
  void abandon() noexcept { (void)region_.release(); }

 private:
  PinnedCount count_;
  MemoryRegion region_;
};

class VerbsDevice final : public CardDevice {
 public:
  [[nodiscard]] static Result<std::shared_ptr<VerbsDevice>> open(VerbsCallsPtr calls, ibv_device* device,
                                                                 std::shared_ptr<const LastingMemory> lasting);
  ~VerbsDevice() override;

  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* domain() const noexcept { return domain_.get(); }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept { return limits_; }
  // Whether memory windows can be bound to one queue pair.
  [[nodiscard]] bool has_windows() const noexcept;

  Result<std::unique_ptr<Registration>> register_own(const void* base, std::uint64_t length, bool written) override;

  // ---- for host's ends; any thread

  // Another domain, whose regions may have remote rights.
  [[nodiscard]] Result<ProtectionDomain> new_domain();
  // A region of `domain`, with these rights; of a segment, if it may be written.
  [[nodiscard]] Result<std::shared_ptr<VerbsRegion>> register_in(ibv_pd* domain, MutableBytes memory, int rights);
  // A region of the shared domain for windows to read. Lasting memory has one at a time, whoever asks for it.
  [[nodiscard]] Result<std::shared_ptr<VerbsRegion>> register_for_reading(MutableBytes memory);
  [[nodiscard]] Result<MemoryWindow> new_window();

  // In a forked child: closes its copies of descriptors and leaves all objects to the parent.
  void abandon() noexcept;

 private:
  // Of lasting memory: its number, offset and length. Unlike an address, it never names other memory later.
  using Name = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

  VerbsDevice(VerbsCallsPtr calls, std::shared_ptr<const LastingMemory> lasting)
      : CardDevice(lasting), calls_(std::move(calls)), lasting_(std::move(lasting)) {}

  const VerbsCallsPtr calls_;
  const std::shared_ptr<const LastingMemory> lasting_;  // null: no memory lasts
  VerbsContext context_;
  ProtectionDomain domain_;
  ibv_device_attr limits_{};
  std::mutex mutex_;
  std::map<Name, std::weak_ptr<VerbsRegion>> read_;
};

// The agent's device if `devices` are an agent's; a new one for null.
[[nodiscard]] Result<std::shared_ptr<VerbsDevice>> open_verbs_device(CardDevices* devices, const VerbsCallsPtr& calls,
                                                                     ibv_device* device);

}  // namespace offpath::link
