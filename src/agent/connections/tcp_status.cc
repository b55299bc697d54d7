#include "agent/connections/tcp_status.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace offpath::agent {

namespace {

// Adds all counters of a struct.
template <class Counters>
void add_counters(Counters& all, const Counters& more) {
  using Words = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;
  static_assert(sizeof(Words) == sizeof(Counters));
  auto sums = std::bit_cast<Words>(all);
  const auto summands = std::bit_cast<Words>(more);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += summands[i];
  all = std::bit_cast<Counters>(sums);
}

}  // namespace

TcpStatus status_of(std::uint32_t core, const tcp::Stack& stack, const tcp::Port& port, const tcp::TcpService& service,
                    const loop::Loop& loop) {
  TcpStatus status;
  const auto own = [&](tcp::IpFamily family) {
    const tcp::IpAddress& address = stack.options().own(family).address;
    return address.is_unspecified() ? std::string() : tcp::text_of(address);
  };
  status.address = own(tcp::IpFamily::v4);
  status.address6 = own(tcp::IpFamily::v6);
  status.address6_state = status.address6.empty() ? ""
                          : stack.is_duplicate()  ? "duplicate"
                          : stack.may_use_ipv6()  ? "usable"
                                                  : "tentative";
  status.router6 = stack.router().is_unspecified() ? "" : tcp::text_of(stack.router());
  status.link_up = port.link_up();
  status.flows = stack.flows();
  status.half_open = stack.half_open();
  status.stack = stack.counters();
  status.acknowledged = stack.acknowledged();
  status.port = port.counters();
  status.service = service.counters();
  status.programs = service.programs();
  status.connections = service.connections(TcpStatus::connections_shown);
  status.cores.push_back({core, status.flows, status.stack.segments_in, status.stack.segments_out,
                          status.port.dropped_in, loop.counters()});
  return status;
}

void add(TcpStatus& all, TcpStatus core) {
  all.flows += core.flows;
  all.half_open += core.half_open;
  add_counters(all.stack, core.stack);
  all.acknowledged += core.acknowledged;
  add_counters(all.port, core.port);
  add_counters(all.service, core.service);
  for (const auto& more : core.programs) {
    const auto same = std::ranges::find(all.programs, more.number, &tcp::TcpService::ProgramStatus::number);
    if (same == all.programs.end()) continue;  // core 0 has closed it
    same->flows += more.flows;
    same->accept_slots += more.accept_slots;
    same->receive_bytes += more.receive_bytes;
    same->lent_bytes += more.lent_bytes;
    same->commands_full.add(more.commands_full);
    same->events_full.add(more.events_full);
  }
  std::ranges::move(core.connections, std::back_inserter(all.connections));
  std::ranges::move(core.cores, std::back_inserter(all.cores));
}

}  // namespace offpath::agent
