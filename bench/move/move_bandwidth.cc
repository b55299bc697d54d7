// The speed of a move compared with the primitive under it: figures 3 and 4, and columns against UCX.
#include <algorithm>
#include <optional>
#include <vector>

#include "host_program.h"
#include "machine.h"
#include "peer_process.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::uint64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;
constexpr std::uint64_t in_flight_bytes_max = gib;  // of 16 outstanding

// One turn of either side: the number of repeats and of operations at a time. Above the cache size an unrecorded repeat
// gains nothing, and 1 GiB takes long enough.
struct TurnPlan {
  std::uint32_t outstanding = 1;
  std::uint32_t repeats = 1;
  std::uint32_t unrecorded = 1;
};
TurnPlan plan_turn(std::uint64_t bytes, std::uint32_t outstanding, bool quick) {
  const std::uint64_t repeats = 16 * mib / (bytes * outstanding);
  return {outstanding, quick ? 1 : std::uint32_t(std::clamp<std::uint64_t>(repeats, 1, 40)),
          bytes * outstanding >= 64 * mib ? 0u : 1u};
}

// Both sides over the same source memory.
class Contest {
 public:
  static Result<Contest> make(const Channel& channel, std::uint64_t column_bytes, std::uint32_t columns,
                              const TurnPlan& plan, const char* destination = "ipc-page",
                              std::uint64_t misalign_bytes = 0) {
    OFP_ASSIGN(Sources sources, Sources::make(channel, column_bytes, columns, beyond_cache_bytes(), misalign_bytes));
    const std::uint64_t rows = column_bytes / sizeof(double);
    OFP_ASSIGN(Stream stream, Stream::open(channel, {.name = fmt::format("bench-{}-{}-{}", destination, columns, rows),
                                                     .destination = destination,
                                                     .columns = columns,
                                                     .rows_max = rows}));
    return Contest(channel, std::move(sources), std::move(stream), column_bytes, columns, plan);
  }

  // Median nanoseconds of a repeat, from entering the first send until the last one's arrays are the program's again
  // (or stored). Ends with the agent asleep.
  Result<double> move(bool until_stored) {
    OFP_TRY(wake_agent(*channel_));
    std::vector<double> costs_ns;
    for (std::uint32_t i = 0; i < plan_.unrecorded + plan_.repeats; ++i) {
      std::uint64_t entered_ticks = 0, ticket = 0;
      for (std::uint32_t k = 0; k < plan_.outstanding; ++k) {
        OFP_ASSIGN(const Stream::Posted posted, stream_.post(sources_.next(), column_bytes_ / sizeof(double)));
        if (k == 0) entered_ticks = posted.entered_ticks;
        ticket = posted.ticket;
      }
      OFP_ASSIGN(const std::uint64_t pulled_ticks, stream_.spin_pulled(ticket));
      OFP_ASSIGN(const std::uint64_t stored_ticks, stream_.spin_stored(ticket));
      if (i < plan_.unrecorded) continue;
      costs_ns.push_back(double((until_stored ? stored_ticks : pulled_ticks) - entered_ticks) * ns_per_tick());
    }
    sleep_ns(agent_settles_ns);
    return median(costs_ns);
  }

  // The same by a peer that reads this process.
  Result<double> read(PeerProcess& reader) { return reader.pull(turn(sources_.buffers().count())); }
  // The same by UCX, from its own source process, which has `source_bytes`.
  Result<double> get(PeerProcess& ucx, std::uint64_t source_bytes) {
    return ucx.pull(
        turn(std::min<std::uint64_t>(sources_.buffers().count(), source_bytes / sources_.buffers().stride_bytes())));
  }
  [[nodiscard]] double bytes() const noexcept { return double(column_bytes_) * columns_ * plan_.outstanding; }

 private:
  Contest(const Channel& channel, Sources sources, Stream stream, std::uint64_t column_bytes, std::uint32_t columns,
          const TurnPlan& plan)
      : channel_(&channel),
        sources_(std::move(sources)),
        stream_(std::move(stream)),
        column_bytes_(column_bytes),
        columns_(columns),
        plan_(plan) {}

  // Half a rotation away: neither side reads data that the other has just brought into the cache.
  Pull turn(std::uint64_t buffers) {
    const std::uint64_t start = peer_start_ + buffers / 2;
    peer_start_ += std::uint64_t(plan_.repeats + plan_.unrecorded) * plan_.outstanding * columns_;
    return {.source = reinterpret_cast<std::uint64_t>(sources_.buffers().at(0)),
            .stride_bytes = sources_.buffers().stride_bytes(),
            .buffers = buffers,
            .start = start % buffers,
            .column_bytes = column_bytes_,
            .columns = columns_,
            .outstanding = plan_.outstanding,
            .repeats = plan_.repeats,
            .unrecorded = plan_.unrecorded};
  }

  const Channel* channel_;
  Sources sources_;
  Stream stream_;
  std::uint64_t column_bytes_;
  std::uint32_t columns_;
  TurnPlan plan_;
  std::uint64_t peer_start_ = 0;
};

std::string size_text(std::uint64_t bytes) {
  if (bytes >= gib) return fmt::format("{} GiB", bytes / gib);
  if (bytes >= mib) return fmt::format("{} MiB", bytes / mib);
  return fmt::format("{} KiB", bytes / kib);
}

// The worst result of several sizes, as one claim.
struct Worst {
  std::optional<Comparison> comparison;
  std::uint64_t size_bytes = 0;
  double bytes = 0;  // moved by one repeat

  void offer(const Comparison& candidate, std::uint64_t candidate_size_bytes, double moved_bytes) {
    if (comparison && comparison->ratio <= candidate.ratio) return;
    comparison = candidate;
    size_bytes = candidate_size_bytes;
    bytes = moved_bytes;
  }
  void report_to(Report& report, std::string name, std::string_view peer, std::optional<Target> target,
                 std::string_view reason) const {
    if (!comparison) {
      Claim claim{.claim = std::move(name), .unit = "GB/s", .peer = std::string(peer), .target = target};
      claim.why = reason;
      report.add(std::move(claim));
      return;
    }
    report.add(Claim{.claim = std::move(name),
                     .value = bytes / comparison->subject,
                     .unit = "GB/s",
                     .peer = fmt::format("{}, worst size {}", peer, size_text(size_bytes)),
                     .peer_value = bytes / comparison->peer,
                     .ratio = comparison->ratio,
                     .interval = comparison->interval,
                     .pairs = comparison->pairs,
                     .target = target});
  }
};

struct Peers {
  PeerProcess raw;
  Result<PeerProcess> ucx;
  std::uint64_t ucx_source_bytes;
};

Series bandwidth_series(std::string name) {
  return {.figure = "fig3", .name = std::move(name), .x_unit = "bytes", .y_unit = "GB/s", .x = {}, .y = {}};
}
void add_point(Series& series, double x, double y) {
  series.x.push_back(x);
  series.y.push_back(y);
}

// Figure 3 and its claims. UCX is measured and shown, but not claimed.
Status measure_against_raw(const Channel& channel, Peers& peers, std::uint32_t outstanding, const Options& options,
                           Report& report) {
  const bool many = outstanding > 1;
  const std::string suffix = fmt::format(", {} outstanding", outstanding);
  Series ours = bandwidth_series("Offpath" + suffix), raw = bandwidth_series("process_vm_readv" + suffix),
         ucx = bandwidth_series("UCX ucp_get" + suffix),
         frame = bandwidth_series("Offpath to the finished frame" + suffix);
  Worst from_256k, from_64k, to_frame;
  for (std::uint64_t size = 4 * kib; size <= options.size_max_bytes; size *= 2) {
    if (many && size * outstanding > in_flight_bytes_max) break;
    OFP_ASSIGN(Contest contest, Contest::make(channel, size, 1, plan_turn(size, outstanding, options.quick)));
    const double bytes = contest.bytes();
    OFP_ASSIGN(
        const Comparison pulled,
        run_pairs(options.pairs(), [&] { return contest.move(false); }, [&] { return contest.read(peers.raw); }));
    add_point(ours, double(size), bytes / pulled.subject);
    add_point(raw, double(size), bytes / pulled.peer);
    if (size >= 256 * kib || (many && size >= 64 * kib)) from_256k.offer(pulled, size, bytes);
    if (size >= 64 * kib && size < 256 * kib) from_64k.offer(pulled, size, bytes);
    const std::size_t turns = options.quick ? 1 : 5;
    if (!many) {
      // Separate from the claim: above, pulls and reads are compared; here the frame is also finished and kept.
      OFP_ASSIGN(const auto stored_ns, run_turns(turns, 0, [&] { return contest.move(true); }));
      add_point(frame, double(size), bytes / median(stored_ns));
      if (size >= 64 * kib) {
        const std::vector<double> raw_ns(stored_ns.size(), pulled.peer);
        to_frame.offer(compare(stored_ns, raw_ns), size, bytes);
      }
    }
    if (peers.ucx) {
      OFP_ASSIGN(const auto ucx_ns,
                 run_turns(turns, 1, [&] { return contest.get(*peers.ucx, peers.ucx_source_bytes); }));
      add_point(ucx, double(size), bytes / median(ucx_ns));
    }
  }
  const std::string reason = fmt::format("--sizes-max {} leaves no size to measure", options.size_max_bytes);
  const std::string peer = "one process_vm_readv";
  if (many) {
    from_256k.report_to(report, "move.bandwidth_vs_raw_many", fmt::format("{} process_vm_readv", outstanding),
                        ratio_at_least(0.95), reason);
  } else {
    from_256k.report_to(report, "move.bandwidth_vs_raw_one (from 256 KiB)", peer, ratio_at_least(0.95), reason);
    from_64k.report_to(report, "move.bandwidth_vs_raw_one (64-128 KiB)", peer, ratio_at_least(0.85), reason);
    to_frame.report_to(report, "move.read_to_frame", peer, std::nullopt, reason);
    report.add(std::move(frame));
  }
  report.add(std::move(raw));
  report.add(std::move(ours));
  if (peers.ucx) report.add(std::move(ucx));
  return {};
}

Status measure_columns(const Channel& channel, Peers& peers, const Options& options, Report& report) {
  struct Case {
    std::uint64_t column_bytes;
    double limit;
  };
  for (const Case& item : {Case{4 * kib, 2}, Case{64 * kib, 1.2}}) {
    const std::string size = size_text(item.column_bytes);
    OFP_ASSIGN(Contest contest,
               Contest::make(channel, item.column_bytes, 16, plan_turn(16 * item.column_bytes, 1, options.quick)));
    const auto report_pairs = [&](std::string name, std::string_view peer, const Comparison& result,
                                  std::optional<Target> target) {
      report.add(Claim{.claim = std::move(name),
                       .value = result.subject / 1e3,
                       .unit = "us",
                       .peer = std::string(peer),
                       .peer_value = result.peer / 1e3,
                       .ratio = result.ratio,
                       .interval = result.interval,
                       .pairs = result.pairs,
                       .target = target});
    };
    // The remaining potential: the bare call with sixteen vectors.
    OFP_ASSIGN(
        const Comparison to_raw,
        run_pairs(options.pairs(), [&] { return contest.move(false); }, [&] { return contest.read(peers.raw); }));
    report_pairs(fmt::format("move.columns_vs_raw (16 x {})", size), "one process_vm_readv of 16 vectors", to_raw,
                 std::nullopt);
    const std::string name = fmt::format("move.columns_vs_ucx (16 x {})", size);
    if (!peers.ucx) {
      report.add_unmeasured(name, "us", ratio_at_least(item.limit), peers.ucx.error().message);
      continue;
    }
    OFP_ASSIGN(const Comparison to_ucx, run_pairs(
                                            options.pairs(), [&] { return contest.move(false); },
                                            [&] { return contest.get(*peers.ucx, peers.ucx_source_bytes); }));
    report_pairs(name, "UCX, 16 ucp_get at once", to_ucx, ratio_at_least(item.limit));
  }
  return {};
}

// Figure 4: page-aligned or malloc'd sources, page-aligned (a) or 8-byte aligned (b) destinations, and the agent's
// buffer cache on or off, which is the agent's configuration: --cache says which agent this is.
Status measure_buffers(const Channel& channel, const Options& options, Report& report) {
  const std::string cache = options.other("--cache") == "off" ? "off" : "on";
  constexpr std::uint64_t malloc_misalign_bytes = 16;  // where malloc puts a large block: after its header
  for (const char* destination : {"ipc-page", "ipc"}) {
    for (const std::uint64_t misalign_bytes : {std::uint64_t(0), malloc_misalign_bytes}) {
      Series series{.figure = std::string_view(destination) == "ipc-page" ? "fig4a" : "fig4b",
                    .name = fmt::format("source {}, cache {}", misalign_bytes == 0 ? "page-aligned" : "malloc", cache),
                    .x_unit = "bytes",
                    .y_unit = "GB/s",
                    .x = {},
                    .y = {}};
      for (std::uint64_t size = 4 * kib; size <= std::min(options.size_max_bytes, 256 * mib); size *= 2) {
        OFP_ASSIGN(Contest contest,
                   Contest::make(channel, size, 1, plan_turn(size, 1, options.quick), destination, misalign_bytes));
        OFP_ASSIGN(const auto costs_ns, run_turns(options.quick ? 1 : 7, 1, [&] { return contest.move(true); }));
        add_point(series, double(size), contest.bytes() / median(costs_ns));
      }
      report.add(std::move(series));
    }
  }
  return {};
}

Status run(const Options& options, Report& report) {
  const bool buffers_only = options.other("--part") == "buffers";
  if (buffers_only) {
    OFP_TRY(pin_to_core(options.host_core));
    OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
    return measure_buffers(channel, options, report);
  }
  // Peers first: they are forked from a program without a channel.
  OFP_ASSIGN(PeerProcess raw, PeerProcess::start(options.agent_core, make_raw_reader()));
  const std::uint64_t ucx_source_bytes = std::max(options.size_max_bytes, beyond_cache_bytes());
  Peers peers{std::move(raw), start_ucx_reader(options.host_core, options.agent_core, ucx_source_bytes),
              ucx_source_bytes};
  OFP_TRY(pin_to_core(options.host_core));
  OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
  OFP_TRY(measure_against_raw(channel, peers, 1, options, report));
  OFP_TRY(measure_against_raw(channel, peers, 16, options, report));
  return measure_columns(channel, peers, options, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "move", {"--part", "--cache"}, offpath::bench::run);
}
