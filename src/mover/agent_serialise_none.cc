// Implements agent_serialise.h for builds without libarrow.
#include "mover/agent_serialise.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

Result<std::shared_ptr<const AgentSerialiser>> make_agent_serialiser(wire::Destination destination,
                                                                     std::shared_ptr<const frame::Template>,
                                                                     std::uint64_t) {
  return fail(Error::unsupported,
              "destination {} needs an agent built with libarrow (OFFPATH_ARROW); ipc, ipc-page, "
              "native and serialised do not",
              wire::destination_name(destination));
}

}  // namespace offpath::mover
