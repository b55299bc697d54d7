#include "pool/peers/pool_context.h"

namespace offpath::pool {

bool PoolContext::may_pass(Error code) noexcept {
  switch (code) {
    case Error::peer_lost:
    case Error::timeout:
    case Error::closed:
    case Error::would_block:
    case Error::cancelled:
    case Error::not_found:
    case Error::no_memory:
    case Error::no_space:
      return true;
    default:
      return false;
  }
}

}  // namespace offpath::pool
