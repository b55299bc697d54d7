// The exchange of launcher.h by PMIx, with launchers that speak nothing else: mpirun of Open MPI, srun --mpi=pmix.
// Their protocol is described by its library alone, libpmix, which is loaded when it is needed: an agent depends on no
// MPI.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::group {

// A launcher with PMIx started this process, and none with PMI-1.
[[nodiscard]] inline bool has_pmix_launcher() {
  return std::getenv("PMIX_NAMESPACE") != nullptr && std::getenv("PMI_FD") == nullptr;
}

// Tells the other processes that the launcher started `own`, and returns the addresses of all, by rank. Called once,
// at start: libpmix has a thread meanwhile.
// Error::timeout: not all had told theirs in time. Error::unsupported: there is no libpmix. Error::protocol: what the
// launcher or another process says is invalid.
[[nodiscard]] Result<std::vector<std::string>> exchange_by_pmix(const std::string& own, TimeNs deadline);

}  // namespace offpath::group
