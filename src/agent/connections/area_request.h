// The checks of a program's request to open an area of TCP connections, common to the agent that has the stack and to a
// relay.
#pragma once

#include "base/status.h"
#include "wire/areas/tcp_area.h"
#include "wire/messages/tcp_messages.h"
#include "wire/region.h"

namespace offpath::agent {

// Checks the version, and that the memory is a segment of its own.
[[nodiscard]] inline Status check_area_request(const wire::TcpOpen& asked) {
  if (asked.version != wire::tcp_area_version)
    return fail(Error::version, "connections: their memory has version {}, this agent needs {}", asked.version,
                wire::tcp_area_version);
  const wire::RegionId region = asked.memory.region;
  if (!wire::is_segment(region) || region == wire::channel_segment || asked.memory.offset != 0)
    return fail(Error::invalid,
                "connections need a segment of their own, from offset 0; the request names region {:#x} at {}", region,
                asked.memory.offset);
  return {};
}

}  // namespace offpath::agent
