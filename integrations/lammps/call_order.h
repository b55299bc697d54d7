// The order in which LAMMPS calls its fixes at the beginning of a step. The first fix that integrates changes the
// arrays, so a fix whose arrays an agent may be reading has to wait before it.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <algorithm>

#include "fix.h"
#include "modify.h"

namespace offpath_lammps {

// To be called in Fix::setup: LAMMPS makes new lists for each run, after Fix::init.
inline void become_first(LAMMPS_NS::Modify& modify, LAMMPS_NS::Fix* self) {
  struct Lists : LAMMPS_NS::Modify {
    static void move(LAMMPS_NS::Modify& of, int fix) {
      to_front(of.*&Lists::list_initial_integrate, of.n_initial_integrate, fix);
      to_front(of.*&Lists::list_initial_integrate_respa, of.n_initial_integrate_respa, fix);
    }
    static void to_front(int* list, int count, int fix) {
      std::stable_partition(list, list + count, [fix](int each) { return each == fix; });
    }
  };
  const auto all = modify.get_fix_list();
  Lists::move(modify, static_cast<int>(std::ranges::find(all, self) - all.begin()));
}

}  // namespace offpath_lammps
