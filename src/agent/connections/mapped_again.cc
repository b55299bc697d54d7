#include "agent/connections/mapped_again.h"

#include <sys/mman.h>

#include <cerrno>

namespace offpath::agent {

Result<MappedAgain> MappedAgain::of(MutableBytes mapped) {
  // length 0 maps shared memory a second time
  void* const again = mremap(mapped.data(), 0, mapped.size(), MREMAP_MAYMOVE);
  if (again == MAP_FAILED) return fail_errno(errno, "mremap");
  return MappedAgain({static_cast<std::byte*>(again), mapped.size()});
}

MappedAgain::~MappedAgain() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace offpath::agent
