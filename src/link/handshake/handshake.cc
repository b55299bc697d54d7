// Messages that both ends of a handshake use. Separate, so that the host library does not contain the agent's end.
#include "link/handshake/handshake.h"

#include <fmt/format.h>

namespace offpath::link {

Result<std::vector<std::byte>> session_binding(const ControlSocket& socket) {
  if (socket.tls() == nullptr) return std::vector<std::byte>{};
  OFP_ASSIGN(const auto binding, socket.tls()->binding());
  return std::vector<std::byte>{binding.begin(), binding.end()};
}

Result<VerbsProofs> verbs_proofs(const SharedKey& key, const wire::Nonce& host_nonce, const wire::Nonce& agent_nonce,
                                 Bytes binding) {
  // shorter than any hello, so no proof of the handshake equals one of these
  static constexpr std::string_view said = "queue pair";
  const Bytes bytes = std::as_bytes(std::span(said));
  VerbsProofs proofs{};
  OFP_ASSIGN(proofs.host, key.prove(SharedKey::Side::host, host_nonce, agent_nonce, binding, bytes));
  OFP_ASSIGN(proofs.agent, key.prove(SharedKey::Side::agent, host_nonce, agent_nonce, binding, bytes));
  return proofs;
}

std::string network_reason(Address::Kind transport) {
  if (transport == Address::Kind::verbs) return std::string(verbs_reason);
  if (transport == Address::Kind::doca) return std::string(doca_reason);
  return fmt::format("another machine, or requested: the program's library serves reads and writes over {}",
                     transport == Address::Kind::tls ? "TLS" : "TCP");
}

}  // namespace offpath::link
