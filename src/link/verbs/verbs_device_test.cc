// Counts how much of an RDMA device an agent's channels share, over a device that is only a table of calls.
// verbs_link_test.cc has what a real one refuses.
#include "link/verbs/verbs_device.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "link/verbs/verbs_connection.h"
#include "link/verbs/verbs_host_link.h"
#include "testing/link/connected_pair.h"

namespace offpath::link {
namespace {

using wire::ControlType;

constexpr int remote_rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned windows_of_both_kinds = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

// Everything that is open, of one test.
struct Opened {
  std::set<ibv_context*> contexts;
  std::set<ibv_pd*> domains;
  std::map<ibv_mr*, int> regions;  // and their rights
  struct Window {
    ibv_qp* pair = nullptr;
    ibv_mw_bind_info range{};
  };
  std::map<ibv_mw*, Window> windows;
  std::deque<ibv_wc> completions;
  std::uint32_t next_key = 0x100;
  unsigned capabilities = windows_of_both_kinds;
  ibv_wc_status bind_status = IBV_WC_SUCCESS;
  bool completes = true;
  const void* read_only = nullptr;  // memory that this process may not write to
  int misuses = 0;

  [[nodiscard]] int regions_of(const ibv_pd* domain) const {
    return static_cast<int>(std::ranges::count_if(regions, [&](const auto& each) { return each.first->pd == domain; }));
  }
};
Opened* opened = nullptr;

ibv_mw* alloc_window(ibv_pd* domain, ibv_mw_type type) {
  auto* const window = new ibv_mw{domain->context, domain, opened->next_key += 0x100, 0, type};
  opened->windows.emplace(window, Opened::Window{});
  return window;
}
int free_window(ibv_mw* window) {
  opened->misuses += opened->windows.erase(window) == 0;
  delete window;
  return 0;
}
int post_bind(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr**) {
  const ibv_mw_bind_info& range = request->bind_mw.bind_info;
  const ibv_mr* region = range.mr;
  const auto first = reinterpret_cast<std::uint64_t>(region->addr);
  const int rights = opened->regions.at(range.mr);
  const bool allowed =
      request->opcode == IBV_WR_BIND_MW && (rights & IBV_ACCESS_MW_BIND) != 0 && region->pd == pair->pd &&
      range.addr >= first && range.length > 0 && range.addr + range.length <= first + region->length &&
      request->bind_mw.rkey != request->bind_mw.mw->rkey &&
      ((range.mw_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0 || (rights & IBV_ACCESS_LOCAL_WRITE) != 0);
  opened->misuses += !allowed;
  if (opened->bind_status == IBV_WC_SUCCESS) opened->windows.at(request->bind_mw.mw) = {pair, range};
  ibv_wc done{};
  done.wr_id = request->wr_id;
  done.status = opened->bind_status;
  opened->completions.push_back(done);
  return 0;
}
int poll_completions(ibv_cq*, int, ibv_wc* completion) {
  if (opened->completions.empty() || !opened->completes) return 0;
  *completion = opened->completions.front();
  opened->completions.pop_front();
  return 1;
}

VerbsCallsPtr stand_in_calls() {
  auto calls = std::make_shared<VerbsCalls>();
  calls->ibv_open_device = [](ibv_device* device) {
    auto* const context = new ibv_context{};
    context->device = device;
    context->ops.alloc_mw = alloc_window;
    context->ops.dealloc_mw = free_window;
    context->ops.post_send = post_bind;
    context->ops.poll_cq = poll_completions;
    return *opened->contexts.insert(context).first;
  };
  calls->ibv_close_device = [](ibv_context* context) {
    for (const ibv_pd* domain : opened->domains) opened->misuses += domain->context == context;
    opened->misuses += opened->contexts.erase(context) == 0;
    delete context;
    return 0;
  };
  calls->ibv_query_device = [](ibv_context*, ibv_device_attr* limits) {
    limits->max_qp_wr = 1024;
    limits->max_mw = 1024;
    limits->device_cap_flags = static_cast<int>(opened->capabilities);
    return 0;
  };
  calls->ibv_alloc_pd = [](ibv_context* context) {
    auto* const domain = new ibv_pd{};
    domain->context = context;
    return *opened->domains.insert(domain).first;
  };
  calls->ibv_dealloc_pd = [](ibv_pd* domain) {
    opened->misuses += opened->domains.erase(domain) == 0 || opened->regions_of(domain) != 0;
    delete domain;
    return 0;
  };
  calls->ibv_reg_mr = [](ibv_pd* domain, void* base, std::size_t length, int rights) -> ibv_mr* {
    if (base == opened->read_only && (rights & ~IBV_ACCESS_REMOTE_READ) != 0) {  // as the kernel does
      errno = EFAULT;
      return nullptr;
    }
    auto* const region = new ibv_mr{};
    region->context = domain->context;
    region->pd = domain;
    region->addr = base;
    region->length = length;
    region->lkey = region->rkey = opened->next_key += 0x100;
    opened->regions.emplace(region, rights);
    return region;
  };
  calls->ibv_dereg_mr = [](ibv_mr* region) {
    for (const auto& [window, bound] : opened->windows)
      opened->misuses += bound.pair != nullptr && bound.range.mr == region;
    opened->misuses += opened->regions.erase(region) == 0;
    delete region;
    return 0;
  };
  calls->ibv_create_comp_channel = [](ibv_context* context) {
    auto* const channel = new ibv_comp_channel{};
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC);
    return channel;
  };
  calls->ibv_destroy_comp_channel = [](ibv_comp_channel* channel) {
    close(channel->fd);
    delete channel;
    return 0;
  };
  calls->ibv_create_cq = [](ibv_context* context, int, void*, ibv_comp_channel*, int) {
    auto* const queue = new ibv_cq{};
    queue->context = context;
    return queue;
  };
  calls->ibv_destroy_cq = [](ibv_cq* queue) {
    delete queue;
    return 0;
  };
  calls->ibv_create_qp = [](ibv_pd* domain, ibv_qp_init_attr*) {
    auto* const pair = new ibv_qp{};
    pair->context = domain->context;
    pair->pd = domain;
    return pair;
  };
  calls->ibv_destroy_qp = [](ibv_qp* pair) {
    for (const auto& [window, bound] : opened->windows) opened->misuses += bound.pair == pair;
    delete pair;
    return 0;
  };
  calls->ibv_wc_status_str = [](ibv_wc_status) { return "as the test wants it"; };
  return calls;
}

class VerbsDeviceTest : public testing::Test {
 protected:
  VerbsDeviceTest() {
    opened = &opened_;
    std::strcpy(device_.name, "stand-in0");  // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
  }
  ~VerbsDeviceTest() override {
    EXPECT_EQ(opened_.misuses, 0);
    EXPECT_TRUE(opened_.contexts.empty() && opened_.domains.empty() && opened_.regions.empty());
    EXPECT_TRUE(opened_.windows.empty());
  }

  VerbsConnection connect(bool posts, std::shared_ptr<CardDevices> devices) {
    VerbsConnection made;
    made.calls = calls_;
    made.devices = std::move(devices);
    const Status status = open_queue_pair(made, &device_, posts);
    EXPECT_TRUE(status) << status.error().message;
    return made;
  }
  VerbsConnection agents_end() { return connect(true, devices_); }
  VerbsConnection hosts_end() { return connect(false, devices_); }
  RemoteMemory expose(VerbsConnection& connection, MutableBytes memory, bool written) {
    auto made = connection.expose(memory, written);
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : RemoteMemory();
  }
  void expect_no_rights(const ibv_pd* domain) {
    for (const auto& [region, rights] : opened_.regions)
      EXPECT_TRUE(region->pd != domain || (rights & remote_rights) == 0);
  }

  Opened opened_;
  ibv_device device_{};
  VerbsCallsPtr calls_ = stand_in_calls();
  std::shared_ptr<LastingMemory> lasting_ = std::make_shared<LastingMemory>();
  std::shared_ptr<CardDevices> devices_ = std::make_shared<CardDevices>(lasting_);
  std::vector<std::byte> frame_ = std::vector<std::byte>(100'000);
};

TEST_F(VerbsDeviceTest, AnAgentOpensADeviceOnceForAllItsChannels) {
  std::vector<VerbsConnection> channels;
  for (int i = 0; i < 8; ++i) channels.push_back(i % 2 == 0 ? agents_end() : hosts_end());
  EXPECT_EQ(opened_.contexts.size(), 1u);
  EXPECT_EQ(opened_.domains.size(), 1u);
  EXPECT_EQ(devices_->figures().devices, 1u);
  channels.clear();
  EXPECT_EQ(opened_.contexts.size(), 0u) << "closed with the last channel";
  EXPECT_EQ(devices_->figures().devices, 0u);
  channels.push_back(agents_end());
  EXPECT_EQ(opened_.contexts.size(), 1u);
}

TEST_F(VerbsDeviceTest, AProgramHasADeviceAndADomainForEachChannel) {
  std::vector<VerbsConnection> channels;
  for (int i = 0; i < 3; ++i) channels.push_back(connect(false, nullptr));
  EXPECT_EQ(opened_.contexts.size(), 3u);
  EXPECT_EQ(opened_.domains.size(), 3u);
  const RemoteMemory range = expose(channels[0], frame_, false);
  EXPECT_EQ(opened_.regions_of(channels[0].domain()), 1);
  EXPECT_EQ(opened_.regions.begin()->second, IBV_ACCESS_REMOTE_READ);
}

TEST_F(VerbsDeviceTest, AFrameIsRegisteredOnceForAllMembersAndEachHasAKeyOfItsOwn) {
  lasting_->add(frame_.data(), frame_.size());
  VerbsConnection program = agents_end();
  std::vector<VerbsConnection> members;
  for (int i = 0; i < 4; ++i) members.push_back(hosts_end());
  std::vector<RemoteMemory> ranges;
  std::set<std::uint32_t> keys;
  const MutableBytes object(frame_.data() + 4096, 50'000);
  for (VerbsConnection& each : members) keys.insert(ranges.emplace_back(expose(each, object, false)).key());
  EXPECT_EQ(keys.size(), members.size());
  EXPECT_EQ(opened_.regions.size(), 1u);
  EXPECT_EQ(devices_->figures().pinned_bytes, object.size());
  expect_no_rights(program.domain());
  std::set<ibv_qp*> pairs;
  for (const auto& [window, bound] : opened_.windows) {
    EXPECT_EQ(window->type, IBV_MW_TYPE_2) << "others are not bound to a queue pair";
    EXPECT_EQ(bound.range.addr, reinterpret_cast<std::uint64_t>(object.data()));
    EXPECT_EQ(bound.range.length, object.size());
    EXPECT_EQ(bound.range.mw_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
    pairs.insert(bound.pair);
  }
  EXPECT_EQ(pairs.size(), members.size()) << "each member's queue pair alone may use its key";
  // One member's key ends, and the others' do not.
  ranges.pop_back();
  EXPECT_EQ(opened_.windows.size(), members.size() - 1);
  EXPECT_EQ(opened_.regions.size(), 1u);
  ranges.clear();
  EXPECT_EQ(opened_.regions.size(), 0u);
  EXPECT_EQ(devices_->figures().pinned_bytes, 0u);
}

TEST_F(VerbsDeviceTest, MemoryMappedAnewAtOneAddressIsRegisteredAnew) {
  VerbsConnection one = hosts_end(), other = hosts_end();
  lasting_->add(frame_.data(), frame_.size());
  const RemoteMemory before = expose(one, frame_, false);
  lasting_->remove(frame_.data());
  lasting_->add(frame_.data(), frame_.size());
  const RemoteMemory after = expose(other, frame_, false);
  EXPECT_EQ(opened_.regions.size(), 2u);
}

TEST_F(VerbsDeviceTest, WhatIsNotKnownToLastIsRegisteredForEachChannel) {
  VerbsConnection one = hosts_end(), other = hosts_end();
  const RemoteMemory first = expose(one, frame_, false), second = expose(other, frame_, false);
  EXPECT_EQ(opened_.regions.size(), 2u);
  lasting_->add(frame_.data(), frame_.size());
  const RemoteMemory third = expose(one, frame_, true), fourth = expose(other, frame_, true);
  EXPECT_EQ(opened_.regions.size(), 4u) << "segments may be unmapped before their keys end";
  expect_no_rights(one.domain());
}

TEST_F(VerbsDeviceTest, MemoryThatTheAgentItselfMayOnlyReadIsReadWithoutAWindow) {
  VerbsConnection member = hosts_end();
  opened_.read_only = frame_.data();
  const RemoteMemory range = expose(member, frame_, false);
  ASSERT_TRUE(range);
  EXPECT_TRUE(opened_.windows.empty());
  ASSERT_EQ(opened_.regions.size(), 1u);
  EXPECT_EQ(opened_.regions.begin()->second, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(range.key(), opened_.regions.begin()->first->rkey);
  const auto segment = member.expose(frame_, true);
  ASSERT_FALSE(segment) << "nothing may be written there";
  EXPECT_EQ(segment.error().code, Error::unreadable);
}

TEST_F(VerbsDeviceTest, AKeyThatReplacesAnotherEndsIt) {
  VerbsConnection member = hosts_end();
  RemoteMemory range = expose(member, frame_, false);
  std::vector<std::byte> other(4096);
  range = expose(member, other, false);
  EXPECT_EQ(opened_.regions.size(), 1u);
  EXPECT_EQ(opened_.windows.size(), 1u);
  EXPECT_EQ(opened_.regions.begin()->first->addr, other.data());
}

TEST_F(VerbsDeviceTest, WithoutWindowsEachMemberHasADomainOfItsOwn) {
  opened_.capabilities = 0;
  lasting_->add(frame_.data(), frame_.size());
  VerbsConnection program = agents_end();
  std::vector<VerbsConnection> members;
  std::vector<RemoteMemory> ranges;
  for (int i = 0; i < 3; ++i) members.push_back(hosts_end());
  for (VerbsConnection& each : members) ranges.push_back(expose(each, frame_, false));
  EXPECT_EQ(opened_.contexts.size(), 1u);
  EXPECT_EQ(opened_.domains.size(), 1 + members.size());
  EXPECT_EQ(opened_.regions.size(), members.size());
  EXPECT_EQ(opened_.regions_of(program.domain()), 0) << "remote rights in the shared domain";
  for (const VerbsConnection& each : members) EXPECT_EQ(opened_.regions_of(each.domain()), 1);
  ranges.clear();
}

TEST_F(VerbsDeviceTest, AWindowThatIsNotBoundIsNoKey) {
  VerbsConnection member = hosts_end();
  opened_.bind_status = IBV_WC_MW_BIND_ERR;
  auto refused = member.expose(frame_, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::io);
  EXPECT_TRUE(opened_.windows.empty() && opened_.regions.empty());
  opened_.completes = false;
  auto late = member.expose(frame_, false);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Error::io);
  // The late completion is not taken for that of the next one.
  opened_.completes = true;
  opened_.bind_status = IBV_WC_SUCCESS;
  const RemoteMemory next = expose(member, frame_, false);
  EXPECT_TRUE(next);
}

class VerbsHostLinkTest : public VerbsDeviceTest {
 protected:
  static constexpr wire::ChannelLayout layout{.request_slots = 512, .reply_slots = 256, .streams_max = 1};

  // A link whose agent is the test, which has taken the channel segment.
  void meet(std::shared_ptr<CardDevices> devices) {
    Address address;
    address.kind = Address::Kind::tcp;
    address.host = "127.0.0.1";
    Sockets sockets = connect_sockets(address);
    agent_ = std::move(sockets.agent);
    const wire::RegionId segment = wire::channel_segment;
    ASSERT_TRUE(agent_.send(ControlType::segment_ok, std::as_bytes(std::span(&segment, 1))));
    auto memory = allocate_shared(layout.total_bytes());
    ASSERT_TRUE(memory);
    auto made = VerbsHostLink::create(std::move(sockets.host), connect(false, std::move(devices)), std::move(*memory),
                                      layout.outside(), {}, soon());
    ASSERT_TRUE(made) << made.error().message;
    link_ = std::move(*made);
  }
  wire::SegmentNotice next_notice() {
    ControlSocket::Frame frame;
    for (const TimeNs deadline = soon(); monotonic_ns() < deadline;) {
      const auto there = agent_.next(frame);
      OFP_ASSERT(there);
      if (!*there) continue;
      EXPECT_EQ(frame.type, ControlType::segment);
      return wire::decode_segment_notice(frame.payload).value();
    }
    ADD_FAILURE() << "nothing was announced";
    return {};
  }
  [[nodiscard]] std::uint64_t pinned() const { return devices_->figures().pinned_bytes; }

  ControlSocket agent_;
  std::unique_ptr<VerbsHostLink> link_;
};

TEST_F(VerbsHostLinkTest, AnIdleMemberPinsItsRingsAlone) {
  meet(devices_);
  if (HasFatalFailure()) return;
  const auto base = reinterpret_cast<std::uint64_t>(link_->channel_memory().data());
  const wire::SegmentNotice rings = next_notice();
  EXPECT_EQ(std::tuple(rings.region, rings.address, rings.length),
            std::tuple(wire::channel_segment, base, layout.outside()));
  EXPECT_EQ(pinned(), layout.outside());
  EXPECT_LE(pinned(), 64u << 10);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(link_->offer_outside());
    ASSERT_TRUE(link_->offer_outside());  // the next request finds it announced
    const wire::SegmentNotice rest = next_notice();
    EXPECT_EQ(std::tuple(rest.region, rest.address, rest.length),
              std::tuple(wire::outside_part, base + layout.outside(), wire::entry_bytes_max));
    EXPECT_EQ(pinned(), layout.total_bytes());
    link_->withdraw_outside();
    EXPECT_EQ(pinned(), layout.total_bytes()) << "the agent may still read it";
    ControlSocket::Frame frame;
    while (!agent_.next(frame).value()) {
    }
    ASSERT_EQ(frame.type, ControlType::withdraw);
    ASSERT_TRUE(agent_.send(ControlType::withdrawn, frame.payload));
    for (const TimeNs deadline = soon(); pinned() != layout.outside() && monotonic_ns() < deadline;)
      ASSERT_TRUE(link_->look());
    EXPECT_EQ(pinned(), layout.outside());
  }
  // The other side reads the rest, and writes to the rings.
  for (const auto& [window, bound] : opened_.windows)
    EXPECT_EQ(bound.range.mw_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE));
  link_.reset();
}

TEST_F(VerbsHostLinkTest, AProgramAnnouncesItsChannelSegmentWhole) {
  meet(nullptr);
  if (HasFatalFailure()) return;
  EXPECT_EQ(next_notice().length, layout.total_bytes());
  ASSERT_TRUE(link_->offer_outside());
  EXPECT_EQ(opened_.regions.size(), 1u);
  link_.reset();
}

}  // namespace
}  // namespace offpath::link
