// Which groups a host listens to (MLDv2, RFC 3810): without its reports, switches that look into these messages pass
// nothing on to a group, and so no solicitation. A stack has one group, that of its address.
#pragma once

#include <optional>

#include "base/clock.h"
#include "tcp/segment/frame.h"
#include "tcp/segment/ip_packet.h"

namespace offpath::tcp {

inline constexpr std::uint8_t mld_query = 130, mld_report = 143;  // types of ICMPv6

// The time in which a router wants an answer about this group, or about all; nullopt: the datagram is no valid query.
[[nodiscard]] std::optional<TimeNs> read_listener_query(const IpPacket& packet, const IpAddress& group) noexcept;
// `joins`: the node has begun to listen; otherwise it answers a query. From no address, which switches accept and
// routers ignore (RFC 3590): the stack has no link-local one.
void write_listener_report(const IpAddress& group, bool joins, const MacAddress& from, FrameToSend& frame) noexcept;

}  // namespace offpath::tcp
