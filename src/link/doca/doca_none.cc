// For builds without DOCA's SDK: every call fails and says so.
#include "link/doca/doca_link.h"

namespace offpath::link {

namespace {

tl::unexpected<Failure> not_built() {
  return fail(
      Error::unsupported,
      "this build has no DOCA DMA: install doca-sdk-dma and its headers (Debian: libdoca-sdk-dma-dev) and configure "
      "with OFFPATH_DOCA=on, or use an address of another kind");
}

}  // namespace

Status check_doca(const Address&) { return not_built(); }

Result<std::unique_ptr<AgentLink>> accept_doca(ControlSocket socket, std::uint64_t, const SegmentLimits&,
                                               std::shared_ptr<CardDevices>, TimeNs) {
  auto why = not_built();
  send_refusal(socket, why.value());  // the program waits for an answer to its export
  return why;
}

Result<std::unique_ptr<HostLink>> connect_doca(ControlSocket, SegmentMemory, wire::Welcome, TimeNs) {
  return not_built();
}

}  // namespace offpath::link
