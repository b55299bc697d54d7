// The subject of `offpath bench pool`: frames held and queried like an agent's. Controlled by standard input, so that
// its turns can be interleaved with those of its Python peers:
//
//   > FOLDER of 0.arrow, 1.arrow, …   (argument)        < ready ROWS
//   > box | speed                                        < NANOSECONDS ROWS LEAST MOST
//
// `--threads N`, `--way loops|acero` and `--small-pages`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>

#include "arrow_result.h"
#include "base/clock.h"
#include "pool/query/query_run.h"
#include "report.h"

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>

namespace offpath::bench {
namespace {

using pool::Function;

pool::Query box_query() {
  const auto inside = [](const char* name) {
    return pool::call(Function::logical_and,
                      {pool::call(Function::greater_equal, {pool::field(name), pool::literal(0.25)}),
                       pool::call(Function::less, {pool::field(name), pool::literal(0.75)})});
  };
  pool::Query query;
  query.filter =
      pool::call(Function::logical_and, {pool::call(Function::logical_and, {inside("x"), inside("y")}), inside("z")});
  return query;
}

pool::Query speed_query() {
  const auto squared = [](const char* name) {
    return pool::call(Function::multiply, {pool::field(name), pool::field(name)});
  };
  const auto v2 = pool::call(Function::add, {pool::call(Function::add, {squared("vx"), squared("vy")}), squared("vz")});
  pool::Query query;
  query.aggregates = {{pool::AggregateFunction::min, "least", v2}, {pool::AggregateFunction::max, "most", v2}};
  return query;
}

Result<pool::FramePtr> read_frame(const std::string& path, service::BufferCache& cache) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return fail(Error::not_found, "{} cannot be read", path);
  auto made = std::make_shared<service::Frame>();
  made->bytes = static_cast<std::uint64_t>(file.tellg());
  OFP_TRY(cache.prepare(made->bytes, 0));  // as a job of an agent does for a stream's next frame
  OFP_ASSIGN(made->buffer, cache.take(made->bytes, 0));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(made->buffer.data()), static_cast<std::streamsize>(made->bytes));
  made->arrow = true;
  return made;
}

class Subject {
 public:
  explicit Subject(bool huge_pages) : cache_(service::BufferCache::make({.huge_pages = huge_pages})) {}
  Status open(const std::string& folder) {
    for (int i = 0;; ++i) {
      auto frame = read_frame(fmt::format("{}/{}.arrow", folder, i), *cache_);
      if (!frame && i > 0) return {};
      if (!frame) return tl::unexpected(std::move(frame).error());
      sources_.push_back({std::move(*frame), fmt::format("{}", i), ""});
    }
  }
  void set(unsigned threads, bool loops) {
    limits_.threads = threads;
    limits_.loops = loops;
    threads_ = pool::QueryThreads::make(threads);
  }

  Result<std::string> ask(const pool::Query& query) {
    std::vector<pool::FramePtr> frames;
    const TimeNs begin = monotonic_ns();
    OFP_ASSIGN(auto run, pool::QueryRun::make(query, sources_, limits_, threads_, cache_, 0));
    for (bool finished = false; !finished;) {
      OFP_ASSIGN(pool::QueryStep step, run->step({}));
      finished = step.finished;
      for (auto& frame : step.frames) frames.push_back(std::move(frame));
    }
    const TimeNs spent = monotonic_ns() - begin;
    if (query.aggregates.empty()) return fmt::format("{} {} 0 0", spent, run->counters().rows_answered);
    OFP_ASSIGN(const std::string values, values_of(*frames.at(0)));
    return fmt::format("{} {} {}", spent, run->counters().rows_read, values);
  }

 private:
  static Result<std::string> values_of(const service::Frame& frame) {
    const auto bytes = std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(frame.buffer.data()),
                                                       static_cast<std::int64_t>(frame.bytes));
    ARROW_ASSIGN(auto reader,
                 arrow::ipc::RecordBatchStreamReader::Open(std::make_shared<arrow::io::BufferReader>(bytes)));
    ARROW_ASSIGN(auto table, reader->ToTable());
    ARROW_ASSIGN(auto least, table->column(0)->GetScalar(0));
    ARROW_ASSIGN(auto most, table->column(1)->GetScalar(0));
    return least->ToString() + " " + most->ToString();
  }

  std::shared_ptr<service::BufferCache> cache_;
  std::vector<pool::QuerySource> sources_;
  pool::QueryLimits limits_;
  std::shared_ptr<pool::QueryThreads> threads_;
};

Status serve(const std::string& folder, unsigned threads, const std::string& way, bool huge_pages) {
  Subject subject(huge_pages);
  OFP_TRY(subject.open(folder));
  subject.set(threads, way == "loops");
  std::cout << "ready" << std::endl;
  for (std::string word; std::cin >> word;) {
    OFP_ASSIGN(const std::string answer, subject.ask(word == "box" ? box_query() : speed_query()));
    std::cout << answer << std::endl;
  }
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  CLI::App app("Queries of particles, one for each word read.");
  std::string folder, way = "loops";
  unsigned threads = 1;
  bool describe = false, small_pages = false;
  app.add_option("folder", folder);
  app.add_flag("--describe", describe, "an empty report, which names commit and machine");
  app.add_option("--threads", threads);
  app.add_option("--way", way)->check(CLI::IsMember({"loops", "acero"}));
  app.add_flag("--small-pages", small_pages, "as with memory.huge_pages = false");
  CLI11_PARSE(app, argc, argv);
  if (describe) {
    std::cout << offpath::bench::Report("pool").json();
    return 0;
  }
  if (const auto status = offpath::bench::serve(folder, threads, way, !small_pages); !status) {
    std::cerr << status.error().message << '\n';
    return 2;
  }
  return 0;
}
