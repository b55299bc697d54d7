// The core that a received frame is for, computed by the agent: for devices whose queues get frames by another function
// than the kernel's steering program (fanout.h), which gives the same answers.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace offpath::tcp {

// TCP by wire/areas/flow_steering.h, ICMP messages by the flow whose segment they quote, everything else, notably ARP,
// to core 0.
[[nodiscard]] std::uint32_t core_of_frame(Bytes frame, std::uint32_t cores) noexcept;

}  // namespace offpath::tcp
