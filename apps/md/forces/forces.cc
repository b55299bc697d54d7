#include "md/forces/forces.h"

#include "md/files/bad_input.h"
#include "md/forces/eam_forces.h"
#include "md/forces/lj_forces.h"
#include "md/forces/lj_types_forces.h"

namespace md {

std::unique_ptr<Forces> make_forces(const Settings& settings, const Kernels& kernels, const LjTypes* types) {
  if (settings.potential == Potential::lj && types != nullptr)
    return std::make_unique<LjTypesForces>(*types, settings.cut);
  if (settings.potential == Potential::lj) {
    return std::make_unique<LjForces>(LennardJones{settings.epsilon, settings.sigma, settings.cut}, settings.mass,
                                      settings.precision, kernels);
  }
  if (settings.precision == Precision::mixed) throw BadInput("mixed precision supports Lennard-Jones, not EAM");
  return std::make_unique<EamForces>(read_eam_file(settings.potential_file), kernels);
}

}  // namespace md
