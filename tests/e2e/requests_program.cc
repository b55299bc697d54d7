// argv: the address of an agent with the plug-in "particles". All requests are sent at once, and awaited afterwards;
// the exit message is the first deviation.
#include <offpath/offpath.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr offpath::Wait patience = 20s;
const std::string pool = "local:/asked";

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

template <class Result>
Result result_of(offpath::Request<Result>& request) {
  std::optional<Result> result = request.wait(patience);
  expect(result.has_value(), "a request was not over in time");
  return std::move(*result);
}

int code_of(offpath::Request<std::optional<offpath::Frame>>& request) {
  try {
    (void)request.wait(patience);
    return OFP_OK;
  } catch (const offpath::Error& error) {
    return error.code();
  }
}

void run(const char* address) {
  offpath::Channel channel{address};
  std::vector<float> v(1000);
  offpath::Stream stream(channel, "asked", {{"v", "f"}}, {.pool = pool, .rows_max = v.size()});
  const auto put = [&](int step) {
    std::ranges::fill(v, static_cast<float>(step));
    const offpath::Ticket ticket = stream.send({v.data()}, v.size(), {"step" + std::to_string(step), "c"});
    stream.wait_stored(ticket, patience);
  };
  for (int step = 0; step < 4; ++step) put(step);
  offpath::Stream plain(channel, "plain", {{"v", "f"}}, {.pool = pool, .destination = "native", .rows_max = v.size()});
  plain.wait_stored(plain.send({v.data()}, v.size(), {"plain", "v"}), patience);

  offpath::Want wanted = channel.want(pool, {"step9", "c"}, patience);
  {
    const offpath::Want given_up = channel.want(pool, {"never", ""});
  }
  auto listed = channel.start_list(pool, {"step*", "*"});
  auto asked = channel.start_query(pool, offpath::make_query({.filter = "v > 1"}), {"step*", "*"});
  auto mean = channel.start_compute(pool, {"plain", "v"}, "particles", "mean");
  auto missing = channel.start_compute(pool, {"plain", "v"}, "particles", "no_such_function");
  expect(!wanted.wait(0s).has_value(), "an object is there that nobody has put");

  expect(result_of(listed).size() == 4, "not all steps are listed");
  offpath::Query answer = result_of(asked);
  std::uint64_t rows = 0;
  for (auto next = answer.start_next();; next = answer.start_next()) {
    const std::optional<offpath::Frame> frame = result_of(next);
    if (!frame) break;
    rows += frame->rows();
  }
  expect(rows == 2000, "the query has found other rows than those of two steps");
  expect(result_of(mean)->bytes().size() >= 16, "the function's output is too short");
  expect(code_of(missing) == OFP_NOT_FOUND, "a function that is not there has not failed as such");
  put(9);
  expect(result_of(wanted).rows() == 1000, "what was wanted has other rows");
  auto dropped = channel.start_drop(pool, {"step*", "*"});
  expect(result_of(dropped) == 5, "not all were dropped");
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
