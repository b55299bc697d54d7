// Sends particles to the agent's move service, like any user's program: columns id, type, x, v, one batch for each rank
// and step. The agent pulls them from copies while the simulation continues.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "md/atoms.h"

namespace md {

class Handover {
 public:
  // Connects to the agent at OFFPATH_AGENT. `atoms_max`: the largest number of atoms of a rank. Throws offpath::Error.
  Handover(const std::string& stream, std::int64_t atoms_max);
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  ~Handover();

  // Waits until the previous batch was pulled.
  void send(std::int64_t step, int rank, const Atoms& atoms);
  // Waits until the agent has taken responsibility for everything.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace md
