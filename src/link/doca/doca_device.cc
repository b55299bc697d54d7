#include "link/doca/doca_device.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <vector>

#include <fmt/ranges.h>

#include "link/card/registered_memory.h"
#include "wire/control.h"

namespace offpath::link {

namespace {

constexpr std::string_view next_step =
    "`lspci -d 15b3:` lists the cards; the agent runs on the card's own processor, in DPU mode, as root "
    "(docs/guides/bluefield.md)";

bool can(const DocaCalls& calls, const doca_devinfo* info, DocaRole role) {
  std::uint8_t yes = 0;
  if (role == DocaRole::exports)
    return calls.doca_mmap_cap_is_export_pci_supported(info, &yes) == DOCA_SUCCESS && yes != 0;
  return calls.doca_dma_cap_task_memcpy_is_supported(info) == DOCA_SUCCESS &&
         calls.doca_mmap_cap_is_create_from_export_pci_supported(info, &yes) == DOCA_SUCCESS && yes != 0;
}

std::string address_of(const DocaCalls& calls, const doca_devinfo* info) {
  std::array<char, 64> text{};  // DOCA_DEVINFO_PCI_ADDR_SIZE is 13
  static_assert(text.size() >= DOCA_DEVINFO_PCI_ADDR_SIZE);
  return calls.doca_devinfo_get_pci_addr_str(info, text.data()) == DOCA_SUCCESS ? text.data() : "?";
}

bool is_named(const DocaCalls& calls, const doca_devinfo* info, const std::string& wanted) {
  std::uint8_t same = 0;
  return wanted.empty() ||
         (calls.doca_devinfo_is_equal_pci_addr(info, wanted.c_str(), &same) == DOCA_SUCCESS && same != 0);
}

struct DeviceList {
  DocaCallsPtr calls;
  doca_devinfo** first = nullptr;
  std::uint32_t count = 0;

  explicit DeviceList(DocaCallsPtr from) : calls(std::move(from)) {
    if (calls->doca_devinfo_create_list(&first, &count) != DOCA_SUCCESS) count = 0;
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (first != nullptr) (void)calls->doca_devinfo_destroy_list(first);
  }
};

// Drivers return the same error for unmapped memory and for memory that may not be locked.
bool is_mapped(const void* base, std::uint64_t length) {
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(base) / page_bytes * page_bytes;
  const std::uint64_t pages = (reinterpret_cast<std::uint64_t>(base) + length - begin + page_bytes - 1) / page_bytes;
  std::vector<unsigned char> present(pages);
  return mincore(reinterpret_cast<void*>(begin), pages * page_bytes, present.data()) == 0 || errno != ENOMEM;
}

class MappedForDoca final : public Registration {
 public:
  MappedForDoca(CardCounters& counters, DocaMap map, std::uint64_t length) noexcept
      : Registration(reinterpret_cast<std::uint64_t>(map.get())), count_(counters, length), map_(std::move(map)) {}

 private:
  PinnedCount count_;
  DocaMap map_;
};

std::string device_in_environment() {
  const char* named = std::getenv("OFFPATH_DOCA_DEVICE");  // NOLINT(concurrency-mt-unsafe)
  return named != nullptr ? named : "";
}

}  // namespace

Result<DocaDevice> open_doca_device(DocaRole role, const std::string& wanted) {
  DocaDevice device;
  OFP_ASSIGN(device.calls, load_doca());
  const DocaCalls& calls = *device.calls;
  const DeviceList list(device.calls);
  const char* const what =
      role == DocaRole::exports ? "can export memory over PCIe" : "can import a program's memory and copy it by DMA";
  std::vector<std::string> found;
  for (std::uint32_t i = 0; i < list.count; ++i) {
    doca_devinfo* info = list.first[i];
    found.push_back(address_of(calls, info));
    if (!is_named(calls, info, wanted) || !can(calls, info, role)) continue;
    doca_dev* opened = nullptr;
    if (const doca_error_t code = calls.doca_dev_open(info, &opened); code != DOCA_SUCCESS)
      return doca_failure(calls, code, fmt::format("opening the DOCA device {}", found.back()));
    device.dev = DocaDev(opened, {calls.doca_dev_close});
    return device;
  }
  if (found.empty()) return fail(Error::unsupported, "DOCA DMA: this machine has no DOCA device: {}", next_step);
  if (!wanted.empty())
    return fail(Error::unsupported,
                "DOCA DMA: OFFPATH_DOCA_DEVICE is {}, and no device of that address {}; devices here: {}: {}", wanted,
                what, fmt::join(found, ", "), next_step);
  return fail(Error::unsupported, "DOCA DMA: no device here {} (devices: {}): {}", what, fmt::join(found, ", "),
              next_step);
}

Result<DocaDevice> open_doca_device(DocaRole role) { return open_doca_device(role, device_in_environment()); }

Result<std::shared_ptr<DocaCard>> DocaCard::open(CardDevices* devices) {
  const std::shared_ptr<const LastingMemory> lasting = devices != nullptr ? devices->lasting() : nullptr;
  const auto open = [&]() -> Result<std::shared_ptr<DocaCard>> {
    OFP_ASSIGN(DocaDevice device, open_doca_device(DocaRole::imports));
    return std::make_shared<DocaCard>(std::move(device), lasting);
  };
  return devices != nullptr ? devices->get<DocaCard>("doca " + device_in_environment(), open) : open();
}

// Permission to write locally is permission to read.
Result<std::unique_ptr<Registration>> DocaCard::register_own(const void* base, std::uint64_t length, bool written) {
  OFP_ASSIGN(DocaMap map, map_memory(device_, base, length,
                                     written ? DOCA_ACCESS_FLAG_LOCAL_READ_WRITE : DOCA_ACCESS_FLAG_LOCAL_READ_ONLY));
  return std::make_unique<MappedForDoca>(counters(), std::move(map), length);
}

Result<DocaMap> map_memory(const DocaDevice& device, const void* base, std::uint64_t length,
                           std::uint32_t permissions) {
  const DocaCalls& calls = *device.calls;
  doca_mmap* made = nullptr;
  doca_error_t code = calls.doca_mmap_create(&made);
  DocaMap map(made, {calls.doca_mmap_destroy});
  if (code == DOCA_SUCCESS) code = calls.doca_mmap_set_memrange(map.get(), const_cast<void*>(base), length);
  if (code == DOCA_SUCCESS) code = calls.doca_mmap_set_permissions(map.get(), permissions);
  if (code == DOCA_SUCCESS) code = calls.doca_mmap_add_dev(map.get(), device.dev.get());
  if (code == DOCA_SUCCESS) code = calls.doca_mmap_start(map.get());
  if (code == DOCA_SUCCESS) return map;
  if (!is_mapped(base, length))
    return fail(Error::unreadable, "{} bytes at {} cannot be mapped for DOCA DMA: no memory is mapped there", length,
                fmt::ptr(base));
  return fail(
      Error::no_memory,
      "{} bytes cannot be mapped for DOCA DMA (\"{}\"): that locks them in memory, and this process may lock {} "
      "(ulimit -l, LimitMEMLOCK=, docker --ulimit memlock=-1), or the device has no room for more",
      length, calls.doca_error_get_descr(code), locked_memory_limit());
}

Result<Bytes> export_map(const DocaDevice& device, doca_mmap* map) {
  const void* descriptor = nullptr;
  std::size_t length = 0;
  if (const doca_error_t code = device.calls->doca_mmap_export_pci(map, device.dev.get(), &descriptor, &length);
      code != DOCA_SUCCESS)
    return doca_failure(*device.calls, code, "exporting memory over PCIe");
  if (length == 0 || length > wire::MemoryExport::descriptor_bytes_max)
    return fail(Error::unsupported, "exporting memory over PCIe: DOCA's descriptor has {} bytes, at most {} are sent",
                length, wire::MemoryExport::descriptor_bytes_max);
  return Bytes(static_cast<const std::byte*>(descriptor), length);
}

Result<DocaMap> import_map(const DocaDevice& device, Bytes descriptor, std::uint64_t address, std::uint64_t length) {
  const DocaCalls& calls = *device.calls;
  doca_mmap* made = nullptr;
  const doca_error_t code =
      calls.doca_mmap_create_from_export(nullptr, descriptor.data(), descriptor.size(), device.dev.get(), &made);
  if (code != DOCA_SUCCESS)
    return fail(code == DOCA_ERROR_NO_MEMORY ? Error::no_memory : Error::io,
                "the agent's card cannot import {} bytes of the program's memory: DOCA says \"{}\" ({}). Both ends "
                "need the same "
                "card (OFFPATH_DOCA_DEVICE names one by its PCI address)",
                length, calls.doca_error_get_descr(code), static_cast<int>(code));
  DocaMap map(made, {calls.doca_mmap_destroy});
  void* base = nullptr;
  std::size_t bytes = 0;
  // Not every version reports the range of imported memory; the card checks each access anyway.
  if (calls.doca_mmap_get_memrange(map.get(), &base, &bytes) == DOCA_SUCCESS &&
      (reinterpret_cast<std::uint64_t>(base) != address || bytes != length))
    return fail(Error::protocol, "memory export: {} bytes at {:#x} were announced, the descriptor has {} at {}", length,
                address, bytes, fmt::ptr(base));
  return map;
}

}  // namespace offpath::link
