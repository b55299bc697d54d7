#include "agent/confinement.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>

namespace offpath::agent {

namespace {

using CapabilityWords = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

std::uint64_t mappings_of_process() {
  std::uint64_t mappings = 65'530;  // the kernel's own default
  std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
  return mappings;
}

std::uint64_t descriptors_of_process() {
  rlimit files{};
  return getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 1024;
}

__user_cap_header_struct own_header() { return {_LINUX_CAPABILITY_VERSION_3, 0}; }

}  // namespace

Status shut_out_others() {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_DUMPABLE)");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_NO_NEW_PRIVS)");
  const rlimit no_core{0, 0};
  if (setrlimit(RLIMIT_CORE, &no_core) != 0) return fail_errno(errno, "setrlimit(RLIMIT_CORE)");
  umask(0077);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno(errno, "getrlimit(RLIMIT_NOFILE)");
  files.rlim_cur = files.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno(errno, "setrlimit(RLIMIT_NOFILE)");
  // With CAP_SYS_RESOURCE there is none. Without, the limit stays as it is, and a failed registration names it.
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_MEMLOCK, &unlimited) != 0) {
    rlimit locked{};
    if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0) return fail_errno(errno, "getrlimit(RLIMIT_MEMLOCK)");
    locked.rlim_cur = locked.rlim_max;
    if (setrlimit(RLIMIT_MEMLOCK, &locked) != 0) return fail_errno(errno, "setrlimit(RLIMIT_MEMLOCK)");
  }
  return {};
}

std::uint64_t frames_that_fit() {
  return std::max<std::uint64_t>(std::min(mappings_of_process(), descriptors_of_process()) / 4 * 3, 1);
}

ReceivedLimits beside_frames(std::uint64_t frames, ReceivedLimits of_user) {
  constexpr std::uint64_t least = 64;  // a minimum, however much frames may take
  const auto left_of = [frames](std::uint64_t all) { return all - std::min(all, frames); };
  ReceivedLimits limits = of_user;
  // The factor leaves room for two more descriptors than are counted for each connection.
  limits.descriptors_max = std::max(left_of(descriptors_of_process()) / 3, least);
  limits.mappings_max = std::max(left_of(mappings_of_process()) / 4 * 3, least);
  if (limits.user_descriptors_max == 0) limits.user_descriptors_max = share_of_user(limits.descriptors_max);
  if (limits.user_mappings_max == 0) limits.user_mappings_max = share_of_user(limits.mappings_max);
  return limits;
}

Result<bool> give_up_capabilities(bool keep_ptrace, bool permit_users) {
  auto header = own_header();
  CapabilityWords words{};
  if (syscall(SYS_capget, &header, words.data()) != 0) return fail_errno(errno, "capget");
  constexpr std::uint32_t ptrace = 1u << CAP_SYS_PTRACE;
  constexpr std::uint32_t users = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL;
  static_assert(CAP_SYS_PTRACE < 32);
  // Without CAP_SETPCAP the bounding set stays. It gives nothing: no started program gains privileges (no_new_privs).
  for (unsigned long each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; ++each)
    if (!permit_users || (each != CAP_SETUID && each != CAP_SETGID)) prctl(PR_CAPBSET_DROP, each, 0, 0, 0);
  const std::uint32_t permitted = permit_users ? words[0].permitted & users : 0;
  const bool kept = keep_ptrace && (words[0].permitted & ptrace) != 0;
  words = {};
  words[0].effective = kept ? ptrace : 0;
  words[0].permitted = words[0].effective | permitted;
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  header = own_header();
  if (syscall(SYS_capset, &header, words.data()) != 0) return fail_errno(errno, "capset");
  return kept;
}

Status give_up_all_but_files() {
  auto header = own_header();
  CapabilityWords words{};
  if (syscall(SYS_capget, &header, words.data()) != 0) return fail_errno(errno, "capget");
  constexpr std::uint32_t files = 1u << CAP_DAC_OVERRIDE;
  static_assert(CAP_DAC_OVERRIDE < 32);
  for (unsigned long each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; ++each)
    prctl(PR_CAPBSET_DROP, each, 0, 0, 0);
  const std::uint32_t kept = words[0].permitted & files;
  words = {};
  words[0].effective = words[0].permitted = kept;
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  header = own_header();
  if (syscall(SYS_capset, &header, words.data()) != 0) return fail_errno(errno, "capset");
  return {};
}

}  // namespace offpath::agent
