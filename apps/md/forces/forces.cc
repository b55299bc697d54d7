#include "md/forces/forces.h"

#include "md/files/bad_input.h"
#include "md/forces/eam_forces.h"
#include "md/forces/lj_forces.h"

namespace md {

std::unique_ptr<Forces> make_forces(const Settings& settings, const Kernels& kernels) {
  if (settings.potential == Potential::lj) {
    return std::make_unique<LjForces>(LennardJones{settings.epsilon, settings.sigma, settings.cut}, settings.mass,
                                      settings.precision, kernels);
  }
  if (settings.precision == Precision::mixed) throw BadInput("mixed precision supports Lennard-Jones, not EAM");
  EamTables tables = read_eam_file(settings.potential_file);
  for (const double mass : tables.mass) {
    if (mass != tables.mass[0])
      throw BadInput(settings.potential_file + ": elements of different masses; offpath-md computes with one mass");
  }
  return std::make_unique<EamForces>(std::move(tables));
}

}  // namespace md
