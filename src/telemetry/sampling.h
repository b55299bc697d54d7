// The agent's side of sampling one host by datagrams: a state machine without socket, thread or clock. Read
// host_sampler/datagram.h first.
//
//   greeting     a request without a token; the answer has one
//   describing   the schema, chunk by chunk
//   sampling     one request each interval
//
// A request has a deadline and is sent again until then, each time with a new number, so a lost datagram costs a wait,
// and a late or repeated one nothing. A restarted sampler does not know the token, so greeting begins again. A host
// that does not answer has no values: silent() reports it, and old values are not shown as current.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "telemetry/clock_offset.h"
#include "telemetry/sample.h"
#include "telemetry/sampler_datagram.h"

namespace offpath::exchange {

struct SamplingOptions {
  std::string producer;            // the host's name in samples
  TimeNs interval_ns = second_ns;  // from one request to the next; 0: at once after each answer
  TimeNs deadline_ns = second_ns;  // of one sample
  // the first wait for an answer, later four times the usual delay; each further wait is twice the last
  TimeNs retry_ns = 5 * millisecond_ns;
  TimeNs silent_after_ns = 3 * second_ns;  // a host that was silent for this long has no values
  SamplerKey key{};
  std::uint64_t session = 0;  // random, of this process
  std::uint32_t answer_bytes_max = OFS_DATAGRAM_MAX;
};

struct SamplingCounters {
  std::uint64_t requests = 0, retransmits = 0, samples = 0, missed = 0, late = 0, doubled = 0, refused = 0;
  std::uint64_t schemas = 0, restarts = 0;
  std::uint64_t wait_ns = 0;  // from request to decoded values, summed over samples
};

struct SamplingEffects {
  std::vector<SamplerRequest> requests;  // to be sent
  unsigned samples = 0;                  // arrived: newest() is a new sample
};

class Sampling {
 public:
  Sampling(SamplingOptions options, TimeNs now);

  // Call it at next_deadline().
  void on_time(TimeNs now, SamplingEffects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  // Handles any bytes from the host's address. `real_ns` is this agent's CLOCK_REALTIME.
  void on_datagram(Bytes datagram, TimeNs now, std::int64_t real_ns, SamplingEffects& effects);

  // Empty until the host has described it.
  [[nodiscard]] const Schema& schema() const noexcept { return schema_; }
  [[nodiscard]] bool described() const noexcept { return schema_id_ != 0; }
  [[nodiscard]] const Sample& newest() const noexcept { return newest_; }
  // Time of the read on the host, by this agent's monotonic clock; never: there is none.
  [[nodiscard]] TimeNs newest_at() const noexcept { return newest_at_; }
  [[nodiscard]] bool silent(TimeNs now) const noexcept {
    return heard_at_ == never || now - heard_at_ >= options_.silent_after_ns;
  }
  [[nodiscard]] const ClockOffset& clock() const noexcept { return clock_; }
  [[nodiscard]] const SamplingCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const SamplingOptions& options() const noexcept { return options_; }
  // The sampler's own values in its newest answer.
  [[nodiscard]] const ofs_values& sampler() const noexcept { return sampler_; }
  [[nodiscard]] const std::string& trouble() const noexcept { return trouble_; }  // a sentence; empty: none

 private:
  struct Attempt {
    std::uint64_t number;
    TimeNs at;
  };

  void ask(TimeNs now, SamplingEffects& effects);
  void send(TimeNs now, SamplingEffects& effects);
  void answered(const SamplerAnswer& answer, TimeNs now) noexcept;
  [[nodiscard]] const Attempt* attempt_of(std::uint64_t number) const noexcept;
  void take_chunk(const SamplerAnswer& answer, TimeNs now, SamplingEffects& effects);
  void take_values(const SamplerAnswer& answer, TimeNs asked_at, TimeNs now, std::int64_t real_ns,
                   SamplingEffects& effects);
  void describe_anew(TimeNs now, SamplingEffects& effects);

  SamplingOptions options_;
  std::uint64_t number_ = 0, token_ = 0, answered_number_ = 0;
  Schema schema_;
  SchemaId schema_id_ = 0;
  std::vector<std::byte> chunks_;  // of the schema, received so far
  SchemaId chunks_of_ = 0;
  Values spare_;
  Sample newest_;
  TimeNs newest_at_ = never, heard_at_ = never;
  ClockOffset clock_;
  ofs_values sampler_{};
  // The current request.
  bool asking_ = false;
  std::array<Attempt, 16> attempts_{};
  std::size_t attempt_count_ = 0;
  TimeNs asked_at_ = 0, retry_at_ = 0, retry_after_ = 0, next_at_;
  SamplingCounters counters_;
  std::string trouble_;
};

}  // namespace offpath::exchange
