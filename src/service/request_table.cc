#include "service/request_table.h"

#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::service::detail {

namespace {

ServiceId by_scheme(std::string_view pool) noexcept {
  return pool.starts_with("sift:/") ? ServiceId::sift : ServiceId::pool;
}

}  // namespace

ServiceId pool_by_scheme(Bytes payload) noexcept {
  wire::PoolDrop said{};
  return wire::decode(payload, said) ? by_scheme(said.pool) : ServiceId::pool;
}

ServiceId drop_by_scheme(Bytes payload) noexcept {
  wire::PeerDrop said{};
  return wire::decode(payload, said) ? by_scheme(said.pool) : ServiceId::pool;
}

ServiceId definition_by_scheme(Bytes payload) noexcept {
  wire::PeerDefine said{};
  return wire::decode(payload, said) ? by_scheme(said.pool) : ServiceId::pool;
}

ServiceId release_by_number(Bytes payload) noexcept {
  wire::Release said{};
  return wire::decode(payload, said) && (said.lease & wire::answer_flag) != 0 ? ServiceId::query : ServiceId::pool;
}

ServiceId cancel_by_subject(Bytes payload) noexcept {
  wire::PeerCancel said{};
  if (!wire::decode(payload, said)) return ServiceId::pool;
  switch (said.what) {
    case wire::PeerCancel::What::query:
      return ServiceId::query;
    case wire::PeerCancel::What::receive:
      return ServiceId::message;
    case wire::PeerCancel::What::resources:
      return ServiceId::resources;
    case wire::PeerCancel::What::computation:
    case wire::PeerCancel::What::get:
      return ServiceId::pool;
  }
  return ServiceId::pool;
}

}  // namespace offpath::service::detail
