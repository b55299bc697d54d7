// Figure 11: the host's cost of each way to make Arrow from a program's arrays, and the time until the agent has the
// finished message. The baseline is host serialisation with one transfer.
#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "arrow_result.h"
#include "base/bytes.h"
#include "host_program.h"
#include "machine.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::uint64_t kib = 1024, mib = 1024 * kib;

std::shared_ptr<arrow::Schema> make_schema(std::uint32_t columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (std::uint32_t c = 0; c < columns; ++c) {
    fields.push_back(arrow::field(fmt::format("column{}", c), arrow::float64(), false));
  }
  return arrow::schema(std::move(fields));
}

Status write_stream(const arrow::RecordBatch& batch, arrow::io::OutputStream* sink) {
  ARROW_ASSIGN(auto writer, arrow::ipc::MakeStreamWriter(sink, batch.schema()));
  ARROW_TRY(writer->WriteRecordBatch(batch));
  ARROW_TRY(writer->Close());
  return {};
}

// A program's own conversion and serialisation (the paper's steps 1 to 4) into announced memory, and its arrays.
// Buffers for messages and for arrays alternate in one piece of memory, each kind larger than the cache: on a machine
// with non-uniform memory they are equally near.
class HostSerialiser {
 public:
  static Result<HostSerialiser> make(const Channel& channel, std::uint32_t columns, std::uint64_t rows) {
    HostSerialiser serialiser;
    serialiser.schema_ = make_schema(columns);
    serialiser.array_stride_bytes_ = align_up(rows * sizeof(double), page_bytes);
    const std::uint64_t bytes_max = columns * serialiser.array_stride_bytes_ + 64 * kib;
    OFP_ASSIGN(serialiser.sources_,
               Sources::make(channel, bytes_max, 1, std::max(2 * beyond_cache_bytes(), 4 * bytes_max)));
    serialiser.arrays_.resize(columns);
    return serialiser;
  }

  struct Message {
    const void* data = nullptr;
    std::uint64_t length_bytes = 0;
  };
  Result<Message> serialise(std::span<const void* const> columns, std::uint64_t rows) {
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const void* column : columns) {
      arrow::NumericBuilder<arrow::DoubleType> builder;
      ARROW_TRY(builder.AppendValues(static_cast<const double*>(column), std::int64_t(rows)));
      std::shared_ptr<arrow::Array> array;
      ARROW_TRY(builder.Finish(&array));
      arrays.push_back(std::move(array));
    }
    const auto batch = arrow::RecordBatch::Make(schema_, std::int64_t(rows), std::move(arrays));
    arrow::io::MockOutputStream counter;
    OFP_TRY(write_stream(*batch, &counter));
    const void* target = next();
    const std::int64_t length_bytes = counter.GetExtentBytesWritten();
    const auto buffer =
        std::make_shared<arrow::MutableBuffer>(static_cast<std::uint8_t*>(const_cast<void*>(target)), length_bytes);
    arrow::io::FixedSizeBufferWriter sink(buffer);
    OFP_TRY(write_stream(*batch, &sink));
    return Message{target, std::uint64_t(length_bytes)};
  }
  // Makes a message in every buffer for messages; returns their common length.
  Result<std::uint64_t> fill_all(std::uint64_t rows) {
    std::uint64_t length_bytes = 0;
    for (std::size_t i = 0; i < sources_.buffers().count() / 2; ++i) {
      OFP_ASSIGN(const Message message, serialise(next_arrays(), rows));
      length_bytes = message.length_bytes;
    }
    return length_bytes;
  }
  // The next message's buffer.
  [[nodiscard]] const void* next() { return buffer(message_turn_++, 1); }
  // The next arrays, one for each column; valid until the next call.
  [[nodiscard]] std::span<const void* const> next_arrays() {
    const std::byte* at = buffer(array_turn_++, 0);
    for (const void*& array : arrays_) {
      array = at;
      at += array_stride_bytes_;
    }
    return arrays_;
  }
  [[nodiscard]] std::uint64_t bytes_max() const noexcept { return sources_.buffers().stride_bytes(); }

 private:
  // Of a pair of buffers the one for arrays (0) or for messages (1); the order alternates from pair to pair.
  [[nodiscard]] const std::byte* buffer(std::size_t turn, std::size_t kind) const {
    const std::size_t pair = turn % (sources_.buffers().count() / 2);
    return sources_.buffers().at(2 * pair + (kind ^ (pair % 2)));
  }

  std::shared_ptr<arrow::Schema> schema_;
  Sources sources_;
  std::uint64_t array_stride_bytes_ = 0;
  std::vector<const void*> arrays_;
  std::size_t message_turn_ = 0, array_turn_ = 0;
};

// Time from entering the send until the frame is stored, spinning; ends with nothing in flight.
Result<double> time_to_frame(Stream& stream, std::span<const void* const> columns, std::uint64_t rows) {
  OFP_ASSIGN(const Stream::Posted posted, stream.post(columns, rows));
  OFP_ASSIGN(const std::uint64_t stored_ticks, stream.spin_stored(posted.ticket));
  return double(stored_ticks - posted.entered_ticks) * ns_per_tick();
}

std::string size_text(double bytes) {
  return bytes < double(mib) ? fmt::format("{} KiB", bytes / double(kib)) : fmt::format("{} MiB", bytes / double(mib));
}

// Page-aligned placement against one transfer of a serialised message, per size.
Result<Comparison> compare_frames(const Channel& channel, std::uint64_t bytes, std::uint32_t columns,
                                  const Options& options) {
  const std::uint64_t rows = bytes / columns / sizeof(double);
  OFP_ASSIGN(HostSerialiser serialiser, HostSerialiser::make(channel, columns, rows));
  OFP_ASSIGN(const std::uint64_t message_bytes, serialiser.fill_all(rows));
  OFP_ASSIGN(Stream placed, Stream::open(channel, {.name = fmt::format("bench-placed-{}-{}", columns, bytes),
                                                   .columns = columns,
                                                   .rows_max = rows}));
  OFP_ASSIGN(Stream whole, Stream::open(channel, {.name = fmt::format("bench-whole-{}-{}", columns, bytes),
                                                  .destination = "serialised",
                                                  .format = "C",
                                                  .rows_max = serialiser.bytes_max()}));
  const std::size_t repeats = options.quick ? 1 : std::size_t(std::clamp<std::uint64_t>(8 * mib / bytes, 1, 40));
  const std::size_t unrecorded = bytes >= 64 * mib ? 0 : 1;
  const auto turn = [&](auto&& once) -> Result<double> {
    OFP_TRY(wake_agent(channel));
    OFP_ASSIGN(const auto costs_ns, run_turns(repeats, unrecorded, once));
    return median(costs_ns);
  };
  const auto place = [&] { return turn([&] { return time_to_frame(placed, serialiser.next_arrays(), rows); }); };
  const auto transfer = [&] {
    return turn([&] {
      const void* message = serialiser.next();
      return time_to_frame(whole, {&message, 1}, message_bytes);
    });
  };
  return run_pairs(options.pairs(), place, transfer);
}

Status measure_frames(const Channel& channel, const Options& options, Report& report) {
  struct Statement {
    std::string name;
    std::uint32_t columns;
    std::uint64_t size_min;
    double limit;
  };
  const Statement statements[] = {
      {"move.ipc_page_vs_host_serialised_1col (from 128 KiB)", 1, 128 * kib, 0.95},
      {"move.ipc_page_vs_host_serialised_1col (from 1 MiB)", 1, mib, 0.98},
      {"move.ipc_page_vs_host_serialised_4col (from 1 MiB)", 4, mib, 0.95},
      {"move.ipc_page_vs_host_serialised_16col (from 4 MiB)", 16, 4 * mib, 0.95},
  };
  for (const std::uint32_t columns : {1u, 4u, 16u}) {
    Series ratio{.figure = "ratio_to_host_serialised",
                 .name = fmt::format("{} columns", columns),
                 .x_unit = "bytes",
                 .y_unit = "ratio",
                 .x = {},
                 .y = {}};
    std::vector<Comparison> results;
    for (std::uint64_t bytes = 128 * kib; bytes <= options.size_max_bytes; bytes *= 2) {
      OFP_ASSIGN(const Comparison result, compare_frames(channel, bytes, columns, options));
      ratio.x.push_back(double(bytes));
      ratio.y.push_back(result.ratio);
      results.push_back(result);
    }
    for (const Statement& statement : statements) {
      if (statement.columns != columns) continue;
      std::size_t worst = results.size();
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (ratio.x[i] < double(statement.size_min)) continue;
        if (worst == results.size() || results[i].ratio < results[worst].ratio) worst = i;
      }
      if (worst == results.size()) {
        report.add_unmeasured(statement.name, "GB/s", ratio_at_least(statement.limit),
                              fmt::format("--sizes-max {} leaves no size", options.size_max_bytes));
        continue;
      }
      const Comparison& result = results[worst];
      report.add(Claim{.claim = statement.name,
                       .value = ratio.x[worst] / result.subject,
                       .unit = "GB/s",
                       .peer = fmt::format("one transfer, worst size {}", size_text(ratio.x[worst])),
                       .peer_value = ratio.x[worst] / result.peer,
                       .ratio = result.ratio,
                       .interval = result.interval,
                       .pairs = result.pairs,
                       .target = ratio_at_least(statement.limit)});
    }
    report.add(std::move(ratio));
  }
  return {};
}

// CPU time of the whole process: converting, posting, and sleeping until it is stored; and the agent's with it.
Status measure_host_cpu(const Channel& channel, const Options& options, Report& report) {
  constexpr std::uint64_t bytes = 64 * mib;
  constexpr std::uint32_t columns = 16;
  constexpr std::uint64_t rows = bytes / columns / sizeof(double);
  if (options.size_max_bytes < bytes) {
    report.add_unmeasured("move.host_cpu_ratio", "us", ratio_at_least(100), "--sizes-max is below 64 MiB");
    return {};
  }
  OFP_ASSIGN(HostSerialiser serialiser, HostSerialiser::make(channel, columns, rows));
  OFP_ASSIGN(Stream placed, Stream::open(channel, {.name = "bench-cpu-placed", .columns = columns, .rows_max = rows}));
  OFP_ASSIGN(Stream whole, Stream::open(channel, {.name = "bench-cpu-whole",
                                                  .destination = "serialised",
                                                  .format = "C",
                                                  .rows_max = serialiser.bytes_max()}));
  const auto move = [&](Stream& stream, std::span<const void* const> data, std::uint64_t count) -> Status {
    OFP_ASSIGN(const Stream::Posted posted, stream.post(data, count));
    return stream.wait_stored(posted.ticket);
  };
  OFP_ASSIGN(const ofp_channel_info info, channel.info());
  const auto agent = pid_t(info.agent_pid);
  const bool agent_here = agent != 0 && process_cpu_ns(agent).has_value();
  // Returns the program's own; adds both's to `totals`.
  const auto cpu_of = [&](const auto& work, std::vector<double>& totals) -> Result<double> {
    OFP_ASSIGN(const std::int64_t agent_before_ns, process_cpu_ns(agent_here ? agent : 0));
    OFP_ASSIGN(const std::int64_t before_ns, process_cpu_ns(0));
    OFP_TRY(work());
    OFP_ASSIGN(const std::int64_t after_ns, process_cpu_ns(0));
    sleep_ns(agent_settles_ns);
    OFP_ASSIGN(const std::int64_t agent_after_ns, process_cpu_ns(agent_here ? agent : 0));
    totals.push_back(double(after_ns - before_ns + agent_after_ns - agent_before_ns));
    return double(after_ns - before_ns);
  };
  std::vector<double> place_totals, convert_totals;
  const auto place = [&] { return cpu_of([&] { return move(placed, serialiser.next_arrays(), rows); }, place_totals); };
  const auto convert = [&] {
    return cpu_of(
        [&]() -> Status {
          OFP_ASSIGN(const HostSerialiser::Message message, serialiser.serialise(serialiser.next_arrays(), rows));
          return move(whole, {&message.data, 1}, message.length_bytes);
        },
        convert_totals);
  };
  const PairPlan plan = options.pairs();
  OFP_ASSIGN(const Comparison result, run_pairs(plan, place, convert));
  report.add(Claim{.claim = "move.host_cpu_ratio",
                   .value = result.subject / 1e3,
                   .unit = "us",
                   .peer = "host serialisation by libarrow, 64 MiB",
                   .peer_value = result.peer / 1e3,
                   .ratio = result.ratio,
                   .interval = result.interval,
                   .pairs = result.pairs,
                   .target = ratio_at_least(100)});
  Claim total{.claim = "move.total_cpu (agent included)", .unit = "us"};
  if (agent_here) {
    const Comparison both =
        compare(std::span(place_totals).subspan(plan.warmups), std::span(convert_totals).subspan(plan.warmups));
    total.value = both.subject / 1e3;
    total.peer = "host serialisation by libarrow, 64 MiB";
    total.peer_value = both.peer / 1e3;
    total.ratio = both.ratio;
    total.interval = both.interval;
    total.pairs = both.pairs;
  } else {
    total.why = "the agent's process is not on this machine";
  }
  report.add(std::move(total));
  return {};
}

constexpr const char* host_way = "host-serialise";
constexpr const char* ways[] = {host_way, "agent-serialise", "ipc", "ipc-page", "c-abi", "arrays", "record-batch"};

struct WayCost {
  double overhead_ns = 0;  // of the host: the post, and conversion and serialisation if it does these
  double time_ns = 0;      // from entering the post to the finished frame
};

// Median of ten runs of one way at one size, as in the paper; of three if they are slow.
Result<WayCost> measure_way(const Channel& channel, const char* way, HostSerialiser& serialiser, std::uint32_t columns,
                            std::uint64_t bytes, const Options& options) {
  const bool by_host = way == host_way;
  const std::uint64_t rows = bytes / columns / sizeof(double);
  OFP_ASSIGN(Stream stream, Stream::open(channel, {.name = fmt::format("bench-{}-{}-{}", way, columns, bytes),
                                                   .destination = by_host ? "serialised" : way,
                                                   .columns = by_host ? 1 : columns,
                                                   .format = by_host ? "C" : "g",
                                                   .rows_max = by_host ? serialiser.bytes_max() : rows}));
  std::vector<double> overheads_ns, times_ns;
  const std::size_t turns = options.quick ? 1 : bytes >= 256 * mib ? 3 : 10;
  const std::size_t unrecorded = bytes >= 64 * mib ? 0 : 1;
  for (std::size_t turn = 0; turn < turns + unrecorded; ++turn) {
    const auto source = serialiser.next_arrays();
    HostSerialiser::Message message;
    const std::uint64_t begin_ticks = ticks();
    if (by_host) {
      OFP_ASSIGN(message, serialiser.serialise(source, rows));
    }
    const std::uint64_t converted_ticks = ticks();
    // Moves a message that was made a whole rotation ago: as cold as the arrays of the other ways.
    if (by_host) message.data = serialiser.next();
    OFP_TRY(wake_agent(channel));
    OFP_ASSIGN(const Stream::Posted posted,
               by_host ? stream.post({&message.data, 1}, message.length_bytes) : stream.post(source, rows));
    OFP_ASSIGN(const std::uint64_t stored_ticks, stream.spin_stored(posted.ticket));
    if (turn < unrecorded) continue;
    overheads_ns.push_back(double(converted_ticks - begin_ticks + posted.left_ticks - posted.entered_ticks) *
                           ns_per_tick());
    times_ns.push_back(double(stored_ticks - posted.entered_ticks) * ns_per_tick());
  }
  return WayCost{median(overheads_ns), median(times_ns)};
}

// One row of figure 11: host overhead and agent throughput of every way, over all sizes.
Status measure_ways(const Channel& channel, std::uint32_t columns, const Options& options, Report& report) {
  std::vector<Series> overheads, throughputs;
  for (const char* way : ways) {
    overheads.push_back({.figure = fmt::format("fig11_overhead_{}", columns),
                         .name = way,
                         .x_unit = "bytes",
                         .y_unit = "ns",
                         .x = {},
                         .y = {}});
    throughputs.push_back({.figure = fmt::format("fig11_throughput_{}", columns),
                           .name = way,
                           .x_unit = "bytes",
                           .y_unit = "GB/s",
                           .x = {},
                           .y = {}});
  }
  for (std::uint64_t bytes = 4 * kib; bytes <= options.size_max_bytes; bytes *= 2) {
    OFP_ASSIGN(HostSerialiser serialiser, HostSerialiser::make(channel, columns, bytes / columns / sizeof(double)));
    OFP_TRY(serialiser.fill_all(bytes / columns / sizeof(double)));
    for (std::size_t i = 0; i < std::size(ways); ++i) {
      OFP_ASSIGN(const WayCost cost, measure_way(channel, ways[i], serialiser, columns, bytes, options));
      overheads[i].x.push_back(double(bytes));
      overheads[i].y.push_back(cost.overhead_ns);
      throughputs[i].x.push_back(double(bytes));
      throughputs[i].y.push_back(double(bytes) / cost.time_ns);
    }
  }
  for (Series& series : overheads) report.add(std::move(series));
  for (Series& series : throughputs) report.add(std::move(series));
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
  OFP_TRY(measure_frames(channel, options, report));
  OFP_TRY(measure_host_cpu(channel, options, report));
  for (const std::uint32_t columns : {1u, 4u, 16u}) OFP_TRY(measure_ways(channel, columns, options, report));
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) { return offpath::bench::run_main(argc, argv, "move", {}, offpath::bench::run); }
