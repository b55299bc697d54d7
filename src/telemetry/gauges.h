// Values of programs, read from their memory one-sided: a program spends a store for each new value, and nothing for
// the reads. A state machine; the channels' owner carries out its pulls. Read wire/areas/gauges_layout.h first.
//
//   open --> each interval: lap --> values --> lap again --> a sample; or again, if the program was writing meanwhile
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "service/service.h"
#include "telemetry/sample.h"
#include "wire/areas/gauges_layout.h"
#include "wire/region.h"

namespace offpath::exchange {

struct GaugeCounters {
  std::uint64_t samples = 0, torn = 0, failures = 0;  // torn: looks during which the program wrote
  std::uint64_t read_ns = 0;                          // from the first look to the values, summed over samples
};

class Gauges final : public service::Service {
 public:
  static constexpr std::size_t of_channel_max = 16;
  static constexpr unsigned looks_max = 8;  // for one sample

  // One set of values.
  struct Set {
    std::uint64_t channel = 0, number = 0;
    std::string program;
    Schema schema{};
    Sample newest{};
    TimeNs newest_at = never;  // time of the read
    std::uint64_t writer_cpu_ns = 0;
    GaugeCounters counters{};
  };

  // Interval 0: the next read follows at once, for measurements. `real_clock`: CLOCK_REALTIME; null: the time argument,
  // as in a simulation.
  explicit Gauges(TimeNs interval_ns, std::int64_t (*real_clock)() = nullptr)
      : interval_ns_(interval_ns), real_clock_(real_clock) {}

  // Serves gauges_open and gauges_close; the answer is the number of the gauges.
  void on_request(std::uint64_t channel, const std::string& program, const channel::Entry& request, TimeNs now,
                  service::Effects& effects);
  // `real_ns` is this agent's CLOCK_REALTIME.
  void on_transfer(std::uint64_t token, const Status& status, TimeNs now, std::int64_t real_ns,
                   service::Effects& effects);
  void on_channel_closed(std::uint64_t channel);
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override { return due_; }

  // ---- Service
  void on_closed(std::uint64_t channel, bool /*usual*/, TimeNs, service::Effects&) override {
    on_channel_closed(channel);
  }
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override {
    on_request(asked.channel, asked.program, asked.entry, now, effects);
  }
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override {
    on_transfer(token, status, now, real_clock_ != nullptr ? real_clock_() : now, effects);
  }

  [[nodiscard]] std::vector<const Set*> sets() const;

 private:
  enum class Step { waiting, first_lap, values, second_lap };
  struct Reading {
    Set set;
    wire::BufferRef memory{};
    Step step = Step::waiting;
    unsigned looks = 0;
    TimeNs next_at = 0, began_at = 0;
    std::uint64_t first_lap = 0, second_lap = 0;
    std::vector<std::byte> bytes{};
    Values spare{};
    bool closing = false;  // when the current read has to be complete
  };

  [[nodiscard]] Result<std::uint64_t> open(std::uint64_t channel, const std::string& program,
                                           const channel::Entry& request, TimeNs now);
  [[nodiscard]] Result<std::uint64_t> close(std::uint64_t channel, const channel::Entry& request);
  void begin(Reading& reading, TimeNs now, service::Effects& effects);
  static void look(const Reading& reading, service::Effects& effects);
  void end(Reading& reading, TimeNs now);
  [[nodiscard]] static bool take(Reading& reading, TimeNs now, std::int64_t real_ns);

  TimeNs interval_ns_;
  std::int64_t (*real_clock_)();
  std::map<std::uint64_t, Reading> readings_;  // by number
  std::uint64_t next_number_ = 1;
  TimeNs due_ = never;  // not later than the deadline of any of them
};

}  // namespace offpath::exchange
