// The cost and benefit of compressing frames: packing of a finished frame, compared with libarrow's stream writer with
// the same codec on the same columns, on one thread and one core. Columns are a simulation's: numbers that count up,
// few kinds, positions.
#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/compression.h>

#include <numeric>
#include <random>
#include <vector>

#include "arrow_result.h"
#include "machine.h"
#include "mover/body_compressor.h"
#include "report.h"
#include "wire/messages/stream_messages.h"

namespace offpath::bench {
namespace {

using wire::Compression;

struct Particles {
  std::vector<std::int64_t> id;
  std::vector<std::int32_t> kind;
  std::vector<double> x, v;

  explicit Particles(std::size_t rows) : id(rows), kind(rows), x(rows), v(rows) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    std::iota(id.begin(), id.end(), 1);
    for (std::size_t i = 0; i < rows; ++i) {
      kind[i] = static_cast<std::int32_t>(random() % 3);
      x[i] = static_cast<double>(i / 64) + static_cast<double>(random() % 1000) / 1000;  // written with three digits
      v[i] = normal(random);
    }
  }
};

// The columns as a frame that was pulled and finished.
struct PlainFrame {
  std::shared_ptr<const frame::Template> form;
  frame::Plan plan;
  std::vector<std::byte> bytes;
};

Result<PlainFrame> make_frame(const Particles& particles) {
  frame::Schema schema;
  schema.fields = {{.name = "id", .type = frame::Type::int64, .nullable = false},
                   {.name = "kind", .type = frame::Type::int32, .nullable = false},
                   {.name = "x", .type = frame::Type::float64, .nullable = false},
                   {.name = "v", .type = frame::Type::float64, .nullable = false}};
  PlainFrame made;
  OFP_ASSIGN(made.form, frame::make_template(schema, frame::page_alignment));
  std::vector<frame::PlainColumn> columns;
  for (const void* data :
       {static_cast<const void*>(particles.id.data()), static_cast<const void*>(particles.kind.data()),
        static_cast<const void*>(particles.x.data()), static_cast<const void*>(particles.v.data())})
    columns.push_back({.address = reinterpret_cast<std::uint64_t>(data)});
  frame::BatchView view;
  OFP_TRY(frame::flatten_plain(made.form->layout, static_cast<std::int64_t>(particles.id.size()), columns, view));
  OFP_TRY(frame::make_plan(*made.form, view, {}, made.plan));
  made.bytes.resize(made.plan.frame_bytes);
  for (const frame::Pull& pull : made.plan.pulls)
    std::memcpy(made.bytes.data() + pull.target, reinterpret_cast<const void*>(pull.address), pull.bytes);
  frame::write_head(*made.form, made.plan, made.bytes);
  return made;
}

template <class Type, class Value>
std::shared_ptr<arrow::Array> array_over(const std::vector<Value>& values) {
  return std::make_shared<Type>(static_cast<std::int64_t>(values.size()), arrow::Buffer::Wrap(values));
}

std::shared_ptr<arrow::RecordBatch> batch_over(const Particles& particles) {
  const auto field = [](const char* name, std::shared_ptr<arrow::DataType> type) {
    return arrow::field(name, std::move(type), false);
  };
  return arrow::RecordBatch::Make(
      arrow::schema({field("id", arrow::int64()), field("kind", arrow::int32()), field("x", arrow::float64()),
                     field("v", arrow::float64())}),
      static_cast<std::int64_t>(particles.id.size()),
      {array_over<arrow::Int64Array>(particles.id), array_over<arrow::Int32Array>(particles.kind),
       array_over<arrow::DoubleArray>(particles.x), array_over<arrow::DoubleArray>(particles.v)});
}

Status measure_codec(Compression compression, const Particles& particles, const Options& options, Report& report) {
  OFP_ASSIGN(const PlainFrame plain, make_frame(particles));
  OFP_ASSIGN(const auto form, frame::make_template(plain.form->schema, frame::ipc_alignment, compression));
  const auto compressor = mover::make_body_compressor(compression);
  std::vector<std::byte> scratch(frame::packing_bytes(*compressor, plain.plan)), kept(scratch.size() + (1 << 20));
  frame::PackedFrame packed;
  const auto ours = [&]() -> Result<double> {
    const std::uint64_t began = ticks();
    OFP_TRY(frame::pack(*form, *compressor, plain.plan, plain.bytes, scratch, packed));
    frame::write_packed(*form, packed, kept);
    return double(ticks() - began) * ns_per_tick();
  };

  const auto batch = batch_over(particles);
  auto write_options = arrow::ipc::IpcWriteOptions::Defaults();
  write_options.use_threads = false;
  ARROW_ASSIGN(write_options.codec,
               arrow::util::Codec::Create(compression == Compression::lz4 ? arrow::Compression::LZ4_FRAME
                                                                          : arrow::Compression::ZSTD));
  std::vector<std::byte> theirs_kept(kept.size());
  std::int64_t theirs_bytes = 0;
  const auto theirs = [&]() -> Result<double> {
    const std::uint64_t began = ticks();
    arrow::io::FixedSizeBufferWriter sink(std::make_shared<arrow::MutableBuffer>(
        reinterpret_cast<std::uint8_t*>(theirs_kept.data()), static_cast<std::int64_t>(theirs_kept.size())));
    ARROW_ASSIGN(auto writer, arrow::ipc::MakeStreamWriter(&sink, batch->schema(), write_options));
    ARROW_TRY(writer->WriteRecordBatch(*batch));
    ARROW_TRY(writer->Close());
    ARROW_ASSIGN(theirs_bytes, sink.Tell());
    return double(ticks() - began) * ns_per_tick();
  };

  OFP_ASSIGN(const Comparison result, run_pairs(options.pairs(), ours, theirs));
  const double bytes = double(plain.plan.pulled_bytes);
  const std::string name(wire::compression_name(compression));
  report.add(Claim{.claim = fmt::format("compression.rate ({})", name),
                   .value = bytes / result.subject,
                   .unit = "GB/s",
                   .peer = "libarrow's writer, same codec, one thread",
                   .peer_value = bytes / result.peer,
                   .ratio = result.ratio,
                   .interval = result.interval,
                   .pairs = result.pairs,
                   .target = ratio_at_least(0.95)});
  report.add(Claim{.claim = fmt::format("compression.factor ({})", name),
                   .value = bytes / double(packed.plan.frame_bytes),
                   .unit = "x",
                   .peer = "libarrow's writer",
                   .peer_value = bytes / double(theirs_bytes)});
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  const Particles particles(options.quick ? 10'000 : 1'000'000);
  for (const Compression compression : {Compression::lz4, Compression::zstd})
    OFP_TRY(measure_codec(compression, particles, options, report));
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "arrow-compression", {}, offpath::bench::run);
}
