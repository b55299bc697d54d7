#include "link/handshake/job_labels.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/fd.h"

namespace offpath::link {

namespace {

std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

std::string shown(std::string_view text, std::size_t bytes_max) {
  return text.size() <= bytes_max ? std::string(text) : std::string();
}

// Directories named job_... count only below one of Slurm's.
wire::JobLabels labels_of_path(std::string_view path) {
  wire::JobLabels labels;
  labels.cgroup = shown(path, wire::cgroup_bytes_max);
  bool is_slurm = false;
  while (!path.empty()) {
    const std::string_view part = next_part(path, '/');
    if (part.find("slurm") != std::string_view::npos)
      is_slurm = true;
    else if (is_slurm && labels.job.empty() && part.starts_with("job_"))
      labels.job = shown(part.substr(4), wire::job_bytes_max);
    else if (!labels.job.empty() && labels.step.empty() && part.starts_with("step_"))
      labels.step = shown(part.substr(5), wire::job_bytes_max);
  }
  return labels;
}

wire::JobLabels labels_of_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> some{};
  for (ssize_t got = 0;
       file && text.size() < 16 * some.size() && (got = read(file.get(), some.data(), some.size())) > 0;)
    text.append(some.data(), static_cast<std::size_t>(got));
  return parse_cgroups(text);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? shown(value, wire::job_bytes_max) : std::string();
}

}  // namespace

wire::JobLabels parse_cgroups(std::string_view text) {
  wire::JobLabels found;
  while (!text.empty()) {
    std::string_view line = next_part(text, '\n');
    const bool is_unified = line.starts_with("0::");
    (void)next_part(line, ':');
    (void)next_part(line, ':');
    if (line.ends_with(" (deleted)")) line.remove_suffix(10);
    if (!line.starts_with('/') || line == "/") continue;
    wire::JobLabels labels = labels_of_path(line);
    if (!labels.job.empty()) return labels;
    if (found.cgroup.empty() || is_unified) found = std::move(labels);  // version 1: the first controller's
  }
  return found;
}

wire::JobLabels own_job_labels() {
  wire::JobLabels said{environment("SLURM_JOB_ID"), environment("SLURM_STEP_ID"), {}};
  return job_labels_of(getpid(), std::move(said));
}

wire::JobLabels job_labels_of(pid_t pid, wire::JobLabels said) {
  if (pid == 0) return said;
  wire::JobLabels seen = labels_of_file(fmt::format("/proc/{}/cgroup", pid));
  if (!seen.cgroup.empty()) said.cgroup = std::move(seen.cgroup);
  if (!seen.job.empty()) {
    said.job = std::move(seen.job);
    said.step = std::move(seen.step);
  }
  return said;
}

}  // namespace offpath::link
