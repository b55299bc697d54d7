// The rate at which batches of one size move, a number at a time, over any link: for peers that are measured by
// separate programs. Prints MB/s from entering the first send until the last frame is stored. It sleeps while it waits,
// like a program with other work: an emulated card needs the processor.
//
// Usage: bench_move_rate ADDRESS BYTES OUTSTANDING BATCHES [NAME]
//
// NAME is that of its stream and pool, for several that are measured together: see together.h. Then it prints its
// bytes, and when they began and ended.
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "host_program.h"
#include "measure.h"
#include "together.h"

namespace offpath::bench {
namespace {

struct Load {
  std::uint64_t bytes, outstanding, batches;
  std::string name = "rate";
  bool with_others = false;

  [[nodiscard]] double all_bytes() const { return static_cast<double>(bytes * batches); }
};

struct Span {
  TimeNs began = 0, ended = 0;
};

Result<Span> move_all(const Channel& channel, const Load& load) {
  OFP_ASSIGN(Sources sources, Sources::make(channel, load.bytes, 1, load.bytes * load.outstanding));
  const std::uint64_t rows = load.bytes / sizeof(double);
  OFP_ASSIGN(Stream stream, Stream::open(channel, {.name = load.name, .rows_max = rows}));
  OFP_ASSIGN(const Stream::Posted first, stream.post(sources.next(), rows));  // makes its pages and templates
  OFP_TRY(stream.spin_stored(first.ticket));
  if (load.with_others) wait_for_others();
  std::deque<std::uint64_t> under_way;
  Span span{.began = monotonic_ns()};
  for (std::uint64_t sent = 0; sent < load.batches || !under_way.empty();) {
    if (sent < load.batches && under_way.size() < load.outstanding) {
      OFP_ASSIGN(const Stream::Posted posted, stream.post(sources.next(), rows));
      ++sent;
      under_way.push_back(posted.ticket);
      continue;
    }
    OFP_TRY(stream.wait_stored(under_way.front()));
    under_way.pop_front();
  }
  span.ended = monotonic_ns();
  return span;
}

bool parse(const char* text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  return error == std::errc{} && *end == '\0' && number > 0;
}

int run(int count, char** arguments) {
  Load load{};
  if (count < 5 || count > 6 || !parse(arguments[2], load.bytes) || !parse(arguments[3], load.outstanding) ||
      !parse(arguments[4], load.batches)) {
    std::fprintf(stderr, "usage: bench_move_rate ADDRESS BYTES OUTSTANDING BATCHES [NAME]\n");
    return 2;
  }
  load.with_others = count == 6;
  if (load.with_others) load.name = arguments[5];
  const auto measured = [&]() -> Result<Span> {
    OFP_ASSIGN(const Channel channel, Channel::connect(arguments[1]));
    return move_all(channel, load);
  }();
  if (!measured) {
    std::fprintf(stderr, "bench_move_rate: %s\n", measured.error().message.c_str());
    return 1;
  }
  if (load.with_others)
    say_span(load.all_bytes(), measured->began, measured->ended);
  else
    std::printf("%.3f\n", load.all_bytes() / static_cast<double>(measured->ended - measured->began) * 1e3);
  return 0;
}

}  // namespace
}  // namespace offpath::bench

int main(int count, char** arguments) { return offpath::bench::run(count, arguments); }
