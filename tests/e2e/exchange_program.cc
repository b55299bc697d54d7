// The decision maker of exchange_program.c, by the C++ header; it also has a gauge.
#include <offpath/offpath.hpp>

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr offpath::Wait patience = std::chrono::seconds(40);

struct Record {
  double power;
  std::uint64_t jobs;
};

// Its line, if all of this view is there: of every member a record, which the figures are of as well, and this one's
// share.
bool say(const offpath::Exchange& exchange, const offpath::View& view, std::uint64_t share) {
  double sum = 0;
  for (std::uint32_t i = 0; i < view.info().entries; ++i) {
    const auto record = view.record<Record>(i);
    if (!record) return false;
    sum += record->power;
  }
  const ofp_view_figure power = view.figure(0), jobs = view.figure(1);
  const auto [amount, left] = exchange.granted();
  if (power.count != view.info().expected || amount != share || left <= offpath::Wait::zero()) return false;
  std::printf("%g %g %s %s %llu 1\n", sum, power.value,
              exchange.member(static_cast<std::uint32_t>(jobs.top[0].member)).c_str(),
              exchange.member(view.info().leader).c_str(), static_cast<unsigned long long>(amount));
  std::fflush(stdout);
  return true;
}

void take_part(const Record& own) {
  offpath::Channel channel;
  const offpath::Gauges gauges = channel.gauges("decisions", {{.name = "views_seen", .kind = "counter"}});
  const offpath::Gauges::Slot views_seen = gauges.slot(0);

  offpath::ExchangeOptions options;
  options.publish = true;
  options.fields = {{.name = "power", .type = 'f', .unit = "watts"}, {.name = "jobs", .type = 'u', .unit = nullptr}};
  offpath::Exchange exchange(channel, "load", options);
  std::vector<std::uint32_t> members(exchange.info().members);
  std::iota(members.begin(), members.end(), 0u);
  const std::uint64_t share = exchange.info().grant_total / members.size();
  exchange.grant(members, std::vector<std::uint64_t>(members.size(), share));

  bool has_said = false;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (std::uint64_t seen = 1; poll(&input, 1, 0) == 0; ++seen) {
    exchange.publish(own);
    const offpath::View view = exchange.view(patience);
    views_seen.set(seen);
    if (!has_said && view.complete()) has_said = say(exchange, view, share);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  take_part({std::stod(argv[1]), std::stoull(argv[2])});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
