// What cards do for a stack, in software: cutting frames into segments, and completing checksums.
#pragma once

#include <functional>
#include <vector>

#include "tcp/segment/frame.h"

namespace offpath::tcp {

// The frames that are seen on a wire, whole and with all checksums, in their order.
void for_each_wire_frame(const FrameToSend& frame, const std::function<void(std::vector<std::byte>&&)>& take);

// The frame as it is, in one piece, its checksum completed.
[[nodiscard]] std::vector<std::byte> whole_frame(const FrameToSend& frame);

// Of a frame with IPv4 and TCP, whatever its field holds; others are left alone.
void complete_tcp_checksum(MutableBytes frame) noexcept;

}  // namespace offpath::tcp
