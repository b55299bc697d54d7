// The agent's services and the table of requests: each row has a service, and requests of members are served only in a
// group.
#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "agent/services/dispatcher.h"
#include "service/request_table.h"

namespace offpath::agent {
namespace {

using service::OwnChannels;
using service::request_rows;
using service::RequestRow;

// An agent without a group, and a part of it that sends requests without bytes.
class ServicesTest : public testing::Test {
 protected:
  ServicesTest() {
    for (const RequestRow& row : request_rows) {
      if (row.service == service::ServiceId::channel) continue;
      dispatcher_.ask_own(own_, row.kind, {}, {}, 1, [this, &row](Result<OwnChannels::Reply> reply) {
        if (!reply) failures_.emplace(row.kind, reply.error());
      });
    }
  }
  [[nodiscard]] Failure failure(const RequestRow& row) const {
    const auto found = failures_.find(row.kind);
    return found != failures_.end() ? found->second : Failure{Error::closed, "no failure"};
  }

  std::map<wire::EntryKind, Failure> failures_;
  Dispatcher dispatcher_{{}, [](std::uint64_t, const std::function<Status()>&) {}};
  std::uint64_t own_ = dispatcher_.open_own(1000);
};

TEST_F(ServicesTest, EveryRequestOfTheTableHasAService) {
  ASSERT_GT(failures_.size(), std::size(request_rows) / 2);
  for (const RequestRow& row : request_rows)
    EXPECT_EQ(failure(row).message.find("does not serve"), std::string::npos) << row.name;
}

TEST_F(ServicesTest, WithoutAGroupRequestsOfMembersAreDenied) {
  for (const RequestRow& row : request_rows) {
    using enum service::ServiceId;
    const bool needs_group = row.service == group || row.service == resources;
    if (row.who != service::Who::member || needs_group) continue;  // there is none
    EXPECT_EQ(failure(row).code, Error::denied) << row.name;
  }
}

TEST_F(ServicesTest, WithoutAGroupATableOfMembersIsRefusedWithThatReason) {
  const Failure& why = failures_.at(wire::EntryKind::member_table);
  EXPECT_EQ(why.code, Error::unsupported);
  EXPECT_EQ(why.message, "this agent belongs to no group");
}

// Each service learns of the channel's opening and of its end.
TEST_F(ServicesTest, AChannelOfAPartOfTheAgentEndsAtEveryService) {
  dispatcher_.close_own(own_, 2);
  dispatcher_.poll(3);
  EXPECT_TRUE(dispatcher_.channels().empty());
  EXPECT_EQ(dispatcher_.mover().counters().operations, 0u);
}

}  // namespace
}  // namespace offpath::agent
