// Any text as /proc/PID/cgroup: the labels fit into a hello, and a step always has a job.
#include <cstddef>
#include <cstdint>

#include "link/handshake/job_labels.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  wire::Hello hello;
  hello.layout = {128, 256, 9};
  hello.job_labels = link::parse_cgroups({reinterpret_cast<const char*>(data), size});
  OFP_ASSERT(hello.job_labels.step.empty() || !hello.job_labels.job.empty());
  OFP_ASSERT(hello.job_labels.job.empty() || hello.job_labels.cgroup.empty() ||
             hello.job_labels.cgroup.find("job_" + hello.job_labels.job) != std::string::npos);
  std::vector<std::byte> bytes;
  wire::encode(hello, bytes);
  const auto back = wire::decode_hello(bytes);
  OFP_ASSERT(back && back->job_labels.job == hello.job_labels.job && back->job_labels.step == hello.job_labels.step &&
             back->job_labels.cgroup == hello.job_labels.cgroup);
  return 0;
}
