// Before the handshake: addresses, and the errors of a program that finds no agent or another service.
#include "link/handshake/handshake.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "testing/link/connected_pair.h"

namespace offpath::link {
namespace {

TEST(Addresses, ByDefaultAreOfThisUserOrOfRoot) {
  const std::string folder = testing::TempDir() + "/runtime", own = folder + "/offpath/agent.sock";
  setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  auto address = default_address();
  ASSERT_TRUE(address) << address.error().message;
  EXPECT_EQ(address->text(), geteuid() == 0 ? "unix:/run/offpath/agent.sock" : "unix:" + own);
  auto found = find_default_agent();
  if (found) {
    EXPECT_EQ(access(found->path.c_str(), F_OK), 0);  // an agent of this machine
  } else {
    EXPECT_EQ(found.error().code, Error::invalid);
    EXPECT_NE(found.error().message.find("none at unix:"), std::string::npos) << found.error().message;
    EXPECT_NE(found.error().message.find("unix:/run/offpath/agent.sock"), std::string::npos) << found.error().message;
  }
  if (geteuid() == 0) return;
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(default_address().error().code, Error::invalid);
}

TEST(Addresses, AreWhatTheySay) {
  for (const char* text : {"unix:/run/offpath/agent", "tcp:node7:7700", "tls:10.0.0.1:0", "tcp:[::1]:65535",
                           "verbs:node7-ib:7700", "doca:192.168.100.2:7700"}) {
    auto address = Address::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
  }
  const struct {
    std::string text;
    const char* message;
  } wrong[] = {
      {"", "it must be unix:/path or tcp, tls, verbs or doca:HOST:PORT"},
      {"/run/agent", "it must be unix:/path"},
      {"http:node:80", "it must be unix:/path"},
      {"unix:", "an absolute path"},
      {"unix:relative", "an absolute path"},
      {"unix:/" + std::string(200, 'x'), "the path has 201 bytes, a Unix socket's has at most 107"},
      {"tcp:node7", "the port is missing"},
      {"tcp::7700", "the host is missing"},
      {"tls:node:", "the port is ''"},
      {"tcp:node:77x", "the port is '77x'"},
      {"tcp:node:65536", "the port is '65536', it must be a number from 0 to 65535"},
      {"tcp:::1:7700", "needs brackets"},
      {"verbs:[[0]]:0", "around an IPv6 address, once"},
      {"tcp:[::1:7700", "around an IPv6 address, once"},
  };
  for (const auto& [text, message] : wrong) {
    auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, Error::invalid);
    EXPECT_NE(address.error().message.find(message), std::string::npos) << address.error().message;
  }
}

TEST(Connecting, SaysThatNobodyListens) {
  TestDirectory directory;
  Address address = *Address::parse("unix:" + directory.file("agent"));
  const std::string wanted = "no agent listens at " + address.text() + ": start one with `offpath agent`";
  EXPECT_EQ(connect(address, {}, soon()).error().message, wanted);
  {
    const auto listener = listen_at(address, false);
    ASSERT_TRUE(listener);
    EXPECT_EQ(listen_at(address, false).error().code, Error::exists);
  }
  EXPECT_EQ(connect(address, {}, soon()).error().message, wanted);  // the file exists without its agent
  EXPECT_TRUE(listen_at(address, false));                           // and is replaced by the next agent
}

TEST(Connecting, WaitsForTheAgentUntilTheDeadlineOnly) {
  TestAgent agent;
  auto connected = connect(agent.address, {}, monotonic_ns() + 20 * millisecond_ns);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Error::timeout);
  EXPECT_NE(connected.error().message.find("did not answer in time"), std::string::npos) << connected.error().message;
}

TEST(Connecting, ToSomethingElseIsAnError) {
  TestAgent agent;
  for (const std::string_view answer : {"", "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    std::thread other([&] {
      pollfd look{agent.listener.get(), POLLIN, 0};
      ::poll(&look, 1, patience_ms());
      auto accepted = accept_from(agent.listener.get());
      ASSERT_TRUE(accepted && *accepted);
      ::send(accepted->get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    });
    auto connected = connect(agent.address, {}, soon());
    other.join();
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().code, answer.empty() ? Error::peer_lost : Error::protocol) << connected.error().message;
    EXPECT_NE(connected.error().message.find(agent.address.text()), std::string::npos) << connected.error().message;
  }
}

TEST(Connecting, WithoutAnRdmaDeviceBothSidesSayWhatToDo) {
  Address address = *Address::parse("verbs:127.0.0.1:0");
  if (check_verbs(address)) GTEST_SKIP() << "this machine has an RDMA device";
  const auto listening = listen_at(address, false);
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().code, Error::unsupported);

  // An agent whose device disappeared after it began to listen.
  TestAgent agent{"tcp:127.0.0.1:0"};
  agent.address.kind = Address::Kind::verbs;
  TestDirectory directory;
  HostOptions options;
  options.key_file = directory.file("key");
  std::ofstream(options.key_file) << "a key for this test only, long enough";
  ASSERT_EQ(chmod(options.key_file.c_str(), 0600), 0);
  agent.policy.key = std::move(*SharedKey::load(options.key_file));
  auto [host, arrival] = agent.meet(options);
  EXPECT_EQ(arrival.link, nullptr);
  EXPECT_EQ(arrival.failure.code, Error::unsupported) << arrival.failure.message;
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code, Error::unsupported);
  EXPECT_NE(host.error().message.find(arrival.failure.message), std::string::npos) << host.error().message;
}

TEST(Connecting, WithoutDocaBothSidesSayWhatToInstall) {
  Address address = *Address::parse("doca:127.0.0.1:0");
  if (check_doca(address)) GTEST_SKIP() << "this machine has a card";
  const auto listening = listen_at(address, false);
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().code, Error::unsupported);
  EXPECT_NE(listening.error().message.find("doca-sdk-dma"), std::string::npos) << listening.error().message;

  TestAgent agent{"tcp:127.0.0.1:0"};
  agent.address.kind = Address::Kind::doca;
  TestDirectory directory;
  HostOptions options;
  options.key_file = directory.write("key", "a key for this test only, long enough");
  agent.policy.key = std::move(*SharedKey::load(options.key_file));
  auto [host, arrival] = agent.meet(options);
  EXPECT_EQ(arrival.link, nullptr);
  EXPECT_EQ(arrival.failure.code, Error::unsupported) << arrival.failure.message;
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code, Error::unsupported);
}

TEST(Connecting, ChecksItsOptions) {
  TestAgent agent;
  EXPECT_EQ(connect(agent.address, {.name = std::string(256, 'n')}, soon()).error().code, Error::invalid);
  EXPECT_EQ(connect(agent.address, {.layout = {.request_slots = 100}}, soon()).error().code, Error::invalid);
  const auto network = connect(*Address::parse("tcp:127.0.0.1:1"), {}, soon());
  EXPECT_NE(network.error().message.find("key file"), std::string::npos) << network.error().message;
}

TEST(Staging, HasItsReason) {
  TestAgent agent;
  const auto reason = [](const auto& met) {
    EXPECT_TRUE(met.first && met.second.link);
    EXPECT_TRUE((*met.first)->traits().staged);
    EXPECT_FALSE((*met.first)->traits().one_sided);
    EXPECT_TRUE(met.second.link->traits().staged);
    const std::byte here{};
    EXPECT_EQ((*met.first)->announce_range(1, 1, &here, 1).error().code, Error::unsupported);
    EXPECT_EQ(met.second.link->attach_range(1, 1, 4096, 1, 0).error().code, Error::unsupported);
    return (*met.first)->traits().reason;
  };
  EXPECT_EQ(reason(agent.meet({.force_staging = true})), "the program asked for staging");
  agent.policy.force_staging = true;
  EXPECT_EQ(reason(agent.meet()), "the agent is configured for staging");
}

}  // namespace
}  // namespace offpath::link
