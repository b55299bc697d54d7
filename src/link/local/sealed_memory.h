// Memory that two processes share: a memfd sealed against shrinking, growing and further seals, so that the side
// that did not make it can touch every byte of it without being killed by SIGBUS.
#pragma once

#include <string_view>

#include "base/status.h"
#include "link/link.h"

namespace offpath::link {

// Zeroed, mapped shared, sealed. The length is kept exactly.
[[nodiscard]] Result<SegmentMemory> allocate_sealed(std::uint64_t length);

// Maps what another process sent as `length` bytes. Refuses anything but an ordinary memfd of exactly that
// length with all three seals; huge pages are refused too, for want of one raises SIGBUS. `what` names it in errors.
// `user`: whose mapping it is, which may have too many (Error::too_large).
[[nodiscard]] Result<SegmentMemory> map_sealed(int fd, std::uint64_t length, std::string_view what,
                                               std::shared_ptr<ReceivedFds::User> user = nullptr);

}  // namespace offpath::link
