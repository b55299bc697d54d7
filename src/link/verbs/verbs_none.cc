// For builds without the headers of rdma-core: every call fails and says so.
#include "link/verbs/verbs_link.h"

namespace offpath::link {

namespace {

tl::unexpected<Failure> not_built() {
  return fail(
      Error::unsupported,
      "this build has no RDMA: install libibverbs-dev and librdmacm-dev and configure with OFFPATH_VERBS=on, or use an "
      "address of another kind");
}

}  // namespace

Status check_verbs(const Address&) { return not_built(); }

Result<std::unique_ptr<AgentLink>> accept_verbs(ControlSocket, const VerbsProofs&, const ChannelBytes&,
                                                const SegmentLimits&, std::shared_ptr<CardDevices>, TimeNs) {
  return not_built();
}

Result<std::unique_ptr<HostLink>> connect_verbs(ControlSocket, const VerbsProofs&, SegmentMemory, std::uint64_t,
                                                wire::Welcome, std::shared_ptr<CardDevices>, TimeNs) {
  return not_built();
}

}  // namespace offpath::link
