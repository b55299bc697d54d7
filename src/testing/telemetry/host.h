// For tests: a host with files of its own, and the sampler's own code (host_sampler/answer.c) behind no socket.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "telemetry/host_sampler/answer.h"
#include "telemetry/sampler_datagram.h"

namespace offpath::exchange {

class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "offpath-host-XXXXXX").string();
    OFP_ASSERT(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void write(const std::string& file, const std::string& text, std::ios::openmode mode = std::ios::trunc) const {
    const std::filesystem::path whole = path_ + file;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, mode) << text;
  }

 private:
  std::string path_;
};

// Sources below a directory.
class TestSources {
 public:
  explicit TestSources(const std::string& root = "") : root_(root), memory_(OFS_MEMORY_MIN) {
    OFP_ASSERT(ofs_sources_init(&all, memory_.data(), memory_.size(), root_.c_str()));
  }
  ~TestSources() { ofs_sources_close(&all); }
  TestSources(const TestSources&) = delete;
  TestSources& operator=(const TestSources&) = delete;

  [[nodiscard]] std::uint32_t find(const std::string& field) const {
    for (std::uint32_t i = 0; i < all.field_count; ++i)
      if (field == all.fields[i].name) return i;
    return all.field_count;
  }
  [[nodiscard]] bool has(const std::string& field) const {
    return find(field) < all.field_count && all.present[find(field)];
  }
  [[nodiscard]] std::uint64_t u64(const std::string& field) const { return has(field) ? all.bits[find(field)] : ~0ull; }
  [[nodiscard]] double f64(const std::string& field) const { return std::bit_cast<double>(u64(field)); }

  ofs_sources all{};

 private:
  std::string root_;
  std::vector<char> memory_;
};

class TestHost {
 public:
  static constexpr std::int64_t epoch_ns = 1'700'000'000 * second_ns;

  TestHost() {
    directory_.write("/proc/loadavg", "0.50 0.25 0.10 2/345 6789\n");
    start();
  }
  // As a new process: other random numbers, nothing known of before.
  void start() {
    sources_ = std::make_unique<TestSources>(directory_.path());
    OFP_ASSERT(ofs_add_set(&sources_->all, "load"));
    if (more_fields_) {
      ofs_source_options options{};
      options.file = "/more";
      options.fields[0] = "more";
      OFP_ASSERT(ofs_sources_add(&sources_->all, &options));
    }
    answerer_ = {};
    const SamplerKey key = TestHost::key();
    std::copy(key.begin(), key.end(), answerer_.key);
    answerer_.token_key[0] = static_cast<std::uint8_t>(++starts_);
    schema_.resize(65536);
    answerer_.schema_length =
        static_cast<std::uint32_t>(ofs_sources_schema(&sources_->all, "host", schema_.data(), schema_.size()));
    answerer_.schema = schema_.data();
    answerer_.schema_id = ofs_schema_id(schema_.data(), answerer_.schema_length);
    answerer_.sources = &sources_->all;
  }
  void start_with_more_fields() {
    directory_.write("/more", "7\n");
    more_fields_ = true;
    start();
  }

  // The answer to bytes that arrive at that time; empty: none.
  std::vector<std::byte> answer(Bytes request, TimeNs now) {
    std::vector<std::byte> to(OFS_DATAGRAM_MAX);
    real_now() = epoch_ns + now + clock_ahead_ns;
    const std::size_t length = ofs_answer(
        &answerer_, reinterpret_cast<const std::uint8_t*>(request.data()), request.size(), now, real_now(),
        [] { return real_now(); }, reinterpret_cast<std::uint8_t*>(to.data()));
    to.resize(length);
    return to;
  }

  [[nodiscard]] static SamplerKey key() { return sampler_key(bytes_of("a key that only the test knows")).value(); }
  [[nodiscard]] const ofs_answerer& answerer() const noexcept { return answerer_; }
  [[nodiscard]] const TestDirectory& directory() const noexcept { return directory_; }

  std::int64_t clock_ahead_ns = 0;

 private:
  static std::int64_t& real_now() {
    static thread_local std::int64_t now = 0;
    return now;
  }

  TestDirectory directory_;
  std::unique_ptr<TestSources> sources_;
  ofs_answerer answerer_{};
  std::vector<std::uint8_t> schema_;
  unsigned starts_ = 0;
  bool more_fields_ = false;
};

}  // namespace offpath::exchange
