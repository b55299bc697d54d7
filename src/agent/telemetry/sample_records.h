// Records of exchanges that are made of samples: of a host, or of a program's gauges. So agents tell each other of
// their hosts, and no program is needed for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/telemetry/sampled.h"
#include "exchange/exchange_service.h"
#include "loop/loop.h"

namespace offpath::agent {

class SampleRecords final : public loop::Poller {
 public:
  // Samples are looked at every `interval_ns`; those of `exchanges` that name a source are given records.
  SampleRecords(const std::vector<exchange::ExchangeSettings>& exchanges, TimeNs interval_ns, SampleVisit visit,
                exchange::ExchangeService& service, TimeNs now);

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs) override { return true; }
  [[nodiscard]] TimeNs next_deadline() const override { return next_at_; }

 private:
  struct Record {
    std::string exchange, source;
    std::shared_ptr<const exchange::Schema> schema;
    exchange::SchemaId warned_for = 0;  // of a sample without some of the fields
    std::uint64_t sequence = 0;         // of the newest sample that was given
    TimeNs made_at = never;
  };
  void give(Record& record, const exchange::Schema& schema, const exchange::Sample& sample, TimeNs made_at);

  TimeNs interval_ns_, next_at_;
  SampleVisit visit_;
  exchange::ExchangeService& service_;
  std::vector<Record> records_;
  std::vector<std::byte> bytes_;
};

// A record of `wanted`: 8 bytes for each field, converted to its type, then presence bits. What the sample has not, or
// what does not fit the type, is not present.
void make_record(const exchange::Schema& wanted, const exchange::Schema& schema, const exchange::Sample& sample,
                 std::vector<std::byte>& record);

}  // namespace offpath::agent
