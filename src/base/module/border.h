// Functions that a module exports let no exception out, because program and module of a package may have different C++
// libraries.
#pragma once

#include <exception>
#include <new>

#include "base/status.h"

namespace offpath {

// Calls `work`, which returns a Result. The message of bad_alloc is so short that it allocates nothing.
template <class Work>
[[nodiscard]] auto at_border(const Work& work) noexcept -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return tl::unexpected(Failure{Error::no_memory, "out of memory"});
  } catch (const std::exception& error) {
    return fail(Error::io, "{}", error.what());
  }
}

}  // namespace offpath
