// Gets of small objects, one after the other, by a program that is measured together with others: see together.h. It
// sleeps while it waits, like a program with other work. Prints the number of gets, and when they began and ended.
//
// Usage: bench_pool_rate ADDRESS POOL OBJECTS GETS [FIRST]
//
// The pool has the rows "0" to OBJECTS - 1 with the column "bench"; the program begins with row FIRST.
#include <charconv>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "host_program.h"
#include "together.h"

namespace offpath::bench {
namespace {

struct Load {
  const char* pool = "";
  std::uint64_t objects = 0, gets = 0, first = 0;
};

Status get_all(const Channel& channel, const Load& load, std::uint64_t gets) {
  for (std::uint64_t i = 0; i < gets; ++i) {
    ofp_error error{};
    ofp_frame* frame = nullptr;
    const std::string row = fmt::format("{}", (load.first + i) % load.objects);
    if (ofp_pool_get(channel.get(), load.pool, row.c_str(), "bench", second_ns, &frame, &error) != OFP_OK)
      return tl::unexpected(failure_of(error));
    ofp_frame_release(frame);
  }
  return {};
}

Status measure(const char* address, const Load& load) {
  OFP_ASSIGN(const Channel channel, Channel::connect(address));
  OFP_TRY(get_all(channel, load, load.objects));  // channels between the agent's cores
  wait_for_others();
  const TimeNs began = monotonic_ns();
  OFP_TRY(get_all(channel, load, load.gets));
  say_span(static_cast<double>(load.gets), began, monotonic_ns());
  return {};
}

bool parse(const char* text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  return error == std::errc{} && *end == '\0';
}

int run(int count, char** arguments) {
  Load load;
  if (count < 5 || count > 6 || !parse(arguments[3], load.objects) || load.objects == 0 ||
      !parse(arguments[4], load.gets) || (count == 6 && !parse(arguments[5], load.first))) {
    std::fprintf(stderr, "usage: bench_pool_rate ADDRESS POOL OBJECTS GETS [FIRST]\n");
    return 2;
  }
  load.pool = arguments[2];
  if (const Status measured = measure(arguments[1], load); !measured) {
    std::fprintf(stderr, "bench_pool_rate: %s\n", measured.error().message.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace offpath::bench

int main(int count, char** arguments) { return offpath::bench::run(count, arguments); }
