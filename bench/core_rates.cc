// The peak rates of one core: multiply-adds of doubles in registers, and STREAM's triad over arrays that no cache
// holds. `offpath bench md` compares host and card by them.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "machine.h"
#include "measure.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::size_t turns = 21;
constexpr std::uint64_t rounds = 2'000'000;  // of a turn's multiply-adds

using Double2 [[gnu::vector_size(16)]] = double;
using Double4 [[gnu::vector_size(32)]] = double;
using Double8 [[gnu::vector_size(64)]] = double;

// Adds that do not wait for each other, as many as hide the time of one.
template <class Vector, int chains>
[[gnu::always_inline]] inline double flops_of(std::uint64_t count) {
  constexpr int lanes = sizeof(Vector) / sizeof(double);
  Vector sums[chains], factor, term;
  for (int lane = 0; lane < lanes; ++lane) {
    factor[lane] = 0.999;
    term[lane] = 1e-3 * (lane + 1);
  }
  for (int chain = 0; chain < chains; ++chain) sums[chain] = term * double(chain);
  for (std::uint64_t i = 0; i < count; ++i)
#pragma GCC unroll 32
    for (int chain = 0; chain < chains; ++chain) sums[chain] = sums[chain] * factor + term;
  for (int chain = 0; chain < chains; ++chain) keep(sums[chain]);
  return 2.0 * lanes * chains * static_cast<double>(count);
}

#ifdef __x86_64__
[[gnu::target("avx512f,fma")]] double flops_512(std::uint64_t count) { return flops_of<Double8, 16>(count); }
[[gnu::target("avx2,fma")]] double flops_256(std::uint64_t count) { return flops_of<Double4, 12>(count); }
#endif
double flops_128(std::uint64_t count) { return flops_of<Double2, 12>(count); }

struct Kernel {
  double (*run)(std::uint64_t count);  // does them and returns how many
  std::string name;
};

Kernel widest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return {flops_512, "512 bits"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {flops_256, "256 bits"};
#endif
  return {flops_128, "128 bits"};
}

Status add_multiply_adds(const Options& options, Report& report) {
  const Kernel kernel = widest();
  const std::uint64_t count = options.quick ? rounds / 100 : rounds;
  OFP_ASSIGN(const std::vector<double> rates, run_turns(options.quick ? 1 : turns, 1, [&]() -> Result<double> {
               const TimeNs began = monotonic_ns();
               const double done = kernel.run(count);
               return done / static_cast<double>(monotonic_ns() - began);
             }));
  report.add(Claim{.claim = "machine.core_flops",
                   .value = median(rates),
                   .unit = "Gflop/s",
                   .detail = "multiply-adds of doubles, " + kernel.name});
  return {};
}

Status add_triad(const Options& options, Report& report) {
  const std::uint64_t bytes = options.quick ? 1 << 20 : std::max<std::uint64_t>(last_level_cache_bytes(), 64 << 20);
  const std::uint64_t count = bytes / sizeof(double);
  OFP_ASSIGN(const Pages first, Pages::map(bytes));
  OFP_ASSIGN(const Pages second, Pages::map(bytes));
  OFP_ASSIGN(const Pages third, Pages::map(bytes));
  double* const sums = reinterpret_cast<double*>(first.data());
  const double* const terms = reinterpret_cast<const double*>(second.data());
  const double* const factors = reinterpret_cast<const double*>(third.data());
  OFP_ASSIGN(const std::vector<double> rates, run_turns(options.quick ? 1 : turns, 1, [&]() -> Result<double> {
               const TimeNs began = monotonic_ns();
               for (std::uint64_t i = 0; i < count; ++i) sums[i] = terms[i] + 3.0 * factors[i];
               keep(sums[count - 1]);
               return 3.0 * static_cast<double>(bytes) / static_cast<double>(monotonic_ns() - began);
             }));
  report.add(Claim{.claim = "machine.core_triad",
                   .value = median(rates),
                   .unit = "GB/s",
                   .detail = std::to_string(bytes >> 20) + " MiB in each of three arrays"});
  return {};
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  OFP_TRY(add_multiply_adds(options, report));
  return add_triad(options, report);
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) { return offpath::bench::run_main(argc, argv, "machine", {}, offpath::bench::run); }
