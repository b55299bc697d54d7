// Built where PMIx's headers were not found.
#include "group/pmix_launcher.h"

namespace offpath::group {

Result<std::vector<std::string>> exchange_by_pmix(const std::string&, TimeNs) {
  return fail(Error::unsupported, "the launcher speaks PMIx, and this agent was built without it (libpmix-dev)");
}

}  // namespace offpath::group
