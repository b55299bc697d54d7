// What both ends of a handshake say. It stands apart so that the host library does not carry the agent's end.
#include "link/handshake.h"

#include <fmt/format.h>

namespace offpath::link {

std::vector<std::byte> session_binding(const ControlSocket& socket) {
  if (socket.tls() == nullptr) return {};
  const auto binding = socket.tls()->binding();
  return {binding.begin(), binding.end()};
}

std::string network_reason(Address::Kind transport) {
  return fmt::format("another machine, or asked for: the program's library serves reads and writes over {}",
                     transport == Address::Kind::tls ? "TLS" : "TCP");
}

}  // namespace offpath::link
