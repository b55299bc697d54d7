// The cost of sampling a host, at both ends.
//
//   exchange.sample_us_p50         from a request to values unpacked, over UDP on this machine; the asking side spins,
//                                  as an agent's loop does while there is work. Peer: a datagram and its echo between
//                                  the same cores
//   exchange.sample_hz             samples one after another, for a while
//   exchange.sample_host_cpu_us    processor time of the sampler's process for each of them
//   exchange.sampler_rss_kb        its memory after that
//   exchange.sample_region_us_p50  values of a program's memory, read one-sided (a lap, all, the lap once more)
//   exchange.app_overhead          by how much a computation gets slower that shares its core with the sampler, by rate
//
//   --sampler HOST:PORT --key-file FILE --pid PID   a sampler that runs on the host core
//   --part udp|region|overhead, or turns: for each line of standard input so many samples are taken, and the processor
//   time of one is printed in nanoseconds, and how many values it has; --interval-us NUMBER: at that interval
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "link/control/authentication.h"
#include "link_members.h"
#include "measure.h"
#include "report.h"
#include "telemetry/gauges.h"
#include "telemetry/sampling.h"
#include "telemetry/udp_port.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"

namespace offpath::bench {
namespace {

using exchange::Sampling;
using exchange::SamplingEffects;
using exchange::UdpPort;

std::int64_t real_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

Result<std::vector<std::byte>> read_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, "open " + path);
  std::vector<std::byte> bytes(8192);
  const ssize_t length = ::read(file.get(), bytes.data(), bytes.size());
  if (length < 0) return fail_errno(errno, "read " + path);
  bytes.resize(static_cast<std::size_t>(length));
  return bytes;
}

// The agent's side, which spins.
class Asker {
 public:
  static Result<std::unique_ptr<Asker>> make(const Options& options, TimeNs interval_ns) {
    OFP_ASSIGN(const auto file, read_file(std::string(options.other("--key-file"))));
    exchange::SamplingOptions how;
    how.producer = "bench";
    how.interval_ns = interval_ns;
    how.session = link::random_number();
    OFP_ASSIGN(how.key, exchange::sampler_key(file));
    OFP_ASSIGN(auto port, UdpPort::connect(std::string(options.other("--sampler"))));
    std::unique_ptr<Asker> asker(new Asker(std::move(how), std::move(port)));
    OFP_TRY(asker->sample_until(1));
    return asker;
  }

  // Takes that many more samples. Appends the times from request to decoded values to `ns`.
  Status sample_until(std::uint64_t more, std::vector<double>* ns = nullptr) {
    const std::uint64_t end = sampling_.counters().samples + more;
    const TimeNs deadline = monotonic_ns() + 20 * second_ns;
    std::uint64_t asked = ticks();
    while (sampling_.counters().samples < end) {
      const TimeNs now = monotonic_ns();
      if (now > deadline)
        return fail(Error::timeout, "the sampler at the address gave {} samples in 20 s", sampling_.counters().samples);
      if (now >= sampling_.next_deadline()) {
        asked = ticks();
        sampling_.on_time(now, effects_);
        send();
      }
      while (const auto datagram = port_.receive(buffer_)) {
        const std::uint64_t before = sampling_.counters().samples;
        sampling_.on_datagram(*datagram, monotonic_ns(), real_ns(), effects_);
        if (ns != nullptr && sampling_.counters().samples != before)
          ns->push_back(double(ticks() - asked) * ns_per_tick());
        if (!effects_.requests.empty()) {
          asked = ticks();
          send();
        }
      }
    }
    return {};
  }
  // Samples at the interval, and sleeps in between.
  void pace(TimeNs end) {
    for (TimeNs now = monotonic_ns(); now < end; now = monotonic_ns()) {
      if (now >= sampling_.next_deadline()) {
        sampling_.on_time(now, effects_);
        send();
      }
      while (const auto datagram = port_.receive(buffer_))
        sampling_.on_datagram(*datagram, monotonic_ns(), real_ns(), effects_);
      send();
      sleep_ns(20 * microsecond_ns);
    }
  }

  [[nodiscard]] const Sampling& sampling() const { return sampling_; }

 private:
  Asker(exchange::SamplingOptions how, UdpPort port)
      : sampling_(std::move(how), monotonic_ns()), port_(std::move(port)) {}
  void send() {
    for (const auto& each : effects_.requests) port_.send(each);
    effects_.requests.clear();
  }

  Sampling sampling_;
  UdpPort port_;
  SamplingEffects effects_;
  std::array<std::byte, 65536> buffer_{};
};

// Echoes datagrams. Sleeps in between like the sampler, or spins until no datagram has come for a millisecond.
class Echo {
 public:
  static Result<std::unique_ptr<Echo>> start(int core, bool spins) {
    Fd listener(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
      return fail_errno(errno, "a socket of the peer");
    OFP_ASSIGN(auto port, UdpPort::connect("127.0.0.1:" + std::to_string(ntohs(address.sin_port))));
    std::unique_ptr<Echo> echo(new Echo(std::move(port)));
    echo->child_ = ::fork();
    if (echo->child_ == 0) {
      if (!pin_to_core(core)) ::_exit(1);
      for (TimeNs spins_until = 0;;) {
        std::array<char, 2048> bytes;
        sockaddr_in from{};
        socklen_t from_length = sizeof from;
        const int flags = spins && monotonic_ns() < spins_until ? MSG_DONTWAIT : 0;
        const ssize_t got = ::recvfrom(listener.get(), bytes.data(), bytes.size(), flags,
                                       reinterpret_cast<sockaddr*>(&from), &from_length);
        if (got > 0) spins_until = monotonic_ns() + millisecond_ns;
        if (got > 0)
          (void)::sendto(listener.get(), bytes.data(), static_cast<std::size_t>(got), 0,
                         reinterpret_cast<sockaddr*>(&from), from_length);
      }
    }
    return echo;
  }
  ~Echo() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Result<double> ask(std::size_t times) {
    std::vector<double> ns;
    std::array<std::byte, 2048> buffer{};
    for (std::size_t i = 0; i < times; ++i) {
      const std::uint64_t began = ticks();
      port_.send(Bytes(buffer).first(64));
      const TimeNs deadline = monotonic_ns() + second_ns;
      while (!port_.receive(buffer))
        if (monotonic_ns() > deadline) return fail(Error::timeout, "the peer's echo was lost");
      ns.push_back(double(ticks() - began) * ns_per_tick());
    }
    return median(ns);
  }

 private:
  explicit Echo(UdpPort port) : port_(std::move(port)) {}
  UdpPort port_;
  pid_t child_ = -1;
};

Result<pid_t> sampler_pid(const Options& options) {
  const int pid = std::atoi(std::string(options.other("--pid")).c_str());
  if (pid <= 0) return fail(Error::invalid, "--pid PID of the sampler is needed");
  return pid;
}

Status run_udp(const Options& options, Report& report) {
  OFP_ASSIGN(const pid_t pid, sampler_pid(options));
  OFP_ASSIGN(const auto sleeping, Echo::start(options.host_core, false));
  OFP_ASSIGN(const auto spinning, Echo::start(options.host_core, true));
  OFP_TRY(pin_to_core(options.agent_core));
  OFP_ASSIGN(const auto asker, Asker::make(options, 0));
  const std::size_t samples = options.quick ? 50 : 1000;
  const auto sample = [&]() -> Result<double> {
    std::vector<double> ns;
    OFP_TRY(asker->sample_until(samples, &ns));
    return median(ns);
  };
  for (const auto& echo : {std::cref(sleeping), std::cref(spinning)}) {
    OFP_ASSIGN(const Comparison compared, run_pairs(options.pairs(), sample, [&]() -> Result<double> {
                 sleep_ns(2 * millisecond_ns);  // the sampler sleeps again
                 return echo.get()->ask(samples);
               }));
    const bool asleep = echo.get() == sleeping;
    report.add(Claim{.claim = asleep ? "exchange.sample_us_p50 (UDP)" : "exchange.sample_us_p50 (UDP, peer spins)",
                     .value = compared.subject / 1e3,
                     .unit = "us",
                     .peer = "64 B and their echo",
                     .peer_value = compared.peer / 1e3,
                     .ratio = compared.ratio,
                     .interval = compared.interval,
                     .pairs = compared.pairs,
                     .target = asleep ? std::optional(value_at_most(60, "us")) : std::nullopt,
                     .detail = fmt::format("{} values", asker->sampling().schema().fields.size()),
                     .peer_waits = asleep ? "asleep" : "spinning"});
  }

  const std::uint64_t many = options.quick ? 500 : 60'000;
  OFP_ASSIGN(const std::int64_t cpu_before, process_cpu_ns(pid));
  OFP_ASSIGN(const std::int64_t own_before, process_cpu_ns(0));
  const TimeNs began = monotonic_ns();
  OFP_TRY(asker->sample_until(many));
  const double elapsed_s = double(monotonic_ns() - began) / 1e9;
  OFP_ASSIGN(const std::int64_t cpu_after, process_cpu_ns(pid));
  OFP_ASSIGN(const std::int64_t own_after, process_cpu_ns(0));
  OFP_ASSIGN(const std::uint64_t resident, process_resident_bytes(pid));
  const auto& counters = asker->sampling().counters();
  report.add(
      Claim{.claim = "exchange.sample_hz (UDP)",
            .value = double(many) / elapsed_s,
            .unit = "/s",
            .target = value_at_least(10'000, "/s"),
            .detail = fmt::format("{} samples in {:.1f} s, {} asked again", many, elapsed_s, counters.retransmits)});
  report.add(Claim{.claim = "exchange.sample_host_cpu_us (of a sample, at that rate)",
                   .value = double(cpu_after - cpu_before) / 1e3 / double(many),
                   .unit = "us",
                   .target = value_at_most(15, "us")});
  report.add(Claim{.claim = "exchange.sample_total_cpu_us (with the asking side, which spins)",
                   .value = double(cpu_after - cpu_before + own_after - own_before) / 1e3 / double(many),
                   .unit = "us"});
  // At a low rate, every sample wakes a sleeping core.
  OFP_ASSIGN(const auto seldom, Asker::make(options, 10 * millisecond_ns));
  OFP_ASSIGN(const std::int64_t seldom_before, process_cpu_ns(pid));
  OFP_ASSIGN(const std::int64_t own_seldom_before, process_cpu_ns(0));
  const std::uint64_t samples_before = seldom->sampling().counters().samples;
  seldom->pace(monotonic_ns() + (options.quick ? second_ns / 5 : 3 * second_ns));
  OFP_ASSIGN(const std::int64_t seldom_after, process_cpu_ns(pid));
  OFP_ASSIGN(const std::int64_t own_seldom_after, process_cpu_ns(0));
  const double seldom_samples = double(seldom->sampling().counters().samples - samples_before);
  report.add(Claim{.claim = "exchange.sample_host_cpu_us (at 100 a second)",
                   .value = double(seldom_after - seldom_before) / 1e3 / seldom_samples,
                   .unit = "us",
                   .target = value_at_most(40, "us")});
  report.add(
      Claim{.claim = "exchange.sample_total_cpu_us (at 100 a second, with the asking side, which looks every 20 us)",
            .value = double(seldom_after - seldom_before + own_seldom_after - own_seldom_before) / 1e3 / seldom_samples,
            .unit = "us"});
  report.add(Claim{.claim = "exchange.sampler_rss_kb",
                   .value = double(resident) / 1024,
                   .unit = "KiB",
                   .target = value_at_most(1500, "KiB")});
  return {};
}

// ---- one-sided

// A schema with as many values as the paper's, and its memory in a sleeping program.
class Region {
 public:
  Region(Member& member, std::size_t fields) : member_(member), gauges_(0) {
    exchange::Schema schema{"bench", {}};
    for (std::size_t i = 0; i < fields; ++i) schema.fields.push_back({.name = fmt::format("value{}", i)});
    bytes_ = wire::gauges_bytes(fields);
    exchange::encode(schema, schema_);
    head_.resize(bytes_, std::byte{1});
    wire::GaugesHead head{};
    head.count = fields;
    store(head_.data(), head);
  }
  Status open() {
    const link::WritePiece piece{Member::segment, 0, head_.data(), bytes_};
    member_.link->write(0, {&piece, 1});
    OFP_TRY(finish());
    wire::encode(wire::GaugesOpen{{.region = Member::segment, .length = bytes_}, "bench", schema_}, payload_);
    gauges_.on_request(
        1, "bench", {.ticket = 1, .kind = static_cast<std::uint8_t>(wire::EntryKind::gauges_open), .payload = payload_},
        0, effects_);
    if (const auto* const failed = std::get_if<service::FailEffect>(&effects_.at(0)))
      return tl::unexpected<Failure>(failed->failure);
    effects_.clear();
    return {};
  }
  Result<double> sample() {
    const std::uint64_t before = samples(), began = ticks();
    gauges_.on_time(monotonic_ns(), effects_);
    while (samples() == before) {
      const service::Effects pulls = std::exchange(effects_, {});
      if (pulls.size() != 1) return fail(Error::io, "{} reads at a time of one sample", pulls.size());
      const auto& pull = std::get<service::PullEffect>(pulls[0]);
      member_.link->read(pull.token, pull.pieces);
      OFP_TRY(finish());
      gauges_.on_transfer(pull.token, {}, monotonic_ns(), real_ns(), effects_);
    }
    return double(ticks() - began) * ns_per_tick();
  }

 private:
  [[nodiscard]] std::uint64_t samples() const { return gauges_.sets().at(0)->counters.samples; }
  Status finish() {
    const TimeNs deadline = monotonic_ns() + second_ns;
    std::array<link::LinkEvent, 4> events;
    for (;;) {
      const std::size_t count = member_.link->poll(monotonic_ns(), events);
      for (const link::LinkEvent& event : std::span(events).first(count)) {
        if (event.kind == link::LinkEvent::Kind::woken) continue;
        if (!event.status) return tl::unexpected<Failure>(event.status.error());
        return {};
      }
      if (monotonic_ns() > deadline) return fail(Error::timeout, "a read of the link did not end within a second");
    }
  }

  Member& member_;
  exchange::Gauges gauges_;
  service::Effects effects_;
  std::size_t bytes_;
  std::vector<std::byte> schema_, head_, payload_;
};

Status run_region(const Options& options, Report& report) {
  constexpr std::size_t fields = 14;
  OFP_ASSIGN(std::vector<Member> members,
             start_members({.address = fmt::format("unix:/tmp/offpath-bench-{}.sock", ::getpid()),
                            .core = options.host_core,
                            .group = {},
                            .range_bytes = 4096,
                            .segment_bytes = 65536}));
  OFP_TRY(pin_to_core(options.agent_core));
  Region region(members[0], fields);
  OFP_TRY(region.open());
  std::vector<double> medians;
  OFP_ASSIGN(medians, run_turns(options.pairs().pairs, options.pairs().warmups, [&]() -> Result<double> {
               std::vector<double> ns;
               for (int i = 0; i < (options.quick ? 100 : 5000); ++i) {
                 OFP_ASSIGN(const double spent, region.sample());
                 ns.push_back(spent);
               }
               return median(ns);
             }));
  OFP_ASSIGN(const std::int64_t before, process_cpu_ns(members[0].pid));
  OFP_ASSIGN(const std::int64_t own_before, process_cpu_ns(0));
  for (int i = 0; i < 1000; ++i) OFP_TRY(region.sample());
  OFP_ASSIGN(const std::int64_t after, process_cpu_ns(members[0].pid));
  OFP_ASSIGN(const std::int64_t own_after, process_cpu_ns(0));
  report.add(Claim{.claim = fmt::format("exchange.sample_region_us_p50 (one-sided, {} values)", fields),
                   .value = median(medians) / 1e3,
                   .unit = "us",
                   .target = value_at_most(5, "us")});
  report.add(Claim{.claim = "exchange.sample_region_host_cpu_us (of a program's gauges, for 1000 samples)",
                   .value = double(after - before) / 1e3,
                   .unit = "us",
                   .target = value_at_most(0, "us")});
  report.add(Claim{.claim = "exchange.sample_region_total_cpu_us (with the reading side, for 1000 samples)",
                   .value = double(after - before + own_after - own_before) / 1e3,
                   .unit = "us"});
  return {};
}

// ---- slowdown of a computation

// A fixed piece of arithmetic, repeated for about `piece_ns`.
double compute(std::uint64_t rounds) {
  double value = 1;
  for (std::uint64_t i = 0; i < rounds; ++i) value = value * 1.0000001 + 1e-9;
  keep(value);
  return value;
}

// The computation, in a process on the host core: for each byte that it reads it computes, and reports the time.
class Computation {
 public:
  static Result<std::unique_ptr<Computation>> start(int core, TimeNs piece_ns) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
    std::unique_ptr<Computation> made(new Computation);
    made->socket_ = Fd(ends[0]);
    made->child_ = ::fork();
    if (made->child_ == 0) {
      ::close(ends[0]);
      if (!pin_to_core(core)) ::_exit(1);
      std::uint64_t rounds = 1 << 20;
      TimeNs began = monotonic_ns();
      compute(rounds);
      rounds = static_cast<std::uint64_t>(double(rounds) * double(piece_ns) / double(monotonic_ns() - began));
      for (char byte; ::recv(ends[1], &byte, 1, 0) == 1;) {
        began = monotonic_ns();
        compute(rounds);
        const double ns = double(monotonic_ns() - began);
        if (::send(ends[1], &ns, sizeof ns, 0) != sizeof ns) break;
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    return made;
  }
  ~Computation() {
    socket_.reset();
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  void begin() { (void)::send(socket_.get(), "", 1, 0); }
  // Its time once it has finished; otherwise none.
  [[nodiscard]] std::optional<double> done() {
    double ns = 0;
    if (::recv(socket_.get(), &ns, sizeof ns, MSG_DONTWAIT) != sizeof ns) return std::nullopt;
    return ns;
  }

 private:
  Fd socket_;
  pid_t child_ = -1;
};

Status run_overhead(const Options& options, Report& report) {
  OFP_ASSIGN(const pid_t pid, sampler_pid(options));
  const TimeNs piece_ns = options.quick ? 20 * millisecond_ns : 300 * millisecond_ns;
  OFP_ASSIGN(const auto computation, Computation::start(options.host_core, piece_ns));
  OFP_TRY(pin_to_core(options.agent_core));
  const std::string place(options.other("--place"));
  Series lost{
      .figure = "exchange_overhead", .name = place, .x_unit = "samples/s", .y_unit = "% slower", .x = {}, .y = {}};
  Series share{.figure = "exchange_overhead",
               .name = "processor time of the sampler (" + place + ")",
               .x_unit = "samples/s",
               .y_unit = "% slower",
               .x = {},
               .y = {}};
  for (const int hz : {10, 100, 1000}) {
    OFP_ASSIGN(const auto asker, Asker::make(options, second_ns / hz));
    OFP_ASSIGN(const std::int64_t cpu_before, process_cpu_ns(pid));
    double computed_ns = 0;
    const auto turn = [&](bool samples) -> Result<double> {
      const TimeNs deadline = monotonic_ns() + 60 * second_ns;  // the machine may be busy with other work
      computation->begin();
      for (;;) {
        if (samples)
          asker->pace(monotonic_ns() + 2 * millisecond_ns);
        else
          sleep_ns(2 * millisecond_ns);
        if (const auto ns = computation->done()) {
          if (samples) computed_ns += *ns;
          return *ns;
        }
        if (monotonic_ns() > deadline) return fail(Error::timeout, "the computation did not end");
      }
    };
    OFP_ASSIGN(const Comparison compared,
               run_pairs(options.pairs(), [&] { return turn(false); }, [&] { return turn(true); }));
    OFP_ASSIGN(const std::int64_t cpu_after, process_cpu_ns(pid));
    const double slower = (compared.ratio - 1) * 100, cpu = double(cpu_after - cpu_before) / computed_ns * 100;
    lost.x.push_back(hz);
    lost.y.push_back(slower);
    share.x.push_back(hz);
    share.y.push_back(cpu);
    const bool promised = hz == 100 && place == "one core for both";
    report.add(Claim{.claim = fmt::format("exchange.app_overhead ({} a second, {})", hz, place),
                     .value = slower,
                     .unit = "%",
                     .ratio = compared.ratio,
                     .interval = compared.interval,
                     .pairs = compared.pairs,
                     .target = promised ? std::optional(value_at_most(0.5, "%")) : std::nullopt});
    report.add(Claim{
        .claim = fmt::format("exchange.app_overhead ({} a second, {}), as processor time of the sampler", hz, place),
        .value = cpu,
        .unit = "%"});
  }
  report.add(std::move(lost));
  report.add(std::move(share));
  return {};
}

// ---- in turns with a peer that another program runs

Status run_turns_of_input(const Options& options) {
  OFP_ASSIGN(const pid_t pid, sampler_pid(options));
  OFP_TRY(pin_to_core(options.agent_core));
  const TimeNs interval_ns = std::atoi(std::string(options.other("--interval-us")).c_str()) * microsecond_ns;
  OFP_ASSIGN(const auto asker, Asker::make(options, interval_ns));
  for (unsigned long samples = 0; std::scanf("%lu", &samples) == 1 && samples > 0;) {
    OFP_ASSIGN(const std::int64_t before, process_cpu_ns(pid));
    if (interval_ns == 0) {
      OFP_TRY(asker->sample_until(samples));
    } else {
      const std::uint64_t taken = asker->sampling().counters().samples;
      asker->pace(monotonic_ns() + TimeNs(samples) * interval_ns);
      samples = asker->sampling().counters().samples - taken;
      if (samples == 0) return fail(Error::timeout, "the sampler gave no sample in its turn");
    }
    OFP_ASSIGN(const std::int64_t after, process_cpu_ns(pid));
    const auto& values = asker->sampling().newest().values;
    std::printf("%.1f %zu\n", double(after - before) / double(samples), values.size() - values.missing());
    std::fflush(stdout);
  }
  return {};
}

Status run(const Options& options, Report& report) {
  const std::string_view part = options.other("--part");
  if (part == "udp") return run_udp(options, report);
  if (part == "region") return run_region(options, report);
  if (part == "overhead") return run_overhead(options, report);
  if (part == "turns") return run_turns_of_input(options);
  return fail(Error::invalid, "--part is udp, region, overhead or turns, not '{}'", part);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "exchange",
                                  {"--part", "--sampler", "--key-file", "--pid", "--place", "--interval-us"},
                                  offpath::bench::run);
}
