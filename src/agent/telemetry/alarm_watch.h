// Alarms (telemetry/alarm.h) on everything that this agent samples: hosts, its own machine, gauges of programs. Raised
// and cleared alarms are logged, shown in status and metrics, and passed to the site's program.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/config/alarm_settings.h"
#include "agent/telemetry/alarm_hook.h"
#include "agent/telemetry/sampled.h"
#include "loop/loop.h"
#include "telemetry/alarm.h"

namespace offpath::agent {

struct AlarmStatus {
  std::string name, producer, condition;
  double value;
  TimeNs for_ns;
};

class AlarmWatch final : public loop::Poller {
 public:
  // Checks samples every `interval_ns`. `expected`: hosts that are missed even if they have never answered.
  AlarmWatch(loop::Loop& loop, const AlarmSettings& settings, TimeNs interval_ns, SampleVisit visit,
             const std::vector<std::string>& expected, TimeNs now);

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs) override { return true; }
  [[nodiscard]] TimeNs next_deadline() const override;

  [[nodiscard]] std::vector<AlarmStatus> active(TimeNs now) const;
  [[nodiscard]] const std::vector<exchange::AlarmRule>& rules() const noexcept { return alarms_.rules(); }
  [[nodiscard]] const AlarmHook::Counters& hook() const noexcept { return hook_.counters(); }

 private:
  void look(TimeNs now);
  void tell(const exchange::AlarmChange& change, TimeNs now);

  exchange::Alarms alarms_;
  AlarmHook hook_;
  TimeNs interval_ns_, next_at_;
  SampleVisit visit_;
  // sequence number of the newest sample, by schema's name and producer
  std::map<std::pair<std::string, std::string>, std::uint64_t> seen_;
  std::vector<exchange::AlarmChange> changes_;
};

// "load1 > 8", "silent".
[[nodiscard]] std::string condition_text(const exchange::AlarmRule& rule);

}  // namespace offpath::agent
