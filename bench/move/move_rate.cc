// The rate at which batches of one size move, a number at a time, over any link: for peers that are measured by
// separate programs. Prints MB/s from entering the first send until the last frame is stored. It sleeps while it waits,
// like a program with other work: an emulated card needs the processor.
//
// Usage: bench_move_rate ADDRESS BYTES OUTSTANDING BATCHES
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "host_program.h"
#include "measure.h"

namespace offpath::bench {
namespace {

struct Load {
  std::uint64_t bytes, outstanding, batches;
};

Result<double> megabytes_per_second(const Channel& channel, const Load& load) {
  OFP_ASSIGN(Sources sources, Sources::make(channel, load.bytes, 1, load.bytes * load.outstanding));
  const std::uint64_t rows = load.bytes / sizeof(double);
  OFP_ASSIGN(Stream stream, Stream::open(channel, {.name = "rate", .rows_max = rows}));
  OFP_ASSIGN(const Stream::Posted first, stream.post(sources.next(), rows));  // makes its pages and templates
  OFP_TRY(stream.spin_stored(first.ticket));
  std::deque<std::uint64_t> under_way;
  std::uint64_t began_ticks = 0, ended_ticks = 0;
  for (std::uint64_t sent = 0; sent < load.batches || !under_way.empty();) {
    if (sent < load.batches && under_way.size() < load.outstanding) {
      OFP_ASSIGN(const Stream::Posted posted, stream.post(sources.next(), rows));
      if (sent++ == 0) began_ticks = posted.entered_ticks;
      under_way.push_back(posted.ticket);
      continue;
    }
    OFP_TRY(stream.wait_stored(under_way.front()));
    ended_ticks = ticks();
    under_way.pop_front();
  }
  return double(load.bytes * load.batches) / (double(ended_ticks - began_ticks) * ns_per_tick()) * 1e3;
}

bool parse(const char* text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  return error == std::errc{} && *end == '\0' && number > 0;
}

int run(int count, char** arguments) {
  Load load{};
  if (count != 5 || !parse(arguments[2], load.bytes) || !parse(arguments[3], load.outstanding) ||
      !parse(arguments[4], load.batches)) {
    std::fprintf(stderr, "usage: bench_move_rate ADDRESS BYTES OUTSTANDING BATCHES\n");
    return 2;
  }
  const auto measured = [&]() -> Result<double> {
    OFP_ASSIGN(const Channel channel, Channel::connect(arguments[1]));
    return megabytes_per_second(channel, load);
  }();
  if (!measured) {
    std::fprintf(stderr, "bench_move_rate: %s\n", measured.error().message.c_str());
    return 1;
  }
  std::printf("%.3f\n", *measured);
  return 0;
}

}  // namespace
}  // namespace offpath::bench

int main(int count, char** arguments) { return offpath::bench::run(count, arguments); }
