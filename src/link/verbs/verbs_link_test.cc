// Misbehaviour over RDMA: agents with forged keys, addresses and lengths, programs that try to reach agent memory, and
// third parties. Everything here posts work requests by hand. Needs an RDMA device; ./dev hw runs it in a guest that
// has one.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "link/card/registered_memory.h"
#include "link/control/authentication.h"
#include "link/stream/stream_host_link.h"
#include "link/verbs/verbs_connection.h"
#include "link/verbs/verbs_link.h"
#include "testing/link/connected_pair.h"

namespace offpath::link {
namespace {

constexpr std::uint64_t channel_bytes = 64 * 1024;
constexpr ChannelBytes whole{channel_bytes, channel_bytes};

VerbsProofs new_proofs() { return {random_nonce(), random_nonce()}; }

// One hand-made work request, and its completion.
struct Attempt {
  ibv_wr_opcode opcode = IBV_WR_RDMA_READ;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t length = 64;
};

class VerbsLink : public testing::Test {
 protected:
  void SetUp() override {
    auto found = rdma_address();
    if (!found) GTEST_SKIP() << found.error().message;
    address_.kind = Address::Kind::verbs;
    address_.host = *found;
  }

  // A program made by the library, and an agent controlled by the test: it knows the proofs, and then misbehaves.
  // `devices`: the program is another agent, which has these.
  void meet_hostile_agent(std::shared_ptr<CardDevices> devices = nullptr) {
    Sockets sockets = connect_sockets(address_);
    agent_socket_ = std::move(sockets.agent);
    const VerbsProofs proofs = new_proofs();
    auto listening = listen_for_queue_pair(agent_socket_, nullptr);
    ASSERT_TRUE(listening) << listening.error().message;
    agent_ = std::make_unique<VerbsConnection>(std::move(*listening));
    const std::uint64_t port = port_of(*agent_);
    ASSERT_TRUE(agent_socket_.send(wire::ControlType::rendezvous, std::as_bytes(std::span(&port, 1))));
    Status met;
    std::thread agent([&] {
      met = [&]() -> Status {
        for (bool ready = false; !ready;) {
          OFP_ASSIGN(ready, advance_accept(*agent_, proofs));
          std::this_thread::yield();
        }
        OFP_ASSIGN(const ControlSocket::Frame frame, await_frame(agent_socket_, soon()));
        OFP_ASSIGN(channel_, wire::decode_segment_notice(frame.payload));
        return agent_socket_.send(wire::ControlType::segment_ok, std::as_bytes(std::span(&channel_.region, 1)));
      }();
    });
    auto memory = allocate_shared(channel_bytes);
    OFP_ASSERT(memory);
    auto host = connect_verbs(std::move(sockets.host), proofs, std::move(*memory), channel_bytes, {},
                              std::move(devices), soon());
    agent.join();
    ASSERT_TRUE(met) << met.error().message;
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
  }

  // Posted on `connection`, from and to memory registered there for that.
  static ibv_wc_status attempt(VerbsConnection& connection, const Attempt& what) {
    static std::array<std::byte, 2 * channel_bytes> local;
    local.fill(std::byte{0xEE});
    auto region =
        register_memory(*connection.calls, connection.domain(), local.data(), local.size(), IBV_ACCESS_LOCAL_WRITE);
    OFP_ASSERT(region);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(local.data()), what.length, (*region)->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = what.opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    if (what.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic.remote_addr = what.address;
      request.wr.atomic.rkey = what.key;
      request.wr.atomic.compare_add = 1;
    } else {
      request.wr.rdma.remote_addr = what.address;
      request.wr.rdma.rkey = what.key;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(connection.pair.get(), &request, &bad) != 0) return IBV_WC_LOC_QP_OP_ERR;
    ibv_wc completion{};
    for (const TimeNs deadline = soon(); ibv_poll_cq(connection.queue.get(), 1, &completion) == 0;)
      if (monotonic_ns() > deadline) return IBV_WC_RESP_TIMEOUT_ERR;
    if (completion.status != IBV_WC_SUCCESS && what.opcode == IBV_WR_RDMA_READ) {
      EXPECT_TRUE(std::ranges::all_of(local, [](std::byte b) { return b == std::byte{0xEE}; }))
          << "a read that failed brought bytes";
    }
    return completion.status;
  }

  Address address_;
  ControlSocket agent_socket_;
  std::unique_ptr<VerbsConnection> agent_;
  wire::SegmentNotice channel_{};
  std::unique_ptr<HostLink> host_;
};

// The program is one, or another agent, whose channels share a device.
class ReachOfAnAgent : public VerbsLink, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(, ReachOfAnAgent, testing::Bool(),
                         [](const auto& test) { return test.param ? "member" : "program"; });

TEST_P(ReachOfAnAgent, IsWhatWasAnnouncedAndNothingElse) {
  const auto lasting = std::make_shared<LastingMemory>();
  const auto devices = GetParam() ? std::make_shared<CardDevices>(lasting) : nullptr;
  enum class Target { segment, range, retired, hidden };
  const struct {
    const char* name;
    Target target;
    ibv_wr_opcode opcode;
    std::int64_t offset;
    std::uint32_t key_change;
    std::uint32_t length;
    bool permitted;
  } cases[] = {
      {"a read of the segment", Target::segment, IBV_WR_RDMA_READ, 0, 0, 4096, true},
      {"a write to the segment", Target::segment, IBV_WR_RDMA_WRITE, 64, 0, 64, true},
      {"a read of the range", Target::range, IBV_WR_RDMA_READ, 0, 0, 1000, true},
      {"a write to the range", Target::range, IBV_WR_RDMA_WRITE, 0, 0, 64, false},
      {"an atomic operation on the segment", Target::segment, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 8, false},
      {"an atomic operation on the range", Target::range, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 8, false},
      {"the byte before the range", Target::range, IBV_WR_RDMA_READ, -1, 0, 1, false},
      {"the byte after the range", Target::range, IBV_WR_RDMA_READ, 1000, 0, 1, false},
      {"a length beyond the range", Target::range, IBV_WR_RDMA_READ, 999, 0, 2, false},
      {"a length beyond the segment", Target::segment, IBV_WR_RDMA_WRITE, channel_bytes - 8, 0, 16, false},
      {"an address that wraps around", Target::segment, IBV_WR_RDMA_WRITE, INT64_MIN, 0, 64, false},
      {"a key with another low byte", Target::range, IBV_WR_RDMA_READ, 0, 1, 8, false},
      {"a key with another index", Target::segment, IBV_WR_RDMA_WRITE, 0, 0x100, 8, false},
      {"a key of nothing", Target::segment, IBV_WR_RDMA_READ, 0, 0x8000'0000u, 8, false},
      {"a range that was withdrawn", Target::retired, IBV_WR_RDMA_READ, 0, 0, 8, false},
      {"memory never announced, with the range's key", Target::hidden, IBV_WR_RDMA_READ, 0, 0, 64, false},
      {"memory never announced, with the segment's key", Target::hidden, IBV_WR_RDMA_WRITE, 0, 0, 64, false},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    meet_hostile_agent(devices);
    if (HasFatalFailure()) return;
    std::vector<std::byte> range(1002, std::byte{0x11}), hidden(64, std::byte{0x22});
    const std::byte* const announced = range.data() + 1;
    auto key = host_->announce_range(7, 1, announced, 1000);
    ASSERT_TRUE(key) << key.error().message;
    if (one.target == Target::retired) host_->retire_range(7, 1);
    std::ranges::fill(host_->channel_memory(), std::byte{0x33});

    const bool of_segment =
        one.target == Target::segment || (one.target == Target::hidden && one.opcode == IBV_WR_RDMA_WRITE);
    Attempt attempt_{one.opcode, 0, (of_segment ? channel_.key : *key) ^ one.key_change, one.length};
    const std::uint64_t base = one.target == Target::segment  ? channel_.address
                               : one.target == Target::hidden ? reinterpret_cast<std::uint64_t>(hidden.data())
                                                              : reinterpret_cast<std::uint64_t>(announced);
    attempt_.address = base + static_cast<std::uint64_t>(one.offset);
    const ibv_wc_status status = attempt(*agent_, attempt_);
    EXPECT_EQ(status == IBV_WC_SUCCESS, one.permitted) << agent_->calls->ibv_wc_status_str(status);
    EXPECT_NE(status, IBV_WC_RESP_TIMEOUT_ERR) << "the host's device did not answer";

    EXPECT_TRUE(std::ranges::all_of(range, [](std::byte b) { return b == std::byte{0x11}; }));
    EXPECT_TRUE(std::ranges::all_of(hidden, [](std::byte b) { return b == std::byte{0x22}; }));
    const auto changed =
        std::ranges::count_if(host_->channel_memory(), [](std::byte b) { return b != std::byte{0x33}; });
    EXPECT_EQ(changed, one.permitted && one.opcode == IBV_WR_RDMA_WRITE ? 64 : 0);
    host_.reset();
    agent_->close();
  }
}

TEST_P(ReachOfAnAgent, IsMemoryThatTheHostItselfMayOnlyRead) {
  const auto devices = GetParam() ? std::make_shared<CardDevices>(nullptr) : nullptr;
  // Private: Linux 6.1 registers no shared memory that may only be read.
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::fill_n(static_cast<std::byte*>(mapped), 4096, std::byte{0x55});
  ASSERT_EQ(::mprotect(mapped, 4096, PROT_READ), 0);
  const auto at = reinterpret_cast<std::uint64_t>(mapped);
  for (const bool writes : {false, true}) {
    meet_hostile_agent(devices);
    if (HasFatalFailure()) return;
    auto key = host_->announce_range(7, 1, mapped, 4096);
    ASSERT_TRUE(key) << key.error().message;
    const ibv_wc_status status = attempt(*agent_, {writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, at, *key, 4096});
    EXPECT_EQ(status == IBV_WC_SUCCESS, !writes) << agent_->calls->ibv_wc_status_str(status);
    EXPECT_EQ(*static_cast<std::byte*>(mapped), std::byte{0x55});
    host_.reset();
    agent_->close();
  }
  ::munmap(mapped, 4096);
}

// Two members have keys of one agent's memory, and one of them tries the other's.
TEST_F(VerbsLink, AMemberReachesNothingByAnothersKeys) {
  const auto lasting = std::make_shared<LastingMemory>();
  const auto devices = std::make_shared<CardDevices>(lasting);
  std::vector<std::byte> range(4096, std::byte{0x11});
  lasting->add(range.data(), range.size());
  meet_hostile_agent(devices);
  if (HasFatalFailure()) return;
  const auto first = std::move(host_);
  const auto first_agent = std::move(agent_);
  const ControlSocket first_socket = std::move(agent_socket_);
  const wire::SegmentNotice first_channel = channel_;
  auto first_key = first->announce_range(7, 1, range.data(), range.size());
  ASSERT_TRUE(first_key) << first_key.error().message;
  std::ranges::fill(first->channel_memory(), std::byte{0x33});
  const auto at = reinterpret_cast<std::uint64_t>(range.data());
  const struct {
    const char* name;
    Attempt attempt;
  } cases[] = {{"a read of the other's range", {IBV_WR_RDMA_READ, at, *first_key, 64}},
               {"a read of the other's segment", {IBV_WR_RDMA_READ, first_channel.address, first_channel.key, 64}},
               {"a write to the other's segment", {IBV_WR_RDMA_WRITE, first_channel.address, first_channel.key, 64}}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    meet_hostile_agent(devices);
    if (HasFatalFailure()) return;
    auto key = host_->announce_range(7, 1, range.data(), range.size());
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_NE(*key, *first_key);
    EXPECT_EQ(attempt(*agent_, {IBV_WR_RDMA_READ, at, *key, 64}), IBV_WC_SUCCESS) << "its own key";
    const ibv_wc_status status = attempt(*agent_, one.attempt);
    EXPECT_NE(status, IBV_WC_SUCCESS);
    EXPECT_NE(status, IBV_WC_RESP_TIMEOUT_ERR) << "the host's device did not answer";
    EXPECT_TRUE(std::ranges::all_of(first->channel_memory(), [](std::byte b) { return b == std::byte{0x33}; }));
    host_.reset();
    agent_->close();
  }
  // The keys of the first one are as good as before.
  EXPECT_EQ(attempt(*first_agent, {IBV_WR_RDMA_READ, at, *first_key, 64}), IBV_WC_SUCCESS);
  lasting->remove(range.data());
}

// An agent as host pins the rings of its channel segment, and the rest when a request is stored there.
TEST_F(VerbsLink, AMembersChannelSegmentIsAnnouncedAsItIsNeeded) {
  constexpr std::uint64_t all_bytes = channel_bytes + (512 << 10);
  const auto devices = std::make_shared<CardDevices>(nullptr);
  Sockets sockets = connect_sockets(address_);
  const VerbsProofs proofs = new_proofs();
  auto agent = accept_verbs(std::move(sockets.agent), proofs, {all_bytes, channel_bytes}, {}, devices, soon());
  ASSERT_TRUE(agent) << agent.error().message;
  std::atomic<bool> connected = false;
  std::thread loop([&] {
    while (!connected) (*agent)->poll(monotonic_ns(), {});
  });
  auto memory = allocate_shared(all_bytes);
  OFP_ASSERT(memory);
  auto host = connect_verbs(std::move(sockets.host), proofs, std::move(*memory), channel_bytes, {}, devices, soon());
  connected = true;
  loop.join();
  ASSERT_TRUE(host) << host.error().message;
  const MutableBytes theirs = (*host)->channel_memory();
  for (std::uint64_t i = 0; i < all_bytes; ++i) theirs[i] = static_cast<std::byte>(i * 7 + i / 4096);
  const std::uint64_t idle_bytes = devices->figures().pinned_bytes;
  EXPECT_EQ(devices->figures().devices, 1u);
  EXPECT_LE(idle_bytes, channel_bytes + BouncePool::block_bytes);
  std::vector<std::byte> seen(300'000);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE((*host)->offer_outside());
    std::ranges::fill(seen, std::byte{0});
    const ReadPiece piece{wire::channel_segment, 0, channel_bytes - 100, seen.data(), seen.size()};
    ASSERT_TRUE(read_one(**agent, piece));
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), theirs.begin() + static_cast<std::ptrdiff_t>(piece.offset)));
    EXPECT_GE(devices->figures().pinned_bytes, all_bytes);
    (*host)->withdraw_outside();
    for (const TimeNs deadline = soon(); devices->figures().pinned_bytes >= all_bytes && monotonic_ns() < deadline;) {
      (*agent)->poll(monotonic_ns(), {});
      ASSERT_TRUE((*host)->look());
    }
    EXPECT_LT(devices->figures().pinned_bytes, all_bytes);
    const WritePiece written{wire::channel_segment, 64, seen.data(), 4096};
    ASSERT_TRUE(write_one(**agent, written)) << "the rings stay";
    EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + 4096, theirs.begin() + 64));
    for (std::uint64_t i = 0; i < all_bytes; ++i) theirs[i] = static_cast<std::byte>(i * 7 + i / 4096);
  }
}

// The connected program tries to read and write the real agent's memory.
TEST_F(VerbsLink, AProgramReachesNothingOfTheAgent) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Sockets sockets = connect_sockets(address_);
    const VerbsProofs proofs = new_proofs();
    auto agent = accept_verbs(std::move(sockets.agent), proofs, whole, {}, nullptr, soon());
    ASSERT_TRUE(agent) << agent.error().message;
    auto frame = await_frame(sockets.host, soon());
    ASSERT_TRUE(frame && frame->type == wire::ControlType::rendezvous);
    auto port = wire::decode_number(frame->payload);
    ASSERT_TRUE(port);
    std::atomic<bool> done = false;
    std::thread loop([&] {
      while (!done) (*agent)->poll(monotonic_ns(), {});
    });
    auto host = connect_queue_pair(sockets.host, static_cast<std::uint16_t>(*port), proofs, nullptr, soon(), 4);
    EXPECT_TRUE(host) << host.error().message;
    std::vector<std::byte> victim(4096, std::byte{0x44});
    if (host) {
      // The device checks the queue pair's rights before the key, so any key will do.
      const ibv_wc_status status = attempt(*host, {opcode, reinterpret_cast<std::uint64_t>(victim.data()), 0x1234, 8});
      EXPECT_NE(status, IBV_WC_SUCCESS);
      EXPECT_NE(status, IBV_WC_RESP_TIMEOUT_ERR);
    }
    done = true;
    loop.join();
    EXPECT_TRUE(std::ranges::all_of(victim, [](std::byte b) { return b == std::byte{0x44}; }));
  }
}

// Frames are registered once. A later frame at the same address is registered again.
TEST_F(VerbsLink, MemoryMappedAnewAtOneAddressIsRegisteredAnew) {
  constexpr std::uint64_t length = 2 * KeptRegions::window_bytes + 300'000;
  Sockets sockets = connect_sockets(address_);
  const VerbsProofs proofs = new_proofs();
  auto lasting = std::make_shared<LastingMemory>();
  auto devices = std::make_shared<CardDevices>(lasting);
  auto agent = accept_verbs(std::move(sockets.agent), proofs, whole, {}, devices, soon());
  ASSERT_TRUE(agent) << agent.error().message;
  std::atomic<bool> connected = false;
  std::thread loop([&] {
    while (!connected) (*agent)->poll(monotonic_ns(), {});
  });
  auto memory = allocate_shared(channel_bytes);
  OFP_ASSERT(memory);
  auto host = connect_verbs(std::move(sockets.host), proofs, std::move(*memory), channel_bytes, {}, nullptr, soon());
  connected = true;
  loop.join();
  ASSERT_TRUE(host) << host.error().message;

  std::vector<std::byte> source(length);
  for (std::uint64_t i = 0; i < length; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 4096);
  auto key = (*host)->announce_range(3, 1, source.data(), length);
  ASSERT_TRUE(key) << key.error().message;
  ASSERT_TRUE((*agent)->attach_range(3, 1, reinterpret_cast<std::uint64_t>(source.data()), length, *key));
  void* at = nullptr;
  for (int round = 0; round < 3; ++round) {
    const int fixed = at == nullptr ? 0 : MAP_FIXED;
    at = ::mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    auto* target = static_cast<std::byte*>(at);
    lasting->add(target, length);
    for (const std::uint64_t offset : {std::uint64_t{1}, KeptRegions::window_bytes - 5, std::uint64_t{0}}) {
      std::fill_n(target, length, std::byte{0});
      const ReadPiece piece{3, 1, offset, target + offset, length - offset};
      ASSERT_TRUE(read_one(**agent, piece));
      ASSERT_TRUE(std::equal(source.begin() + static_cast<std::ptrdiff_t>(offset), source.end(), target + offset))
          << "round " << round;
      ASSERT_TRUE(std::all_of(target, target + offset, [](std::byte b) { return b == std::byte{0}; }));
    }
    lasting->remove(target);
  }
  ::munmap(at, length);
}

TEST_F(VerbsLink, AStrangerAtThePortIsRejectedAndTheProgramIsNot) {
  Sockets sockets = connect_sockets(address_), others = connect_sockets(address_);
  const VerbsProofs proofs = new_proofs();
  auto agent = accept_verbs(std::move(sockets.agent), proofs, whole, {}, nullptr, soon());
  ASSERT_TRUE(agent) << agent.error().message;
  auto frame = await_frame(sockets.host, soon());
  ASSERT_TRUE(frame);
  auto port = wire::decode_number(frame->payload);
  ASSERT_TRUE(port);
  std::atomic<bool> done = false;
  std::thread loop([&] {
    while (!done) (*agent)->poll(monotonic_ns(), {});
  });
  const auto number = static_cast<std::uint16_t>(*port);
  const auto stranger = connect_queue_pair(others.host, number, new_proofs(), nullptr, soon());
  EXPECT_FALSE(stranger);
  if (!stranger) {
    EXPECT_EQ(stranger.error().code, Error::denied) << stranger.error().message;
  }
  // The program's own proof, reflected as the agent's, is refused too.
  const auto mirrored = connect_queue_pair(others.host, number, {proofs.agent, proofs.host}, nullptr, soon());
  EXPECT_FALSE(mirrored);
  const auto program = connect_queue_pair(sockets.host, number, proofs, nullptr, soon());
  EXPECT_TRUE(program) << program.error().message;
  done = true;
  loop.join();
}

}  // namespace
}  // namespace offpath::link
