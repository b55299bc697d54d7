// The addresses of all agents that one launcher started together, exchanged through the launcher by PMI, version 1 of
// its wire protocol: lines of text over the descriptor that PMI_FD names. mpirun of MPICH and Intel MPI and srun
// --mpi=pmi2 speak it; Open MPI speaks PMIx (pmix_launcher.h). Used once, at start, before the agent serves: it waits
// for the others.
// Source: MPICH's documentation of PMI-1 (the "simple" wire protocol).
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::group {

class Launcher {
 public:
  // From PMI_FD, PMI_RANK and PMI_SIZE. Error::not_found: this process was not started by such a launcher.
  [[nodiscard]] static Result<Launcher> from_environment();
  Launcher(Fd connection, int rank, int size) : connection_(std::move(connection)), rank_(rank), size_(size) {}

  [[nodiscard]] int size() const noexcept { return size_; }

  // Publishes `own`, without spaces, and returns the addresses of all, by rank. May be called once. Error::timeout: an
  // address was missing at the deadline. Error::protocol: the launcher's answer is invalid.
  [[nodiscard]] Result<std::vector<std::string>> exchange(const std::string& own, TimeNs deadline);

 private:
  // Sends a line and reads the answer, which has to be `wanted`. Returns the value of `field`, or nothing if that is
  // empty.
  [[nodiscard]] Result<std::string> ask(const std::string& line, std::string_view wanted, std::string_view field,
                                        TimeNs deadline);
  [[nodiscard]] Status send(std::string line, TimeNs deadline) const;
  [[nodiscard]] Result<std::string> read_line(TimeNs deadline);

  Fd connection_;
  int rank_, size_;
  std::string unread_;
};

}  // namespace offpath::group
