// Particles for the agent's move service, as any user's program hands them over: columns id, type, x, v, a batch a rank
// and step. The agent pulls them from copies of ours while the simulation goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "md/atoms.h"

namespace md {

class Handover {
 public:
  // Connects to the agent at OFFPATH_AGENT. `atoms_max`: the most that a rank may have. Throws offpath::Error.
  Handover(const std::string& stream, std::int64_t atoms_max);
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  ~Handover();

  // Waits until what was sent before is pulled.
  void send(std::int64_t step, int rank, const Atoms& atoms);
  // Until the agent has taken responsibility for everything.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace md
