// offpath-slow-path: does the slow path of an agent's TCP on the host (tcp.slow_path = "host"; docs/internals/tcp.md).
// Behind `offpath slow-path`. It runs until it is stopped, or the agent ends: then it exits with 1, so that a service
// manager restarts it.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "connections/slow_path_channel.h"
#include "tcp/slow_path/slow_path_host.h"

namespace offpath::tcp {
namespace {

constexpr int exit_failed = 1, exit_usage = 2;
constexpr TimeNs spin_ns = 20 * microsecond_ns;  // looks before it sleeps: handshakes come in bursts
constexpr TimeNs connect_wait_ns = 10 * second_ns;

volatile sig_atomic_t stopping = 0;

void stop_on_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) { stopping = 1; };
  for (const int number : {SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
}

// A signal that comes between the look at `stopping` and the sleep is seen this late.
constexpr TimeNs sleep_most_ns = second_ns;

Status run(const std::string& address, bool says) {
  const wire::TcpSlowLayout layout;
  OFP_ASSIGN(const auto agent, channel::SlowPathChannel::connect(address, layout, monotonic_ns() + connect_wait_ns));
  HostSlowPath slow_path(agent->memory(), layout);
  TimeNs idle_since = monotonic_ns();
  while (stopping == 0) {
    const TimeNs now = monotonic_ns();
    OFP_ASSIGN(const bool worked, slow_path.poll(now));
    if (says && slow_path.stack() != nullptr) {
      const StackOptions& of = slow_path.stack()->options();
      fmt::print("slow path of {}\n", text_of(of.v4.address.is_unspecified() ? of.v6.address : of.v4.address));
      std::fflush(stdout);
      says = false;
    }
    if (slow_path.wants_wake()) agent->wake();
    if (worked) idle_since = now;
    if (now - idle_since < spin_ns || !slow_path.fall_asleep(now)) continue;
    OFP_TRY(agent->sleep(std::min(slow_path.next_due(), now + sleep_most_ns), now));
    idle_since = monotonic_ns();
  }
  return {};
}

int run_main(int argc, char** argv) {
  std::string address;
  if (const char* given = std::getenv("OFFPATH_AGENT")) address = given;
  bool says = false, good = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--agent" && i + 1 < argc)
      address = argv[++i];
    else if (option == "--ready")
      says = true;
    else
      good = false;
  }
  if (!good || address.empty()) {
    fmt::print(stderr,
               "usage: offpath-slow-path --agent unix:/path [--ready]\n"
               "Does handshakes, ARP, refusals and TIME-WAIT for the TCP of an agent with tcp.slow_path = \"host\".\n"
               "--ready: print a line when it does. The agent may be given by OFFPATH_AGENT.\n");
    return exit_usage;
  }
  stop_on_signals();
  if (const Status done = run(address, says); !done) {
    fmt::print(stderr, "offpath-slow-path: {}\n", done.error().message);
    return exit_failed;
  }
  return 0;
}

}  // namespace
}  // namespace offpath::tcp

int main(int argc, char** argv) { return offpath::tcp::run_main(argc, argv); }
