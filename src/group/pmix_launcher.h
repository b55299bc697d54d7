// The exchange of launcher.h by PMIx, for launchers without PMI-1: mpirun of Open MPI, srun --mpi=pmix. PMIx is defined
// by its library, libpmix, which is loaded on demand: an agent depends on no MPI.
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

// Publishes `own` to the other processes of the launcher, and returns the addresses of all, by rank. Called once, at
// start: libpmix has a thread meanwhile. Error::timeout: an address was missing at the deadline. Error::unsupported:
// there is no libpmix. Error::protocol: an answer of the launcher or a value of another process is invalid.
[[nodiscard]] Result<std::vector<std::string>> exchange_by_pmix(const std::string& own, TimeNs deadline);

}  // namespace offpath::group
