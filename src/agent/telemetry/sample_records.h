// Records of exchanges that are made from samples: of a host, or of a program's gauges. With these agents tell each
// other about their hosts, and no program is needed.
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
  // Checks samples every `interval_ns`, and makes records for those of `exchanges` that have a source.
  SampleRecords(const std::vector<exchange::ExchangeSettings>& exchanges, TimeNs interval_ns, SampleVisit visit,
                exchange::ExchangeService& service, TimeNs now);

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs) override { return true; }
  [[nodiscard]] TimeNs next_deadline() const override { return next_at_; }

 private:
  struct Record {
    std::string exchange, source;
    std::shared_ptr<const exchange::Schema> schema;
    exchange::SchemaId warned_for = 0;  // of a sample that lacked some of the fields
    std::uint64_t sequence = 0;         // of the newest sample that became a record
    TimeNs made_at = never;
  };
  void give(Record& record, const exchange::Schema& schema, const exchange::Sample& sample, TimeNs made_at);

  TimeNs interval_ns_, next_at_;
  SampleVisit visit_;
  exchange::ExchangeService& service_;
  std::vector<Record> records_;
  std::vector<std::byte> bytes_;
};

// Makes a record of schema `wanted`: 8 bytes for each field, converted to its type, then presence bits. Fields that the
// sample lacks, or whose value does not fit the type, are not present.
void make_record(const exchange::Schema& wanted, const exchange::Schema& schema, const exchange::Sample& sample,
                 std::vector<std::byte>& record);

}  // namespace offpath::agent
