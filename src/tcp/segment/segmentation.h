// Offloads in software: cutting frames into segments, and completing checksums.
#pragma once

#include <functional>
#include <vector>

#include "tcp/segment/frame.h"

namespace offpath::tcp {

// Calls back with the frames as they would appear on the wire, in order, whole and with all checksums.
void for_each_wire_frame(const FrameToSend& frame, const std::function<void(std::vector<std::byte>&&)>& take);

// The frame in one piece, with its checksum completed.
[[nodiscard]] std::vector<std::byte> whole_frame(const FrameToSend& frame);

// For frames with IP and TCP, whatever the checksum field holds; other frames are unchanged.
void complete_tcp_checksum(MutableBytes frame) noexcept;

}  // namespace offpath::tcp
