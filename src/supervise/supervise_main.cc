// offpath-supervisor: runs a program, in any language, whose TCP connections go over the agent. Behind
// `offpath sockets --supervise`, which sets the environment variables of the policy (docs/guides/sockets.md).
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "sockets/left_to_kernel.h"
#include "sockets/policy.h"
#include "supervise/supervisor.h"

namespace offpath::supervise {
namespace {

constexpr int exit_failed = 1, exit_usage = 2;

int failed(const Failure& why) {
  fmt::print(stderr, "offpath sockets: {}\n", why.message);
  return exit_failed;
}

// Ends as the program did.
int end_with(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(number);
  return 128 + number;
}

constexpr std::string_view help =
    "usage: offpath-supervisor -- PROGRAM [ARGUMENTS...]\n"
    "Runs a program whose TCP connections go over the agent, also one that makes its own system calls. `offpath "
    "sockets "
    "--supervise` starts it, with the policy in the environment variables OFFPATH_AGENT and OFFPATH_SOCKETS_*.\n"
    "\n"
    "Options:\n"
    "  --help                      Print this help\n";

int run_main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--help") {
    fmt::print("{}", help);
    return 0;
  }
  if (argc < 3 || first != "--") {
    fmt::print(stderr, "{}", help);
    return exit_usage;
  }
  const auto policy = sockets::read_policy_of_environment();
  if (!policy) return failed(policy.error());
  const char* const wanted = std::getenv("OFFPATH_SOCKETS_REPORT");
  const bool reports = wanted != nullptr && std::string_view(wanted) == "1";
  const auto supervisor = Supervisor::start(*policy, argv + 2, reports);
  if (!supervisor) return failed(supervisor.error());
  const auto status = (*supervisor)->run();
  if (!status) return failed(status.error());
  if (reports)
    fmt::print(stderr, "offpath sockets: {}{}\n", sockets::report(),
               (*supervisor)->rings() > 0 ? fmt::format(", {} io_uring", (*supervisor)->rings()) : "");
  return end_with(*status);
}

}  // namespace
}  // namespace offpath::supervise

int main(int argc, char** argv) { return offpath::supervise::run_main(argc, argv); }
