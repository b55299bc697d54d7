#include "pool/peers/member_requests.h"

#include <utility>

namespace offpath::pool {

std::uint64_t MemberRequests::ask(Asking asking, wire::EntryKind kind, TimeNs deadline, FramePtr object,
                                  std::uint32_t inbox_bytes, Compose compose, Effects& effects,
                                  std::vector<std::byte> body) {
  const std::uint64_t number = numbers_.take();
  service::AskEffect asked{service::token_of(service::ServiceId::peers, number),
                           asking.member,
                           kind,
                           deadline,
                           std::move(object),
                           inbox_bytes,
                           std::move(compose)};
  asked.body = std::move(body);
  effects.push_back(std::move(asked));
  askings_.emplace(number, std::move(asking));
  return number;
}

MemberRequests::Askings::node_type MemberRequests::take(std::uint64_t token) {
  return askings_.extract(service::number_of(token));
}

void MemberRequests::cancel(const std::string& member, wire::PeerCancel::What what, std::uint64_t number,
                            WaitCharge charge, TimeNs deadline, Effects& effects) {
  Asking asking{Asking::Kind::cancel, 0, member};
  asking.charge = std::move(charge);
  ask(
      std::move(asking), wire::EntryKind::peer_cancel, deadline, nullptr, 0,
      [what, number](const service::AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerCancel{what, number}, payload);
      },
      effects);
}

}  // namespace offpath::pool
