// DMA over PCIe: the part of doca_link that the handshake uses. Read this first, then doca_device.h (devices and
// memory), then doca_agent_link.h and doca_host_link.h.
//
// For an agent on a BlueField and a program on the host of that card. The card's DMA engine copies between the agent's
// memory and memory exported by the program, and sends no packets. The control connection and its handshake are those
// of stream_link, over any network between the two (the card's own port, or tmfifo_net0):
//
//   host                                             agent
//              <-- welcome ------------------------   opened its device before
//   exports the channel segment ------------------>   imports it: reads and writes may begin
//              <-- imported -----------------------
//   each range and segment: memory_export -------->   imports it
//              <-- imported, or why not -----------   and only then the range is named in the ring
//
// An export's descriptor comes from the driver and is valid only on this card. Wakes and withdrawals stay on the
// control connection, which is not encrypted: see docs/internals/link.md.
//
// DOCA's libraries are loaded only when the first address of this kind is used.
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "link/address.h"
#include "link/card/card_device.h"
#include "link/control/control_socket.h"
#include "link/link.h"
#include "link/local/local_agent_link.h"
#include "wire/control.h"

namespace offpath::link {

inline constexpr std::string_view doca_reason =
    "DOCA DMA: the card's engine copies memory that the program exported over PCIe, without the program's processor";

// Whether an agent of this machine can import a program's memory; otherwise the error names the missing part and the
// remedy.
[[nodiscard]] Status check_doca(const Address& address);

// Operations that are posted before the program has exported its channel segment wait for it, until `deadline`.
// `devices`: the agent's; null: the link opens the device for itself.
[[nodiscard]] Result<std::unique_ptr<AgentLink>> accept_doca(ControlSocket socket, std::uint64_t channel_segment_bytes,
                                                             const SegmentLimits& limits,
                                                             std::shared_ptr<CardDevices> devices, TimeNs deadline);
// Blocks until the agent has imported the channel segment.
[[nodiscard]] Result<std::unique_ptr<HostLink>> connect_doca(ControlSocket socket, SegmentMemory channel_segment,
                                                             wire::Welcome welcome, TimeNs deadline);

}  // namespace offpath::link
