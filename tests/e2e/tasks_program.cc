// argv: the address of an agent with the plug-in "t". Its tasks are returned in the order of their ends; the exit
// message is the first deviation.
#include <offpath/offpath.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr offpath::Wait patience = 20s;

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void run(const char* address) {
  const offpath::Channel channel{address};
  offpath::Tasks tasks(channel);
  expect(tasks.next() == nullptr, "none was submitted, and one was given");
  const std::array<std::int64_t, 1> nanoseconds{60'000'000'000};
  const auto named = [](const char* function, std::span<const std::byte> arguments = {}) {
    offpath::TaskRequest request{.function = function};
    request.arguments = arguments;
    return request;
  };
  offpath::Task slow = tasks.submit(named("t/nap", std::as_bytes(std::span(nanoseconds))));
  std::vector<offpath::Task> quick;
  for (int i = 0; i < 3; ++i) quick.push_back(tasks.submit(named("t/nothing")));
  offpath::Task failing = tasks.submit(named("t/complain"));
  std::vector<const ofp_task*> given;
  for (int i = 0; i < 4; ++i) given.push_back(tasks.next(patience));
  for (offpath::Task& each : quick) {
    expect(std::count(given.begin(), given.end(), each.get()) == 1, "one that is over was not given once");
    expect(each.wait(0s), "one that was given is not over");
  }
  expect(std::count(given.begin(), given.end(), failing.get()) == 1, "the one that failed was not given once");
  try {
    (void)failing.wait(0s);
    expect(false, "the one that failed has ended well");
  } catch (const offpath::Error& error) {
    expect(error.code() == OFP_FUNCTION_FAILED, error.what());
  }
  expect(tasks.next(1ms) == nullptr, "one that goes on was given");
  slow.cancel();
  expect(tasks.next(patience) == slow.get(), "the one that was cancelled was not given");
  expect(tasks.next() == nullptr, "none is left, and one was given");
}

}  // namespace

int main(int, char** arguments) {
  try {
    run(arguments[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
