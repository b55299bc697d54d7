#include "agent/cpu_quota.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/log.h"

namespace offpath::agent {

namespace {

constexpr std::string_view group_prefix = "offpath-agent-";

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Status write_to(const std::string& path, const std::string& text) {
  Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, "open " + path);
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail_errno(errno, fmt::format("write '{}' to {}", text, path));
  }
  return {};
}

bool has_word(const std::string& list, const std::string& word, char separator) {
  std::stringstream words(list);
  for (std::string each; std::getline(words, each, separator);) {
    if (each == word) return true;
  }
  return false;
}

// This process's group for processor time.
Result<CgroupPlace> own_cgroup() {
  return find_cgroup(content_of("/proc/self/cgroup"), content_of("/proc/self/mountinfo"), "cpu");
}

// Calls `on_each` with the directory of the group and of those above it, until it returns true. False: it never did.
template <typename OnEach>
bool find_upwards(const CgroupPlace& place, const OnEach& on_each) {
  std::string directory = place.path == "/" ? place.mount : place.mount + place.path;
  for (; directory.size() > place.mount.size(); directory.resize(directory.rfind('/')))
    if (on_each(directory)) return true;
  return on_each(place.mount);
}

// Removes the groups of killed agents. A group with processes cannot be removed, so this is safe.
void remove_empty_groups(const std::string& parent) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(parent.c_str()), closedir);
  if (!directory) return;
  while (const dirent* entry = readdir(directory.get())) {
    if (std::string_view(entry->d_name).starts_with(group_prefix)) rmdir((parent + "/" + entry->d_name).c_str());
  }
}

// A directory in which the group can be made. In version 2 it must pass the controller on to its children.
Result<std::string> parent_of_group(const CgroupPlace& place) {
  const std::string own = place.path == "/" ? place.mount : place.mount + place.path;
  if (place.version == 1) return own;
  std::string found;
  const bool passes_on = find_upwards(place, [&](const std::string& directory) {
    const std::string control = directory + "/cgroup.subtree_control";
    std::string passed_on = content_of(control);
    if (!passed_on.empty() && passed_on.back() == '\n') passed_on.pop_back();
    found = directory;
    return has_word(passed_on, "cpu", ' ') || write_to(control, "+cpu");
  });
  if (passes_on) return found;
  return fail(Error::unsupported, "no cgroup above {} passes the cpu controller on to its children", own);
}

}  // namespace

QuotaPeriod quota_period(double cores) noexcept {
  constexpr long shortest_us = 1000, longest_period_us = 1'000'000;
  cores = std::max(cores, 0.001);
  const long period = std::clamp(std::lround(shortest_us / cores), shortest_us, longest_period_us);
  return {std::max(std::lround(static_cast<double>(period) * cores), shortest_us), period};
}

Result<CgroupPlace> find_cgroup(const std::string& cgroups, const std::string& mounts, const std::string& controller) {
  CgroupPlace place;
  bool found = false;
  std::stringstream lines(cgroups);  // hierarchy:controllers:path, version 2 being 0::path
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version1 = has_word(controllers, controller, ',');
    if (!version1 && !(controllers.empty() && !found)) continue;
    place.version = version1 ? 1 : 2;
    place.path = line.substr(second + 1);
    found = true;
    if (version1) break;  // a controller bound to version 1 does not exist in version 2
  }
  if (!found) return fail(Error::unsupported, "this process is in no cgroup with the {} controller", controller);
  std::stringstream mount_lines(mounts);  // id parent device root mount-point options ... - type source super-options
  for (std::string line; std::getline(mount_lines, line);) {
    std::stringstream words(line);
    std::vector<std::string> word;
    for (std::string each; words >> each;) word.push_back(each);
    const auto dash = std::ranges::find(word, "-");
    if (word.end() - dash < 4 || word.size() < 5) continue;
    const bool matches = place.version == 2 ? *(dash + 1) == "cgroup2"
                                            : *(dash + 1) == "cgroup" && has_word(*(dash + 3), controller, ',');
    if (!matches) continue;
    place.mount = word[4];
    const std::string& root = word[3];  // of the mount: the part that a container sees begins there
    if (root != "/" && place.path.starts_with(root)) place.path = place.path.substr(root.size());
    if (place.path.empty()) place.path = "/";
    return place;
  }
  return fail(Error::unsupported, "no cgroup version {} with the {} controller is mounted", place.version, controller);
}

bool has_quota(const CgroupPlace& place) {
  return find_upwards(place, [&](const std::string& directory) {
    const std::string limit = content_of(directory + (place.version == 2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    return !limit.empty() && limit.front() >= '0' && limit.front() <= '9';  // without a quota: "max …", or -1
  });
}

bool has_quota() {
  const auto place = own_cgroup();
  return place && has_quota(*place);
}

Result<CpuQuota> CpuQuota::apply(double cores) {
  OFP_ASSIGN(const CgroupPlace place, own_cgroup());
  OFP_ASSIGN(const std::string parent, parent_of_group(place));
  remove_empty_groups(parent);
  std::string group = fmt::format("{}/{}{}", parent, group_prefix, getpid());
  if (mkdir(group.c_str(), 0755) != 0) return fail_errno(errno, "mkdir " + group);
  CpuQuota made(group, place.mount + (place.path == "/" ? "" : place.path));
  const QuotaPeriod limit = quota_period(cores);
  if (place.version == 2) {
    OFP_TRY(write_to(group + "/cpu.max", fmt::format("{} {}", limit.quota_us, limit.period_us)));
  } else {
    OFP_TRY(write_to(group + "/cpu.cfs_period_us", std::to_string(limit.period_us)));
    OFP_TRY(write_to(group + "/cpu.cfs_quota_us", std::to_string(limit.quota_us)));
  }
  OFP_TRY(write_to(group + "/cgroup.procs", std::to_string(getpid())));
  return made;
}

CpuQuota::CpuQuota(CpuQuota&& other) noexcept
    : group_(std::exchange(other.group_, {})), before_(std::exchange(other.before_, {})) {}

CpuQuota::~CpuQuota() {
  if (group_.empty()) return;
  Status left = write_to(before_ + "/cgroup.procs", std::to_string(getpid()));
  if (left && rmdir(group_.c_str()) != 0) left = fail_errno(errno, "rmdir " + group_);
  if (!left)
    log(LogLevel::info, "the cgroup could not be removed and stays until the next agent starts: {}",
        left.error().message);
}

}  // namespace offpath::agent
