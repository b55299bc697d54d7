// The paper's table I: the cost of converting a program's arrays into a serialised Arrow record batch, step by step,
// with the C++ API and with the C data interface.
//
//   1 arrays        C++: NumericBuilder::AppendValues, Finish      C: ArrowArray structs
//   2 schema        C++: arrow::field, arrow::schema               C: ArrowSchema structs
//   3 record batch  C++: RecordBatch::Make                         C: ImportRecordBatch
//   4 serialise     a dummy write for the size, an allocation, a write
//
// `--place agent` only labels the results; the caller sets cores and CPU quota.
#include <arrow/api.h>
#include <arrow/c/abi.h>
#include <arrow/c/bridge.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "arrow_result.h"
#include "machine.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::size_t steps_count = 4;
using Steps = std::array<double, steps_count>;  // nanoseconds

// A simulation's data: one array of doubles per column, and the columns' names.
struct Input {
  std::vector<std::vector<double>> columns;
  std::vector<std::string> names;
};

Input make_input(std::uint64_t total_bytes, std::size_t columns) {
  std::mt19937_64 random(columns);
  std::uniform_int_distribution<int> letter('a', 'z');
  Input input;
  const std::size_t rows = total_bytes / columns / sizeof(double);
  for (std::size_t c = 0; c < columns; ++c) {
    input.columns.emplace_back(rows, double(c) + 0.5);
    std::string name(64, ' ');
    std::generate(name.begin(), name.end(), [&] { return char(letter(random)); });
    input.names.push_back(std::move(name));
  }
  return input;
}

class StepClock {
 public:
  void end_step(std::size_t step) {
    const std::uint64_t now = ticks();
    spent_ns_[step] += double(now - last_) * ns_per_tick();
    last_ = now;
  }
  [[nodiscard]] const Steps& spent_ns() const noexcept { return spent_ns_; }

 private:
  std::uint64_t last_ = ticks();
  Steps spent_ns_{};
};

Status write_stream(const arrow::RecordBatch& batch, arrow::io::OutputStream* sink) {
  ARROW_ASSIGN(auto writer, arrow::ipc::MakeStreamWriter(sink, batch.schema()));
  ARROW_TRY(writer->WriteRecordBatch(batch));
  ARROW_TRY(writer->Close());
  return {};
}

Result<std::shared_ptr<arrow::Buffer>> serialise(const arrow::RecordBatch& batch) {
  arrow::io::MockOutputStream counter;
  OFP_TRY(write_stream(batch, &counter));
  ARROW_ASSIGN(std::shared_ptr<arrow::ResizableBuffer> buffer,
               arrow::AllocateResizableBuffer(counter.GetExtentBytesWritten()));
  arrow::io::FixedSizeBufferWriter sink(buffer);
  OFP_TRY(write_stream(batch, &sink));
  return std::shared_ptr<arrow::Buffer>(std::move(buffer));
}

Result<Steps> convert_cpp(const Input& input) {
  StepClock clock;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& column : input.columns) {
    arrow::NumericBuilder<arrow::DoubleType> builder;
    ARROW_TRY(builder.AppendValues(column));
    std::shared_ptr<arrow::Array> array;
    ARROW_TRY(builder.Finish(&array));
    arrays.push_back(std::move(array));
  }
  clock.end_step(0);
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (const auto& name : input.names) fields.push_back(arrow::field(name, arrow::float64(), false));
  auto schema = arrow::schema(std::move(fields));
  clock.end_step(1);
  const auto batch =
      arrow::RecordBatch::Make(std::move(schema), std::int64_t(input.columns[0].size()), std::move(arrays));
  clock.end_step(2);
  OFP_ASSIGN(const auto buffer, serialise(*batch));
  clock.end_step(3);
  keep(buffer);
  return clock.spent_ns();
}

// The structs that a program without libarrow fills. The memory belongs to `CStructs` and to the input, so releasing
// marks and frees nothing.
struct CStructs {
  explicit CStructs(std::size_t columns)
      : arrays(columns), array_pointers(columns), buffers(columns), schemas(columns), schema_pointers(columns) {}

  std::vector<ArrowArray> arrays;
  std::vector<ArrowArray*> array_pointers;
  std::vector<std::array<const void*, 2>> buffers;
  std::vector<ArrowSchema> schemas;
  std::vector<ArrowSchema*> schema_pointers;
  ArrowArray parent_array{};
  ArrowSchema parent_schema{};
  const void* no_validity[1] = {nullptr};
};

void release_array(ArrowArray* array) {
  for (std::int64_t i = 0; i < array->n_children; ++i) {
    if (array->children[i]->release != nullptr) array->children[i]->release(array->children[i]);
  }
  array->release = nullptr;
}
void release_schema(ArrowSchema* schema) {
  for (std::int64_t i = 0; i < schema->n_children; ++i) {
    if (schema->children[i]->release != nullptr) schema->children[i]->release(schema->children[i]);
  }
  schema->release = nullptr;
}

Result<Steps> convert_c(const Input& input) {
  const std::size_t columns = input.columns.size();
  StepClock clock;
  CStructs structs(columns);
  const auto rows = std::int64_t(input.columns[0].size());
  for (std::size_t c = 0; c < columns; ++c) {
    structs.buffers[c] = {nullptr, input.columns[c].data()};
    structs.arrays[c] = {.length = rows,
                         .null_count = 0,
                         .offset = 0,
                         .n_buffers = 2,
                         .n_children = 0,
                         .buffers = structs.buffers[c].data(),
                         .children = nullptr,
                         .dictionary = nullptr,
                         .release = release_array,
                         .private_data = nullptr};
    structs.array_pointers[c] = &structs.arrays[c];
  }
  structs.parent_array = {.length = rows,
                          .null_count = 0,
                          .offset = 0,
                          .n_buffers = 1,
                          .n_children = std::int64_t(columns),
                          .buffers = structs.no_validity,
                          .children = structs.array_pointers.data(),
                          .dictionary = nullptr,
                          .release = release_array,
                          .private_data = nullptr};
  clock.end_step(0);
  for (std::size_t c = 0; c < columns; ++c) {
    structs.schemas[c] = {.format = "g",
                          .name = input.names[c].c_str(),
                          .metadata = nullptr,
                          .flags = 0,
                          .n_children = 0,
                          .children = nullptr,
                          .dictionary = nullptr,
                          .release = release_schema,
                          .private_data = nullptr};
    structs.schema_pointers[c] = &structs.schemas[c];
  }
  structs.parent_schema = {.format = "+s",
                           .name = "",
                           .metadata = nullptr,
                           .flags = 0,
                           .n_children = std::int64_t(columns),
                           .children = structs.schema_pointers.data(),
                           .dictionary = nullptr,
                           .release = release_schema,
                           .private_data = nullptr};
  clock.end_step(1);
  ARROW_ASSIGN(auto batch, arrow::ImportRecordBatch(&structs.parent_array, &structs.parent_schema));
  clock.end_step(2);
  OFP_ASSIGN(const auto buffer, serialise(*batch));
  clock.end_step(3);
  keep(buffer);
  batch.reset();  // before the structs that it refers to
  return clock.spent_ns();
}

// One trial is the mean over the conversions that fill `trial_ns`: a CPU quota grants time in periods of milliseconds,
// so a single short conversion would see either no stop or a whole one. A point is the median of trials, because other
// load on the machine affects some trials only.
struct TrialPlan {
  std::size_t trials = 31;
  TimeNs trial_ns = 300 * microsecond_ns;
  TimeNs point_ns = 2 * second_ns;  // beyond this, no more than three trials
};

struct Point {
  Steps step_ns{};  // median of trials, each step for itself
  double total_ns = 0;
  double deviation_ns = 0;  // of the trials' totals
};

using Convert = Result<Steps> (*)(const Input&);

Result<Point> measure_point(const Input& input, Convert convert, const TrialPlan& plan) {
  const TimeNs begin_ns = monotonic_ns();
  OFP_TRY(convert(input));
  std::vector<double> totals;
  std::array<std::vector<double>, steps_count> steps_ns;
  for (std::size_t trial = 0; trial < plan.trials; ++trial) {
    if (trial >= 3 && monotonic_ns() - begin_ns > plan.point_ns) break;
    Steps trial_sums{};
    std::size_t conversions = 0;
    const TimeNs trial_begin_ns = monotonic_ns();
    do {
      OFP_ASSIGN(const Steps steps, convert(input));
      for (std::size_t s = 0; s < steps_count; ++s) trial_sums[s] += steps[s];
      ++conversions;
    } while (monotonic_ns() - trial_begin_ns < plan.trial_ns);
    double total = 0;
    for (std::size_t s = 0; s < steps_count; ++s) {
      steps_ns[s].push_back(trial_sums[s] / double(conversions));
      total += trial_sums[s] / double(conversions);
    }
    totals.push_back(total);
  }
  Point point;
  for (std::size_t s = 0; s < steps_count; ++s) point.step_ns[s] = median(steps_ns[s]);
  point.total_ns = median(totals);
  point.deviation_ns = standard_deviation(totals);
  return point;
}

struct Curve {
  std::string api;
  std::size_t columns = 0;
  std::vector<double> sizes;
  std::vector<Point> points;
};

Result<Curve> measure_curve(std::string api, std::size_t columns, const Options& options, const TrialPlan& plan) {
  Curve curve{.api = std::move(api), .columns = columns, .sizes = {}, .points = {}};
  for (std::uint64_t size = 128; size <= options.size_max_bytes; size *= 2) {
    if (size / columns < sizeof(double)) continue;  // less than one row
    const Input input = make_input(size, columns);
    OFP_ASSIGN(const Point point, measure_point(input, curve.api == "C++" ? convert_cpp : convert_c, plan));
    curve.sizes.push_back(double(size));
    curve.points.push_back(point);
  }
  return curve;
}

void add_series(const Curve& curve, std::string_view place, Report& report) {
  static constexpr const char* step_names[] = {"1 arrays", "2 schema", "3 record batch", "4 serialise"};
  const auto figure = curve.api == "C++" ? "fig7" : "fig8";
  const auto totals = curve.api == "C++" ? "fig9" : "fig10";
  const auto add = [&](std::string_view which, std::string name, auto value_of) {
    Series series{.figure = std::string(which),
                  .name = std::move(name),
                  .x_unit = "bytes",
                  .y_unit = "ns",
                  .x = curve.sizes,
                  .y = {}};
    for (const Point& point : curve.points) series.y.push_back(value_of(point));
    report.add(std::move(series));
  };
  for (std::size_t s = 0; s < steps_count; ++s) {
    add(figure, fmt::format("{}/{}/{}/{}", place, curve.api, curve.columns, step_names[s]),
        [s](const Point& point) { return point.step_ns[s]; });
  }
  add(totals, fmt::format("{}/{}/{}/total", place, curve.api, curve.columns),
      [](const Point& p) { return p.total_ns; });
  add(totals, fmt::format("{}/{}/{}/deviation", place, curve.api, curve.columns),
      [](const Point& p) { return p.deviation_ns; });
}

double share(const Point& point, std::initializer_list<std::size_t> steps) {
  double part = 0;
  for (const std::size_t s : steps) part += point.step_ns[s];
  return part / std::accumulate(point.step_ns.begin(), point.step_ns.end(), 0.0);
}

// The extreme of `figure` over the curves of one API and 1, 4, 16 columns, from `size_min` on.
double extreme(const std::vector<Curve>& curves, std::string_view api, double size_min, bool largest,
               double (*figure)(const Point&)) {
  double found = not_measured;
  for (const Curve& curve : curves) {
    if (curve.api != api || curve.columns > 16) continue;
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      if (curve.sizes[i] < size_min) continue;
      const double value = figure(curve.points[i]);
      if (std::isnan(found) || (largest ? value > found : value < found)) found = value;
    }
  }
  return found;
}

void add_claims(const std::vector<Curve>& curves, const Options& options, Report& report) {
  struct Statement {
    const char* claim;
    const char* api;
    double size_min;
    bool largest;
    double (*figure)(const Point&);
    double paper;
    std::optional<Target> target;
  };
  // The first claim decides where to divide the work: a move with placement saves steps 1 and 4. The others are shown
  // beside the paper's figures; they depend on the machine's copying speed.
  const Statement statements[] = {
      {"arrow_steps.cpp_arrays_and_serialise_share_min", "C++", 128, false,
       [](const Point& p) { return 100 * share(p, {0, 3}); }, 86, value_at_least(86, "%")},
      {"arrow_steps.cpp_arrays_and_serialise_share_max",
       "C++",
       128,
       true,
       [](const Point& p) { return 100 * share(p, {0, 3}); },
       99.9,
       {}},
      {"arrow_steps.c_structs_share_max", "C", 128, true, [](const Point& p) { return 100 * share(p, {0, 1}); }, 2, {}},
      {"arrow_steps.c_serialise_share_min",
       "C",
       128,
       false,
       [](const Point& p) { return 100 * share(p, {3}); },
       55,
       {}},
      {"arrow_steps.c_serialise_share_max",
       "C",
       128,
       true,
       [](const Point& p) { return 100 * share(p, {3}); },
       99.9,
       {}},
      {"arrow_steps.c_import_share_max_from_2mib",
       "C",
       2 << 20,
       true,
       [](const Point& p) { return 100 * share(p, {2}); },
       2,
       {}},
  };
  for (const Statement& statement : statements) {
    const double value = extreme(curves, statement.api, statement.size_min, statement.largest, statement.figure);
    Claim claim{.claim = statement.claim,
                .value = value,
                .unit = "%",
                .peer = "SDMS paper",
                .peer_value = statement.paper,
                .target = statement.target};
    if (std::isnan(value))
      claim.why = fmt::format("--sizes-max {} is below {}", options.size_max_bytes, statement.size_min);
    report.add(std::move(claim));
  }
}

Status run(const Options& options, Report& report) {
  const bool agent = options.other("--place") == "agent";
  const std::string place = agent ? "agent" : "host";
  OFP_TRY(pin_to_core(agent ? options.agent_core : options.host_core));
  TrialPlan plan;
  if (agent) plan = {.trials = 10, .trial_ns = 20 * millisecond_ns, .point_ns = 4 * second_ns};
  if (options.quick) plan = {.trials = 2, .trial_ns = millisecond_ns / 10, .point_ns = 0};
  // Figures 9 and 10 compare host and agent for 1 and 16 columns.
  const std::vector<std::size_t> columns =
      agent ? std::vector<std::size_t>{1, 16} : std::vector<std::size_t>{1, 4, 16, 512};
  std::vector<Curve> curves;
  for (const char* api : {"C++", "C"}) {
    for (const std::size_t count : columns) {
      OFP_ASSIGN(Curve curve, measure_curve(api, count, options, plan));
      add_series(curve, place, report);
      curves.push_back(std::move(curve));
    }
  }
  if (!agent) add_claims(curves, options, report);
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "arrow-steps", {"--place"}, offpath::bench::run);
}
