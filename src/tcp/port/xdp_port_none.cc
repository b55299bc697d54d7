// Stands in for xdp_port.cc where libxdp is not built in.
#include "tcp/port/xdp_port.h"

namespace offpath::tcp {

Result<std::vector<std::unique_ptr<Port>>> open_xdp(const XdpOptions& options) {
  return fail(Error::unsupported,
              "xdp:{}: this agent is built without libxdp; build it with -DOFFPATH_XDP=on, which needs libxdp-dev and "
              "libbpf-dev, or use the interface without xdp:",
              options.interface);
}

}  // namespace offpath::tcp
