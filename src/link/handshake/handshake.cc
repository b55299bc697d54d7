// What both ends of a handshake say. It stands apart so that the host library does not carry the agent's end.
#include "link/handshake/handshake.h"

#include <fmt/format.h>

namespace offpath::link {

std::vector<std::byte> session_binding(const ControlSocket& socket) {
  if (socket.tls() == nullptr) return {};
  const auto binding = socket.tls()->binding();
  return {binding.begin(), binding.end()};
}

VerbsProofs verbs_proofs(const SharedKey& key, const wire::Nonce& host_nonce, const wire::Nonce& agent_nonce,
                         Bytes binding) {
  // shorter than any hello: no proof of the handshake is one of these
  static constexpr std::string_view said = "queue pair";
  const Bytes bytes = std::as_bytes(std::span(said));
  return {key.prove(SharedKey::Side::host, host_nonce, agent_nonce, binding, bytes),
          key.prove(SharedKey::Side::agent, host_nonce, agent_nonce, binding, bytes)};
}

std::string network_reason(Address::Kind transport) {
  if (transport == Address::Kind::verbs) return std::string(verbs_reason);
  if (transport == Address::Kind::doca) return std::string(doca_reason);
  return fmt::format("another machine, or asked for: the program's library serves reads and writes over {}",
                     transport == Address::Kind::tls ? "TLS" : "TCP");
}

}  // namespace offpath::link
