// The metrics of status.h.
#include <map>

#include "agent/status/families.h"
#include "agent/status/figures.h"
#include "agent/status/figures_network.h"
#include "agent/status/latency_figures.h"
#include "agent/status/status.h"

namespace offpath::agent {

namespace {

using Labels = Families::Labels;

void add_process(Families& families, const AgentStatus& status, const ProcessUsage& usage) {
  families.add("agent_info", "Always 1; the labels identify the agent.", 1,
               {{"name", status.name}, {"version", status.version}, {"profile", status.profile}});
  families.add("uptime_seconds", "Time since the agent started.", static_cast<double>(status.uptime_ns) / second_ns);
  families.add("sandboxed", "1: the kernel filters the agent's system calls (security.sandbox).",
               status.sandbox == plugin::Sandbox::on ? 1 : 0);
  add_figures(families, process_figures, usage);
}

// Summed by link: a series for each channel would grow without bound as programs come and go.
void add_channels(Families& families, const AgentStatus& status) {
  struct Sum {
    std::uint64_t channels = 0, asleep = 0;
  };
  std::map<std::string, Sum> sums{{"local", {}}, {"tcp", {}}, {"verbs", {}}, {"doca", {}}};
  for (const Dispatcher::ChannelStatus& channel : status.channels) {
    Sum& sum = sums[channel.traits.name];
    ++sum.channels;
    if (channel.asleep) ++sum.asleep;
  }
  for (const auto& [link, sum] : sums) {
    families.add("channels", "Programs connected.", sum.channels, {{"link", link}});
    families.add("channels_asleep", "Connected programs whose channels the agent does not poll because they sleep.",
                 sum.asleep, {{"link", link}});
  }
}

// No series for each stream: programs name them.
void add_waits(Families& families, const AgentStatus& status) {
  families.add("failed_requests_total", "Requests of programs that failed, except those whose object was not there.",
               static_cast<double>(status.failures_count));
  std::uint64_t waiting = 0;
  TimeNs since = status.taken_at;
  for (const mover::Mover::StreamStatus& stream : status.streams) {
    if (stream.lacking_since == never) continue;
    ++waiting;
    since = std::min(since, stream.lacking_since);
  }
  families.add("streams_waiting", "Streams that have asked for credit and still wait for it.", waiting);
  families.add("stream_longest_wait_seconds", "How long the longest-waiting stream has waited for credit.",
               static_cast<double>(status.taken_at - since) / second_ns);
  const auto longest_s = [&](const auto& waits) {
    TimeNs first = status.taken_at;
    for (const auto& wait : waits) first = std::min(first, wait.since);
    return static_cast<double>(status.taken_at - first) / second_ns;
  };
  families.add("puts_waiting", "Puts that wait for members of their pool.",
               static_cast<double>(status.waiting_puts.count));
  families.add("put_longest_wait_seconds", "How long the longest-waiting put has waited.",
               longest_s(status.waiting_puts.longest));
  families.add("gets_waiting",
               "Gets and computations that have waited for at least a second: for objects, the disk, or workers.",
               static_cast<double>(status.waiting_gets.count));
  families.add("get_longest_wait_seconds", "How long the longest-waiting get or computation has waited.",
               longest_s(status.waiting_gets.longest));
  std::uint64_t steps = 0;
  double step_waits_s = 0;
  for (const pool::PoolSteps& of_pool : status.steps) {
    steps += of_pool.waiting;
    step_waits_s = std::max(step_waits_s, longest_s(of_pool.listed));
  }
  families.add("steps_waiting", "Steps that some ranks have ended and others have not.", steps);
  families.add("step_longest_wait_seconds", "Time since a rank ended the oldest step that still waits for other ranks.",
               step_waits_s);
}

// Counts each kind of ring, all programs together.
void add_full_rings(Families& families, const AgentStatus& status) {
  struct Kind {
    std::uint64_t full = 0;
    TimeNs since = never;
  };
  std::map<std::string_view, Kind> kinds{{"requests", {}}, {"replies", {}}, {"commands", {}}, {"events", {}}};
  const auto add = [&](std::string_view name, const FullRing& ring) {
    Kind& kind = kinds.at(name);
    if (ring.since != never) ++kind.full;
    kind.since = std::min(kind.since, ring.since);
  };
  for (const Dispatcher::ChannelStatus& channel : status.channels) {
    add("requests", channel.requests_full);
    add("replies", channel.replies_full);
  }
  if (status.tcp) {
    for (const tcp::TcpService::ProgramStatus& program : status.tcp->programs) {
      add("commands", program.commands_full);
      add("events", program.events_full);
    }
  }
  for (const auto& [name, kind] : kinds) {
    const Labels labels{{"ring", std::string(name)}};
    families.add("rings_full", "Rings of programs that are full.", kind.full, labels);
    families.add("ring_longest_full_seconds", "How long the ring that has been full longest has been full.",
                 kind.full == 0 ? 0 : static_cast<double>(status.taken_at - kind.since) / second_ns, labels);
  }
}

// Metrics of Slurm jobs, as long as they have programs here.
void add_jobs(Families& families, const AgentStatus& status) {
  struct Sum {
    std::uint64_t programs = 0, pulled = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const Dispatcher::ChannelStatus& channel : status.channels) {
    const wire::JobLabels& labels = channel.client.job_labels;
    if (labels.job.empty()) continue;
    Sum& sum = sums[{labels.job, labels.step}];
    ++sum.programs;
    sum.pulled += channel.counters.bytes_pulled;
  }
  for (const auto& [step, sum] : sums) {
    Families::Labels labels{{"job", step.first}};
    if (!step.second.empty()) labels.emplace_back("step", step.second);
    families.add("job_programs", "Programs of a Slurm job that are connected.", sum.programs, labels);
    families.add("job_pulled_bytes", "Bytes read from the connected programs of a Slurm job.", sum.pulled,
                 std::move(labels));
  }
}

// Counts members by state, and always shows every state: a series for each name would outlive its member.
void add_group(Families& families, const AgentStatus& status) {
  std::map<std::string, std::uint64_t> states{{"alive", 0}, {"suspect", 0}, {"left", 0}, {"dead", 0}};
  for (const group::Member& member : status.members) ++states[std::string(group::state_name(member.state))];
  for (const auto& [state, count] : states)
    families.add("members", "Members of the group, this agent included.", count, {{"state", state}});
  families.add("member_addresses_waiting", "Addresses of members that have not answered yet.", status.waiting_seeds);
  add_figures(families, group_figures, status.group);
  add_figures(families, reach_figures, status.reach);
  add_figures(families, card_figures, status.cards);
}

// By stage, summed over pools: programs create pools with any name.
void add_sifts(Families& families, const AgentStatus& status) {
  std::vector<sift::StageCounters> sums;
  std::uint64_t track_bytes = 0, spilled_track_bytes = 0;
  for (const sift::SiftService::PoolStatus& each : status.sifts) {
    track_bytes += each.track_bytes;
    spilled_track_bytes += each.spilled_track_bytes;
    sums.resize(std::max(sums.size(), each.stages.size()));
    for (std::size_t stage = 0; stage < each.stages.size(); ++stage) {
      sift::StageCounters& sum = sums[stage];
      const sift::StageCounters& one = each.stages[stage];
      sum.budget_bytes += one.budget_bytes;
      sum.used_bytes += one.used_bytes;
      sum.offers_waiting += one.offers_waiting;
      sum.outgoing_bytes += one.outgoing_bytes;
      sum.pieces_taken += one.pieces_taken;
      sum.rows_taken += one.rows_taken;
      sum.refused += one.refused;
      sum.splits += one.splits;
      sum.published_again += one.published_again;
      sum.restored += one.restored;
      sum.lost += one.lost;
      sum.merges += one.merges;
      sum.merge_failures += one.merge_failures;
      sum.track_runs += one.track_runs;
      sum.damaged_runs += one.damaged_runs;
    }
  }
  families.add("sift_pools", "Pools that are sifted, on this agent.", status.sifts.size());
  families.add("sift_track_bytes", "Bytes of tracks on this agent.", track_bytes);
  families.add("sift_spilled_track_bytes", "Bytes of tracks on this agent that are only on disk.", spilled_track_bytes);
  add_figures(families, track_file_figures, status.track_files);
  for (std::size_t stage = 0; stage < sums.size(); ++stage)
    add_figures(families, stage_figures, sums[stage], {{"stage", fmt::format("{}", stage)}});
}

// One series for each exchange: the configuration names them, so there are few.
void add_exchanges(Families& families, const AgentStatus& status) {
  for (const exchange::ExchangeService::ExchangeStatus& each : status.exchanges) {
    const Labels labels{{"exchange", each.name}};
    const auto with = [&](std::string_view name, std::string_view value) {
      Labels more = labels;
      more.push_back({std::string(name), std::string(value)});
      return more;
    };
    add_figures(families, exchange_figures, each.counters, labels);
    add_figures(families, exchange_status_figures, each, labels);
    if (each.decides) add_figures(families, decision_figures, each.decisions, labels);
    if (each.view) {
      families.add("exchange_present", "Members with a record in the last round.", each.view->present, labels);
      for (std::size_t i = 0; each.view->reduced && i < each.reductions.size(); ++i)
        families.add("exchange_figure", "Reductions over the members, as of the last view.",
                     each.view->reduced->value(i, each.reductions[i]), with("figure", each.reductions[i].text));
      for (const exchange::ViewEntry& entry : each.view->entries)
        families.add("exchange_age_seconds", "Age of each member's record, as of the last view.",
                     static_cast<double>(entry.age_ns) / second_ns, with("member", each.members[entry.member]));
    }
    if (each.grant_total != 0) add_figures(families, grant_figures, each, labels);
  }
}

void add_computes(Families& families, const AgentStatus& status) {
  add_figures(families, compute_figures, status.computes);
  // Summed for each function: several triggers may call one.
  std::map<std::string, pool::TriggerCounters> sums;
  std::map<std::string, std::uint64_t> waiting;
  for (const TriggerStatus& each : status.triggers) {
    const std::string name = fmt::format("{}.{}", each.options.plugin, each.options.function);
    pool::TriggerCounters& sum = sums[name];
    sum.calls += each.counters.calls;
    sum.failed += each.counters.failed;
    sum.dropped += each.counters.dropped;
    sum.skipped += each.counters.skipped;
    waiting[name] += each.waiting;
  }
  for (const auto& [name, sum] : sums) {
    add_figures(families, trigger_figures, sum, {{"function", name}});
    families.add("trigger_waiting", "Objects that wait for their call.", waiting[name], {{"function", name}});
  }
}

void add_tcp(Families& families, const AgentStatus& status) {
  if (!status.tcp) return;
  const TcpStatus& tcp = *status.tcp;
  add_figures(families, tcp_figures, tcp);
  for (const TcpStatus::Core& core : tcp.cores)
    add_figures(families, core_figures, core, {{"core", std::to_string(core.core)}});
  add_figures(families, stack_figures, tcp.stack);
  add_figures(families, port_figures, tcp.port);
  add_figures(families, tcp_service_figures, tcp.service);
  add_figures(families, slow_path_figures, tcp.slow_path);
  add_figures(families, linked_figures, tcp.link);
  for (std::size_t i = 1; i < tcp::drop_reasons; ++i)
    families.add("tcp_dropped_frames_total", "Dropped frames, by reason.", tcp.stack.drops[i],
                 {{"reason", std::string(tcp::drop_text(static_cast<tcp::Drop>(i)))}});
}

Families all_of(const AgentStatus& status, const ProcessUsage& usage) {
  Families families;
  add_process(families, status, usage);
  add_figures(families, loop_figures, status.loop);
  add_figures(families, look_out_figures, status.look_outs);
  add_figures(families, job_figures, status.jobs);
  add_figures(families, acceptor_figures, status.acceptor);
  add_figures(families, memory_figures, status);
  add_figures(families, buffer_figures, status.buffers);
  add_figures(families, cache_figures, status);
  add_figures(families, mover_figures, status.mover);
  add_latencies(families, status);
  add_figures(families, table_figures, status.table);
  add_figures(families, remote_figures, status.remote_pools);
  if (status.disk) {
    add_figures(families, disk_status_figures, *status.disk);
    add_figures(families, disk_figures, status.disk->counters);
  }
  add_figures(families, limit_figures, status);
  add_channels(families, status);
  add_waits(families, status);
  add_full_rings(families, status);
  add_jobs(families, status);
  add_group(families, status);
  add_figures(families, query_figures, status.queries);
  add_sifts(families, status);
  add_computes(families, status);
  add_figures(families, task_figures, status.tasks);
  add_figures(families, message_figures, status.messages);
  add_tcp(families, status);
  add_exchanges(families, status);
  for (const plugin::PluginStatus& each : status.plugins) {
    add_figures(families, plugin_figures, each, {{"plugin", each.name}});
    add_figures(families, plugin_call_figures, each.counters, {{"plugin", each.name}});
  }
  add_sampled(families, status);
  add_alarms(families, status);
  return families;
}

}  // namespace

std::string metrics_text(const AgentStatus& status, const ProcessUsage& usage) { return all_of(status, usage).text(); }
std::string openmetrics_text(const AgentStatus& status, const ProcessUsage& usage) {
  return all_of(status, usage).openmetrics();
}

}  // namespace offpath::agent
