#include "pool/query/query_run.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>

#include <arrow/acero/exec_plan.h>

#include "base/bytes.h"
#include "loop/job_pool.h"
#include "pool/query/query_work.h"

namespace offpath::pool {

namespace {

// Columns without bytes can declare any number of rows.
constexpr std::size_t pieces_max = 1 << 20;

class ArrowRun final : public QueryRun {
 public:
  ArrowRun(QueryWork work, std::vector<QuerySource> sources) : work_(std::move(work)), sources_(std::move(sources)) {}

  Result<QueryStep> step(std::stop_token stop) override {
    if (way_ == nullptr) OFP_TRY(open(stop));
    OFP_ASSIGN(QueryStep done, way_->step(work_, stop));
    for (const FramePtr& frame : done.frames) {
      work_.counters.rows_answered += frame->rows;
      work_.counters.bytes_answered += frame->bytes;
    }
    return done;
  }
  const QueryCounters& counters() const noexcept override { return work_.counters; }

 private:
  Status open(const std::stop_token& stop) {
    std::shared_ptr<arrow::Schema> schema;
    bool plain = true;
    for (const QuerySource& source : sources_) {
      if (stop.stop_requested()) return fail(Error::cancelled, "the query was stopped while frames were opened");
      OFP_ASSIGN(const auto imported, import_frame(source, *work_.memory));
      if (schema == nullptr) {
        schema = imported.first;
        OFP_ASSIGN(work_.bound, bind_to(work_.query, schema, *work_.memory));
      } else if (!imported.first->Equals(*schema, false)) {
        return fail(Error::schema, "object ({}, {}) has the columns {}, object ({}, {}) has {}", brief(source.row_key),
                    brief(source.column_key), names_of(*imported.first), brief(sources_.front().row_key),
                    brief(sources_.front().column_key), names_of(*schema));
      }
      for (const auto& batch : imported.second) OFP_TRY(add(*batch, plain));
    }
    choose_way(plain);
    return {};
  }

  static std::string names_of(const arrow::Schema& schema) {
    std::string names;
    for (const auto& field : schema.fields()) {
      if (!names.empty()) names += ", ";
      if (names.size() > 200) return names + "…";
      names += field->name() + " " + field->type()->ToString();
    }
    return names;
  }

  Status add(const arrow::RecordBatch& whole, bool& plain) {
    OFP_ARROW_ASSIGN(auto batch, whole.SelectColumns(work_.bound.columns), "reading a frame");
    batch = arrow::RecordBatch::Make(work_.bound.input, whole.num_rows(), batch->columns());
    std::uint64_t row_bytes = 0;
    for (const auto& column : batch->columns()) {
      plain &= column->null_count() == 0;
      const int bits = column->type()->bit_width();
      row_bytes += bits > 0 ? bitmap_bytes(static_cast<std::uint64_t>(bits)) : 16;
    }
    work_.counters.rows_read += static_cast<std::uint64_t>(batch->num_rows());
    work_.counters.bytes_read += static_cast<std::uint64_t>(batch->num_rows()) * row_bytes;
    // A piece is about half of a core's own cache, for rows of any width.
    const std::uint64_t rows_max = std::clamp<std::uint64_t>(
        (std::uint64_t{1} << 20) / std::max<std::uint64_t>(row_bytes, 1), chunk_rows, piece_rows_max);
    if (static_cast<std::uint64_t>(whole.num_rows()) / piece_rows_max >
        pieces_max - std::min(pieces_max, work_.pieces.size()))
      return fail(Error::too_large, "the objects have more than {} rows", pieces_max * piece_rows_max);
    const auto piece_rows = static_cast<std::int64_t>(rows_max / chunk_rows * chunk_rows);
    for (std::int64_t row = 0; row < batch->num_rows(); row += piece_rows)
      work_.pieces.push_back(
          {batch.get(), row, static_cast<std::size_t>(std::min(piece_rows, batch->num_rows() - row))});
    work_.batches.push_back(std::move(batch));
    return {};
  }

  void choose_way(bool plain) {
    const auto& aggregates = work_.query.aggregates;
    if (!aggregates.empty() && !aggregates.front().axes.empty())
      way_ = make_histograms();
    else if (plain && work_.limits.loops)
      way_ = work_.bound.aggregates.empty() ? make_select_loops(work_, loops()) : make_aggregate_loops(work_, loops());
    work_.counters.loops = way_ != nullptr;
    if (way_ == nullptr) way_ = make_acero();
  }

  QueryWork work_;
  std::vector<QuerySource> sources_;
  std::unique_ptr<QueryWay> way_;
};

}  // namespace

std::shared_ptr<QueryThreads> QueryThreads::make(unsigned threads) {
  std::shared_ptr<arrow::internal::ThreadPool> pool;
  if (threads > 1) {
    auto made = arrow::internal::ThreadPool::Make(static_cast<int>(threads));
    if (made.ok()) pool = std::move(made).ValueUnsafe();
  }
  return std::make_shared<ArrowThreads>(std::move(pool));
}

Result<std::unique_ptr<QueryRun>> QueryRun::make(Query query, std::vector<QuerySource> sources,
                                                 const QueryLimits& limits, std::shared_ptr<QueryThreads> threads,
                                                 std::shared_ptr<service::BufferCache> cache, uid_t user) {
  if (sources.empty()) return fail(Error::not_found, "there are no frames to query");
  OFP_TRY(start_compute());
  if (sources.front().feed)
    return make_fed_run(std::move(query), std::move(sources.front()), limits, std::move(threads), std::move(cache),
                        user);
  QueryWork work;
  work.memory = std::make_unique<mover::ArrowMemory>(*cache, user, limits.memory_bytes_max, queries_setting);
  work.query = std::move(query);
  work.limits = limits;
  work.threads = std::static_pointer_cast<ArrowThreads>(std::move(threads));
  work.cache = std::move(cache);
  work.user = user;
  return std::make_unique<ArrowRun>(std::move(work), std::move(sources));
}

Status QueryWork::for_pieces(std::size_t begin, std::size_t end, const std::stop_token& stop,
                             const std::function<Status(unsigned thread, std::size_t piece)>& task) {
  std::atomic<std::size_t> next = begin;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  Status status;
  const auto work = [&](unsigned thread) {
    for (;;) {
      const std::size_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= end || failed.load(std::memory_order_relaxed)) return;
      Status done = stop.stop_requested()
                        ? fail(Error::cancelled, "the query was stopped after {} of {} pieces", piece, pieces.size())
                        : loop::guarded([&] { return task(thread, piece); });
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (status) status = std::move(done);
      failed = true;
    }
  };
  arrow::internal::ThreadPool* const pool = threads->pool();
  const auto wanted = std::min<std::size_t>(limits.threads, end - begin);
  std::latch ended(static_cast<std::ptrdiff_t>(pool != nullptr && wanted > 1 ? wanted - 1 : 0));
  for (unsigned thread = 1; pool != nullptr && thread < wanted; ++thread) {
    // Spawned work uses this function's variables, so it is joined even after a failure.
    const Status spawned = loop::guarded([&]() -> Status {
      const arrow::Status begun = pool->Spawn([&work, &ended, thread] {
        work(thread);
        ended.count_down();
      });
      return begun.ok() ? Status{} : fail(Error::no_memory, "{}", begun.message());
    });
    if (!spawned) ended.count_down();
  }
  work(0);
  ended.wait();
  return status;
}

Result<QueryStep> answer_aggregates(QueryWork& work, const std::shared_ptr<arrow::RecordBatch>& partial) {
  std::shared_ptr<arrow::RecordBatch> answer = partial;
  if (!work.query.partial) {
    OFP_ASSIGN(answer, combine_partials(work.query, {partial}, *work.memory));
  }
  QueryStep done;
  OFP_ASSIGN(FramePtr frame, write_frame(*answer, *work.cache, work.user, *work.memory));
  done.frames.push_back(std::move(frame));
  done.finished = true;
  return done;
}

void column_places(const arrow::RecordBatch& batch, std::int64_t row, std::vector<const std::byte*>& places) {
  places.resize(static_cast<std::size_t>(batch.num_columns()));
  for (int i = 0; i < batch.num_columns(); ++i) {
    const arrow::ArrayData& data = *batch.column_data(i);
    const int width = data.type->byte_width();
    places[static_cast<std::size_t>(i)] =
        data.buffers.size() < 2 || data.buffers[1] == nullptr || width <= 0
            ? nullptr
            : reinterpret_cast<const std::byte*>(data.buffers[1]->data()) + (data.offset + row) * width;
  }
}

}  // namespace offpath::pool
