// Accepted connections on their way from the process that accepts them to the core that serves them, one message each,
// over a pair of sockets for each core and listener. A connection that cannot be handed over now stays where it is.
#pragma once

#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::agent {

struct HandOverPair {
  Fd giving, taking;
};
[[nodiscard]] Result<HandOverPair> make_hand_over();

// False: so many wait for the core that the kernel takes no more. Error::peer_lost: the core has ended.
[[nodiscard]] Result<bool> hand_over(int giving, int connection);

// The next connection, non-blocking; an empty Fd if none waits. Error::peer_lost: the other process has ended.
[[nodiscard]] Result<Fd> take_over(int taking);

}  // namespace offpath::agent
