// Splits 8 M records of 37 bytes (id u64; x y z vx vy vz q f32; type u8) with random identifiers by bits of these, on
// one core: counts them, and writes each part's columns to their final place. Compared with memcpy of the same columns,
// with the better of two splits written by hand in C, and with methods of Python users: pyarrow's filter for each part,
// as in the paper, and Polars' partition_by.
//
//   --python PROGRAM  runs the peers, one thread each; without it they are left out
//   --peers FILE      which are python/offpath/bench/sift_peers.py
//   --rows NUMBER
//   --part turns      for each line of standard input the nanoseconds of a split into 16 parts, and nothing else
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "base/fd.h"
#include "machine.h"
#include "report.h"
#include "sift/split/partition.h"
#include "split_by_hand.h"

namespace offpath::bench {
namespace {

using sift::Column;
using sift::Identifiers;
using sift::Partition;
using sift::SplitBits;

constexpr std::uint32_t widths[] = {8, 4, 4, 4, 4, 4, 4, 4, 1};
constexpr std::uint32_t record_bytes = 37;

// A split's input and output, with all pages in memory.
class Records {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Records>> make(std::uint64_t rows) {
    auto made = std::make_unique<Records>();
    made->rows_ = rows;
    for (const std::uint32_t width : widths) {
      OFP_ASSIGN(Pages from, Pages::map(rows * width, Pages::Kind::shared_file));
      // Room for a page between parts, as between frames.
      OFP_ASSIGN(Pages to, Pages::map(rows * width + 256 * 2 * page_bytes, Pages::Kind::shared_file));
      made->columns_.push_back({from.data(), width});
      made->from_.push_back(std::move(from));
      made->to_.push_back(std::move(to));
    }
    OFP_ASSIGN(made->parts_, Pages::map(rows));
    for (std::size_t i = 0; i < made->columns_.size(); ++i)
      made->hand_columns_.push_back({made->columns_[i].values, made->to_[i].data(), widths[i]});
    std::mt19937_64 random(1);
    for (std::uint64_t row = 0; row < rows; ++row) store(made->from_[0].data() + row * 8, random());
    return made;
  }

  void copy() {
    for (std::size_t i = 0; i < columns_.size(); ++i) std::memcpy(to_[i].data(), columns_[i].values, rows_ * widths[i]);
  }

  void split(SplitBits bits) {
    const std::uint32_t parts = bits.parts();
    const Identifiers ids{columns_[0].values, 8, rows_};
    std::vector<std::uint64_t> counts(parts);
    sift::count_parts(ids, bits, counts);
    std::vector<std::byte*> targets;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      std::byte* at = to_[i].data();
      for (const std::uint64_t count : counts) {
        targets.push_back(at);
        at += align_up(count * widths[i], page_bytes);
      }
    }
    Partition(bits).split(ids, columns_, targets);
  }

  void split_by_hand(hand_way way, std::uint32_t bits) {
    ::split_by_hand(way, reinterpret_cast<const std::uint64_t*>(from_[0].data()), rows_, bits, hand_columns_.data(),
                    static_cast<std::uint32_t>(hand_columns_.size()), reinterpret_cast<std::uint8_t*>(parts_.data()));
  }

  // A checksum of everything that a split has written.
  [[nodiscard]] std::uint64_t checksum() const {
    std::uint64_t sum = 0;
    for (const Pages& pages : to_)
      for (std::uint64_t at = 0; at < pages.size(); at += 8)
        sum = (sum ^ load<std::uint64_t>(pages.data() + at)) * 0x9e3779b97f4a7c15u;
    return sum;
  }

 private:
  std::uint64_t rows_ = 0;
  std::vector<Pages> from_, to_;
  Pages parts_;  // of each row, for the split by hand
  std::vector<Column> columns_;
  std::vector<hand_column> hand_columns_;
};

// A process that does a split for each line "METHOD WAYS" that it reads, and answers with the seconds.
class PythonPeer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PythonPeer>> start(std::string_view python, std::string_view peers,
                                                                 std::uint64_t rows) {
    int asks[2], answers[2];
    if (::pipe(asks) != 0 || ::pipe(answers) != 0) return fail_errno(errno, "pipe");
    auto made = std::make_unique<PythonPeer>();
    const std::string program(python), file(peers), count = fmt::format("{}", rows);
    made->pid_ = ::fork();
    if (made->pid_ < 0) return fail_errno(errno, "fork");
    if (made->pid_ == 0) {
      ::dup2(asks[0], 0);
      ::dup2(answers[1], 1);
      for (const int each : {asks[0], asks[1], answers[0], answers[1]}) ::close(each);
      ::execlp(program.c_str(), program.c_str(), file.c_str(), count.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(asks[0]);
    ::close(answers[1]);
    made->asks_ = ::fdopen(asks[1], "w");
    made->answers_ = ::fdopen(answers[0], "r");
    return made;
  }
  ~PythonPeer() {
    if (asks_ != nullptr) std::fclose(asks_);  // ends its input
    if (answers_ != nullptr) std::fclose(answers_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] Result<double> ask(std::string_view method, std::uint32_t ways) {
    std::fprintf(asks_, "%.*s %u\n", static_cast<int>(method.size()), method.data(), ways);
    std::fflush(asks_);
    char line[4096];
    if (std::fgets(line, sizeof line, answers_) == nullptr) return fail(Error::peer_lost, "the Python peer ended");
    char* end = nullptr;
    const double seconds = std::strtod(line, &end);
    if (end == line) return fail(Error::unsupported, "{}", line);
    return seconds * 1e9;
  }

 private:
  pid_t pid_ = -1;
  std::FILE *asks_ = nullptr, *answers_ = nullptr;
};

Claim claim_of(std::string name, std::string peer, double bytes, const Comparison& compared,
               std::optional<Target> target) {
  return {.claim = std::move(name),
          .value = bytes / compared.subject,
          .unit = "GB/s",
          .peer = std::move(peer),
          .peer_value = bytes / compared.peer,
          .ratio = compared.ratio,
          .interval = compared.interval,
          .pairs = compared.pairs,
          .target = target};
}

// The faster way of the two by hand, after both have written the same as the split.
Status measure_by_hand(Records& records, std::uint32_t bits, double bytes, const Turn& split, const Options& options,
                       Report& report) {
  constexpr std::pair<hand_way, const char*> ways[] = {{hand_direct, "stored directly"},
                                                       {hand_combined, "write-combined"}};
  OFP_TRY(split());
  const std::uint64_t expected = records.checksum();
  const auto by_hand = [&](hand_way way) {
    const std::uint64_t began = ticks();
    records.split_by_hand(way, bits);
    return double(ticks() - began) * ns_per_tick();
  };
  double best_ns = 0;
  std::size_t best = 0;
  for (std::size_t i = 0; i < std::size(ways); ++i) {
    std::vector<double> tried_ns;
    for (int turn = 0; turn < (options.quick ? 1 : 5); ++turn) tried_ns.push_back(by_hand(ways[i].first));
    if (records.checksum() != expected)
      return fail(Error::invalid, "the split by hand, {}, writes something else", ways[i].second);
    if (i == 0 || median(tried_ns) < best_ns) best = i, best_ns = median(tried_ns);
  }
  OFP_ASSIGN(const Comparison compared,
             run_pairs(options.pairs(), split, [&]() -> Result<double> { return by_hand(ways[best].first); }));
  report.add(claim_of(fmt::format("sift.partition_vs_hand ({} ways)", 1 << bits),
                      fmt::format("hand-written C, pre-faulted, {}", ways[best].second), bytes, compared,
                      ratio_at_least(1)));
  return {};
}

// In turns with what another program runs.
void take_turns_of_input(Records& records) {
  std::printf("ready\n");
  std::fflush(stdout);
  for (char line[64]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    const std::uint64_t began = ticks();
    records.split({0, 4});
    std::printf("%.0f\n", double(ticks() - began) * ns_per_tick());
    std::fflush(stdout);
  }
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  const std::string_view part = options.other("--part");
  if (!part.empty() && part != "turns") return fail(Error::invalid, "--part is turns, not '{}'", part);
  std::uint64_t rows = options.quick ? 100'000 : 8'000'000;
  if (const std::string_view text = options.other("--rows"); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rows);
    if (error != std::errc{} || end != text.data() + text.size() || rows == 0)
      return fail(Error::invalid, "--rows {}", text);
  }
  const double bytes = double(rows) * record_bytes;
  std::unique_ptr<PythonPeer> python;
  if (!options.other("--python").empty()) {
    OFP_ASSIGN(python, PythonPeer::start(options.other("--python"), options.other("--peers"), rows));
  }
  OFP_ASSIGN(const std::unique_ptr<Records> records, Records::make(rows));
  if (part == "turns") {
    take_turns_of_input(*records);
    return {};
  }
  const auto timed = [](const auto& work) -> Result<double> {
    const std::uint64_t began = ticks();
    work();
    return double(ticks() - began) * ns_per_tick();
  };
  const auto split = [&](std::uint32_t bits) {
    return Turn([&, bits] { return timed([&] { records->split({0, bits}); }); });
  };
  const Turn copy = [&] { return timed([&] { records->copy(); }); };

  for (const std::uint32_t bits : {4U, 2U, 6U, 8U}) {
    OFP_ASSIGN(const Comparison compared, run_pairs(options.pairs(), split(bits), copy));
    const std::optional<Target> target = bits == 4   ? std::optional(ratio_at_least(0.5))
                                         : bits == 8 ? std::optional(ratio_at_least(0.35))
                                                     : std::nullopt;
    report.add(
        claim_of(fmt::format("sift.partition_vs_memcpy ({} ways)", 1 << bits), "memcpy", bytes, compared, target));
  }
  for (const std::uint32_t bits : {4U, 8U})
    OFP_TRY(measure_by_hand(*records, bits, bytes, split(bits), options, report));
  const std::tuple<const char*, const char*, const char*, double> peers[] = {
      {"sift.partition_vs_filter", "filter", "pyarrow filter for each part", 6},
      {"sift.partition_vs_polars", "polars", "polars partition_by", 4}};
  for (const auto& [claim, method, peer, least] : peers) {
    if (python == nullptr) {
      report.add_unmeasured(claim, "GB/s", ratio_at_least(least), "no --python");
      continue;
    }
    const auto compared =
        run_pairs(options.pairs(), split(4), [&python, method = method] { return python->ask(method, 16); });
    if (compared)
      report.add(claim_of(claim, peer, bytes, *compared, ratio_at_least(least)));
    else
      report.add_unmeasured(claim, "GB/s", ratio_at_least(least), compared.error().message);
  }
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "sift", {"--python", "--peers", "--rows", "--part"}, offpath::bench::run);
}
