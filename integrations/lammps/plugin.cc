// The entry point that LAMMPS calls: `plugin load offpathplugin.so`, or a folder in LAMMPS_PLUGIN_PATH. Read
// fix_offpath.h first.
//
// LAMMPS installs no header for its plug-in interface; these declarations follow its manual ("Writing plugins").
//
// SPDX-License-Identifier: GPL-2.0-only
#include <string>

#include "error.h"
#include "fix_offpath.h"
#include "fix_offpath_analyse.h"
#include "lammps.h"

namespace {

using LAMMPS_NS::LAMMPS;

struct Plugin {
  const char* version;  // of LAMMPS
  const char* style;
  const char* name;
  const char* info;
  const char* author;
  void* (*create)(LAMMPS*, int, char**);
  void* handle;
};
using Register = void (*)(Plugin*, void*);

template <class Fix>
void* create(LAMMPS* lmp, int argc, char** argv) {
  return new Fix(lmp, argc, argv);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void* lmp, void* handle, void* enroll) {
  auto* const lammps = static_cast<LAMMPS*>(lmp);
  // The layout of LAMMPS's classes is that of the headers: another version's may differ.
  if (const std::string version = lammps->version; version != OFFPATH_LAMMPS_VERSION)
    lammps->error->all(FLERR,
                       "The plug-in offpath was built for LAMMPS {}, this is {}: build it with this one's headers",
                       OFFPATH_LAMMPS_VERSION, version);
  Plugin plugin{};
  plugin.version = lammps->version;
  plugin.style = "fix";
  plugin.author = "the authors of Offpath";
  plugin.handle = handle;
  plugin.name = "offpath";
  plugin.info = "hands atoms over to an Offpath agent";
  plugin.create = create<offpath_lammps::FixOffpath>;
  reinterpret_cast<Register>(enroll)(&plugin, lmp);
  plugin.name = "offpath/analyse";
  plugin.info = "an Offpath agent analyses atoms during the run";
  plugin.create = create<offpath_lammps::FixOffpathAnalyse>;
  reinterpret_cast<Register>(enroll)(&plugin, lmp);
}
