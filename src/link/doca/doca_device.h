// The card as DOCA presents it, and memory for its DMA engine.
//
// | memory      | whose    | permission            |                                             |
// |-------------|----------|-----------------------|---------------------------------------------|
// | segments    | program  | PCI read and write    | exported; the agent's card reads and writes |
// | ranges      | program  | PCI read              | exported; the agent's card reads            |
// | the agent's | agent    | local                 | never exported                              |
//
// Making a map pins the pages. A program's device must be able to export; an agent's must be able to import and to
// copy. The first device that can is used, or the one whose PCI address OFFPATH_DOCA_DEVICE gives: both ends need the
// same card.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "link/card/card_device.h"
#include "link/doca/doca_handles.h"

namespace offpath::link {

struct DocaDevice {
  DocaCallsPtr calls;
  DocaDev dev;
};

enum class DocaRole { exports, imports };

// `wanted`: a PCI address; empty: any. Error::unsupported says what is missing.
[[nodiscard]] Result<DocaDevice> open_doca_device(DocaRole role, const std::string& wanted);
// The device of OFFPATH_DOCA_DEVICE, or any.
[[nodiscard]] Result<DocaDevice> open_doca_device(DocaRole role);

// The device of an agent, with the maps that all its channels use.
class DocaCard final : public CardDevice {
 public:
  // The agent's device if `devices` are an agent's; a new one for null.
  [[nodiscard]] static Result<std::shared_ptr<DocaCard>> open(CardDevices* devices);
  DocaCard(DocaDevice device, std::shared_ptr<const LastingMemory> lasting)
      : CardDevice(std::move(lasting)), device_(std::move(device)) {}
  ~DocaCard() override { release_memory(); }

  [[nodiscard]] const DocaDevice& device() const noexcept { return device_; }
  Result<std::unique_ptr<Registration>> register_own(const void* base, std::uint64_t length, bool written) override;

 private:
  DocaDevice device_;
};

// A started map of this process's memory with `permissions`. Error::no_memory and Error::unreadable give the reason.
[[nodiscard]] Result<DocaMap> map_memory(const DocaDevice& device, const void* base, std::uint64_t length,
                                         std::uint32_t permissions);
// The driver's descriptor of a map, for the other side of the PCIe bus; valid as long as the map.
[[nodiscard]] Result<Bytes> export_map(const DocaDevice& device, doca_mmap* map);
// Maps the other side's memory, which it announced with this address and length. Error::protocol if the descriptor
// differs.
[[nodiscard]] Result<DocaMap> import_map(const DocaDevice& device, Bytes descriptor, std::uint64_t address,
                                         std::uint64_t length);

}  // namespace offpath::link
