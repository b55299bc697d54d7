// Any text as /proc/PID/cgroup: what comes of it can be told in a hello, and a step is of a job.
#include <cstddef>
#include <cstdint>

#include "link/work.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  wire::Hello hello;
  hello.layout = {128, 256, 9};
  hello.work = link::parse_cgroups({reinterpret_cast<const char*>(data), size});
  OFP_ASSERT(hello.work.step.empty() || !hello.work.job.empty());
  OFP_ASSERT(hello.work.job.empty() || hello.work.cgroup.empty() || hello.work.cgroup.find("job_" + hello.work.job) != std::string::npos);
  std::vector<std::byte> bytes;
  wire::encode(hello, bytes);
  const auto back = wire::decode_hello(bytes);
  OFP_ASSERT(back && back->work.job == hello.work.job && back->work.step == hello.work.step && back->work.cgroup == hello.work.cgroup);
  return 0;
}
