// Ranges of a pool with by=range&ranges=sample: learnt from the first rows that are put into it, and then part of its
// definition, which all members confirm (agreement.h). If two members learn at the same time, one of the two
// definitions wins.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "sift/settings.h"

namespace offpath::sift {

// The text with the frame's ranges= in place of ranges=sample: at most as many as elements, and as fit half of a pool's
// name, with about the same number of rows each. Reads a few thousand rows. Empty: the frame has no rows.
[[nodiscard]] Result<std::string> with_sampled_ranges(std::string_view text, const Settings& settings, Bytes frame);

}  // namespace offpath::sift
