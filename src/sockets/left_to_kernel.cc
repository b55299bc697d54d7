#include "sockets/left_to_kernel.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace offpath::sockets {

namespace {

constexpr std::array<std::string_view, 8> names = {
    "Unix",     "IPv6",        "datagrams", "other families", "loopback", "not named by --listen or --connect",
    "no agent", "forked child"};
std::array<std::atomic<std::uint64_t>, names.size()> left;
std::atomic<std::uint64_t> offloaded;
thread_local int own = 0;

}  // namespace

void count_left(Left why) noexcept {
  if (own == 0) left[static_cast<unsigned>(why)].fetch_add(1, std::memory_order_relaxed);
}

void count_offloaded() noexcept { offloaded.fetch_add(1, std::memory_order_relaxed); }

std::string report() {
  std::string line = fmt::format("{} offloaded", offloaded.load());
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const std::uint64_t count = left[i].load(); count > 0)
      line += fmt::format(", {} left to the kernel ({})", count, names[i]);
  return line;
}

OwnSockets::OwnSockets() noexcept { ++own; }
OwnSockets::~OwnSockets() { --own; }

}  // namespace offpath::sockets
