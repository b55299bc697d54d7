// The job that a program belongs to: its job and step in Slurm, and its cgroup. These labels are only displayed and
// grant nothing: over the network a program may claim any. For processes of this machine the kernel's information
// counts.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "wire/control.h"

namespace offpath::link {

// Parses /proc/PID/cgroup, versions 1 and 2: Slurm's directories are .../slurm.../job_JOB/step_STEP/...
[[nodiscard]] wire::JobLabels parse_cgroups(std::string_view text);

// Labels of this process: from SLURM_JOB_ID and SLURM_STEP_ID, and /proc/self/cgroup.
[[nodiscard]] wire::JobLabels own_job_labels();

// Labels of a process of this machine (pid 0: of another machine) that claims `said`.
[[nodiscard]] wire::JobLabels job_labels_of(pid_t pid, wire::JobLabels said);

}  // namespace offpath::link
