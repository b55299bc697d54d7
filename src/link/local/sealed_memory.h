// Memory that two processes share: a memfd sealed against shrinking, growing and further seals, so that the side
// that did not make it can touch every byte of it without being killed by SIGBUS.
//
// Read this first in src/link/local, then local_host_link.h, local_agent_link.h, program_reads.h and user_readers.h.
#pragma once

#include <string_view>

#include "base/status.h"
#include "link/link.h"

namespace offpath::link {

// Zeroed, mapped shared, sealed. Has exactly this length.
[[nodiscard]] Result<SegmentMemory> allocate_sealed(std::uint64_t length);

// Maps a received descriptor of `length` bytes. Accepts only an ordinary memfd of exactly that length with all three
// seals. Huge pages are refused too, because their shortage raises SIGBUS. `what` names the memory in errors. `user`:
// charged for the mapping; Error::too_large beyond that user's limit.
[[nodiscard]] Result<SegmentMemory> map_sealed(int fd, std::uint64_t length, std::string_view what,
                                               std::shared_ptr<ReceivedFds::User> user = nullptr);

}  // namespace offpath::link
