// The links themselves: in virtual time (loopback), on this machine (local), over the network (tcp, tls; verbs where
// there is an RDMA device, doca with the software card), and the decorators, with faults here that a correct program
// does not notice.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <thread>

#include "link/shaped_link.h"
#include "link_pair.h"
#include "testing/link/certificate.h"
#include "testing/link/connected_pair.h"
#include "testing/link/fault_link.h"
#include "testing/link/loopback_link.h"

#if defined(__SANITIZE_THREAD__)
#define OFFPATH_UNDER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OFFPATH_UNDER_TSAN
#endif
#endif

#ifdef OFFPATH_UNDER_TSAN
// The library's thread of stream_link moves the channel's memory by system calls while the program stores to it, as a
// network card would; the rings have to cope with that, which these tests check.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:offpath::link::StreamServer::send_some\n"
         "race:offpath::link::StreamServer::receive_in_place\n"
         "race:offpath::link::StreamServer::apply\n";
}
#endif

namespace offpath::link {

namespace {

using Decorate = std::function<void(LinkPair&)>;

// The doomed host's announcements, made in its own process.
Result<DoomedHost> announce_doomed(HostLink& host, std::vector<std::byte>& memory, SegmentMemory& own,
                                   TimeNs deadline) {
  DoomedHost doomed;
  memory.resize(DoomedHost::length);
  for (std::uint64_t i = 0; i < DoomedHost::length; ++i) memory[i] = DoomedHost::byte_at(i);
  doomed.base = reinterpret_cast<std::uint64_t>(memory.data());
  if (!host.traits().staged) {
    OFP_ASSIGN(doomed.key,
               host.announce_range(DoomedHost::range, DoomedHost::generation, memory.data(), memory.size()));
  }
  OFP_ASSIGN(own, host.allocate(DoomedHost::length));
  std::ranges::copy(memory, own.data());
  OFP_TRY(host.announce_segment(DoomedHost::own_segment, own, deadline));
  return doomed;
}

// ---- virtual time

class LoopbackLinkPair final : public LinkPair {
 public:
  LoopbackLinkPair(const LoopbackOptions& options, const Decorate& decorate) {
    auto made = make_loopback(fabric_, options, small_layout);
    OFP_ASSERT(made);
    host = std::move(made->host);
    agent = std::move(made->agent);
    fate_ = std::move(made->fate);
    if (decorate) decorate(*this);
  }
  ~LoopbackLinkPair() override { fabric_->set_stepper({}); }

  TimeNs now() const override { return fabric_->now(); }
  void pass() override { fabric_->advance_to(fabric_->now() + 500); }
  void beside(const std::function<void()>& program, const std::function<void()>& round) override {
    fabric_->set_stepper([&](TimeNs time) {
      round();
      return time + 500;
    });
    program();
    fabric_->set_stepper({});
  }
  bool until(const std::function<bool()>& seen) override { return fabric_->run_until(soon(), seen); }
  void linger(TimeNs time) override {
    fabric_->run_until(fabric_->now() + time, [] { return false; });
  }
  void sleep() override {}
  void kill_host() override {
    fate_->kill_host();
    memory_ = {};
    own_ = SegmentMemory();
  }
  void doom() {
    auto announced = announce_doomed(*host, memory_, own_, never);
    OFP_ASSERT(announced);
    doomed = *announced;
  }

 private:
  std::shared_ptr<LoopbackFabric> fabric_ = std::make_shared<LoopbackFabric>(20260101);
  std::shared_ptr<LoopbackFate> fate_;
  std::vector<std::byte> memory_;
  SegmentMemory own_;
};

LinkKind loopback(std::string name, LoopbackOptions options, const Decorate& decorate = {}) {
  LinkKind kind;
  kind.name = std::move(name);
  kind.mapped = options.mapped;
  kind.ranges = !options.staged;
  kind.descriptors = options.mapped;
  kind.connect = [options, decorate] { return std::make_unique<LoopbackLinkPair>(options, decorate); };
  kind.connect_doomed = [options, decorate] {
    auto pair = std::make_unique<LoopbackLinkPair>(options, decorate);
    pair->doom();
    return pair;
  };
  return kind;
}

// ---- real time

struct RealOptions {
  std::string network{};  // the address to listen at; empty: on this machine
  bool staged = false;
  bool by_thread = false;  // as programs of other users are read
  bool watched = false;    // as the agent's loop watches a link
};

class RealLinkPair final : public LinkPair {
 public:
  explicit RealLinkPair(const RealOptions& options) : listening_(options.network) {
    host_options_.name = "conformance";
    host_options_.layout = small_layout;
    host_options_.force_staging = options.staged;
    if (options.by_thread) listening_.policy.readers = std::make_shared<UserReaders>(30 * second_ns, true);
    if (options.network.empty()) return;
    host_options_.key_file = directory_.write("key", "a key for these tests only, long enough");
    auto key = SharedKey::load(host_options_.key_file);
    OFP_ASSERT(key);
    listening_.policy.key = std::move(*key);
    if (!options.network.starts_with("tls:")) return;
    host_options_.tls_ca_file = directory_.file("certificate");
    const std::string private_key = directory_.file("private_key");
    write_test_certificate(host_options_.tls_ca_file, private_key, "IP:127.0.0.1");
    auto tls = TlsContext::for_agent(host_options_.tls_ca_file, private_key);
    OFP_ASSERT(tls);
    listening_.policy.tls = std::move(*tls);
  }
  ~RealLinkPair() override {
    if (child_ > 0) kill_host();
  }

  bool meet() {
    auto [connected, arrival] = listening_.meet(host_options_);
    EXPECT_TRUE(connected) << connected.error().message;
    EXPECT_TRUE(arrival.link) << arrival.failure.message;
    if (!connected || !arrival.link) return false;
    host = std::move(*connected);
    agent = std::move(arrival.link);
    return true;
  }
  // The host is a child, which announces its memory and then sleeps.
  bool meet_child() {
    std::array<int, 2> ends;
    OFP_ASSERT(::pipe2(ends.data(), O_CLOEXEC) == 0);
    Fd from(ends[0]), to(ends[1]);
    child_ = ::fork();
    if (child_ == 0) live_as_child(to.get());
    to.reset();
    TestAgent::Arrival arrival = listening_.serve();
    EXPECT_TRUE(arrival.link) << arrival.failure.message;
    if (!arrival.link) return false;
    agent = std::move(arrival.link);
    for (const TimeNs deadline = soon(); now() < deadline; poll()) {
      pollfd look{from.get(), POLLIN, 0};
      if (::poll(&look, 1, 0) == 1) return ::read(from.get(), &doomed, sizeof doomed) == sizeof doomed;
    }
    return false;
  }

  TimeNs now() const override { return monotonic_ns(); }
  void pass() override {
    pollfd look{agent->event_fd(), POLLIN, 0};
    ::poll(&look, 1, 1);
  }
  void beside(const std::function<void()>& program, const std::function<void()>& round) override {
    std::atomic<bool> done = false;
    std::thread thread([&] {
      program();
      done = true;
    });
    for (; !done; std::this_thread::yield()) round();
    thread.join();
  }
  bool until(const std::function<bool()>& seen) override {
    for (const TimeNs deadline = soon(); now() < deadline; std::this_thread::yield())
      if (seen()) return true;
    return seen();
  }
  void linger(TimeNs time) override {
    for (const TimeNs end = now() + time; now() < end;) {
    }
  }
  void sleep() override {
    std::array<pollfd, 3> looks{
        {{agent->event_fd(), POLLIN, 0}, {agent->life_fd(), POLLIN, 0}, {agent->wake_fd(), POLLIN, 0}}};
    ::poll(looks.data(), looks.size(), 50);
  }
  void kill_host() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  [[noreturn]] void live_as_child(int tell) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<std::byte> memory;
    SegmentMemory own;
    auto connected = link::connect(listening_.address, host_options_, soon());
    if (!connected) ::_exit(1);
    const auto announced = announce_doomed(**connected, memory, own, soon());
    if (!announced || ::write(tell, &*announced, sizeof *announced) != sizeof *announced) ::_exit(2);
    for (;;) ::pause();
  }

  TestDirectory directory_;
  TestAgent listening_;
  HostOptions host_options_;
  pid_t child_ = -1;
};

LinkKind real(std::string name, RealOptions options, const Decorate& decorate = {}) {
  LinkKind kind;
  kind.name = std::move(name);
  kind.mapped = options.network.empty();
  kind.ranges = !options.staged;
  kind.descriptors = options.network.empty();
  kind.direct = options.network.empty() && !options.staged;
  kind.imports = options.network.starts_with("doca:");
  kind.pinned = kind.imports || options.network.starts_with("verbs:");
  kind.real_time = true;
  const auto with = [options, decorate](bool (RealLinkPair::*how)()) -> std::unique_ptr<LinkPair> {
    auto pair = std::make_unique<RealLinkPair>(options);
    pair->imports = options.network.starts_with("doca:");
    if (!((*pair).*how)()) return nullptr;
    if (decorate) decorate(*pair);
    if (options.watched) pair->watch();
    return pair;
  };
  kind.connect = [with] { return with(&RealLinkPair::meet); };
  kind.connect_doomed = [with] { return with(&RealLinkPair::meet_child); };
  return kind;
}

// ---- decorated

// Late, in another order, twice, after a pause: all that link.h allows.
void decorate_with_faults(LinkPair& pair) {
  AgentFaults agent;
  agent.completion_delayed = agent.completion_reordered = agent.wake_delayed = agent.wake_repeated = 0.3;
  agent.stall = 0.02;
  agent.delay_max_ns = 20 * microsecond_ns;
  agent.stall_max_ns = 50 * microsecond_ns;
  pair.agent = std::make_unique<FaultAgentLink>(std::move(pair.agent), agent, 4711);
  HostFaults host;
  host.wake_repeated = host.wait_spurious = 0.3;
  if (pair.host) pair.host = std::make_unique<FaultHostLink>(std::move(pair.host), host, 4712);
}

void decorate_as_bluefield2(LinkPair& pair) {
  pair.agent = std::make_unique<ShapedAgentLink>(std::move(pair.agent), *find_profile("bluefield2"));
}

}  // namespace

std::vector<LinkKind> every_link() {
  LoopbackOptions unmapped, two_sided, staged;
  unmapped.mapped = two_sided.mapped = false;
  two_sided.one_sided = false;
  staged.staged = true;
  std::vector<LinkKind> kinds{
      loopback("loopback_mapped", {}),
      loopback("loopback_unmapped", unmapped),
      loopback("loopback_two_sided", two_sided),
      loopback("loopback_staged", staged),
      loopback("loopback_mapped_with_faults", {}, decorate_with_faults),
      loopback("loopback_unmapped_with_faults", unmapped, decorate_with_faults),
      real("local", {}),
      real("local_staged", {.staged = true}),
      real("local_by_thread", {.by_thread = true}),
      real("local_watched", {.watched = true}),
      real("local_with_faults", {.watched = true}, decorate_with_faults),
      real("local_as_bluefield2", {.watched = true}, decorate_as_bluefield2),
      real("tcp", {.network = "tcp:127.0.0.1:0"}),
      real("tcp_watched", {.network = "tcp:127.0.0.1:0", .watched = true}),
      real("tls", {.network = "tls:127.0.0.1:0"}),
  };
  for (LinkKind& kind : kinds)
    if (kind.name == "local_as_bluefield2") kind.mapped = false;
  if (const auto address = rdma_address()) kinds.push_back(real("verbs", {.network = "verbs:" + *address + ":0"}));
#ifdef OFFPATH_SOFTWARE_CARD
  kinds.push_back(real("doca", {.network = "doca:127.0.0.1:0"}));
#endif
  return kinds;
}

}  // namespace offpath::link
