// The metrics of status.h.
#include <map>

#include "agent/status/families.h"
#include "agent/status/json.h"
#include "agent/status/status.h"

namespace offpath::agent {

namespace {

using Labels = Families::Labels;

double seconds(std::int64_t ns) { return static_cast<double>(ns) / second_ns; }

void add_process(Families& families, const AgentStatus& status, const ProcessUsage& usage) {
  families.gauge("agent_info", "Always 1; the labels tell who this is.", 1,
                 {{"name", printable(status.name)}, {"version", status.version}, {"profile", status.profile}});
  families.gauge("uptime_seconds", "Since the agent started.", seconds(status.uptime_ns));
  families.gauge("sandboxed", "1: the kernel refuses to the agent what it does not need (security.sandbox).",
                 status.sandbox == plugin::Sandbox::on ? 1 : 0);
  families.counter("cpu_seconds_total", "Processor time of the agent's process.", usage.cpu_s);
  families.gauge("resident_bytes", "Memory of the process, frames included.", usage.resident_bytes);
  families.gauge("own_resident_bytes", "Memory of the process without frames, shared segments and mapped files.",
                 usage.own_resident_bytes);
}

void add_loop(Families& families, const AgentStatus& status) {
  const loop::LoopCounters& loop = status.loop;
  families.counter("loop_rounds_total", "Rounds of the loop.", loop.rounds);
  families.counter("loop_busy_rounds_total", "Rounds that did something.", loop.busy_rounds);
  families.counter("loop_sleeps_total", "Times the loop went to sleep.", loop.sleeps);
  families.counter("loop_naps_total",
                   "Short sleeps of a loop with work under way, whose core another thread or process computes on.",
                   loop.naps);
  const std::string help = "What the loop's time went into; overhead is part of busy and spinning.";
  families.counter("loop_seconds_total", help, seconds(loop.busy_ns), {{"in", "busy"}});
  families.counter("loop_seconds_total", help, seconds(loop.spinning_ns), {{"in", "spinning"}});
  families.counter("loop_seconds_total", help, seconds(loop.asleep_ns), {{"in", "asleep"}});
  families.counter("loop_seconds_total", help, seconds(loop.overhead_ns), {{"in", "overhead"}});
  families.gauge("loop_longest_round_seconds", "The longest round so far.", seconds(loop.longest_round_ns));
  families.counter("jobs_total", "Jobs that ran off the loop.", status.jobs.finished - status.jobs.failed,
                   {{"result", "done"}});
  families.counter("jobs_total", "Jobs that ran off the loop.", status.jobs.failed, {{"result", "failed"}});
  families.gauge("jobs_waiting", "Jobs waiting for a thread's queue.", status.jobs.waiting);
  const AcceptorCounters& acceptor = status.acceptor;
  families.counter("connections_total", "Connections accepted.", acceptor.connections);
  families.counter("refusals_total", "Connections that were refused or failed to introduce themselves.",
                   acceptor.refused);
  families.counter("welcomed_by_old_key_total", "Programs welcomed that know an old key only.",
                   acceptor.welcomed_by_old_key);
  families.gauge("handshakes", "Connections that are still introducing themselves.", acceptor.handshakes);
}

void add_memory(Families& families, const AgentStatus& status) {
  families.gauge("memory_max_bytes", "Memory for frames.", status.memory_bytes_max);
  families.gauge("memory_used_bytes", "Memory of frames that are held or being filled.", status.used_bytes);
  families.gauge("memory_promised_bytes", "Memory promised to programs as credit.", status.mover.promised_bytes);
  families.gauge("memory_free_bytes", "Memory that can still be promised.", status.free_bytes);
  families.gauge("memory_reserved_bytes", "Memory set aside for copies of what other members have of sift pools.",
                 status.reserved_bytes);
  families.counter("buffers_total", "Buffers taken, from the cache or made anew.", status.buffers.hits,
                   {{"cache", "hit"}});
  families.counter("buffers_total", "Buffers taken, from the cache or made anew.", status.buffers.misses,
                   {{"cache", "miss"}});
  families.counter("buffers_dropped_total", "Buffers that found no room in the cache.", status.buffers.dropped);
  families.gauge("buffers_cached_bytes", "Memory of buffers nobody uses.", status.buffers.cached_bytes);
  families.gauge("buffers_cached_max_bytes", "The limit of that.", status.cached_bytes_max);
  families.gauge("buffers_leaving_bytes", "Memory of dropped buffers that the kernel has not got back yet.",
                 status.buffers.leaving_bytes);
}

void add_services(Families& families, const AgentStatus& status) {
  const mover::MoverCounters& mover = status.mover;
  families.counter("requests_total", "Requests of programs to the move service.", mover.sends, {{"kind", "send"}});
  families.counter("requests_total", "Requests of programs to the move service.", mover.moves, {{"kind", "move"}});
  families.counter("request_failures_total", "Requests that failed.", mover.failures);
  families.counter("frames_total", "Frames finished.", mover.frames);
  families.counter("rows_total", "Rows in frames finished.", mover.rows);
  families.counter("moved_bytes_total", "Bytes read from programs.", mover.bytes);
  families.counter("pull_seconds_total", "Time from request to bytes read, summed over requests.",
                   seconds(static_cast<std::int64_t>(mover.pull_ns)));
  families.counter("finish_seconds_total", "Time from bytes read to frame finished, summed over requests.",
                   seconds(static_cast<std::int64_t>(mover.finish_ns)));
  families.counter("compressed_frames_total", "Of the frames, those of streams with compression.", mover.packed_frames);
  const std::string bytes_help = "Bytes of these frames, as they were laid out and as they are kept.";
  families.counter("compression_bytes_total", bytes_help, mover.plain_bytes, {{"of", "plain"}});
  families.counter("compression_bytes_total", bytes_help, mover.packed_bytes, {{"of", "kept"}});
  families.counter("compression_seconds_total",
                   "Of the time to finish frames, that of these frames; waiting for a thread is part of it.",
                   seconds(static_cast<std::int64_t>(mover.pack_ns)));
  families.gauge("streams_open", "Streams that are open.", mover.streams_open);
  families.gauge("operations", "Requests under way.", mover.operations);
  families.gauge("pool_frames", "Frames held.", status.table.frames);
  families.gauge("pool_bytes", "Bytes of frames held.", status.table.bytes);
  families.gauge("pool_waiting", "Requests for objects that are not there yet.", status.table.waiting);
  families.gauge("pool_leases", "Frames that programs hold mapped.", status.table.leases);
  families.counter("pool_gets_total", "Objects asked for.", status.table.gets);
  const pool::PoolsCounters& remote = status.remote_pools;
  families.counter("pool_expired_total", "Objects whose time to live was over.", status.table.expired);
  families.counter("pool_remote_puts_total", "Objects put to other members, one for each copy.", remote.remote_puts);
  families.counter("pool_remote_gets_total", "Objects asked of other members.", remote.remote_gets);
  families.counter("pool_remote_bytes_total", "Bytes of both.", remote.remote_bytes);
  families.counter("pool_served_puts_total", "Objects that other members put here.", remote.served_puts);
  families.counter("pool_served_gets_total", "Objects that other members asked for.", remote.served_gets);
  families.counter("pool_served_bytes_total", "Bytes of both.", remote.served_bytes);
  families.counter("pool_retries_total", "Puts that were tried again, because a member did not answer or had no room.",
                   remote.retries);
  families.counter("pool_moved_rows_total", "Rows given to other owners because members came or went.",
                   remote.moved_rows);
  families.counter("pool_moves_failed_total", "Of these, attempts that failed; they are made again.",
                   remote.failed_moves);
  families.counter("pool_conflicts_total",
                   "Objects given up for others of the same keys that were put on the other side of a cut.",
                   remote.conflicts);
  families.gauge("pool_comparisons_waiting",
                 "Comparisons with other owners that are still to be made since members changed.",
                 remote.comparisons_waiting);
  families.gauge("pool_puts_waiting", "Puts that not all owners have yet.", remote.puts_waiting);
  families.gauge("pool_pulls_waiting", "Objects of other members for which there is no room yet.",
                 remote.pulls_waiting);
  families.counter("pool_written_bytes_total", "Bytes written to files.", status.table.written_bytes);
}

void add_disk(Families& families, const AgentStatus::DiskStatus& disk) {
  families.gauge("pool_spilled_bytes", "Bytes of objects that are on disk and not in memory.", disk.spilled_bytes);
  families.gauge("pool_disk_objects", "Objects on disk, in memory too or not.", disk.counters.objects);
  families.gauge("pool_disk_bytes", "Bytes of these.", disk.counters.bytes);
  families.counter("pool_disk_written_bytes_total", "Bytes of objects written to disk.", disk.counters.written_bytes);
  families.counter("pool_disk_read_bytes_total", "Bytes of objects read back.", disk.counters.read_bytes);
  families.gauge("pool_disk_writing", "Objects being written.", disk.counters.writing);
  families.gauge("pool_disk_reading", "Objects being read back.", disk.counters.reading);
  families.counter("pool_disk_failures_total", "Objects that could not be written: the disk was full, or failed.",
                   disk.counters.failures);
  families.counter("pool_disk_corrupt_total", "Objects that could not be read back.", disk.counters.corrupt);
  families.gauge("pool_disk_failing", "1: the last object could not be written.", disk.failure.empty() ? 0 : 1);
}

// Summed up by link: a series for each channel would grow without bound as programs come and go.
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
    families.gauge("channels", "Programs connected.", sum.channels, {{"link", link}});
    families.gauge("channels_asleep", "Of these, those the agent sleeps on.", sum.asleep, {{"link", link}});
  }
  families.gauge("channels_max", "How many may be connected.", status.channels_max);
}

// Of Slurm's jobs, while they have programs here.
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
    families.gauge("job_programs", "Programs of a Slurm job that are connected.", sum.programs, labels);
    families.gauge("job_pulled_bytes", "Bytes read from those programs.", sum.pulled, std::move(labels));
  }
}

// By state, as every state is there: a series for each name would stay when its member is long gone.
void add_group(Families& families, const AgentStatus& status) {
  std::map<std::string, std::uint64_t> states{{"alive", 0}, {"suspect", 0}, {"left", 0}, {"dead", 0}};
  for (const group::Member& member : status.members) ++states[std::string(group::state_name(member.state))];
  for (const auto& [state, count] : states)
    families.gauge("members", "Members of the group, this agent included.", count, {{"state", state}});
  families.gauge("member_addresses_waiting", "Addresses of members at which nobody was found yet.",
                 status.waiting_seeds);
  const std::string tables = "Tables of members, by what became of them.";
  families.counter("member_tables_total", tables, status.group.tables_posted, {{"what", "posted"}});
  families.counter("member_tables_total", tables, status.group.tables_failed, {{"what", "failed"}});
  families.counter("member_tables_total", tables, status.group.tables_taken, {{"what", "taken"}});
  families.counter("member_tables_total", tables, status.group.tables_refused, {{"what", "refused"}});
  families.gauge("member_channels", "Channels to other members.", status.reach.channels);
  families.counter("member_channels_lost_total", "Channels to other members that were lost.", status.reach.lost);
  families.counter("member_connect_failures_total", "Attempts to connect to other members that failed.",
                   status.reach.connect_failures);
  const std::string asked = "What was asked of other members, by how it ended.";
  families.counter("member_requests_total", asked, status.reach.answered, {{"result", "answered"}});
  families.counter("member_requests_total", asked, status.reach.failed, {{"result", "failed"}});
}

void add_queries(Families& families, const AgentStatus& status) {
  const pool::QueryServiceCounters& queries = status.queries;
  families.counter("pool_queries_total", "Queries that were asked.", queries.queries);
  families.counter("pool_query_failures_total", "Of these, those that failed.", queries.failed);
  families.counter("pool_query_rows_total", "Rows they read.", queries.rows_read);
  families.counter("pool_query_read_bytes_total", "Bytes they read.", queries.bytes_read);
  families.counter("pool_query_answered_bytes_total", "Bytes of their answers.", queries.bytes_answered);
  families.gauge("pool_queries_open", "Queries whose answer was not taken to its end.", queries.open);
}

// By stage, summed up over pools: pools come and go with what programs call them.
void add_sifts(Families& families, const AgentStatus& status) {
  std::vector<sift::StageCounters> sums;
  std::uint64_t track_bytes = 0;
  for (const sift::SiftService::PoolStatus& each : status.sifts) {
    track_bytes += each.track_bytes;
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
    }
  }
  families.gauge("sift_pools", "Pools that are sifted, on this agent.", status.sifts.size());
  families.gauge("sift_track_bytes", "Bytes of tracks on this agent.", track_bytes);
  for (std::size_t stage = 0; stage < sums.size(); ++stage) {
    const Labels labels{{"stage", fmt::format("{}", stage)}};
    families.gauge("sift_budget_bytes", "Bytes of pieces a stage may hold.", sums[stage].budget_bytes, labels);
    families.gauge("sift_held_bytes", "Bytes of pieces it holds.", sums[stage].used_bytes, labels);
    families.gauge("sift_offers_waiting", "Pieces that wait at their sender for room here.", sums[stage].offers_waiting,
                   labels);
    families.gauge("sift_outgoing_bytes", "Bytes of pieces that were split and wait until the next stage has them.",
                   sums[stage].outgoing_bytes, labels);
    families.counter("sift_pieces_total", "Pieces taken.", sums[stage].pieces_taken, labels);
    families.counter("sift_rows_total", "Rows taken.", sums[stage].rows_taken, labels);
    families.counter("sift_refused_total", "Pieces that were refused.", sums[stage].refused, labels);
    families.counter("sift_splits_total", "Elements split, in the last stage sorted.", sums[stage].splits, labels);
    families.counter("sift_restored_pieces_total", "Pieces that were kept, and came back after a restart.",
                     sums[stage].restored, labels);
    families.counter("sift_lost_pieces_total", "Pieces that were kept, and could not be read back.", sums[stage].lost,
                     labels);
    families.counter("sift_published_again_total", "Pieces sent once more, as their answer was lost.",
                     sums[stage].published_again, labels);
  }
}

// Named by the configuration, so there are not many.
void add_exchanges(Families& families, const AgentStatus& status) {
  for (const exchange::ExchangeService::ExchangeStatus& each : status.exchanges) {
    const exchange::ExchangeCounters& counters = each.counters;
    const Labels labels{{"exchange", printable(each.name)}};
    const auto with = [&](std::string_view name, std::string_view value) {
      Labels more = labels;
      more.push_back({std::string(name), std::string(value)});
      return more;
    };
    families.gauge("exchange_members", "Members of an exchange.", each.members.size(), labels);
    const std::string rounds = "Rounds of an exchange, by their view: of all members there could be, or not.";
    families.counter("exchange_rounds_total", rounds, counters.complete, with("view", "complete"));
    families.counter("exchange_rounds_total", rounds, counters.partial, with("view", "partial"));
    families.counter("exchange_late_total", "Parcels that came after their round was over.", counters.late, labels);
    families.counter("exchange_refused_total", "Parcels that made no sense, or of another tree.", counters.refused,
                     labels);
    families.counter("exchange_leaders_replaced_total", "Leaders that were silent, and passed over.", counters.replaced,
                     labels);
    families.counter("exchange_rounds_without_record_total", "Rounds in which this agent had no record.",
                     counters.without_value, labels);
    families.counter("exchange_bytes_total", "Bytes of parcels.", counters.bytes_in, with("direction", "in"));
    families.counter("exchange_bytes_total", "Bytes of parcels.", counters.bytes_out, with("direction", "out"));
    families.counter("exchange_parcels_total", "Parcels.", counters.parcels_in, with("direction", "in"));
    families.counter("exchange_parcels_total", "Parcels.", counters.parcels_out, with("direction", "out"));
    families.gauge("exchange_round_seconds", "From the last round's begin to its view.", seconds(counters.round_ns),
                   labels);
    families.gauge("exchange_round_seconds_max", "The longest so far.", seconds(counters.round_ns_max), labels);
    families.gauge("exchange_overrun_seconds_max",
                   "The latest view after its deadline: the agent was not running then.",
                   seconds(counters.overrun_ns_max), labels);
    families.counter("exchange_cost_seconds_total", "Processor time of this agent that went into the exchange.",
                     seconds(each.cost_ns), labels);
    families.counter("exchange_records_torn_total", "Reads of a record while its program wrote it; they are repeated.",
                     each.torn, labels);
    families.counter("exchange_views_pushed_total", "Views pushed to programs.", each.views_pushed, labels);
    if (each.view) {
      families.gauge("exchange_present", "Members whose record of the last round was there.", each.view->present,
                     labels);
      for (std::size_t i = 0; each.view->reduced && i < each.reductions.size(); ++i)
        families.gauge("exchange_figure", "Reductions over the members, as of the last view.",
                       each.view->reduced->value(i, each.reductions[i]),
                       with("figure", printable(each.reductions[i].text)));
      for (const exchange::ViewEntry& entry : each.view->entries)
        families.gauge("exchange_age_seconds", "Age of each member's record, as of the last view.",
                       seconds(entry.age_ns), with("member", printable(each.members[entry.member])));
    }
    if (each.grant_total != 0) {
      families.gauge("exchange_granted", "What this agent has given out, as their leader.", each.granted, labels);
      families.gauge("exchange_held", "What this agent was granted.", each.held, labels);
    }
  }
}

void add_computes(Families& families, const AgentStatus& status) {
  const pool::ComputeCounters& computes = status.computes;
  families.counter("pool_computes_total", "Computations that programs and members asked for.", computes.asked);
  families.counter("pool_compute_failures_total", "Of these, those that failed.", computes.failed);
  families.counter("pool_compute_calls_total", "Functions called on objects, by triggers too.", computes.calls);
  families.counter("pool_compute_input_bytes_total", "Bytes of objects they were given.", computes.input_bytes);
  families.counter("pool_compute_output_bytes_total", "Bytes of their outputs.", computes.output_bytes);
  families.gauge("pool_computes_waiting", "Computations that wait for objects.", computes.waiting);
  families.gauge("pool_computes_calling", "Calls that are under way.", computes.calling);
  // Summed up for each function: several triggers may call one.
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
    families.counter("trigger_calls_total", "Calls by triggers.", sum.calls, {{"function", name}});
    families.counter("trigger_failures_total", "Of these, those that failed.", sum.failed, {{"function", name}});
    families.counter("trigger_dropped_total", "Objects left out because the trigger's queue was full.", sum.dropped,
                     {{"function", name}});
    families.counter("trigger_skipped_total", "Times at which a timer's call before was not over.", sum.skipped,
                     {{"function", name}});
    families.gauge("trigger_waiting", "Objects that wait for their call.", waiting[name], {{"function", name}});
  }
}

void add_tcp(Families& families, const AgentStatus& status) {
  if (!status.tcp) return;
  const tcp::StackCounters& stack = status.tcp->stack;
  const tcp::TcpServiceCounters& service = status.tcp->service;
  families.gauge("tcp_flows", "TCP connections, those that are ending included.", status.tcp->flows);
  families.gauge("tcp_half_open", "Connections begun by peers whose handshake is not done.", status.tcp->half_open);
  families.gauge("tcp_programs", "Programs with TCP connections.", status.tcp->programs.size());
  for (const TcpStatus::Core& core : status.tcp->cores) {
    const std::string number = std::to_string(core.core),
                      core_segments = "TCP segments, by the agent's core that had them.";
    families.gauge("tcp_core_flows", "TCP connections, by the agent's core that has them.", core.flows,
                   {{"core", number}});
    families.counter("tcp_core_segments_total", core_segments, core.segments_in,
                     {{"core", number}, {"direction", "in"}});
    families.counter("tcp_core_segments_total", core_segments, core.segments_out,
                     {{"core", number}, {"direction", "out"}});
    families.counter("tcp_core_busy_seconds_total", "Time that loops with TCP connections were busy.",
                     seconds(core.loop.busy_ns), {{"core", number}});
  }
  const std::string opened = "TCP connections that were opened, by who began.";
  families.counter("tcp_connections_total", opened, stack.connected, {{"begun", "here"}});
  families.counter("tcp_connections_total", opened, stack.accepted, {{"begun", "by_peer"}});
  families.counter("tcp_connections_failed_total", "TCP connections that ended by a reset or a timeout.", stack.failed);
  families.counter(
      "tcp_without_memory_total",
      "Connections that were refused or had to wait because receive buffers have the memory that they may.",
      service.without_memory);
  families.counter("tcp_orphans_reset_total",
                   "TCP connections reset after their program had closed them, because their peer took nothing or "
                   "there were too many.",
                   stack.orphans_reset);
  families.counter("tcp_without_seat_total", "Connections of peers that had to wait because the program took in none.",
                   service.without_seat);
  const std::string segments = "TCP segments.", payload = "Payload of TCP segments.";
  families.counter("tcp_segments_total", segments, stack.segments_in, {{"direction", "in"}});
  families.counter("tcp_segments_total", segments, stack.segments_out, {{"direction", "out"}});
  families.counter("tcp_payload_bytes_total", payload, stack.payload_in, {{"direction", "in"}});
  families.counter("tcp_payload_bytes_total", payload, stack.payload_out, {{"direction", "out"}});
  families.counter("tcp_retransmitted_bytes_total", "Payload that was sent again.", stack.retransmitted);
  const std::string repairs =
      "Repairs of what was lost, by what told: SACK or duplicates, a probe of the last segment, a timeout.";
  families.counter("tcp_repairs_total", repairs, stack.repairs, {{"told_by", "acknowledgements"}});
  families.counter("tcp_repairs_total", repairs, stack.tail_probes, {{"told_by", "tail_probe"}});
  families.counter("tcp_repairs_total", repairs, stack.timeouts, {{"told_by", "timeout"}});
  const std::string marks =
      "Congestion that routers have marked: segments that came with a mark, and acknowledgements that echo marks of "
      "what was sent.";
  families.counter("tcp_congestion_marks_total", marks, stack.marked_in, {{"seen_on", "segments"}});
  families.counter("tcp_congestion_marks_total", marks, stack.echoes_in, {{"seen_on", "acknowledgements"}});
  families.counter("tcp_wishes_total", "What programs wished of their connections.", service.wishes);
  families.counter("tcp_news_total", "What programs were told of their connections.", service.news);
  const tcp::SlowPathCounters& slow = status.tcp->slow_path;
  families.gauge("tcp_slow_path_on_host", "1: a process of the host does handshakes, ARP and TIME-WAIT; 0: the agent.",
                 status.tcp->slow_path_is_there ? 1 : 0);
  const std::string frames =
      "Frames of no connection of the agent's, for the slow path's process, by what became of them.";
  families.counter("tcp_slow_path_frames_total", frames, slow.frames_out, {{"outcome", "given"}});
  families.counter("tcp_slow_path_frames_total", frames, slow.frames_dropped, {{"outcome", "dropped"}});
  const std::string handed = "Connections that the slow path's process handed over, by what became of them.";
  families.counter("tcp_slow_path_connections_total", handed, slow.adopted, {{"outcome", "adopted"}});
  families.counter("tcp_slow_path_connections_total", handed, slow.declined, {{"outcome", "declined"}});
  families.counter("tcp_programs_ended_total", "Programs that lost their connections for what made no sense.",
                   service.programs_ended);
  for (std::size_t i = 1; i < tcp::drop_reasons; ++i)
    families.counter("tcp_dropped_frames_total", "Frames that were not taken, by reason.", stack.drops[i],
                     {{"reason", std::string(tcp::drop_text(static_cast<tcp::Drop>(i)))}});
}

void add_tasks(Families& families, const AgentStatus& status) {
  const task::TaskCounters& tasks = status.tasks;
  families.counter("tasks_total", "Tasks that programs asked for.", tasks.asked);
  families.counter("task_failures_total", "Of these, those that did not end well.", tasks.failed);
  families.counter("task_cancelled_total", "Of these, those that were cancelled.", tasks.cancelled);
  families.counter("task_pulled_bytes_total", "Bytes of inputs that were pulled.", tasks.pulled_bytes);
  families.counter("task_pushed_bytes_total", "Bytes of outputs that were pushed.", tasks.pushed_bytes);
  families.counter("task_resident_hits_total", "Inputs that were here already.", tasks.resident_hits);
  families.counter("task_resident_parts_total", "Inputs of which only what had changed was pulled.",
                   tasks.resident_parts);
  const std::string steps = "Time of tasks by step: inputs pulled, waiting, the function, outputs pushed.";
  const std::pair<const char*, TimeNs> times[] = {
      {"pull", tasks.pulling_ns}, {"queue", tasks.queued_ns}, {"run", tasks.running_ns}, {"push", tasks.pushing_ns}};
  for (const auto& [step, time] : times) families.counter("task_seconds_total", steps, seconds(time), {{"step", step}});
  families.gauge("task_sessions", "Sessions of tasks.", tasks.sessions);
  families.gauge("tasks_waiting", "Tasks that wait for inputs, for others or for a worker's turn.", tasks.waiting);
  families.gauge("tasks_running", "Tasks whose function was called.", tasks.running);
  families.gauge("task_resident_bytes", "Bytes that stay here between tasks.", tasks.resident_bytes);
  const task::MessageCounters& messages = status.messages;
  families.counter("task_messages_sent_total", "Messages that functions have sent to other lanes of their teams.",
                   messages.sent);
  families.counter("task_messages_sent_bytes_total", "Bytes of these.", messages.sent_bytes);
  families.counter("task_messages_received_total", "Messages that functions have received.", messages.received);
  families.counter("task_messages_received_bytes_total", "Bytes of these.", messages.received_bytes);
  families.counter("task_messages_from_members_total", "Of the received, those that came from other agents.",
                   messages.from_members);
  families.counter("task_message_failures_total", "Messages that functions could not send or receive.",
                   messages.failed);
  const std::string waits = "Time that functions waited for messages to be taken, and to come.";
  families.counter("task_message_wait_seconds_total", waits, seconds(messages.sending_ns), {{"operation", "send"}});
  families.counter("task_message_wait_seconds_total", waits, seconds(messages.receiving_ns),
                   {{"operation", "receive"}});
  families.gauge("task_lanes", "Lanes of teams that programs have here.", messages.lanes);
  families.gauge("task_messages_held", "Messages that nobody has received yet.", messages.held);
  families.gauge("task_messages_held_bytes", "Bytes of these.", messages.held_bytes);
}

void add_plugins(Families& families, const AgentStatus& status) {
  for (const plugin::PluginStatus& each : status.plugins) {
    const plugin::PluginCounters& counters = each.counters;
    const std::string calls = "Calls of functions that have ended, by how.";
    const std::pair<const char*, std::uint64_t> results[] = {
        {"done", counters.done},           {"failed", counters.failed},       {"crashed", counters.crashed},
        {"timed_out", counters.timed_out}, {"cancelled", counters.cancelled}, {"unstarted", counters.unstarted}};
    for (const auto& [result, count] : results)
      families.counter("plugin_calls_total", calls, count, {{"plugin", each.name}, {"result", result}});
    families.counter("plugin_refused_total", "Calls that were not taken: no room to wait, or no such function.",
                     counters.refused, {{"plugin", each.name}});
    families.counter("plugin_running_seconds_total", "Time functions ran.", seconds(counters.running_ns),
                     {{"plugin", each.name}});
    families.counter("plugin_waiting_seconds_total", "Time calls waited for a worker.", seconds(counters.waiting_ns),
                     {{"plugin", each.name}});
    families.counter("plugin_starts_total", "Workers started.", counters.starts, {{"plugin", each.name}});
    families.counter("plugin_kills_total", "Workers killed, at a deadline or for what they sent.", counters.kills,
                     {{"plugin", each.name}});
    families.counter("plugin_unexpected_exits_total", "Workers that crashed or ended by themselves.",
                     counters.unexpected_exits, {{"plugin", each.name}});
    families.gauge("plugin_sandboxed", "1: so it does to the worker that was ready last.",
                   each.confinement.seccomp == "on" ? 1 : 0, {{"plugin", each.name}});
    families.gauge("plugin_workers", "Workers there are.", each.workers, {{"plugin", each.name}});
    families.gauge("plugin_running", "Of these, those that run a call.", each.running, {{"plugin", each.name}});
    families.gauge("plugin_waiting", "Calls that wait for a worker.", each.waiting, {{"plugin", each.name}});
    families.gauge("plugin_usable", "1: it could be loaded when that was tried last.",
                   each.failure.empty() && !each.functions.empty() ? 1 : 0, {{"plugin", each.name}});
  }
}

Families all_of(const AgentStatus& status, const ProcessUsage& usage) {
  Families families;
  add_process(families, status, usage);
  add_loop(families, status);
  add_memory(families, status);
  add_services(families, status);
  if (status.disk) add_disk(families, *status.disk);
  add_channels(families, status);
  add_jobs(families, status);
  add_group(families, status);
  add_queries(families, status);
  add_sifts(families, status);
  add_computes(families, status);
  add_tasks(families, status);
  add_tcp(families, status);
  add_exchanges(families, status);
  add_plugins(families, status);
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
