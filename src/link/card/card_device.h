// A device of an agent's cards, opened once for all channels that use it: to programs, and to other members.
//
// | what                      | shared by                    | remote access                                       |
// |---------------------------|------------------------------|-----------------------------------------------------|
// | device context            | all channels on the device   | -                                                   |
// | protection domain         | all that give rights by      | none by regions; the exception is in                |
// |                           | windows alone                | verbs/verbs_device.h                                |
// | windows of frames         | agent's ends (they pull)     | none                                                |
// | bounce blocks             | agent's ends, one at a time  | none                                                |
// | what members may access   | host's ends, if it is the    | each by a memory window that is bound to the queue  |
// |                           | same memory                  | pair of one member (verbs/verbs_connection.h)       |
//
// A program has a device of its own for each channel, as it has few.
//
// KeptRegions and BouncePool belong to the agent's loop. Counters, and what derived classes offer to host's ends, may
// be used by other threads: connections to members are made in jobs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "link/card/bounce_buffer.h"
#include "link/card/registered_memory.h"
#include "link/lasting_memory.h"

namespace offpath::link {

// Bytes of a channel segment: all of it, and the rings and lines at its beginning.
struct ChannelBytes {
  std::uint64_t all = 0, rings = 0;
};

// Memory that all devices hold now. A piece that is registered twice is pinned twice, and counted twice. `frame_bytes`:
// of the pinned ones, frames that the agent's ends read into or write from.
struct CardFigures {
  std::uint64_t devices = 0, regions = 0, pinned_bytes = 0, frame_bytes = 0;
};

struct CardCounters {
  std::atomic<std::uint64_t> regions{0}, pinned_bytes{0};
};

// Counts one registration until it is destroyed, which is after the registration's own end.
class PinnedCount {
 public:
  PinnedCount(CardCounters& counters, std::uint64_t bytes) noexcept : counters_(counters), bytes_(bytes) {
    counters_.regions.fetch_add(1, std::memory_order_relaxed);
    counters_.pinned_bytes.fetch_add(bytes_, std::memory_order_relaxed);
  }
  PinnedCount(const PinnedCount&) = delete;
  PinnedCount& operator=(const PinnedCount&) = delete;
  ~PinnedCount() {
    counters_.regions.fetch_sub(1, std::memory_order_relaxed);
    counters_.pinned_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  }

 private:
  CardCounters& counters_;
  const std::uint64_t bytes_;
};

class CardDevice : public Registrar {
 public:
  explicit CardDevice(std::shared_ptr<const LastingMemory> lasting) : kept_(std::move(lasting)), bounce_(*this) {}
  CardDevice(const CardDevice&) = delete;
  CardDevice& operator=(const CardDevice&) = delete;
  virtual ~CardDevice() = default;

  [[nodiscard]] KeptRegions& kept() noexcept { return kept_; }
  [[nodiscard]] BouncePool& bounce() noexcept { return bounce_; }
  [[nodiscard]] CardCounters& counters() noexcept { return counters_; }

 protected:
  // Derived destructors call it before the domain ends.
  void release_memory() noexcept {
    kept_.clear();
    bounce_.clear();
  }

 private:
  CardCounters counters_;
  KeptRegions kept_;
  BouncePool bounce_;
};

// The open devices of one agent. A device is closed with its last channel.
class CardDevices {
 public:
  // `lasting`: memory that is worth registering once; may be null.
  explicit CardDevices(std::shared_ptr<const LastingMemory> lasting) : lasting_(std::move(lasting)) {}

  [[nodiscard]] const std::shared_ptr<const LastingMemory>& lasting() const noexcept { return lasting_; }
  // The device of this name, which `open` opens unless it is open. A name is always used with the same class.
  template <class Device>
  [[nodiscard]] Result<std::shared_ptr<Device>> get(const std::string& name,
                                                    const std::function<Result<std::shared_ptr<Device>>()>& open) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<CardDevice>& known = devices_[name];
    if (std::shared_ptr<CardDevice> device = known.lock()) return std::static_pointer_cast<Device>(std::move(device));
    OFP_ASSIGN(std::shared_ptr<Device> device, open());
    known = device;
    return device;
  }

  [[nodiscard]] CardFigures figures() const;
  // Releases bounce blocks that no burst has needed for a while, and says when others are due. The loop's thread.
  void rest(TimeNs now);
  [[nodiscard]] TimeNs next_rest() const;

 private:
  const std::shared_ptr<const LastingMemory> lasting_;
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<CardDevice>> devices_;  // by name
};

}  // namespace offpath::link
