// The work that a program is part of: its job and step in Slurm, its cgroup. Labels of what is shown of it, and never a
// right to anything: over the network a program may say what it likes. Of a process of this machine the kernel's word
// counts.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "wire/control.h"

namespace offpath::link {

// Of the text of /proc/PID/cgroup, versions 1 and 2: Slurm's directories are .../slurm.../job_JOB/step_STEP/...
[[nodiscard]] wire::JobLabels parse_cgroups(std::string_view text);

// Of this process: by SLURM_JOB_ID and SLURM_STEP_ID of its environment, and /proc/self/cgroup.
[[nodiscard]] wire::JobLabels own_job_labels();

// Of a process of this machine (0: of another one), that says `said` of itself.
[[nodiscard]] wire::JobLabels job_labels_of(pid_t pid, wire::JobLabels said);

}  // namespace offpath::link
