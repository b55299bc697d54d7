// Memory that a descriptor names, so that another process can map it.
#pragma once

#include "base/fd.h"
#include "base/status.h"

namespace offpath {

// Creates an empty memfd that can be sealed, and that is never executable where the kernel supports it (Linux 6.3).
// /proc shows it as `name`.
[[nodiscard]] Result<Fd> memory_file(const char* name);

}  // namespace offpath
