// The cost of a program behind a card's link, by given costs of both sides: operations and bytes of an echo and of a
// stream, and how long they take.
#include "testing/tcp/simulated_link.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/sanitized.h"

namespace offpath::tcp {
namespace {

constexpr SimulatedCosts costs{.turn_ns = 1'000, .byte_ns = 0.02, .answer_ns = 1'000, .program_byte_ns = 0.05};
// 2 us each way, 100 Gb/s.
constexpr TestLink card{.latency_ns = 4 * microsecond_ns, .bytes_per_second = 12'500'000'000};
constexpr std::uint32_t mebibyte = 1 << 20;

TEST(SimulatedLink, AnEchoTakesFewOperationsAndLittleTime) {
  SimulatedLink linked(costs, card, 65'536), local(costs, std::nullopt, 65'536);
  constexpr std::size_t count = 500, bytes = 64;
  static_cast<void>(linked.echo_ns(100, bytes));
  static_cast<void>(local.echo_ns(100, bytes));
  const AreaMirrorCounters before = linked.counters();
  const double beyond_ns = linked.echo_ns(count, bytes) - local.echo_ns(count, bytes);
  const AreaMirrorCounters after = linked.counters();
  EXPECT_EQ(after.fetches, before.fetches) << "the bytes travel within the commands";
  EXPECT_LE(after.looks - before.looks, 3 * count);
  EXPECT_LE(after.chains - before.chains, 2 * count);
  EXPECT_LE(after.read_bytes + after.written_bytes - before.read_bytes - before.written_bytes, 4'096 * count);
  EXPECT_GE(beyond_ns, 6'000) << "a write, and a read";
  EXPECT_LE(beyond_ns, 12'000);
}

// An agent that is seldom there reads and writes much at a time. For the bytes alone, the slowest one takes half of the
// link's time, and the slowest program seven eighths. A sanitizer gets the fastest and slowest ones, and fewer bytes.
TEST(SimulatedLink, AStreamFillsTheLink) {
  const std::uint64_t count = fewer_if_sanitized(32), before_count = fewer_if_sanitized(16);
  const auto expect_full = [&](const SimulatedCosts& given, bool to_program) {
    SimulatedLink linked(given, card, mebibyte);
    static_cast<void>(linked.stream(before_count * mebibyte, to_program));
    const AreaMirrorCounters before = linked.counters();
    const double rate = linked.stream(count * mebibyte, to_program);
    const AreaMirrorCounters after = linked.counters();
    EXPECT_GE(rate, 0.9 * double(card.bytes_per_second));
    const std::uint64_t reads = after.looks + after.fetches - before.looks - before.fetches,
                        bytes = after.read_bytes + after.written_bytes - before.read_bytes - before.written_bytes;
    EXPECT_LE(reads, 64 * count);
    EXPECT_LE(after.chains - before.chains, 64 * count);
    EXPECT_LE(bytes, count * mebibyte * 21 / 20);
  };
  const bool few = fewer_if_sanitized(2) < 2;
  const auto of = [&](double least, double middle, double most) {
    return few ? std::vector{least, most} : std::vector{least, middle, most};
  };
  for (const bool to_program : {true, false})
    for (const double turn_ns : of(500, 1'000, 2'000))
      for (const double byte_ns : of(0.01, 0.02, 0.04))
        for (const double program_byte_ns : of(0.03, 0.05, 0.07)) {
          SCOPED_TRACE(testing::Message() << (to_program ? "to" : "from") << " the program, a turn " << turn_ns
                                          << " ns, a byte " << byte_ns << " and " << program_byte_ns << " ns");
          expect_full({.turn_ns = static_cast<TimeNs>(turn_ns),
                       .byte_ns = byte_ns,
                       .answer_ns = 1'000,
                       .program_byte_ns = program_byte_ns},
                      to_program);
        }
}

}  // namespace
}  // namespace offpath::tcp
