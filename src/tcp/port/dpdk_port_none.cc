// Stands in for dpdk_port.cc where DPDK is not built in.
#include "tcp/port/dpdk_port.h"

namespace offpath::tcp {

Result<std::vector<std::unique_ptr<Port>>> open_dpdk(const DpdkOptions& options) {
  return fail(Error::unsupported,
              "dpdk:{}: this agent is built without DPDK; build it with -DOFFPATH_DPDK=ON, which needs libdpdk-dev",
              options.device);
}

}  // namespace offpath::tcp
