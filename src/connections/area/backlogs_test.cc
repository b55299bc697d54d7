#include "connections/area/backlogs.h"

#include <gtest/gtest.h>

#include "testing/sockets/area_parts.h"

namespace offpath::channel {
namespace {

using wire::TcpCommandKind;
namespace event = wire::tcp_event;

class BacklogsTest : public testing::Test {
 protected:
  using Handle = std::uint32_t;

  Handle listener(std::uint32_t backlog) {
    const Handle handle = parts.handles.take(0).value();
    parts.backlogs.begin(handle, backlog);
    parts.backlogs.fill(handle);
    return handle;
  }
  void arrive(Handle slot, std::uint64_t begun) {
    ASSERT_TRUE(parts.backlogs.is_expected(slot));
    parts.records.cell(slot).is = SocketCell::Is::flow;
    parts.records.cell(slot).next = no_handle;
    parts.records.cell(slot).begun = begun;
    parts.backlogs.arrived(slot);
  }
  std::vector<Handle> slots(std::uint32_t core = 0) {
    std::vector<Handle> all;
    for (const auto& each : parts.posted(TcpCommandKind::accept_slot, core)) all.push_back(each.handle);
    return all;
  }

  SocketOptions options{.flows = 32, .send_bytes = 4096, .receive_bytes = 4096};
  AreaParts parts{options};
};

TEST_F(BacklogsTest, TheOldestConnectionIsAcceptedFirst) {
  const Handle at = listener(3);
  const auto all = slots();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(parts.backlogs.oldest(at), no_handle);
  arrive(all[2], 5);
  arrive(all[0], 6);
  EXPECT_EQ(parts.backlogs.oldest(at), all[2]);
  parts.backlogs.accept(at, all[2]);
  parts.backlogs.fill(at);
  EXPECT_EQ(slots().size(), 1u) << "an accepted connection makes room for a slot";
  EXPECT_EQ(parts.backlogs.oldest(at), all[0]);
}

TEST_F(BacklogsTest, SlotsThatAreLackingFollowWhenHandlesAreFree) {
  const Handle at = listener(64);
  const auto all = slots();
  EXPECT_EQ(all.size(), options.flows - 1);
  EXPECT_FALSE(parts.backlogs.all_full());
  EXPECT_FALSE(parts.backlogs.may_fill());
  EXPECT_TRUE(parts.records.shared().is_unsettled());
  arrive(all[0], 1);
  parts.backlogs.accept(at, all[0]);
  parts.handles.give(all[0]);
  EXPECT_TRUE(parts.backlogs.may_fill());
  parts.backlogs.fill_some();
  EXPECT_EQ(slots(), std::vector{all[0]});
}

TEST_F(BacklogsTest, ASlotThatTheAgentGivesBackIsReplaced) {
  const Handle at = listener(2);
  const auto all = slots();
  parts.backlogs.returned(all[1]);
  EXPECT_FALSE(parts.backlogs.all_full());
  parts.backlogs.fill_some();
  EXPECT_EQ(slots().size(), 1u);
  EXPECT_TRUE(parts.backlogs.all_full());
  EXPECT_EQ(parts.records.accept_slots(at, 0).count, 2u);
}

TEST_F(BacklogsTest, AListenerThatEndsRefusesWhatWaits) {
  const Handle at = listener(4);
  const auto all = slots();
  arrive(all[1], 1);
  arrive(all[3], 2);
  std::vector<Handle> refused;
  parts.backlogs.dismiss(at, [&](Handle flow) { refused.push_back(flow); });
  EXPECT_EQ(refused, (std::vector{all[1], all[3]}));
  EXPECT_FALSE(parts.backlogs.is_expected(all[0])) << "its listener has ended, although the handle is the same";
  EXPECT_TRUE(parts.backlogs.all_full());
}

TEST(BacklogsOfCores, GetTheirSlotsWhenTheListenerIsThere) {
  AreaParts parts({.flows = 32, .send_bytes = 4096, .receive_bytes = 4096}, 2);
  const auto at = parts.handles.take(0).value();
  parts.backlogs.begin(at, 4);
  parts.backlogs.fill(at);
  EXPECT_EQ(parts.posted(TcpCommandKind::accept_slot, 0).size(), 3u) << "one and a half times its share";
  EXPECT_TRUE(parts.posted(TcpCommandKind::accept_slot, 1).empty());
  parts.records.cell(at).told |= event::listening;
  parts.backlogs.fill(at);
  EXPECT_EQ(parts.posted(TcpCommandKind::accept_slot, 1).size(), 3u);
}

TEST_F(BacklogsTest, WhatListenersLackIsCountedAnew) {
  static_cast<void>(listener(64));
  parts.records.shared().lacking.fill(7);
  parts.backlogs.begin_recount();
  for (Handle handle = 0; handle < options.flows; ++handle) parts.backlogs.recount(handle);
  EXPECT_EQ(parts.records.shared().lacking[0], 1u);
}

}  // namespace
}  // namespace offpath::channel
