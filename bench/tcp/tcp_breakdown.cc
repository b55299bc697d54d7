#include "tcp_breakdown.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "measure.h"
#include "tcp/stack/stage_trace.h"

namespace offpath::bench {
namespace {

using tcp::StageTrace;
using Stage = StageTrace::Stage;

constexpr std::size_t message_bytes = BusyConnections::message_bytes;
constexpr std::array stage_names{"client's send, to the agent's receive",
                                 "the agent's receive, to the program's event",
                                 "event, to the end of the program's read",
                                 "the program, between read and send",
                                 "the program's send, to the agent's look",
                                 "the agent's look, to the frame's leaving",
                                 "the frame's leaving, to the end of the client's read"};
constexpr std::size_t stages = stage_names.size();

class TraceReader {
 public:
  [[nodiscard]] static Result<TraceReader> open(const std::string& path) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about{};
    if (!fd || ::fstat(fd.get(), &about) != 0) return fail_errno(errno, "the agent's trace " + path);
    if (about.st_size < static_cast<off_t>(StageTrace::file_bytes))
      return fail(Error::invalid, "{} is not a trace", path);
    void* const memory = ::mmap(nullptr, StageTrace::file_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) return fail_errno(errno, "mmap of " + path);
    TraceReader reader(static_cast<std::byte*>(memory));
    if (load<std::uint64_t>(reader.memory_) != StageTrace::magic)
      return fail(Error::invalid, "{} is not a trace", path);
    return reader;
  }
  TraceReader(TraceReader&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), next_(other.next_) {}
  ~TraceReader() {
    if (memory_ != nullptr) ::munmap(memory_, StageTrace::file_bytes);
  }

  // Records since the last call.
  [[nodiscard]] std::vector<StageTrace::Record> take() {
    const std::uint64_t count =
        std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_ + StageTrace::count_at))
            .load(std::memory_order_acquire);
    std::vector<StageTrace::Record> all;
    for (; next_ < count; ++next_)
      all.push_back(load<StageTrace::Record>(memory_ + StageTrace::records_at +
                                             next_ % StageTrace::capacity * sizeof(StageTrace::Record)));
    return all;
  }

 private:
  explicit TraceReader(std::byte* memory) noexcept : memory_(memory) {}
  std::byte* memory_;
  std::uint64_t next_ = 0;
};

TimeNs first_after(const std::vector<StageTrace::Record>& records, Stage stage, TimeNs after) {
  for (const StageTrace::Record& record : records)
    if (record.stage == stage && record.at >= after) return record.at;
  return never;
}

TimeNs last_before(const std::vector<StageTrace::Record>& records, Stage stage, TimeNs before) {
  TimeNs last = 0;
  for (const StageTrace::Record& record : records)
    if (record.stage == stage && record.at <= before) last = record.at;
  return last;
}

struct Echo {
  double whole;
  std::array<double, stages> spent;
};

// One echo's times; false: a stage is missing in the trace, or out of order, for example if one round of the agent did
// more than one thing.
bool stages_of(TimeNs sent, const std::array<std::uint64_t, 2>& stamps, TimeNs back,
               const std::vector<StageTrace::Record>& records, Echo& echo) {
  const auto read = static_cast<TimeNs>(stamps[0]), answered = static_cast<TimeNs>(stamps[1]);
  const TimeNs received = first_after(records, Stage::received, sent),
               told = first_after(records, Stage::told, received);
  const TimeNs left = first_after(records, Stage::sent, answered),
               commanded = last_before(records, Stage::commanded, left);
  // A stage is recorded after it ends: a waiting thread on another core may already have continued, and have read the
  // trace.
  const std::array<TimeNs, stages + 1> times{sent,     received,  std::min(told, read), read,
                                             answered, commanded, std::min(left, back), back};
  if (!std::ranges::is_sorted(times)) return false;
  for (std::size_t i = 0; i < stages; ++i) echo.spent[i] = double(times[i + 1] - times[i]);
  echo.whole = double(back - sent);
  return true;
}

}  // namespace

Status measure_breakdown(const StreamServer& offloaded, const std::string& trace_file, const Options& options,
                         Report& report) {
  OFP_ASSIGN(TraceReader trace, TraceReader::open(trace_file));
  OFP_ASSIGN(const Fd fd, offloaded.connect(StreamServer::stamped));
  const std::size_t times = options.quick ? 200 : 20'000, warmups = times / 10;
  std::vector<double> whole;
  std::vector<Echo> echoes;
  std::array<char, message_bytes> message{};
  for (std::size_t i = 0; i < warmups + times; ++i) {
    const TimeNs sent = monotonic_ns();
    OFP_TRY(send_all(fd.get(), message.data(), message.size()));
    OFP_TRY(receive_all(fd.get(), message.data(), message.size()));
    const TimeNs back = monotonic_ns();
    std::array<std::uint64_t, 2> stamps{};
    std::memcpy(stamps.data(), message.data(), sizeof stamps);
    const auto records = trace.take();
    if (i < warmups) continue;
    whole.push_back(double(back - sent));
    if (Echo echo{}; stages_of(sent, stamps, back, records, echo)) echoes.push_back(echo);
  }
  if (echoes.size() * 2 < whole.size())
    return fail(Error::unsupported, "only {} of {} echoes have all their stages in {}", echoes.size(), whole.size(),
                trace_file);
  // The stages of the echoes around the overall median: medians of single stages belong to no echo, and echoes with a
  // missing stage may all be of one kind.
  const double p50 = median(whole);
  std::ranges::sort(echoes, {}, [p50](const Echo& echo) { return std::abs(echo.whole - p50); });
  const std::span<const Echo> middle(echoes.data(), std::max<std::size_t>(echoes.size() / 20, 1));
  std::vector<double> ratios;  // the share of the stages in each of these echoes
  for (const Echo& echo : middle) {
    const double sum = std::accumulate(std::begin(echo.spent), std::end(echo.spent), 0.0);
    ratios.push_back(std::min(sum / echo.whole, echo.whole / sum));
  }
  double covered = 0;
  for (std::size_t i = 0; i < stages; ++i) {
    double ns = 0;
    for (const Echo& echo : middle) ns += echo.spent[i] / double(middle.size());
    covered += ns;
    report.add(Claim{.claim = fmt::format("tcp.echo_stage ({})", stage_names[i]), .value = ns * 1e-3, .unit = "us"});
  }
  report.add(Claim{.claim = "tcp.breakdown (p50 of the echo, and how much of it its stages are)",
                   .value = p50 * 1e-3,
                   .unit = "us",
                   .peer = "stages",
                   .peer_value = covered * 1e-3,
                   .ratio = std::min(covered / p50, p50 / covered),
                   .interval = median_interval_95(ratios),
                   .pairs = middle.size(),
                   .target = ratio_at_least(0.9)});
  return {};
}

}  // namespace offpath::bench
