// Frames that tests of queries ask about.
#pragma once

#include <random>
#include <string>

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/compression.h>

#include "pool/query/query_run.h"

namespace offpath::pool {

inline FramePtr frame_of(const arrow::RecordBatch& batch, service::BufferCache& cache, uid_t user = 0,
                         arrow::Compression::type compression = arrow::Compression::UNCOMPRESSED) {
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.allow_64bit = true;
  options.use_threads = false;  // of libarrow, which the thread sanitizer does not see into
  if (compression != arrow::Compression::UNCOMPRESSED)
    options.codec = arrow::util::Codec::Create(compression).ValueOrDie();
  const auto writer = arrow::ipc::MakeStreamWriter(sink, batch.schema(), options).ValueOrDie();
  OFP_ASSERT(writer->WriteRecordBatch(batch).ok() && writer->Close().ok());
  const auto bytes = sink->Finish().ValueOrDie();
  auto made = std::make_shared<service::Frame>();
  made->buffer = cache.take(static_cast<std::uint64_t>(bytes->size()), user).value();
  std::memcpy(made->buffer.data(), bytes->data(), static_cast<std::size_t>(bytes->size()));
  made->bytes = static_cast<std::uint64_t>(bytes->size());
  made->rows = static_cast<std::uint64_t>(batch.num_rows());
  made->arrow = true;
  return made;
}

template <class T>
std::shared_ptr<arrow::Array> array_of(const std::vector<T>& values) {
  using ArrowType = typename arrow::CTypeTraits<T>::ArrowType;
  arrow::NumericBuilder<ArrowType> builder;
  OFP_ASSERT(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

// The record of 37 bytes: id u64; x y z vx vy vz q f32; type u8. Positions in [0, 1), velocities in [-1, 1).
inline std::shared_ptr<arrow::RecordBatch> particles(std::int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> position(0, 1), velocity(-1, 1);
  const auto count = static_cast<std::size_t>(rows);
  std::vector<std::uint64_t> id(count);
  for (std::size_t i = 0; i < count; ++i) id[i] = i + seed * 1000;
  arrow::FieldVector fields = {arrow::field("id", arrow::uint64(), false)};
  arrow::ArrayVector columns = {array_of(id)};
  for (const char* name : {"x", "y", "z", "vx", "vy", "vz", "q"}) {
    std::vector<float> values(count);
    for (float& value : values) value = name[0] == 'v' ? velocity(random) : position(random);
    fields.push_back(arrow::field(name, arrow::float32(), false));
    columns.push_back(array_of(values));
  }
  std::vector<std::uint8_t> type(count);
  for (std::uint8_t& value : type) value = static_cast<std::uint8_t>(random() % 4);
  fields.push_back(arrow::field("type", arrow::uint8(), false));
  columns.push_back(array_of(type));
  return arrow::RecordBatch::Make(arrow::schema(fields), rows, columns);
}

// A column of each of many types, with nulls, which the loops leave to plans.
inline std::shared_ptr<arrow::RecordBatch> mixed_batch(std::int64_t rows) {
  arrow::Int32Builder number;
  arrow::DoubleBuilder real;
  arrow::StringBuilder text;
  arrow::BooleanBuilder flag;
  arrow::TimestampBuilder time(arrow::timestamp(arrow::TimeUnit::MICRO), arrow::default_memory_pool());
  arrow::StringDictionaryBuilder kind;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto n = static_cast<std::int32_t>(i);
    OFP_ASSERT((i % 5 == 0 ? number.AppendNull() : number.Append(n - 20)).ok());
    OFP_ASSERT((i % 7 == 0 ? real.AppendNull() : real.Append(0.5 * n)).ok());
    OFP_ASSERT(text.Append("name" + std::to_string(i % 3)).ok());
    OFP_ASSERT(flag.Append(i % 2 == 0).ok());
    OFP_ASSERT(time.Append(i * 1'000'000).ok());
    OFP_ASSERT(kind.Append(i % 2 == 0 ? "even" : "odd").ok());
  }
  arrow::ArrayVector columns = {number.Finish().ValueOrDie(), real.Finish().ValueOrDie(), text.Finish().ValueOrDie(),
                                flag.Finish().ValueOrDie(), time.Finish().ValueOrDie()};
  std::shared_ptr<arrow::Array> kinds;
  OFP_ASSERT(kind.Finish(&kinds).ok());
  columns.push_back(kinds);
  arrow::FieldVector fields;
  const char* names[] = {"number", "real", "text", "flag", "time", "kind"};
  for (std::size_t i = 0; i < columns.size(); ++i) fields.push_back(arrow::field(names[i], columns[i]->type()));
  return arrow::RecordBatch::Make(arrow::schema(fields), rows, columns);
}

}  // namespace offpath::pool
