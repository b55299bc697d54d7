// The cost of a request for a host program: figure 2, the agent's reaction time, and the cost of an idle agent.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fd.h"

#include "host_program.h"
#include "machine.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::uint32_t columns_count = 16;
constexpr std::uint64_t size_min_bytes = 4096;
constexpr const char* paper = "SDMS paper, 250-350 us";
constexpr double paper_post_ns = 300e3;

// One stream and one block of announced memory for batches of every size up to `bytes_max`. The cost of a post does not
// depend on the arrays' location, so they are not rotated.
class Poster {
 public:
  static Result<Poster> make(const Channel& channel, std::uint64_t bytes_max) {
    OFP_ASSIGN(Sources sources, Sources::make(channel, bytes_max / columns_count, columns_count, bytes_max));
    OFP_ASSIGN(Stream stream, Stream::open(channel, {.name = fmt::format("bench-post-{}", bytes_max),
                                                     .columns = columns_count,
                                                     .rows_max = bytes_max / columns_count / sizeof(double)}));
    return Poster(channel, std::move(sources), std::move(stream));
  }

  // `count` posts, each after the previous one is stored: the agent is awake and the ring empty. An unrecorded post of
  // the smallest size precedes each one, because a post after 100 ms of waiting for 1 GiB would be colder than one
  // after 10 us of waiting for 4 KiB. Appends nanoseconds.
  Status post_awake(std::uint64_t total_bytes, std::size_t count, std::vector<double>& costs_ns) {
    OFP_TRY(wake_agent(channel_));
    OFP_TRY(post_one(total_bytes));
    for (std::size_t i = 0; i < count; ++i) {
      OFP_TRY(post_one(size_min_bytes));
      OFP_ASSIGN(const double cost_ns, post_one(total_bytes));
      costs_ns.push_back(cost_ns);
    }
    return {};
  }
  // One post now; its cost in nanoseconds.
  Result<double> post(std::uint64_t total_bytes) { return post_one(total_bytes); }
  // One post to an agent that has had time to fall asleep.
  Result<double> post_asleep(std::uint64_t total_bytes, TimeNs settle_ns) {
    sleep_ns(settle_ns);
    return post_one(total_bytes);
  }

 private:
  Poster(const Channel& channel, Sources sources, Stream stream)
      : channel_(channel), sources_(std::move(sources)), stream_(std::move(stream)) {}

  Result<double> post_one(std::uint64_t total_bytes) {
    const std::uint64_t rows = total_bytes / columns_count / sizeof(double);
    OFP_ASSIGN(const Stream::Posted posted, stream_.post(sources_.next(), rows));
    OFP_TRY(stream_.spin_stored(posted.ticket));
    return double(posted.left_ticks - posted.entered_ticks) * ns_per_tick();
  }

  const Channel& channel_;
  Sources sources_;
  Stream stream_;
};

Status measure_awake(const Channel& channel, const Options& options, Report& report) {
  constexpr std::uint64_t bytes = columns_count * 4096;
  OFP_ASSIGN(Poster poster, Poster::make(channel, bytes));
  std::vector<double> medians_ns;
  for (std::size_t turn = 0; turn < options.pairs().pairs; ++turn) {
    std::vector<double> costs_ns;
    OFP_TRY(poster.post_awake(bytes, options.quick ? 20 : 500, costs_ns));
    medians_ns.push_back(median(costs_ns));
  }
  const double cost_ns = median(medians_ns);
  report.add(Claim{.claim = "move.post_ns_p50",
                   .value = cost_ns,
                   .unit = "ns",
                   .peer = paper,
                   .peer_value = paper_post_ns,
                   .ratio = paper_post_ns / cost_ns,
                   .pairs = medians_ns.size(),
                   .target = value_at_most(400, "ns")});
  return {};
}

// A thread that sleeps on an eventfd on the agent's core: the minimal cost of waking a thread there.
class Sleeper {
 public:
  static Result<std::unique_ptr<Sleeper>> start(int core) {
    Fd event(eventfd(0, EFD_CLOEXEC));
    if (!event) return fail_errno(errno, "eventfd");
    return std::make_unique<Sleeper>(std::move(event), core);
  }
  Sleeper(Fd event, int core) : event_(std::move(event)), thread_([this, core] { sleep_on(core); }) {}
  ~Sleeper() {
    stopping_ = true;
    (void)wake();
    thread_.join();
  }

  // Nanoseconds of the system call that wakes it.
  double wake() {
    const std::uint64_t one = 1;
    const std::uint64_t begin_ticks = ticks();
    const ssize_t written = write(event_.get(), &one, sizeof one);
    return written == ssize_t(sizeof one) ? double(ticks() - begin_ticks) * ns_per_tick() : 0;
  }

 private:
  void sleep_on(int core) {
    (void)pin_to_core(core);
    for (std::uint64_t count; !stopping_ && read(event_.get(), &count, sizeof count) == ssize_t(sizeof count);) {
    }
  }

  Fd event_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Status measure_asleep(const Channel& channel, const Options& options, Report& report) {
  constexpr std::uint64_t bytes = columns_count * 4096;
  OFP_ASSIGN(Poster poster, Poster::make(channel, bytes));
  OFP_ASSIGN(const auto sleeper, Sleeper::start(options.agent_core));
  OFP_ASSIGN(const ofp_channel_info before, channel.info());
  std::vector<double> costs_us, wakes_us;
  const std::size_t count = options.quick ? 5 : 201;
  for (std::size_t i = 0; i < count; ++i) {
    // At equal intervals the agent would be awake in time. Squares modulo 11: no interval follows from the few before.
    const TimeNs settle_ns = agent_settles_ns * TimeNs(4 + i * i * 7 % 11) / 4;
    const auto wake = [&] {
      sleep_ns(agent_settles_ns);
      wakes_us.push_back(sleeper->wake() / 1e3);
    };
    if (i % 2 == 1) wake();
    OFP_ASSIGN(const double cost_ns, poster.post_asleep(bytes, settle_ns));
    costs_us.push_back(cost_ns / 1e3);
    if (i % 2 == 0) wake();
  }
  const Comparison compared = compare(costs_us, wakes_us);
  OFP_ASSIGN(const ofp_channel_info after, channel.info());
  Claim claim{.claim = "move.post_asleep_us_p50",
              .value = median(costs_us),
              .unit = "us",
              .peer = "a bare write to an eventfd that wakes a thread there",
              .peer_value = median(wakes_us),
              .ratio = compared.ratio,
              .interval = compared.interval,
              .pairs = compared.pairs,
              .target = ratio_at_least(0.83)};
  // A post that found the agent awake had no cost of a wake.
  const std::uint64_t wakes = after.wakes_sent - before.wakes_sent;
  if (wakes * 10 < count * 9) claim.why = fmt::format("the agent was asleep at only {} of {} posts", wakes, count);
  report.add(std::move(claim));
  return {};
}

// A program between its posts: it posts every `interval_ns` on average, and meanwhile computes on `swept`, which evicts
// the library from the caches if it is larger than these.
struct Rhythm {
  TimeNs interval_ns = 10 * millisecond_ns;
  std::span<char> swept{};
  std::size_t at = 0;

  void compute_until(TimeNs end_ns) {
    while (monotonic_ns() < end_ns) {
      for (std::size_t line = 0; line < 64 && !swept.empty(); ++line, at += 64) ++swept[at % swept.size()];
    }
  }
};

// Posts, `irregular` or at equal intervals. Between two posts, when the agent sleeps again, the peer is woken. Returns
// the agent's share of a core, in percent.
Result<double> post_in_rhythm(Rhythm& rhythm, Poster& poster, Sleeper& sleeper, pid_t agent, std::size_t count,
                              bool irregular, std::vector<double>& costs_us, std::vector<double>& wakes_us) {
  constexpr std::uint64_t bytes = columns_count * 4096;
  OFP_ASSIGN(const std::int64_t before_ns, process_cpu_ns(agent));
  const TimeNs begin_ns = monotonic_ns();
  TimeNs next_ns = begin_ns;
  for (std::size_t i = 0; i < count; ++i) {
    // Squares modulo 11: no interval follows from the few before it.
    next_ns += irregular ? rhythm.interval_ns * TimeNs(4 + i * i * 7 % 11) / 10 : rhythm.interval_ns;
    rhythm.compute_until(next_ns - rhythm.interval_ns / 4);
    wakes_us.push_back(sleeper.wake() / 1e3);
    rhythm.compute_until(next_ns);
    OFP_ASSIGN(const double cost_ns, poster.post(bytes));
    costs_us.push_back(cost_ns / 1e3);
  }
  const TimeNs elapsed_ns = monotonic_ns() - begin_ns;
  OFP_ASSIGN(const std::int64_t after_ns, process_cpu_ns(agent));
  return 100 * double(after_ns - before_ns) / double(elapsed_ns);
}

// A program that posts at equal intervals beside an agent that sleeps in between.
Status measure_rhythm(const Channel& channel, const Options& options, Report& report) {
  const Target post_target = value_at_most(10, "us"), cpu_target = value_at_most(5, "%");
  OFP_ASSIGN(Poster poster, Poster::make(channel, columns_count * 4096));
  OFP_ASSIGN(const auto sleeper, Sleeper::start(options.agent_core));
  OFP_ASSIGN(const ofp_channel_info before, channel.info());
  const auto agent = pid_t(before.agent_pid);
  if (agent == 0 || !process_cpu_ns(agent)) {
    for (const auto& [claim, unit, target] : {std::tuple{"move.post_rhythm_us_p50", "us", post_target},
                                              std::tuple{"move.rhythm_agent_cpu", "%", cpu_target}})
      report.add_unmeasured(claim, unit, target, "the agent's process is not on this machine");
    return {};
  }
  constexpr std::size_t learning = 20;
  const std::size_t turns = options.quick ? 1 : 5, count = options.quick ? 25 : 61;
  std::vector<double> costs_us, wakes_us, irregular_us, unused, regular_cpu, irregular_cpu;
  std::uint64_t wakes_sent = 0;
  Rhythm rhythm;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    OFP_TRY(post_in_rhythm(rhythm, poster, *sleeper, agent, learning, false, unused, unused));
    OFP_ASSIGN(const ofp_channel_info begin, channel.info());
    OFP_ASSIGN(const double regular, post_in_rhythm(rhythm, poster, *sleeper, agent, count, false, costs_us, wakes_us));
    OFP_ASSIGN(const ofp_channel_info end, channel.info());
    wakes_sent += end.wakes_sent - begin.wakes_sent;
    OFP_ASSIGN(const double irregular,
               post_in_rhythm(rhythm, poster, *sleeper, agent, count, true, irregular_us, unused));
    regular_cpu.push_back(regular);
    irregular_cpu.push_back(irregular);
  }
  report.add(Claim{.claim = "move.post_rhythm_us_p50",
                   .value = median(costs_us),
                   .unit = "us",
                   .peer = fmt::format("a bare write to an eventfd that wakes a thread there; {} of {} posts woke the "
                                       "agent, irregular ones take {:.1f} us",
                                       wakes_sent, costs_us.size(), median(irregular_us)),
                   .peer_value = median(wakes_us),
                   .ratio = median(wakes_us) / median(costs_us),
                   .pairs = costs_us.size(),
                   .target = post_target});
  report.add(Claim{.claim = "move.rhythm_agent_cpu",
                   .value = median(regular_cpu) - median(irregular_cpu),
                   .unit = "%",
                   .peer = fmt::format("more than with irregular posts, of a core: {:.1f} % and {:.1f} %",
                                       median(regular_cpu), median(irregular_cpu)),
                   .pairs = regular_cpu.size() * count,
                   .target = cpu_target});
  return {};
}

// A program that computes on more memory than the caches hold, as simulations do: its post finds neither the library
// nor its own core's tables in them, and neither does the bare wake.
Status measure_cold(const Channel& channel, const Options& options, Report& report) {
  const Target regular_target = value_at_most(20, "us"), irregular_target = ratio_at_least(0.83);
  OFP_ASSIGN(Poster poster, Poster::make(channel, columns_count * 4096));
  OFP_ASSIGN(const auto sleeper, Sleeper::start(options.agent_core));
  OFP_ASSIGN(const ofp_channel_info info, channel.info());
  if (info.agent_pid == 0 || !process_cpu_ns(pid_t(info.agent_pid))) {
    for (const auto& [claim, target] : {std::pair{"move.post_cold_us_p50 (in a rhythm)", regular_target},
                                        std::pair{"move.post_cold_us_p50 (irregular)", irregular_target}})
      report.add_unmeasured(claim, "us", target, "the agent's process is not on this machine");
    return {};
  }
  std::vector<char> swept(beyond_cache_bytes());
  Rhythm rhythm{.interval_ns = 50 * millisecond_ns, .swept = swept};
  constexpr std::size_t learning = 20;
  const std::size_t turns = options.quick ? 1 : 3, count = options.quick ? 5 : 41;
  for (const bool irregular : {false, true}) {
    std::vector<double> costs_us, wakes_us, unused;
    for (std::size_t turn = 0; turn < turns; ++turn) {
      if (!irregular && !options.quick)
        OFP_TRY(post_in_rhythm(rhythm, poster, *sleeper, pid_t(info.agent_pid), learning, false, unused, unused));
      OFP_TRY(post_in_rhythm(rhythm, poster, *sleeper, pid_t(info.agent_pid), count, irregular, costs_us, wakes_us));
    }
    const Comparison compared = compare(costs_us, wakes_us);
    report.add(Claim{.claim = irregular ? "move.post_cold_us_p50 (irregular)" : "move.post_cold_us_p50 (in a rhythm)",
                     .value = median(costs_us),
                     .unit = "us",
                     .peer = "a bare write to an eventfd that wakes a thread there, by the same program",
                     .peer_value = median(wakes_us),
                     .ratio = compared.ratio,
                     .interval = compared.interval,
                     .pairs = compared.pairs,
                     .target = irregular ? irregular_target : regular_target});
  }
  return {};
}

Status measure_idle(const Channel& channel, const Options& options, Report& report) {
  OFP_ASSIGN(const ofp_channel_info info, channel.info());
  const Target target = value_at_most(1, "%");
  const TimeNs watch_ns = options.quick ? 200 * millisecond_ns : 3 * second_ns;
  sleep_ns(20 * millisecond_ns);
  const auto before = process_cpu_ns(pid_t(info.agent_pid));
  const TimeNs begin_ns = monotonic_ns();
  sleep_ns(watch_ns);
  const auto after = process_cpu_ns(pid_t(info.agent_pid));
  const TimeNs elapsed_ns = monotonic_ns() - begin_ns;
  if (info.agent_pid == 0 || !before || !after) {
    report.add_unmeasured("move.idle_agent_cpu", "%", target, "the agent's process is not on this machine");
    return {};
  }
  report.add(Claim{.claim = "move.idle_agent_cpu",
                   .value = 100 * double(*after - *before) / double(elapsed_ns),
                   .unit = "%",
                   .target = target});
  return {};
}

// Figure 2. Turns alternate between all sizes, so that drift of the machine is not mistaken for a difference between
// sizes.
Status measure_sizes(const Channel& channel, const Options& options, Report& report) {
  OFP_ASSIGN(Poster poster, Poster::make(channel, options.size_max_bytes));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = size_min_bytes; bytes <= options.size_max_bytes; bytes *= 2) sizes.push_back(bytes);
  std::vector<std::vector<double>> costs_ns(sizes.size());
  for (std::size_t turn = 0; turn < options.pairs().pairs; ++turn) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      OFP_TRY(poster.post_awake(sizes[i], sizes[i] <= (1u << 20) && !options.quick ? 20 : 1, costs_ns[i]));
    }
  }
  const auto add_series = [&](const char* name, double (*figure)(std::span<const double>)) {
    Series series{.figure = "fig2", .name = name, .x_unit = "bytes", .y_unit = "ns", .x = {}, .y = {}};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      series.x.push_back(double(sizes[i]));
      series.y.push_back(figure(costs_ns[i]));
    }
    report.add(series);
    return series.y;
  };
  add_series("minimum", [](std::span<const double> values) { return quantile(values, 0); });
  add_series("mean", mean);
  add_series("maximum", [](std::span<const double> values) { return quantile(values, 1); });
  const std::vector<double> medians_ns = add_series("median", median);
  const auto [fastest, slowest] = std::minmax_element(medians_ns.begin(), medians_ns.end());
  report.add(Claim{.claim = "move.post_size_spread",
                   .value = *slowest / *fastest,
                   .unit = "x",
                   .peer = fmt::format("fastest {:.0f} ns, slowest {:.0f} ns", *fastest, *slowest),
                   .pairs = options.pairs().pairs,
                   .target = value_at_most(1.5, "x")});
  return {};
}

// From just before the host's store to the agent's clock when it sees the entry; both read CLOCK_MONOTONIC.
Status measure_seen(const Channel& channel, const Options& options, Report& report) {
  OFP_ASSIGN(const ofp_channel_info info, channel.info());
  std::vector<double> medians_ns;
  std::string why;
  if (std::string_view(info.link) != "local")
    why = fmt::format("the clocks of two machines differ (link {})", info.link);
  for (std::size_t turn = 0; turn < options.pairs().pairs && why.empty(); ++turn) {
    OFP_TRY(wake_agent(channel));
    std::vector<double> costs_ns;
    for (int i = 0; i < (options.quick ? 20 : 500); ++i) {
      std::int64_t seen_ns = 0, returned_ns = 0;
      ofp_error error{};
      const TimeNs begin_ns = monotonic_ns();
      if (ofp_probe(channel.get(), second_ns, &seen_ns, &returned_ns, &error) != OFP_OK) {
        return tl::unexpected(failure_of(error));
      }
      costs_ns.push_back(double(seen_ns - begin_ns));
    }
    medians_ns.push_back(median(costs_ns));
  }
  Claim claim{.claim = "move.post_to_seen_ns_p50",
              .unit = "ns",
              .pairs = medians_ns.size(),
              .target = value_at_most(250, "ns"),
              .why = why};
  if (!medians_ns.empty()) claim.value = median(medians_ns);
  report.add(std::move(claim));
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
  OFP_TRY(measure_awake(channel, options, report));
  OFP_TRY(measure_asleep(channel, options, report));
  OFP_TRY(measure_rhythm(channel, options, report));
  OFP_TRY(measure_cold(channel, options, report));
  OFP_TRY(measure_idle(channel, options, report));
  OFP_TRY(measure_sizes(channel, options, report));
  return measure_seen(channel, options, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) { return offpath::bench::run_main(argc, argv, "move", {}, offpath::bench::run); }
