// The known state of one producer of samples, for status and metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "telemetry/gauges.h"
#include "telemetry/sampling.h"
#include "wire/control.h"

namespace offpath::agent {

struct Sampled {
  enum class Way { host, own, gauges } way = Way::host;
  std::string producer, where;   // where: an address; the program's name and channel
  wire::JobLabels job_labels{};  // for gauges: the job of their program
  exchange::Schema schema{};     // no fields: still unknown
  exchange::Sample sample{};
  bool fresh = false;     // false: the values are too old to be shown
  TimeNs age_ns = 0;      // of the values
  std::string trouble{};  // a sentence; empty: none

  // The cost of sampling: the wait for a sample here, and processor time on the host.
  std::uint64_t samples = 0, wait_ns = 0, host_cpu_ns = 0;
  std::uint64_t missing = 0;              // values of the newest sample that could not be read
  std::uint64_t failed = 0;               // samples that were missed or torn
  exchange::SamplingCounters requests{};  // of hosts
  TimeNs clock_bound_ns = 0;
  std::int64_t clock_ahead_ns = 0;  // of the host's clock before this agent's
  std::uint64_t clock_jumps = 0, host_refused = 0, host_resident_bytes = 0;
};

// Called with every producer's schema, newest sample, and the sample's time of arrival.
using SampleVisitor = std::function<void(const exchange::Schema&, const exchange::Sample&, TimeNs at)>;
using SampleVisit = std::function<void(const SampleVisitor&)>;

[[nodiscard]] std::string_view way_name(Sampled::Way way) noexcept;
[[nodiscard]] Sampled sampled_of(const exchange::Gauges::Set& set, TimeNs now);

}  // namespace offpath::agent
