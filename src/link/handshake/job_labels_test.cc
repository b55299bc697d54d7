#include "link/handshake/job_labels.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>

namespace offpath::link {
namespace {

std::string told(const wire::JobLabels& labels) { return labels.job + "|" + labels.step + "|" + labels.cgroup; }

TEST(JobLabels, SlurmsDirectoriesNameJobAndStep) {
  EXPECT_EQ(told(parse_cgroups("0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_3\n")),
            "17|0|/system.slice/slurmstepd.scope/job_17/step_0/user/task_3");
  EXPECT_EQ(told(parse_cgroups("0::/system.slice/n1_slurmstepd.scope/job_17/step_batch\n")),
            "17|batch|/system.slice/n1_slurmstepd.scope/job_17/step_batch");
  EXPECT_EQ(told(parse_cgroups("0::/slurm/job_17\n")), "17||/slurm/job_17");
  EXPECT_EQ(told(parse_cgroups("11:memory:/\n4:freezer:/slurm_n1/uid_1000/job_99/step_extern/task_0\n1:name=systemd:/"
                               "system.slice/slurmd.service\n0::/\n")),
            "99|extern|/slurm_n1/uid_1000/job_99/step_extern/task_0")
      << "version 1: of the controller that Slurm uses";
}

TEST(JobLabels, OthersHaveAGroupOnlyOrNothing) {
  EXPECT_EQ(told(parse_cgroups("0::/user.slice/user-1000.slice/session-2.scope\n")),
            "||/user.slice/user-1000.slice/session-2.scope");
  EXPECT_EQ(told(parse_cgroups("0::/user.slice/job_5/step_6\n")), "||/user.slice/job_5/step_6") << "not Slurm's";
  EXPECT_EQ(told(parse_cgroups("3:cpu,cpuacct:/a\n2:pids:/b\n")), "||/a");
  EXPECT_EQ(told(parse_cgroups("3:cpu,cpuacct:/a\n0::/b (deleted)\n")), "||/b");
  EXPECT_EQ(told(parse_cgroups("0::/with:colons\n")), "||/with:colons");
  for (const char* nothing : {"", "\n", "0::/\n", "0::\n", "no colons\n", "0:/slurm/job_1\n", ":::\n"})
    EXPECT_EQ(told(parse_cgroups(nothing)), "||") << nothing;
}

TEST(JobLabels, WhatIsTooLongIsNotTold) {
  EXPECT_EQ(told(parse_cgroups("0::/" + std::string(wire::cgroup_bytes_max, 'a'))), "||");
  const wire::JobLabels labels =
      parse_cgroups("0::/slurm/job_" + std::string(wire::job_bytes_max + 1, '7') + "/step_0");
  EXPECT_EQ(labels.job + labels.step, "");
}

TEST(JobLabels, TheKernelsWordOfThisMachineCounts) {
  const wire::JobLabels own = job_labels_of(getpid(), {});
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_STEP_ID", "2", 1);
  const wire::JobLabels said = own_job_labels();
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_STEP_ID");
  EXPECT_EQ(said.cgroup, own.cgroup);
  EXPECT_EQ(said.job + "." + said.step, own.job.empty() ? "4711.2" : own.job + "." + own.step);
  EXPECT_EQ(told(job_labels_of(0, {"1", "2", "/c"})), "1|2|/c") << "of another machine";
  EXPECT_EQ(job_labels_of(getpid(), {"1", "2", "/elsewhere"}).cgroup, own.cgroup.empty() ? "/elsewhere" : own.cgroup);
}

}  // namespace
}  // namespace offpath::link
