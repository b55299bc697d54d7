#include "channel/interruption.h"

namespace offpath::channel {

Interruption& interruption() noexcept {
  thread_local Interruption own;
  return own;
}

}  // namespace offpath::channel
