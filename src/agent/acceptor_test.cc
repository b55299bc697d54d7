// The acceptor on real sockets, in virtual time.
#include "agent/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "agent/cores/hand_over.h"
#include "testing/link/emulated.h"

namespace offpath::agent {
namespace {

class AcceptorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/offpath-acceptor-XXXXXX";
    directory = mkdtemp(name);
    loop = std::move(*loop::Loop::make({}));
    start({.handshakes_max = 2});
  }
  void TearDown() override {
    acceptor.reset();
    rmdir(directory.c_str());
  }
  void start(const Acceptor::Options& options) {
    acceptor.reset();
    acceptor = std::make_unique<Acceptor>(
        *loop, policy, wire::Welcome{}, options, [this](uid_t) { return admitted; },
        [this](Acceptor::Arrival arrival, TimeNs) { arrivals.push_back(std::move(arrival)); });
    address = *link::Address::parse("unix:" + directory + "/agent.sock");
    Status listening = acceptor->listen(address);
    ASSERT_TRUE(listening.has_value()) << listening.error().message;
  }
  Fd connect_silently() {
    auto socket = link::dial(address, never);
    EXPECT_TRUE(socket.has_value());
    return std::move(*socket);
  }
  // Rounds of the loop at about `now`, each of which looks at the descriptors.
  void rounds(TimeNs now, int count = 20) {
    for (int i = 0; i < count; ++i) loop->round(now + i * 51 * microsecond_ns);
  }
  // Returns the result of link::connect while the loop runs.
  Result<std::unique_ptr<link::HostLink>> connect_really(link::HostOptions options = {}) {
    options.name = "test\nprogram";
    std::optional<Result<std::unique_ptr<link::HostLink>>> result;
    std::atomic<bool> done{false};
    std::thread program([&] {
      result = link::connect(address, options, link::soon());
      done = true;
    });
    while (!done) {
      rounds(monotonic_ns(), 1);
      std::this_thread::yield();
    }
    program.join();
    return std::move(*result);
  }

  std::string directory;
  std::unique_ptr<loop::Loop> loop;
  std::shared_ptr<const link::AgentPolicy> policy = std::make_shared<const link::AgentPolicy>();
  link::Address address;
  Status admitted;
  std::vector<Acceptor::Arrival> arrivals;
  std::unique_ptr<Acceptor> acceptor;
};

TEST_F(AcceptorTest, AProgramArrivesWithItsNameAndUser) {
  auto link = connect_really();
  ASSERT_TRUE(link.has_value()) << link.error().message;
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].client.program, "test\xEF\xBF\xBDprogram");
  EXPECT_EQ(arrivals[0].client.user, geteuid());
  EXPECT_EQ(arrivals[0].client.pid, getpid());
  EXPECT_EQ(acceptor->counters().welcomed, 1u);
  EXPECT_EQ(acceptor->counters().handshakes, 0u);
}

TEST_F(AcceptorTest, AConnectionThatAnotherProcessHasAcceptedIsTakenOver) {
  int took = 0, ended = 0;
  acceptor->count_handed({[&] { ++took; }, [&] { ++ended; }});
  auto pair = make_hand_over();
  ASSERT_TRUE(pair);
  ASSERT_TRUE(acceptor->adopt(std::move(pair->taking), link::Address::Kind::unix_socket, true));
  link::Address other = *link::Address::parse("unix:" + directory + "/other.sock");
  auto listening = link::listen_at(other, false);
  ASSERT_TRUE(listening);
  std::optional<Result<std::unique_ptr<link::HostLink>>> result;
  std::atomic<bool> done{false};
  std::thread program([&] {
    result = link::connect(other, {}, link::soon());
    done = true;
  });
  while (!done) {
    if (auto socket = link::accept_from(listening->get()); socket && *socket) {
      const auto given = hand_over(pair->giving.get(), socket->get());
      EXPECT_TRUE(given && *given);
    }
    rounds(monotonic_ns(), 1);
    std::this_thread::yield();
  }
  program.join();
  ASSERT_TRUE(*result) << result->error().message;
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_TRUE(arrivals[0].handed);
  EXPECT_EQ(arrivals[0].client.pid, getpid());
  EXPECT_EQ(took, 1);
  EXPECT_EQ(ended, 0) << "whoever has the link counts it from now on";

  auto silent = link::dial(other, never);
  ASSERT_TRUE(silent);
  auto socket = link::accept_from(listening->get());
  ASSERT_TRUE(socket && *socket);
  ASSERT_TRUE(hand_over(pair->giving.get(), socket->get()));
  socket->reset();
  silent->reset();
  rounds(monotonic_ns());
  EXPECT_EQ(took, 2);
  EXPECT_EQ(ended, 1) << "it has not introduced itself";
  pair->giving.reset();
  rounds(monotonic_ns());
  EXPECT_EQ(took, 2) << "the other process has ended";
  unlink(other.path.c_str());
}

TEST_F(AcceptorTest, OneTooManyIsToldWhy) {
  admitted = fail(Error::too_large, "7 programs are connected, which is the limit");
  auto link = connect_really();
  ASSERT_FALSE(link.has_value());
  EXPECT_NE(link.error().message.find("7 programs are connected"), std::string::npos) << link.error().message;
  EXPECT_EQ(acceptor->counters().refused, 1u);
  EXPECT_TRUE(arrivals.empty());
}

TEST_F(AcceptorTest, SilentConnectionsAreBoundedAndTheOthersWait) {
  const Fd first = connect_silently(), second = connect_silently(), third = connect_silently();
  rounds(1000);
  EXPECT_EQ(acceptor->counters().handshakes, 2u);
  EXPECT_EQ(acceptor->counters().connections, 2u);
  rounds(1000 + link::handshake_wait_ns);  // the deadline of the first two
  EXPECT_EQ(acceptor->counters().refused, 2u);
  EXPECT_EQ(acceptor->counters().connections, 3u);
  EXPECT_EQ(acceptor->counters().handshakes, 1u);
}

TEST_F(AcceptorTest, AFullListenerGivesUpTheOldestOnceItHadItsTime) {
  const Fd first = connect_silently(), second = connect_silently();
  rounds(1000);
  EXPECT_EQ(acceptor->counters().handshakes, 2u);
  auto link = connect_really();  // in real time
  ASSERT_TRUE(link.has_value()) << link.error().message;
  EXPECT_EQ(acceptor->counters().refused, 1u);
}

TEST_F(AcceptorTest, OneListenersConnectionsTakeNoOtherOnesSlots) {
  const link::Address full = address;
  address = *link::Address::parse("unix:" + directory + "/other.sock");
  ASSERT_TRUE(acceptor->listen(address));
  const link::Address other = std::exchange(address, full);
  const Fd first = connect_silently(), second = connect_silently(), waiting = connect_silently();
  address = other;
  const Fd third = connect_silently();
  rounds(1000);
  EXPECT_EQ(acceptor->counters().handshakes, 3u);
}

// Tests with another user's processes: a listed user that floods, and unlisted ones.
class AcceptorAndOthers : public AcceptorTest {
 protected:
  static constexpr uid_t other_user = 64'002;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can start processes of other users";
    AcceptorTest::SetUp();
    ASSERT_EQ(chmod(directory.c_str(), 0755), 0);
  }
  // A process of the other user that connects `times` times and then waits to be killed.
  pid_t connect_as_other(int times) {
    int told[2];
    OFP_ASSERT(pipe(told) == 0);
    const pid_t child = fork();
    if (child == 0) {
      OFP_ASSERT(setresuid(other_user, other_user, other_user) == 0);
      std::vector<Fd> sockets;
      for (int i = 0; i < times; ++i) sockets.push_back(connect_silently());
      OFP_ASSERT(write(told[1], "x", 1) == 1);
      for (;;) pause();
    }
    char byte;
    OFP_ASSERT(child > 0 && read(told[0], &byte, 1) == 1);
    ::close(told[0]);
    ::close(told[1]);
    return child;
  }
};

TEST_F(AcceptorAndOthers, ThoseWhoAreNotOnTheListAreRefusedBeforeTheyTakeASlot) {
  start({.handshakes_max = 2, .everyone = true});
  const pid_t stranger = connect_as_other(40);
  rounds(1000);
  EXPECT_EQ(acceptor->counters().connections, 40u);
  EXPECT_EQ(acceptor->counters().refused, 40u);
  EXPECT_EQ(acceptor->counters().handshakes, 0u);
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
}

TEST_F(AcceptorAndOthers, WhoHasMostConnectionsLosesTheOldest) {
  auto listed = std::make_shared<link::AgentPolicy>();
  listed->uids = {other_user};
  policy = listed;
  start({.handshakes_max = 4, .everyone = true});
  const Fd own = connect_silently();  // the oldest of all
  rounds(1000);
  const pid_t flooding = connect_as_other(20);
  rounds(millisecond_ns);
  EXPECT_EQ(acceptor->counters().handshakes, 4u);
  for (TimeNs now = millisecond_ns; now < link::handshake_wait_ns / 2; now += 10 * millisecond_ns) rounds(now, 3);
  EXPECT_EQ(acceptor->counters().connections, 21u);
  EXPECT_EQ(acceptor->counters().refused, 17u);
  char byte;
  EXPECT_EQ(recv(own.get(), &byte, 1, MSG_DONTWAIT), -1);  // nothing was sent, and the connection is open
  kill(flooding, SIGKILL);
  waitpid(flooding, nullptr, 0);
}

// A listed user that floods has a quarter of the slots. Its further connections do not stay in the queue ahead of
// others.
TEST_F(AcceptorAndOthers, OneSourceHasItsPartOfTheSlotsAndFillsNoQueue) {
  auto listed = std::make_shared<link::AgentPolicy>();
  listed->uids = {other_user};
  policy = listed;
  start({.handshakes_max = 8, .handshakes_of_source_max = 2, .everyone = true});
  const pid_t flooding = connect_as_other(100);
  const Fd own = connect_silently();
  rounds(1000);  // no time passes: none of them has had its 200 ms
  EXPECT_EQ(acceptor->counters().connections, 101u);
  EXPECT_EQ(acceptor->counters().refused, 98u);
  EXPECT_EQ(acceptor->counters().handshakes, 3u);
  kill(flooding, SIGKILL);
  waitpid(flooding, nullptr, 0);
}

TEST_F(AcceptorAndOthers, AProgramsConnectionIsMadeWhileAnotherUserFloods) {
  auto listed = std::make_shared<link::AgentPolicy>();
  listed->uids = {other_user};
  policy = listed;
  start({.handshakes_max = 8, .handshakes_of_source_max = 2, .everyone = true});
  const pid_t flooding = connect_as_other(100);
  auto link = connect_really();
  EXPECT_TRUE(link.has_value()) << link.error().message;
  kill(flooding, SIGKILL);
  waitpid(flooding, nullptr, 0);
}

// Programs of a job start together: a program whose user is at its limit tries again until the oldest made room.
TEST_F(AcceptorTest, OneBeyondItsSourcesPartComesAgain) {
  start({.handshakes_max = 8, .handshakes_of_source_max = 2});
  const TimeNs began = monotonic_ns();
  const Fd first = connect_silently(), second = connect_silently();
  rounds(began);
  auto link = connect_really();
  ASSERT_TRUE(link.has_value()) << link.error().message;
  EXPECT_GE(acceptor->counters().refused, 2u);  // the program was refused, and at last the oldest gave way
  EXPECT_EQ(acceptor->counters().handshakes, 1u);
}

TEST_F(AcceptorTest, AddressesOfTheNetworkAreSourcesOfTheirOwn) {
  start({.handshakes_max = 8, .handshakes_of_source_max = 1});
  auto network = std::make_shared<link::AgentPolicy>();
  acceptor->set_policy(network);
  address = *link::Address::parse("tcp:127.0.0.1:0");
  ASSERT_TRUE(acceptor->listen(address));
  std::vector<Fd> sockets;
  for (const char* from : {"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3"}) {
    sockets.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    ASSERT_EQ(inet_pton(AF_INET, from, &name.sin_addr), 1);
    ASSERT_EQ(bind(sockets.back().get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    name.sin_port = htons(address.port);
    ASSERT_EQ(inet_pton(AF_INET, "127.0.0.1", &name.sin_addr), 1);
    ASSERT_EQ(connect(sockets.back().get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  rounds(1000);
  EXPECT_EQ(acceptor->counters().refused, 2u);
  EXPECT_EQ(acceptor->counters().handshakes, 2u);
}

TEST(NetworkSource, IsAnAddressOrWhatOneMachineMayHaveOfIpv6) {
  const auto source = [](int family, const char* text) {
    sockaddr_storage name{};
    name.ss_family = static_cast<sa_family_t>(family);
    void* const at = family == AF_INET ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(name).sin_addr)
                                       : &reinterpret_cast<sockaddr_in6&>(name).sin6_addr;
    EXPECT_EQ(inet_pton(family, text, at), 1);
    return network_source(name);
  };
  EXPECT_NE(source(AF_INET, "10.0.0.1"), source(AF_INET, "10.0.0.2"));
  EXPECT_EQ(source(AF_INET6, "::ffff:10.0.0.1"), source(AF_INET, "10.0.0.1"));
  EXPECT_EQ(source(AF_INET6, "2001:db8:1:2::1"), source(AF_INET6, "2001:db8:1:2:a:b:c:d"));
  EXPECT_NE(source(AF_INET6, "2001:db8:1:2::1"), source(AF_INET6, "2001:db8:1:3::1"));
}

// More connections than slots. If either end of these lacks the key, a program that knows it still connects.
TEST_F(AcceptorTest, AHandshakeThatAKeyEndsGivesItsSlotBack) {
  const auto key = [&](const std::string& name) {
    const std::string path = directory + "/" + name;
    const Fd file(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const std::string content = "the key that is " + name;
    EXPECT_EQ(write(file.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
    return path;
  };
  const std::string right = key("right"), wrong = key("wrong");
  start({.handshakes_max = 2, .handshakes_of_source_max = 2});
  address = *link::Address::parse("tcp:127.0.0.1:0");
  ASSERT_TRUE(acceptor->listen(address));
  std::uint64_t refused = 0;
  const auto expect_denied = [&](const std::string& path, const std::string& why) {
    for (int i = 0; i < 3; ++i) {
      const auto link = connect_really({.key_file = path});
      ASSERT_FALSE(link);
      EXPECT_EQ(link.error().code, Error::denied);
      EXPECT_NE(link.error().message.find(why), std::string::npos) << link.error().message;
      EXPECT_EQ(acceptor->counters().refused, ++refused);
      EXPECT_EQ(acceptor->counters().handshakes, 0u);
    }
  };
  expect_denied(right, "was started without a key file");
  auto with_key = std::make_shared<link::AgentPolicy>();
  with_key->key = std::move(*link::SharedKey::load(right));
  acceptor->set_policy(with_key);
  expect_denied(wrong, "does not know the agent's key");
  auto link = connect_really({.key_file = right});
  EXPECT_TRUE(link) << link.error().message;
  EXPECT_EQ(acceptor->counters().handshakes, 0u);
  for (const std::string& each : {right, wrong}) unlink(each.c_str());
}

TEST_F(AcceptorTest, OneThatGoesAwayMakesRoom) {
  Fd first = connect_silently(), second = connect_silently();
  const Fd third = connect_silently();
  rounds(1000);
  first.reset();
  rounds(10 * millisecond_ns);
  EXPECT_EQ(acceptor->counters().connections, 3u);
  EXPECT_EQ(acceptor->counters().handshakes, 2u);
}

TEST_F(AcceptorTest, GarbageIsRefused) {
  const Fd socket = connect_silently();
  ASSERT_EQ(send(socket.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  rounds(1000);
  EXPECT_EQ(acceptor->counters().refused, 1u);
}

// After SIGCONT every timer is late at once. A program that was about to answer gets its time once more, but not
// forever.
TEST_F(AcceptorTest, AStandstillOfTheAgentIsNotHeldAgainstAProgram) {
  const Fd socket = connect_silently();
  rounds(1000);
  rounds(100 * second_ns);
  EXPECT_EQ(acceptor->counters().handshakes, 1u);
  EXPECT_EQ(acceptor->counters().refused, 0u);
  rounds(100 * second_ns + link::handshake_wait_ns + 2 * millisecond_ns);
  EXPECT_EQ(acceptor->counters().refused, 1u);
}

TEST_F(AcceptorTest, TheSocketIsTheOwnersAloneAndGoesAwayAtTheEnd) {
  struct stat status{};
  ASSERT_EQ(lstat(address.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  acceptor.reset();
  EXPECT_NE(lstat(address.path.c_str(), &status), 0);
}

TEST_F(AcceptorTest, AnotherAgentThatLivesIsNotReplacedADeadOneIs) {
  Acceptor second(*loop, policy, wire::Welcome{}, {}, [](uid_t) { return Status(); }, [](Acceptor::Arrival, TimeNs) {});
  Status listening = second.listen(address);
  ASSERT_FALSE(listening.has_value());
  EXPECT_EQ(listening.error().code, Error::exists);
  EXPECT_NE(listening.error().message.find(address.path), std::string::npos);
  acceptor.reset();
  const Fd dead(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.path.copy(name.sun_path, sizeof name.sun_path - 1);
  ASSERT_EQ(bind(dead.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_TRUE(second.listen(address).has_value());  // the file exists, without a listener
}

TEST_F(AcceptorTest, ADirectoryOthersMayWriteToIsRefused) {
  acceptor.reset();
  ASSERT_EQ(chmod(directory.c_str(), 0777), 0);
  Acceptor open(*loop, policy, wire::Welcome{}, {}, [](uid_t) { return Status(); }, [](Acceptor::Arrival, TimeNs) {});
  Status listening = open.listen(address);
  ASSERT_FALSE(listening.has_value());
  EXPECT_EQ(listening.error().code, Error::denied);
  ASSERT_EQ(chmod(directory.c_str(), 0700), 0);
  link::Address below = *link::Address::parse("unix:" + directory + "/made/agent.sock");
  EXPECT_TRUE(open.listen(below).has_value());
  struct stat status{};
  ASSERT_EQ(stat((directory + "/made").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  open.close();
  rmdir((directory + "/made").c_str());
}

}  // namespace
}  // namespace offpath::agent
