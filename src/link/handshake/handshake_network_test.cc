// Over the network: keys at both ends, keys that change, silence; then the same inside TLS.
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "link/local/sealed_memory.h"
#include "testing/link/certificate.h"
#include "testing/link/raw_client.h"

namespace offpath::link {
namespace {

using wire::ControlType;

class Network : public testing::Test {
 protected:
  std::string key(const std::string& name, std::string_view content) { return directory.write(name, content); }
  TestDirectory directory;
  TestAgent agent{"tcp:127.0.0.1:0"};
};

TEST_F(Network, NeedsTheKeyAtBothEnds) {
  const std::string right = key("right", "the right key of both"), wrong = key("wrong", "the wrong key of one");
  auto met = agent.meet({.key_file = right});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_NE(met.first.error().message.find("was started without a key file"), std::string::npos)
      << met.first.error().message;

  agent.policy.key = std::move(*SharedKey::load(right));
  met = agent.meet({.key_file = wrong});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_NE(met.first.error().message.find("does not know the agent's key"), std::string::npos)
      << met.first.error().message;
  EXPECT_FALSE(met.second.link);

  met = agent.meet({.name = "simulation", .key_file = right});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_EQ(met.second.hello.name, "simulation");
}

// The socket options set: how long sent data may stay unacknowledged, and when the kernel probes an idle connection.
struct Silence {
  explicit Silence(int socket) {
    const auto option = [socket](int name) {
      int value = -1;
      socklen_t length = sizeof value;
      EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, name, &value, &length), 0);
      return value;
    };
    unacknowledged_ms = option(TCP_USER_TIMEOUT);
    idle_s = option(TCP_KEEPIDLE);
    interval_s = option(TCP_KEEPINTVL);
    probes = option(TCP_KEEPCNT);
  }
  int unacknowledged_ms, idle_s, interval_s, probes;
};

TEST(EndWhenSilent, IsOverInTimeWhateverTheTime) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int silence_s : {2, 3, 4, 5, 7, 60, 3600}) {
    end_when_silent(socket.get(), silence_s * second_ns);
    const Silence told(socket.get());
    // An idle connection ends at the first probe after the user timeout.
    EXPECT_LE(told.unacknowledged_ms + told.interval_s * 1000, silence_s * 1000) << silence_s;
    EXPECT_GT(told.unacknowledged_ms, 0) << silence_s;
    EXPECT_GE(told.unacknowledged_ms, silence_s * 500) << silence_s;
    EXPECT_LE(told.idle_s * 1000, told.unacknowledged_ms) << silence_s << ": nobody asks before it is over";
  }
}

// The link itself watches for answers to its bytes; the kernel probes idle connections.
TEST(SilenceWatch, LeavesIdleConnectionsToTheKernel) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int silence_s : {2, 3, 4, 5, 7, 60, 3600}) {
    end_when_silent(socket.get(), silence_s * second_ns);
    ASSERT_TRUE(SilenceWatch::create(socket.get(), silence_s * second_ns));
    const Silence told(socket.get());
    EXPECT_EQ(told.unacknowledged_ms, 0);
    EXPECT_LE(told.idle_s + told.probes * told.interval_s, silence_s);
    EXPECT_GE((told.idle_s + told.probes * told.interval_s) * 2, silence_s);
  }
}

TEST_F(Network, TheAgentsSilenceIsTheProgramsToo) {
  const std::string right = key("right", "the right key of both");
  agent.policy.key = std::move(*SharedKey::load(right));
  agent.policy.silence_ns = 17 * second_ns;
  auto met = agent.meet({.name = "simulation", .key_file = right});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_EQ((*met.first)->welcome().silence_ms, 17'000u);
  int sockets = 0;  // of this process, which holds both ends
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage other{};
    socklen_t length = sizeof other;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &length) != 0 || other.ss_family != AF_INET) continue;
    const Silence told(fd);
    EXPECT_EQ(told.unacknowledged_ms, 0);
    EXPECT_EQ(told.idle_s + told.probes * told.interval_s, 16);
    ++sockets;
  }
  EXPECT_EQ(sockets, 2);
}

TEST_F(Network, OldKeysAreGoodEnoughWhileTheyAreListed) {
  const std::string fresh = key("fresh", "the key from today on"), old = key("old", "the key until yesterday");
  agent.policy.key = std::move(*SharedKey::load(fresh));
  EXPECT_EQ(agent.meet({.key_file = old}).first.error().code, Error::denied);

  agent.policy.old_keys.push_back(std::move(*SharedKey::load(old)));
  auto met = agent.meet({.key_file = old});
  ASSERT_TRUE(met.first) << met.first.error().message;  // it knows the agent by its own key
  EXPECT_TRUE(met.second.by_old_key);
  met = agent.meet({.key_file = fresh});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_FALSE(met.second.by_old_key);

  agent.policy.old_keys.clear();
  EXPECT_EQ(agent.meet({.key_file = old}).first.error().code, Error::denied);
}

TEST_F(Network, AnAgentWithoutTheKeyIsNotTrusted) {
  const std::string right = key("right", "the right key of both");
  std::thread impostor([&] {
    pollfd look{agent.listener.get(), POLLIN, 0};
    ::poll(&look, 1, patience_ms());
    auto accepted = accept_from(agent.listener.get());
    ControlSocket socket(std::move(*accepted), ControlSocket::Kind::network);
    ASSERT_TRUE(await_frame(socket, soon()));
    ASSERT_TRUE(socket.send(ControlType::challenge, random_nonce()));
    auto proof = await_frame(socket, soon());
    ASSERT_TRUE(proof);
    wire::Welcome welcome;  // reflects the host's own proof
    std::ranges::copy(proof->payload, welcome.proof.begin());
    std::vector<std::byte> payload;
    wire::encode(welcome, payload);
    ASSERT_TRUE(socket.send(ControlType::welcome, payload));
    (void)await_frame(socket, soon());
  });
  const auto connected = connect(agent.address, {.key_file = right}, soon());
  impostor.join();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Error::denied);
  EXPECT_NE(connected.error().message.find("does not know the key"), std::string::npos) << connected.error().message;
}

TEST_F(Network, AProofOfAnotherConnectionIsRefused) {
  const std::string right = key("right", "the right key of both");
  agent.policy.key = std::move(*SharedKey::load(right));
  RawClient client(agent);
  wire::Hello hello = good_hello();
  hello.nonce = random_nonce();
  std::vector<std::byte> said;
  wire::encode(hello, said);
  ASSERT_TRUE(client.socket.send(ControlType::hello, said));
  // Correct, except for an earlier challenge.
  const auto proof = agent.policy.key->prove(SharedKey::Side::host, hello.nonce, random_nonce(), {}, said);
  ASSERT_TRUE(proof);
  ASSERT_TRUE(client.socket.send(ControlType::proof, *proof));
  const auto arrival = agent.serve();
  EXPECT_FALSE(arrival.link);
  EXPECT_EQ(arrival.failure.code, Error::denied);
}

// ---- TLS

class Tls : public Network {
 protected:
  void serve_with(const std::string& names, long from_s = -3600, long until_s = 3600) {
    const std::string private_key = directory.file("private_key");
    write_test_certificate(certificate, private_key, names, from_s, until_s);
    agent.address.kind = Address::Kind::tls;
    agent.policy.key = std::move(*SharedKey::load(shared_key));
    agent.policy.tls = std::move(*TlsContext::for_agent(certificate, private_key));
  }
  const std::string shared_key = key("shared", "the right key of both");
  const std::string certificate = directory.file("certificate");
};

// The errors when the clock of either side is wrong.
TEST_F(Tls, ACertificateOfAnotherTimeIsRefusedWithThisMachinesDate) {
  const auto refused = [&](long from_s, long until_s, const std::string& why) {
    serve_with("IP:127.0.0.1", from_s, until_s);
    const auto met = agent.meet({.key_file = shared_key, .tls_ca_file = certificate});
    ASSERT_FALSE(met.first);
    EXPECT_EQ(met.first.error().code, Error::denied);
    EXPECT_NE(met.first.error().message.find(why + "; this machine's clock says 20"), std::string::npos)
        << met.first.error().message;
    EXPECT_NE(met.first.error().message.find("renew the agent's certificate"), std::string::npos)
        << met.first.error().message;
  };
  refused(3600, 7200, "not yet valid");
  refused(-7200, -3600, "has expired");
}

TEST_F(Tls, ChecksAuthorityAndAddress) {
  serve_with("IP:127.0.0.1");
  auto met = agent.meet({.key_file = shared_key, .tls_ca_file = certificate});
  ASSERT_TRUE(met.first) << met.first.error().message;
  EXPECT_NE((*met.first)->traits().reason.find("over TLS"), std::string::npos);

  serve_with("IP:127.0.0.2,DNS:node7");
  met = agent.meet({.key_file = shared_key, .tls_ca_file = certificate});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_NE(met.first.error().message.find("certificate is refused: IP address mismatch"), std::string::npos)
      << met.first.error().message;

  serve_with("IP:127.0.0.1");
  const std::string other = directory.file("other");
  write_test_certificate(other, directory.file("other_key"), "IP:127.0.0.1");
  met = agent.meet({.key_file = shared_key, .tls_ca_file = other});
  ASSERT_FALSE(met.first);
  EXPECT_EQ(met.first.error().code, Error::denied);
  EXPECT_FALSE(met.second.link);

  const auto without = connect(agent.address, {.key_file = shared_key}, soon());
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message.find("tls_ca_file"), std::string::npos) << without.error().message;
}

TEST_F(Tls, StillNeedsTheKey) {
  serve_with("IP:127.0.0.1");
  const auto met = agent.meet({.key_file = key("wrong", "the wrong key of one"), .tls_ca_file = certificate});
  ASSERT_FALSE(met.first);
  EXPECT_NE(met.first.error().message.find("does not know the agent's key"), std::string::npos)
      << met.first.error().message;
}

TEST_F(Tls, IsNotSpokenBelowVersion13) {
  serve_with("IP:127.0.0.1");
  std::thread serving([&] { EXPECT_FALSE(agent.serve().link); });
  auto socket = dial(agent.address, soon());
  ASSERT_TRUE(socket);
  ASSERT_EQ(fcntl(socket->get(), F_SETFL, 0), 0);
  EXPECT_FALSE(accepts_tls_1_2(socket->get()));
  socket->reset();
  serving.join();
}

// OpenSSL exports no binding for a session without keys, or without memory.
TEST_F(Tls, ASessionWithoutABindingSaysSo) {
  serve_with("IP:127.0.0.1");
  const auto session = agent.policy.tls->accept(-1);
  ASSERT_TRUE(session);
  const auto binding = (*session)->binding();
  ASSERT_FALSE(binding);
  EXPECT_TRUE(binding.error().message.starts_with("SSL_export_keying_material: ")) << binding.error().message;
}

TEST_F(Tls, APrivateKeyThatOthersMayUseIsRefused) {
  const std::string private_key = directory.file("private_key");
  write_test_certificate(certificate, private_key, "IP:127.0.0.1");
  EXPECT_TRUE(TlsContext::for_agent(certificate, private_key));
  ASSERT_EQ(chmod(private_key.c_str(), 0640), 0);
  const auto refused = TlsContext::for_agent(certificate, private_key);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::denied);
  EXPECT_EQ(refused.error().message,
            fmt::format("TLS key file {0}: its mode is 640, others may use it; allowed is 600 or less "
                        "(chmod 600 {0})",
                        private_key));
}

TEST_F(Tls, ACertificateAndAKeyThatDoNotBelongTogether) {
  serve_with("IP:127.0.0.1");
  const std::string other = directory.file("other_key");
  write_test_certificate(directory.file("other"), other, "IP:127.0.0.1");
  EXPECT_EQ(TlsContext::for_agent(certificate, other).error().code, Error::invalid);
  EXPECT_EQ(TlsContext::for_agent(shared_key, other).error().code, Error::invalid);
  EXPECT_EQ(TlsContext::for_host(shared_key).error().code, Error::invalid);
}

TEST_F(Tls, PlainAndEncryptedDoNotMeet) {
  serve_with("IP:127.0.0.1");
  const Address encrypted = agent.address;
  Address plain = encrypted;
  plain.kind = Address::Kind::tcp;
  for (const bool agent_encrypts : {true, false}) {
    agent.address = agent_encrypts ? encrypted : plain;
    TestAgent::Arrival arrival;
    std::thread serving([&] { arrival = agent.serve(); });
    const auto connected =
        connect(agent_encrypts ? plain : encrypted, {.key_file = shared_key, .tls_ca_file = certificate}, soon());
    serving.join();
    EXPECT_FALSE(connected);
    EXPECT_FALSE(arrival.link);
    EXPECT_EQ(arrival.failure.code, Error::protocol) << arrival.failure.message;
  }
}

}  // namespace
}  // namespace offpath::link
