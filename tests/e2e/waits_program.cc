// argv: the address of an agent with the plug-in "t" and the exchange "slow", of which no view comes in an hour. Waits
// for events that do not come, thousands of times for a moment each, and continues afterwards; the exit message is the
// first deviation.
#include <offpath/offpath.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr int waits = 1500;
constexpr offpath::Wait moment = 200us, patience = 20s;

// `wait` is true if it came, or throws that it did not.
template <class Wait>
void not_for_long(const char* what, const Wait& wait) {
  for (int i = 0; i < waits; ++i) {
    try {
      if (wait()) throw std::runtime_error(what);
    } catch (const offpath::Error& error) {
      if (error.code() != OFP_TIMEOUT) throw;
    }
  }
}

void for_tickets(offpath::Channel& channel) {
  const std::vector<double> x(1000, 1.5);
  offpath::StreamOptions options;
  options.rows_max = x.size();
  options.pool = "local:/waits?budget=16KiB";
  offpath::Stream stream(channel, "waits", {{"x", "g"}}, options);
  stream.wait_stored(stream.send({x.data()}, x.size(), {"first", ""}), patience);
  const auto ticket = stream.send({x.data()}, x.size(), {"second", ""});
  not_for_long("what has no room was stored", [&] { return stream.wait_stored(ticket, moment), true; });
  if (channel.drop("local:/waits", {"first", "*"}) != 1) throw std::runtime_error("nothing was dropped");
  stream.wait_stored(ticket, patience);
}

void for_objects(offpath::Channel& channel) {
  offpath::Want absent = channel.want("local:/waits", {"absent", ""}, 1h);
  not_for_long("what nobody stores has come", [&] { return absent.wait(moment).has_value(); });
  not_for_long("what nobody stores was got",
               [&] { return (void)channel.get("local:/waits", {"absent", ""}, moment), true; });
}

void for_tasks(offpath::Channel& channel) {
  offpath::Tasks tasks(channel);
  const std::array<std::int64_t, 1> hour{3'600'000'000'000};
  const offpath::TaskRequest nap{.function = "t/nap", .arguments = std::as_bytes(std::span(hour)), .wait = 1h};
  offpath::Task task = tasks.submit(nap);
  not_for_long("an hour is over", [&] { return task.wait(moment); });
  not_for_long("a task was given that goes on", [&] { return tasks.next(moment) != nullptr; });
  task.cancel();
  if (tasks.next(patience) != task.get()) throw std::runtime_error("the one that was cancelled was not given");
}

void for_views(offpath::Channel& channel) {
  offpath::Exchange exchange(channel, "slow");
  not_for_long("a view has come", [&] { return (void)exchange.view(moment), true; });
}

}  // namespace

int main(int, char** arguments) {
  try {
    offpath::Channel channel{arguments[1]};
    for_tickets(channel);
    for_objects(channel);
    for_tasks(channel);
    for_views(channel);
    (void)channel.probe(patience);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
