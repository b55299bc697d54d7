#include <algorithm>

#include "agent/status/families.h"
#include "agent/status/figures_network.h"
#include "agent/status/status.h"
#include "base/text.h"

namespace offpath::agent {

namespace {

// Several sets of gauges may have one name, such as those of all ranks of a program.
Families::Labels labels_of(const Sampled& sampled) {
  Families::Labels labels{{"host", sampled.producer}};
  if (sampled.way == Sampled::Way::gauges) labels.emplace_back("program", sampled.where);
  for (const auto& [label, value] :
       {std::pair("job", &sampled.job_labels.job), std::pair("step", &sampled.job_labels.step),
        std::pair("cgroup", &sampled.job_labels.cgroup)})
    if (!value->empty()) labels.emplace_back(label, *value);
  return labels;
}

void add_cost(Families& families, const Sampled& sampled) {
  const Families::Labels labels = labels_of(sampled);
  add_figures(families, sample_figures, sampled, labels);
  if (sampled.fresh)
    families.add("sample_age_seconds", "Time since the newest values were read.",
                 static_cast<double>(sampled.age_ns) / second_ns, labels);
  if (sampled.way != Sampled::Way::host) return;
  add_figures(families, datagram_figures, sampled.requests, labels);
  add_figures(families, host_figures, sampled, labels);
}

}  // namespace

void add_alarms(Families& families, const AgentStatus& status) {
  const auto raised = [&](const std::string& rule) {
    return std::ranges::count(status.alarms, rule, &AlarmStatus::name);
  };
  for (const std::string& rule : status.alarm_rules)
    families.add("alarms_raised", "Hosts and programs for which an alarm of the configuration is raised.", raised(rule),
                 {{"alarm", rule}});
  for (const AlarmStatus& alarm : status.alarms) {
    families.add("alarm", "The value that raised the alarm: the newest value, or seconds of silence.", alarm.value,
                 {{"alarm", alarm.name}, {"host", alarm.producer}});
  }
  if (status.alarm_rules.empty()) return;
  families.add("alarm_hook_runs_total", "Runs of alarms.hook.", status.alarm_hook.runs);
  families.add("alarm_hook_failures_total", "Failed runs of alarms.hook.", status.alarm_hook.failures);
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
