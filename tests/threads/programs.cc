#include "tests/threads/programs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <thread>

#include <offpath/offpath.hpp>

namespace offpath::threads {
namespace {

const std::vector<Column> two_columns{{"id", "l"}, {"x", "l"}};
constexpr Wait always = forever;

// Rows of two columns whose values identify the writer and the round.
struct Batch {
  Batch(std::size_t rows, std::int64_t seed) : id(rows), x(rows) {
    std::iota(id.begin(), id.end(), 0);
    std::iota(x.begin(), x.end(), seed * 1'000'003);
  }
  [[nodiscard]] bool is_in(const Frame& frame) const {
    const auto bytes = frame.bytes(), column = std::as_bytes(std::span(x));
    return std::search(bytes.begin(), bytes.end(), column.begin(), column.end()) != bytes.end();
  }
  std::vector<std::int64_t> id, x;
};

std::string row_of(int round) { return fmt::format("step{:04}", round); }

// The objects that the others find from the beginning.
void put_first(Channel& channel) {
  const Batch batch(4096, -1);
  Stream stream(channel, "first", two_columns, {.pool = "local:/plain", .rows_max = 4096});
  stream.wait_stored(stream.send({batch.id.data(), batch.x.data()}, batch.id.size(), {"first", ""}));
  stream.close(always);
}

// Two threads of one channel do this, each with a stream of its own.
void put_and_get(Channel& channel, int writer) {
  constexpr int rounds = 60;
  const std::string column = fmt::format("rank{}", writer);
  Stream stream(channel, column, two_columns, {.pool = "local:/plain", .rows_max = 4096});
  for (int round = 0; round < rounds; ++round) {
    const Batch batch(round % 3 == 0 ? 4096 : 100, 100 * writer + round);
    const Ticket ticket = stream.send({batch.id.data(), batch.x.data()}, batch.id.size(), {row_of(round), column});
    stream.wait_pulled(ticket);
    stream.wait_stored(ticket);
    const Frame frame = channel.get("local:/plain", {row_of(round), column});
    EXPECT_EQ(frame.rows(), batch.id.size());
    EXPECT_TRUE(batch.is_in(frame)) << writer << " " << round;
  }
  stream.close(always);
}

void send_compressed(const std::string& address) {
  constexpr int rounds = 20;
  Channel channel(address, {.name = "compressed"});
  for (const char* compression : {"zstd", "lz4"}) {
    Stream stream(channel, compression, two_columns, {.rows_max = 20'000, .compression = compression});
    Ticket last = 0;
    std::vector<Batch> batches;
    for (int round = 0; round < rounds; ++round) batches.emplace_back(20'000, round);
    for (int round = 0; const Batch& batch : batches)
      last = stream.send({batch.id.data(), batch.x.data()}, batch.id.size(), {row_of(round++), ""});
    stream.wait_stored(last);
    const std::string pool = std::string("local:/") + compression;
    EXPECT_EQ(channel.list(pool, {"*", "*"}, always).size(), static_cast<std::size_t>(rounds));
    const Frame frame = channel.get(pool, {row_of(rounds - 1), ""});
    EXPECT_LT(frame.bytes().size(), 20'000 * 16u);
    stream.close(always);
  }
}

// Objects of bytes, made and changed in place while others read.
void move_bytes(const std::string& address) {
  constexpr int rounds = 40;
  Channel channel(address, {.name = "bytes"});
  Stream stream(channel, "bytes", {{"bytes", "C"}}, {.destination = "native"});
  std::vector<std::byte> memory(32 << 10);
  const Range range(channel, std::span<const std::byte>(memory));
  for (int round = 0; round < rounds; ++round) {
    std::ranges::fill(memory, static_cast<std::byte>(round + 1));
    const ofp_piece all{memory.data(), memory.size(), 0}, half{memory.data(), memory.size() / 2, memory.size() / 2};
    stream.wait_stored(stream.move({&all, 1}, memory.size(), {"a", ""}));
    stream.wait_stored(stream.move({&half, 1}, memory.size(), {"a", ""}, OFP_MOVE_UPDATE));
    const Frame frame = channel.get("local:/bytes", {"a", ""});
    EXPECT_TRUE(std::ranges::equal(frame.bytes(), memory)) << round;
  }
  stream.close(always);
}

// Figures over objects that others are putting; true if the agent computes any.
bool ask_queries(const std::string& address, std::span<const std::byte> count) {
  constexpr int rounds = 40;
  Channel channel(address, {.name = "queries"});
  try {
    for (int round = 0; round < rounds; ++round) {
      Query answer = channel.query("local:/plain", count, {"*", "*"}, always);
      const auto frame = answer.next();
      EXPECT_TRUE(frame && frame->rows() == 1) << round;
      EXPECT_FALSE(answer.next()) << round;
    }
  } catch (const Error& error) {
    if (error.code() != OFP_UNSUPPORTED) throw;
    return false;
  }
  return true;
}

// More than the budget of the pool: to disk and back.
void spill_and_read_back(const std::string& address) {
  constexpr int rounds = 60;
  Channel channel(address, {.name = "spills"});
  const std::string pool = "local:/cold?spill=durable&budget=256KiB";
  Stream stream(channel, "cold", two_columns, {.pool = pool, .rows_max = 4096});
  for (int round = 0; round < rounds; ++round) {
    const Batch batch(4096, round);
    stream.wait_stored(stream.send({batch.id.data(), batch.x.data()}, batch.id.size(), {row_of(round), ""}));
  }
  for (int round = 0; round < rounds; ++round)
    EXPECT_TRUE(Batch(4096, round).is_in(channel.get("local:/cold", {row_of(round), ""}, always))) << round;
  stream.close(always);
  EXPECT_EQ(channel.drop("local:/cold", {"*", "*"}, always), static_cast<std::uint64_t>(rounds));
}

void write_files(const std::string& address, const std::string& path) {
  constexpr int rounds = 10;
  Channel channel(address, {.name = "files"});
  for (int round = 0; round < rounds; ++round) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::uint64_t written = channel.write("local:/plain", file);
    ::close(file);
    EXPECT_EQ(written, std::filesystem::file_size(path));
  }
}

void sift_tracks(const std::string& address) {
  constexpr int rounds = 20;
  constexpr std::size_t particles = 40'000;
  Channel channel(address, {.name = "sifts"});
  const std::string pool = "sift:/tracks?key=id&stages=1&fanout=4&threshold=1MiB";
  Stream stream(channel, "tracks", two_columns, {.pool = pool, .rows_max = particles});
  for (int round = 0; round < rounds; ++round) {
    const Batch batch(particles, round);
    stream.wait_stored(stream.send({batch.id.data(), batch.x.data()}, particles, {row_of(round), ""}));
  }
  detail::call([&](ofp_error* error) { return ofp_sift_flush(channel.get(), pool.c_str(), OFP_FOREVER, error); });
  for (const std::uint64_t particle : {0u, 17u, 39'999u}) {
    ofp_frame* frame = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_sift_tracks(channel.get(), pool.c_str(), 0, &particle, 1, 0, rounds, OFP_FOREVER, &frame, error);
    });
    EXPECT_EQ(ofp_frame_rows(frame), static_cast<std::uint64_t>(rounds));
    ofp_frame_release(frame);
  }
  stream.close(always);
  (void)channel.drop("sift:/tracks", {"*", "*"}, always);
}

// Functions over this program's memory, and over objects of a pool.
void run_functions(const std::string& address) {
  constexpr int rounds = 30;
  constexpr std::size_t values = 5000;
  Channel channel(address, {.name = "functions"});
  Tasks tasks(channel);
  const std::vector<double> x(values, 3), y(values, 4);
  const Segment z(channel, values * sizeof(double));
  const double a = 2;
  for (int round = 0; round < rounds; ++round) {
    std::ranges::fill(z.as<double>(), 0);
    Task task = tasks.submit({.function = "t/axpy",
                              .inputs = {{"x", bytes_of(x.data(), values)}, {"y", bytes_of(y.data(), values)}},
                              .outputs = {{"z", z.bytes()}},
                              .arguments = bytes_of(&a, 1)});
    EXPECT_TRUE(task.wait());
    EXPECT_EQ(std::ranges::count(z.as<double>(), 10.0), static_cast<std::ptrdiff_t>(values)) << round;
    const auto joined = channel.compute("local:/plain", {"first", ""}, "t", "join", {}, {}, always);
    EXPECT_TRUE(joined && joined->bytes().size() > 4096 * 16) << round;
  }
}

// An error in a program fails the test, not the process.
template <class Work>
std::thread program(const char* name, Work work) {
  return std::thread([name, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  });
}

}  // namespace

bool run_programs(const Surroundings& surroundings) {
  const std::string& address = surroundings.address;
  bool queried = false;
  Channel shared(address, {.name = "puts"});
  put_first(shared);
  std::vector<std::thread> programs;
  for (int writer = 0; writer < 2; ++writer)
    programs.push_back(program("puts", [&, writer] { put_and_get(shared, writer); }));
  programs.push_back(program("compressed", [&] { send_compressed(address); }));
  programs.push_back(program("bytes", [&] { move_bytes(address); }));
  programs.push_back(program("queries", [&] { queried = ask_queries(address, surroundings.count_query); }));
  programs.push_back(program("spills", [&] { spill_and_read_back(address); }));
  programs.push_back(program("files", [&] { write_files(address, surroundings.file); }));
  programs.push_back(program("sifts", [&] { sift_tracks(address); }));
  programs.push_back(program("functions", [&] { run_functions(address); }));
  for (std::thread& each : programs) each.join();
  for (const char* pool : {"local:/plain", "local:/zstd", "local:/lz4", "local:/bytes"})
    EXPECT_GT(shared.drop(pool, {"*", "*"}, always), 0u) << pool;
  return queried;
}

}  // namespace offpath::threads
