// Builds the frames that the stack sends.
#pragma once

#include "tcp/segment/frame.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

// A frame for a segment with `payload`, to be cut into `segment_bytes` by the port if it is longer. Completes the
// checksum if the port does not.
void write_segment_frame(const Segment& segment, const std::array<Bytes, 2>& payload, std::uint16_t segment_bytes,
                         const MacAddress& from, const MacAddress& to, bool checksum_offload,
                         FrameToSend& frame) noexcept;

}  // namespace offpath::tcp
