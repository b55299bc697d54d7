// The cost of a task for a program beyond its bytes, and its bytes compared with memcpy.
//
//   task.empty_us_p50              no input, no output, a function that returns; beside 64 B through two processes by
//                                  sockets: the same hops
//   task.step_us_p50 (24 KiB)      24 KiB in, copied by the function, 24 KiB out
//   task.copy_vs_memcpy (SIZE)     SIZE in, copied by the function, SIZE out, from submit to the end; beside three
//                                  memcpys of as many bytes, one after the other, through two pieces of memory between:
//                                  pulling, the function and pushing are no less
//
//   --agent ADDRESS   an agent with the plug-in "bench" (bench_task_functions.so)
//   --part PART       calls (the first two claims) or bytes (the others); without: both
#include <cstring>
#include <memory>
#include <string_view>

#include "echo.h"
#include "host_program.h"
#include "report.h"

namespace offpath::bench {
namespace {

using TaskPtr = std::unique_ptr<ofp_task, void (*)(ofp_task*)>;

class Tasks {
 public:
  static Result<std::unique_ptr<Tasks>> open(const Channel& channel, std::uint64_t bytes_max) {
    auto made = std::make_unique<Tasks>();
    ofp_error error{};
    ofp_tasks_options options{};
    options.struct_bytes = sizeof options;
    options.lanes = 1;
    if (ofp_tasks_open(channel.get(), &options, &made->tasks_, &error) != OFP_OK)
      return tl::unexpected(failure_of(error));
    if (ofp_alloc(channel.get(), bytes_max, &made->target_, &error) != OFP_OK) return tl::unexpected(failure_of(error));
    OFP_ASSIGN(made->source_, Pages::map(bytes_max));
    return made;
  }
  Tasks() = default;
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;
  ~Tasks() {
    ofp_tasks_close(tasks_);
    ofp_free(target_);
  }

  // Nanoseconds from submit to the end. No bytes: the function that does nothing.
  Result<double> run(std::uint64_t bytes) {
    const ofp_task_input input{"in", source_.data(), bytes, 0, 0, 0, 0};
    const ofp_task_output output{"out", ofp_segment_data(target_), bytes, 0};
    ofp_task_request request{};
    request.struct_bytes = sizeof request;
    request.function = bytes == 0 ? "bench/nothing" : "bench/copy";
    request.inputs = &input;
    request.outputs = &output;
    request.inputs_count = request.outputs_count = bytes == 0 ? 0 : 1;
    ofp_error error{};
    ofp_task* task = nullptr;
    const std::uint64_t began = ticks();
    if (ofp_task_submit(tasks_, &request, &task, &error) != OFP_OK) return tl::unexpected(failure_of(error));
    const TaskPtr owned(task, ofp_task_free);
    if (ofp_task_wait(task, 10 * second_ns, &error) != OFP_OK) return tl::unexpected(failure_of(error));
    return double(ticks() - began) * ns_per_tick();
  }

 private:
  ofp_tasks* tasks_ = nullptr;
  ofp_segment* target_ = nullptr;
  Pages source_;
};

Status measure_overhead(Tasks& tasks, const Options& options, Report& report) {
  const std::size_t calls = options.quick ? 20 : 300;
  const auto turn = [calls](const auto& once) -> Result<double> {
    std::vector<double> ns;
    for (std::size_t i = 0; i < calls; ++i) {
      OFP_ASSIGN(const double spent, once());
      ns.push_back(spent);
    }
    return median(ns);
  };
  for (const Echo::Wait wait : {Echo::Wait::asleep, Echo::Wait::spinning}) {
    OFP_ASSIGN(const std::unique_ptr<Echo> echo, Echo::start(options.agent_core, options.host_core, wait));
    const Turn peer = [&]() -> Result<double> {
      sleep_ns(agent_settles_ns);
      return turn([&] { return echo->ask(); });
    };
    OFP_ASSIGN(const Comparison empty,
               run_pairs(options.pairs(), [&] { return turn([&] { return tasks.run(0); }); }, peer));
    const bool asleep = wait == Echo::Wait::asleep;
    report.add(Claim{.claim = asleep ? "task.empty_us_p50" : "task.empty_us_p50 (peer spins)",
                     .value = empty.subject / 1e3,
                     .unit = "us",
                     .peer = "64 B through two processes by sockets",
                     .peer_value = empty.peer / 1e3,
                     .ratio = empty.ratio,
                     .interval = empty.interval,
                     .pairs = empty.pairs,
                     .target = asleep ? std::optional(value_at_most(50, "us")) : std::nullopt,
                     .peer_waits = echo->waits()});
  }
  std::vector<double> medians;
  for (std::size_t i = 0; i < options.pairs().pairs; ++i) {
    OFP_ASSIGN(const double ns, turn([&] { return tasks.run(24 << 10); }));
    medians.push_back(ns);
  }
  report.add(Claim{.claim = "task.step_us_p50 (24 KiB)",
                   .value = median(medians) / 1e3,
                   .unit = "us",
                   .target = value_at_most(80, "us")});
  return {};
}

Status measure_bytes(Tasks& tasks, const Options& options, std::uint64_t bytes, const char* size, Report& report) {
  OFP_ASSIGN(const Pages source, Pages::map(bytes));
  OFP_ASSIGN(const Pages first, Pages::map(bytes));
  OFP_ASSIGN(const Pages second, Pages::map(bytes));
  OFP_ASSIGN(const Pages target, Pages::map(bytes, Pages::Kind::shared_file));
  const std::size_t calls = options.quick ? 3 : 20;
  const auto turn = [calls](const auto& once) -> Result<double> {
    std::vector<double> ns;
    for (std::size_t i = 0; i < calls; ++i) {
      OFP_ASSIGN(const double spent, once());
      ns.push_back(spent);
    }
    return median(ns);
  };
  OFP_ASSIGN(const Comparison compared, run_pairs(
                                            options.pairs(), [&] { return turn([&] { return tasks.run(bytes); }); },
                                            [&]() -> Result<double> {
                                              sleep_ns(agent_settles_ns);
                                              return turn([&]() -> Result<double> {
                                                const std::uint64_t began = ticks();
                                                std::memcpy(first.data(), source.data(), bytes);
                                                keep(*first.data());
                                                std::memcpy(second.data(), first.data(), bytes);
                                                keep(*second.data());
                                                std::memcpy(target.data(), second.data(), bytes);
                                                keep(*target.data());
                                                return double(ticks() - began) * ns_per_tick();
                                              });
                                            }));
  report.add(Claim{.claim = fmt::format("task.copy_vs_memcpy ({})", size),
                   .value = compared.subject / 1e3,
                   .unit = "us",
                   .peer = "three memcpys of as many bytes",
                   .peer_value = compared.peer / 1e3,
                   .ratio = compared.ratio,
                   .interval = compared.interval,
                   .pairs = compared.pairs,
                   .target = ratio_at_least(0.5)});
  report.add(Claim{.claim = fmt::format("task.beyond_bytes_us ({}, less the memcpys)", size),
                   .value = (compared.subject - compared.peer) / 1e3,
                   .unit = "us"});
  return {};
}

Status run(const Options& options, Report& report) {
  const std::string_view part = options.other("--part");
  if (!part.empty() && part != "calls" && part != "bytes")
    return fail(Error::invalid, "--part is calls or bytes, not '{}'", part);
  OFP_TRY(pin_to_core(options.host_core));
  OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
  constexpr std::uint64_t most = 16 << 20;
  OFP_ASSIGN(const std::unique_ptr<Tasks> tasks, Tasks::open(channel, most));
  if (part != "bytes") OFP_TRY(measure_overhead(*tasks, options, report));
  if (part == "calls") return {};
  OFP_TRY(measure_bytes(*tasks, options, 1 << 20, "1 MiB", report));
  OFP_TRY(measure_bytes(*tasks, options, 3 << 20, "3 MiB", report));
  return measure_bytes(*tasks, options, most, "16 MiB", report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "task", {"--part"}, offpath::bench::run);
}
