#include <algorithm>

#include "agent/status/families.h"
#include "agent/status/json.h"
#include "agent/status/status.h"

namespace offpath::agent {

namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / second_ns; }
double seconds(std::uint64_t ns) { return static_cast<double>(ns) / second_ns; }

// Sets of gauges may have one name, such as that of all ranks of a program.
Families::Labels labels_of(const Sampled& sampled) {
  Families::Labels labels{{"host", printable(sampled.producer)}};
  if (sampled.way == Sampled::Way::gauges) labels.emplace_back("program", printable(sampled.where));
  for (const auto& [label, value] :
       {std::pair("job", &sampled.job_labels.job), std::pair("step", &sampled.job_labels.step),
        std::pair("cgroup", &sampled.job_labels.cgroup)})
    if (!value->empty()) labels.emplace_back(label, *value);
  return labels;
}

void add_cost(Families& families, const Sampled& sampled) {
  const Families::Labels labels = labels_of(sampled);
  families.gauge("sample_fresh", "1: the values are of now; 0: their source is silent, and they are not shown.",
                 sampled.fresh ? 1 : 0, labels);
  if (sampled.fresh)
    families.gauge("sample_age_seconds", "Since the newest values were read.", seconds(sampled.age_ns), labels);
  families.gauge("sample_missing", "Values of the newest sample that could not be read.", sampled.missing, labels);
  families.counter("samples_total", "Samples taken.", sampled.samples, labels);
  families.counter("samples_failed_total", "Samples that did not come in time, or were being written.", sampled.failed,
                   labels);
  families.counter("sample_wait_seconds_total", "Time from asking for a sample to its values, summed over samples.",
                   seconds(sampled.wait_ns), labels);
  families.counter("sample_cpu_seconds_total", "Processor time that sampling took where the values are.",
                   seconds(sampled.host_cpu_ns), labels);
  if (sampled.way != Sampled::Way::host) return;
  for (const auto& [what, count] :
       {std::pair("late", sampled.requests.late), std::pair("doubled", sampled.requests.doubled),
        std::pair("refused", sampled.requests.refused)}) {
    Families::Labels of_datagrams = labels;
    of_datagrams.emplace_back("what", what);
    families.counter("sample_datagrams_total", "Datagrams from hosts' addresses that were not taken.", count,
                     std::move(of_datagrams));
  }
  families.counter("sample_retransmits_total", "Requests that were sent once more.", sampled.requests.retransmits,
                   labels);
  families.gauge("sample_clock_ahead_seconds", "How far the host's clock is before this agent's.",
                 seconds(sampled.clock_ahead_ns), labels);
  families.gauge("sample_clock_bound_seconds", "How far that may be from the truth.", seconds(sampled.clock_bound_ns),
                 labels);
  families.counter("sample_clock_jumps_total", "Times at which the host's clock was seen to be set.",
                   sampled.clock_jumps, labels);
  families.counter("sampler_refused_total", "Datagrams that the host's sampler did not answer.", sampled.host_refused,
                   labels);
  families.gauge("sampler_resident_bytes", "Memory of the host's sampler.", sampled.host_resident_bytes, labels);
}

}  // namespace

void add_alarms(Families& families, const AgentStatus& status) {
  const auto raised = [&](const std::string& rule) {
    return std::ranges::count(status.alarms, rule, &AlarmStatus::name);
  };
  for (const std::string& rule : status.alarm_rules)
    families.gauge("alarms_raised", "Hosts and programs for which an alarm of the configuration is raised.",
                   raised(rule), {{"alarm", printable(rule)}});
  for (const AlarmStatus& alarm : status.alarms) {
    families.gauge("alarm", "What raised the alarm: the newest value, or seconds of silence.", alarm.value,
                   {{"alarm", printable(alarm.name)}, {"host", printable(alarm.producer)}});
  }
  if (status.alarm_rules.empty()) return;
  families.counter("alarm_hook_runs_total", "Runs of alarms.hook.", status.alarm_hook.runs);
  families.counter("alarm_hook_failures_total", "Of these, those that failed.", status.alarm_hook.failures);
}

void add_sampled(Families& families, const AgentStatus& status) {
  for (const Sampled& each : status.sampled) add_cost(families, each);
  for (const Sampled& each : status.sampled) {
    if (!each.fresh) continue;
    const Families::Labels labels = labels_of(each);
    for (std::size_t i = 0; i < each.schema.fields.size(); ++i) {
      if (!each.sample.values.has(i)) continue;
      const exchange::Field& field = each.schema.fields[i];
      const std::string name = printable(field.name), unit = printable(field.unit), help = printable(field.description);
      families.named({each.way == Sampled::Way::gauges ? "program" : "host", name, unit, help,
                      field.kind == exchange::FieldKind::counter},
                     each.sample.values.as_real(i, field.type), labels);
    }
  }
}

}  // namespace offpath::agent
