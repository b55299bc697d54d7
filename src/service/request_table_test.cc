// The table of requests as a whole, and kinds that two services share.
#include "service/request_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::service {
namespace {

using wire::EntryKind;

template <class Message>
std::vector<std::byte> bytes_of(const Message& message) {
  std::vector<std::byte> bytes;
  wire::encode(message, bytes);
  return bytes;
}

const RequestRow& row(EntryKind kind) { return *row_of(static_cast<std::uint8_t>(kind)); }

TEST(RequestTable, EachKindHasOneRow) {
  std::set<EntryKind> kinds;
  std::set<std::string_view> names;
  for (const RequestRow& each : request_rows) {
    EXPECT_TRUE(kinds.insert(each.kind).second) << each.name;
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_EQ(row_of(static_cast<std::uint8_t>(each.kind)), &each);
  }
}

TEST(RequestTable, KindsWithoutARowAreUnknown) {
  std::size_t known = 0;
  for (unsigned kind = 0; kind < 256; ++kind) known += row_of(static_cast<std::uint8_t>(kind)) != nullptr;
  EXPECT_EQ(known, std::size(request_rows));
  EXPECT_EQ(row_of(0), nullptr);
  EXPECT_EQ(row_of(255), nullptr);
}

TEST(RequestTable, RequestsOfMembersAreForMembersAlone) {
  for (const RequestRow& each : request_rows) {
    const bool for_members = each.name.starts_with("peer_") || each.kind == EntryKind::member_table;
    EXPECT_EQ(each.who == Who::member, for_members) << each.name;
  }
}

TEST(RequestTable, NoRequestIsLongerThanAnEntry) {
  for (const RequestRow& each : request_rows) EXPECT_LE(each.bytes_max, wire::entry_bytes_max) << each.name;
}

TEST(RequestTable, ServicesFitTheDispatchersArray) {
  for (const RequestRow& each : request_rows) {
    EXPECT_LT(static_cast<std::size_t>(each.service), services_max) << each.name;
    EXPECT_LT(static_cast<std::size_t>(each.also), services_max) << each.name;
    EXPECT_LT(static_cast<std::size_t>(each.also_third), services_max) << each.name;
  }
}

TEST(RequestTable, PoolsOfSchemeSiftAreTheSiftServices) {
  for (const auto& [pool, service] :
       {std::pair<std::string, ServiceId>{"sift:/a", ServiceId::sift}, {"hash:/a", ServiceId::pool}}) {
    wire::PoolDrop drop{};
    drop.pool = pool;
    EXPECT_EQ(service_of(row(EntryKind::pool_drop), bytes_of(drop)), service) << pool;
    wire::PeerDrop peer{};
    peer.pool = pool;
    EXPECT_EQ(service_of(row(EntryKind::peer_drop), bytes_of(peer)), service) << pool;
    wire::PeerDefine definition{};
    definition.pool = pool;
    EXPECT_EQ(service_of(row(EntryKind::peer_define), bytes_of(definition)), service) << pool;
  }
}

TEST(RequestTable, AnswersOfQueriesAreReleasedByTheQueryService) {
  EXPECT_EQ(service_of(row(EntryKind::release), bytes_of(wire::Release{7})), ServiceId::pool);
  EXPECT_EQ(service_of(row(EntryKind::release), bytes_of(wire::Release{7 | wire::answer_flag})), ServiceId::query);
}

TEST(RequestTable, ACancelGoesToTheServiceOfWhatIsCancelled) {
  using What = wire::PeerCancel::What;
  for (const auto& [what, service] : {std::pair{What::query, ServiceId::query},
                                      {What::receive, ServiceId::message},
                                      {What::get, ServiceId::pool},
                                      {What::resources, ServiceId::resources},
                                      {What::computation, ServiceId::pool}}) {
    wire::PeerCancel cancel{};
    cancel.what = what;
    EXPECT_EQ(service_of(row(EntryKind::peer_cancel), bytes_of(cancel)), service);
  }
}

TEST(RequestTable, ARequestThatCannotBeReadIsForTheFirstService) {
  const std::vector<std::byte> torn(1);
  for (const RequestRow& each : request_rows) EXPECT_EQ(service_of(each, torn), each.service) << each.name;
}

}  // namespace
}  // namespace offpath::service
