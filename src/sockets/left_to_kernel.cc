#include "sockets/left_to_kernel.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "sockets/policy.h"

namespace offpath::sockets {

namespace {

constexpr std::array<std::string_view, 11> names = {"Unix",
                                                    "IPv4",
                                                    "IPv6",
                                                    "datagrams",
                                                    "other families",
                                                    "loopback",
                                                    "link-local",
                                                    "not named by --listen or --connect",
                                                    "no agent",
                                                    "forked child",
                                                    "another network namespace"};

struct Counts {
  std::array<std::atomic<std::uint64_t>, names.size()> left;
  std::atomic<std::uint64_t> offloaded;
  pid_t first;  // of the processes, if one of them is to report; 0
  std::atomic<bool> reported;
  std::atomic<bool> failing;  // a process writes `failure`
  std::array<char, 256> failure;
};

// Shared with forked children if there is memory.
Counts& counts() noexcept {
  static Counts own{};
  static Counts* const shared = [] {
    void* const memory = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return &own;
    auto* const made = new (memory) Counts{};
    const char* const report = std::getenv("OFFPATH_SOCKETS_REPORT");
    if (report != nullptr && std::string_view(report) == "1") made->first = ::getpid();
    return made;
  }();
  return *shared;
}
[[gnu::constructor]] void share_counts() { static_cast<void>(counts()); }

thread_local int own_sockets = 0;

}  // namespace

Left left_at(const wire::IpAddress& address) noexcept {
  switch (reach_of(address)) {
    case Reach::machine:
      return Left::loopback;
    case Reach::link:
      return Left::link_local;
    default:
      return Left::not_named;
  }
}

void count_left(Left why) noexcept {
  if (own_sockets == 0) counts().left[static_cast<unsigned>(why)].fetch_add(1, std::memory_order_relaxed);
}

void count_offloaded() noexcept { counts().offloaded.fetch_add(1, std::memory_order_relaxed); }

bool note_failure(std::string_view why) noexcept {
  Counts& all = counts();
  if (all.failing.exchange(true)) return true;
  const std::string_view kept = why.substr(0, all.failure.size() - 1);
  const bool is_new = kept != std::string_view(all.failure.data());
  all.failure.fill(0);
  std::ranges::copy(kept, all.failure.begin());
  all.failing = false;
  return is_new;
}

void forget_failure() noexcept {
  Counts& all = counts();
  if (all.failure[0] == 0 || all.failing.exchange(true)) return;
  all.failure.fill(0);
  all.failing = false;
}

std::string report() {
  const Counts& all = counts();
  std::string line = fmt::format("{} offloaded", all.offloaded.load());
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const std::uint64_t count = all.left[i].load(); count > 0)
      line += fmt::format(", {} left to the kernel ({})", count, names[i]);
  if (all.failure[0] != 0) line += fmt::format("; {}", all.failure.data());
  return line;
}

bool is_to_report() noexcept {
  Counts& all = counts();
  if (all.first == 0) return false;
  const bool first_has_ended = ::kill(all.first, 0) != 0 && errno == ESRCH;
  return (all.first == ::getpid() || first_has_ended) && !all.reported.exchange(true);
}

OwnSockets::OwnSockets() noexcept { ++own_sockets; }
OwnSockets::~OwnSockets() { --own_sockets; }

}  // namespace offpath::sockets
