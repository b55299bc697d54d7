#include "link/verbs/verbs_device.h"

#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace offpath::link {

namespace {

constexpr std::size_t forgotten_max = 64;  // regions that ended and are still in the list

class RegisteredForVerbs final : public Registration {
 public:
  RegisteredForVerbs(CardCounters& counters, MemoryRegion region) noexcept
      : Registration(region->lkey), region_(counters, std::move(region)) {}

 private:
  VerbsRegion region_;
};

int free_window(ibv_mw* window) { return ibv_dealloc_mw(window); }

}  // namespace

Result<std::shared_ptr<VerbsDevice>> open_verbs_device(CardDevices* devices, const VerbsCallsPtr& calls,
                                                       ibv_device* device) {
  if (devices == nullptr) return VerbsDevice::open(calls, device, nullptr);
  // A device that was removed and is there again has another address as long as the former one is open.
  const std::string name = fmt::format("verbs {} {}", device->name, fmt::ptr(device));
  return devices->get<VerbsDevice>(name, [&] { return VerbsDevice::open(calls, device, devices->lasting()); });
}

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::open(VerbsCallsPtr calls, ibv_device* device,
                                                       std::shared_ptr<const LastingMemory> lasting) {
  std::shared_ptr<VerbsDevice> opened(new VerbsDevice(std::move(calls), std::move(lasting)));
  const VerbsCalls& with = *opened->calls_;
  opened->context_ = VerbsContext(with.ibv_open_device(device), {with.ibv_close_device});
  if (!opened->context_) return fail_errno(errno, fmt::format("opening the RDMA device {}", device->name));
  if (const int code = with.ibv_query_device(opened->context_.get(), &opened->limits_); code != 0)
    return fail_errno(code, "ibv_query_device");
  OFP_ASSIGN(opened->domain_, opened->new_domain());
  return opened;
}

VerbsDevice::~VerbsDevice() { release_memory(); }

bool VerbsDevice::has_windows() const noexcept {
  constexpr unsigned bound_to_one = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return (static_cast<unsigned>(limits_.device_cap_flags) & bound_to_one) != 0 && limits_.max_mw > 0;
}

Result<std::unique_ptr<Registration>> VerbsDevice::register_own(const void* base, std::uint64_t length, bool written) {
  OFP_ASSIGN(MemoryRegion region,
             register_memory(*calls_, domain_.get(), base, length, written ? IBV_ACCESS_LOCAL_WRITE : 0));
  return std::make_unique<RegisteredForVerbs>(counters(), std::move(region));
}

Result<ProtectionDomain> VerbsDevice::new_domain() {
  ProtectionDomain domain(calls_->ibv_alloc_pd(context_.get()), {calls_->ibv_dealloc_pd});
  if (!domain) return fail_errno(errno, "ibv_alloc_pd");
  return domain;
}

Result<std::shared_ptr<VerbsRegion>> VerbsDevice::register_in(ibv_pd* domain, MutableBytes memory, int rights) {
  const bool is_segment = (rights & IBV_ACCESS_LOCAL_WRITE) != 0;
  OFP_ASSIGN(MemoryRegion region, is_segment ? register_segment(*calls_, domain, memory, rights)
                                             : register_memory(*calls_, domain, memory.data(), memory.size(), rights));
  return std::make_shared<VerbsRegion>(counters(), std::move(region));
}

// Registering takes long, so it is done without the lock: two threads may register the same memory at the same time.
Result<std::shared_ptr<VerbsRegion>> VerbsDevice::register_for_reading(MutableBytes memory) {
  const auto found = lasting_ ? lasting_->find(memory.data()) : std::nullopt;
  const bool lasts = found && memory.size() <= found->length - static_cast<std::uint64_t>(memory.data() - found->begin);
  if (!lasts) return register_in(domain_.get(), memory, IBV_ACCESS_MW_BIND);
  const Name name{found->number, memory.data() - found->begin, memory.size()};
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = read_.find(name); at != read_.end())
      if (std::shared_ptr<VerbsRegion> there = at->second.lock()) return there;
  }
  OFP_ASSIGN(std::shared_ptr<VerbsRegion> region, register_in(domain_.get(), memory, IBV_ACCESS_MW_BIND));
  const std::lock_guard lock(mutex_);
  if (read_.size() >= 2 * counters().regions.load(std::memory_order_relaxed) + forgotten_max)
    std::erase_if(read_, [](const auto& each) { return each.second.expired(); });
  read_.insert_or_assign(name, region);
  return region;
}

Result<MemoryWindow> VerbsDevice::new_window() {
  MemoryWindow window(ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_2), {free_window});
  if (!window) return fail_errno(errno, "ibv_alloc_mw");
  return window;
}

void VerbsDevice::abandon() noexcept {
  if (context_) {
    close(context_->cmd_fd);
    close(context_->async_fd);
  }
  (void)domain_.release();
  (void)context_.release();
}

}  // namespace offpath::link
