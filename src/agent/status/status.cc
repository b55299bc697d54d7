#include "agent/status/status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "agent/status/json.h"
#include "wire/messages/stream_messages.h"

namespace offpath::agent {

namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / second_ns; }

double share(std::uint64_t part, std::uint64_t rest) {
  return part + rest == 0 ? 0 : static_cast<double>(part) / static_cast<double>(part + rest);
}

void write_loop(Json& json, const AgentStatus& status) {
  const loop::LoopCounters& loop = status.loop;
  json.key("loop").begin_object();
  json.member("rounds", loop.rounds)
      .member("busy_rounds", loop.busy_rounds)
      .member("sleeps", loop.sleeps)
      .member("naps", loop.naps);
  json.member("looks", loop.looks)
      .member("descriptors_ready", loop.descriptors_ready)
      .member("timers_fired", loop.timers_fired);
  json.member("busy_s", seconds(loop.busy_ns)).member("spinning_s", seconds(loop.spinning_ns));
  json.member("asleep_s", seconds(loop.asleep_ns)).member("overhead_s", seconds(loop.overhead_ns));
  json.member("longest_round_s", seconds(loop.longest_round_ns)).end_object();
  json.key("jobs").begin_object();
  json.member("started", status.jobs.started)
      .member("finished", status.jobs.finished)
      .member("failed", status.jobs.failed);
  json.member("waiting", status.jobs.waiting).member("waiting_most", status.jobs.waiting_most).end_object();
}

void write_memory(Json& json, const AgentStatus& status) {
  json.key("memory").begin_object();
  json.member("bytes_max", status.memory_bytes_max).member("used_bytes", status.used_bytes);
  json.member("promised_bytes", status.mover.promised_bytes).member("free_bytes", status.free_bytes);
  json.member("reserved_bytes", status.reserved_bytes).end_object();
  const mover::BufferCacheCounters& buffers = status.buffers;
  json.key("buffers").begin_object();
  json.member("hits", buffers.hits)
      .member("misses", buffers.misses)
      .member("hit_rate", share(buffers.hits, buffers.misses));
  json.member("dropped", buffers.dropped).member("cached_bytes", buffers.cached_bytes);
  json.member("leaving_bytes", buffers.leaving_bytes)
      .member("cached_buffers", buffers.cached_buffers)
      .member("used_buffers", buffers.used_buffers)
      .member("cached_bytes_max", status.cached_bytes_max)
      .end_object();
}

void write_services(Json& json, const AgentStatus& status) {
  const mover::MoverCounters& mover = status.mover;
  json.key("mover").begin_object();
  json.member("sends", mover.sends).member("moves", mover.moves).member("failures", mover.failures);
  json.member("frames", mover.frames).member("bytes", mover.bytes).member("rows", mover.rows);
  json.member("streams_open", mover.streams_open).member("operations", mover.operations);
  json.member("pull_s", seconds(static_cast<std::int64_t>(mover.pull_ns)));
  json.member("finish_s", seconds(static_cast<std::int64_t>(mover.finish_ns)));
  json.member("packed_frames", mover.packed_frames).member("plain_bytes", mover.plain_bytes);
  json.member("packed_bytes", mover.packed_bytes);
  json.member("pack_s", seconds(static_cast<std::int64_t>(mover.pack_ns))).end_object();
  const pool::FrameTableCounters& table = status.table;
  json.key("table").begin_object();
  json.member("pools", table.pools).member("frames", table.frames).member("bytes", table.bytes);
  json.member("puts", table.puts)
      .member("gets", table.gets)
      .member("drops", table.drops)
      .member("expired", table.expired);
  json.member("waiting", table.waiting).member("leases", table.leases).member("written_bytes", table.written_bytes);
  json.end_object();
  if (status.disk) {
    const pool::DiskCounters& disk = status.disk->counters;
    json.key("disk").begin_object();
    json.member("directory", status.disk->where).member("failure", status.disk->failure);
    json.member("spilled_bytes", status.disk->spilled_bytes)
        .member("objects", disk.objects)
        .member("bytes", disk.bytes);
    json.member("written", disk.written).member("written_bytes", disk.written_bytes);
    json.member("read", disk.read).member("read_bytes", disk.read_bytes);
    json.member("writing", disk.writing).member("reading", disk.reading);
    json.member("failures", disk.failures)
        .member("corrupt", disk.corrupt)
        .member("recovered", disk.recovered)
        .end_object();
  }
  const pool::PoolsCounters& remote = status.remote_pools;
  json.key("remote").begin_object();
  json.member("puts", remote.remote_puts).member("gets", remote.remote_gets).member("bytes", remote.remote_bytes);
  json.member("served_puts", remote.served_puts)
      .member("served_gets", remote.served_gets)
      .member("served_bytes", remote.served_bytes);
  json.member("retries", remote.retries).member("moved_rows", remote.moved_rows);
  json.member("puts_waiting", remote.puts_waiting).member("pulls_waiting", remote.pulls_waiting);
  json.member("moves_waiting", remote.moves_waiting).member("failed_moves", remote.failed_moves);
  json.member("conflicts", remote.conflicts).member("comparisons_waiting", remote.comparisons_waiting).end_object();
}

// What a program is part of, where it is part of anything.
void write_job_labels(Json& json, const wire::JobLabels& labels) {
  if (!labels.job.empty()) json.member("job", labels.job);
  if (!labels.step.empty()) json.member("step", labels.step);
  if (!labels.cgroup.empty()) json.member("cgroup", labels.cgroup);
}

void write_channels(Json& json, const AgentStatus& status) {
  json.key("channels").begin_list();
  for (const Dispatcher::ChannelStatus& channel : status.channels) {
    const channel::AgentEndCounters& counters = channel.counters;
    json.begin_object().member("number", channel.number).member("program", channel.client.program);
    json.member("user", channel.client.user).member("pid", channel.client.pid);
    write_job_labels(json, channel.client.job_labels);
    json.member("link", channel.traits.name).member("one_sided", channel.traits.one_sided);
    json.member("staged", channel.traits.staged)
        .member("reason", channel.traits.reason)
        .member("asleep", channel.asleep);
    json.member("requests", counters.requests)
        .member("replies", counters.replies)
        .member("failures", counters.failures);
    json.member("pulls", counters.pulls).member("bytes_pulled", counters.bytes_pulled);
    json.member("pushes", counters.pushes).member("bytes_pushed", counters.bytes_pushed);
    json.member("looks", counters.looks).member("wakes_sent", counters.wakes_sent).member("sleeps", counters.sleeps);
    json.end_object();
  }
  json.end_list();
}

void write_streams_and_pools(Json& json, const AgentStatus& status) {
  json.key("streams").begin_list();
  for (const mover::Mover::StreamStatus& stream : status.streams) {
    json.begin_object().member("name", stream.name).member("program", stream.program).member("pool", stream.pool);
    json.member("destination", wire::destination_name(stream.destination)).member("rows_max", stream.rows_max);
    json.member("compression", wire::compression_name(stream.compression));
    json.member("sent", stream.sent).member("bytes", stream.bytes).member("pulled", stream.pulled);
    json.member("stored", stream.stored).member("credit_left_bytes", stream.credit_left).end_object();
  }
  json.end_list();
  json.key("pools").begin_list();
  for (const pool::Pools::PoolStatus& pool : status.pools) {
    json.begin_object().member("name", pool.name).member("user", pool.user).member("frames", pool.frames);
    json.member("bytes", pool.bytes).member("spilled_bytes", pool.spilled_bytes).member("rows", pool.rows);
    json.member("options", pool.options).member("members", pool.members).end_object();
  }
  json.end_list();
}

void write_alarms(Json& json, const AgentStatus& status) {
  json.key("alarms").begin_list();
  for (const AlarmStatus& alarm : status.alarms) {
    json.begin_object().member("name", alarm.name).member("host", alarm.producer).member("when", alarm.condition);
    json.member("value", alarm.value).member("for_s", seconds(alarm.for_ns)).end_object();
  }
  json.end_list();
}

void write_sampled(Json& json, const AgentStatus& status) {
  json.key("sampled").begin_list();
  for (const Sampled& each : status.sampled) {
    json.begin_object().member("name", each.producer).member("way", way_name(each.way)).member("where", each.where);
    write_job_labels(json, each.job_labels);
    json.member("fresh", each.fresh).member("age_s", seconds(each.age_ns)).member("trouble", each.trouble);
    json.member("samples", each.samples)
        .member("failed", each.failed)
        .member("wait_s", seconds(static_cast<std::int64_t>(each.wait_ns)));
    json.member("cpu_s", seconds(static_cast<std::int64_t>(each.host_cpu_ns))).member("missing", each.missing);
    if (each.way == Sampled::Way::host) {
      json.member("requests", each.requests.requests)
          .member("retransmits", each.requests.retransmits)
          .member("late", each.requests.late);
      json.member("doubled", each.requests.doubled).member("refused", each.requests.refused);
      json.member("clock_ahead_s", seconds(each.clock_ahead_ns)).member("clock_bound_s", seconds(each.clock_bound_ns));
      json.member("clock_jumps", each.clock_jumps).member("sampler_refused", each.host_refused);
      json.member("sampler_resident_bytes", each.host_resident_bytes);
    }
    json.key("fields").begin_list();
    for (std::size_t i = 0; i < each.schema.fields.size(); ++i) {
      const exchange::Field& field = each.schema.fields[i];
      json.begin_object()
          .member("name", field.name)
          .member("kind", exchange::kind_name(field.kind))
          .member("unit", field.unit);
      json.member("type", exchange::type_name(field.type)).key("value");
      if (!each.fresh || !each.sample.values.has(i))
        json.null();
      else if (field.type == exchange::FieldType::u64)
        json.value(each.sample.values.u64(i));
      else if (field.type == exchange::FieldType::i64)
        json.value(each.sample.values.i64(i));
      else
        json.value(each.sample.values.f64(i));
      json.end_object();
    }
    json.end_list().end_object();
  }
  json.end_list();
}

void write_members(Json& json, const AgentStatus& status) {
  json.key("members").begin_list();
  for (const group::Member& member : status.members) {
    json.begin_object().member("name", member.id.name).member("incarnation", member.id.incarnation);
    json.member("self", &member == &status.members.front()).member("state", group::state_name(member.state));
    json.member("for_s", seconds(std::max<TimeNs>(status.taken_at - member.since, 0))).member("why", member.why);
    json.member("address", member.id.address).member("http", member.id.http).end_object();
  }
  json.end_list();
  json.key("group").begin_object().member("addresses_waiting", status.waiting_seeds);
  json.member("tables_posted", status.group.tables_posted).member("tables_failed", status.group.tables_failed);
  json.member("tables_taken", status.group.tables_taken).member("tables_refused", status.group.tables_refused);
  json.member("channels", status.reach.channels).member("connects", status.reach.connects);
  json.member("connect_failures", status.reach.connect_failures).member("channels_lost", status.reach.lost);
  json.member("asked", status.reach.asked).member("answered", status.reach.answered);
  json.member("failed", status.reach.failed).end_object();
}

void write_sandbox(Json& json, const AgentStatus& status, const ProcessUsage& process) {
  json.key("sandbox").begin_object();
  json.member("seccomp", status.sandbox ? plugin::sandbox_names[static_cast<std::size_t>(*status.sandbox)] : "none");
  json.member("no_new_privs", process.no_new_privs)
      .member("capabilities", process.effective)
      .member("permitted", process.permitted);
  json.member("bounding", process.bounding).end_object();
}

void write_plugins(Json& json, const AgentStatus& status) {
  json.key("plugins").begin_list();
  for (const plugin::PluginStatus& each : status.plugins) {
    const plugin::PluginCounters& counters = each.counters;
    json.begin_object().member("name", each.name).member("path", each.path).member("failure", each.failure);
    json.key("sandbox")
        .begin_object()
        .member("seccomp", each.confinement.seccomp)
        .member("namespaces", each.confinement.namespaces)
        .end_object();
    json.key("functions").begin_list();
    for (const plugin::FunctionInfo& function : each.functions)
      json.begin_object().member("name", function.name).member("doc", function.doc).end_object();
    json.end_list();
    json.member("workers", each.workers).member("workers_max", each.workers_max).member("running", each.running);
    json.member("waiting", each.waiting).member("waiting_max", each.waiting_max);
    json.member("calls", counters.calls).member("done", counters.done).member("failed", counters.failed);
    json.member("crashed", counters.crashed)
        .member("timed_out", counters.timed_out)
        .member("cancelled", counters.cancelled);
    json.member("unstarted", counters.unstarted).member("refused", counters.refused).member("starts", counters.starts);
    json.member("kills", counters.kills).member("unexpected_exits", counters.unexpected_exits);
    json.member("running_s", seconds(counters.running_ns))
        .member("waiting_s", seconds(counters.waiting_ns))
        .end_object();
  }
  json.end_list();
}

void write_tasks(Json& json, const AgentStatus& status) {
  const task::TaskCounters& tasks = status.tasks;
  json.key("tasks")
      .begin_object()
      .member("sessions", tasks.sessions)
      .member("asked", tasks.asked)
      .member("done", tasks.done);
  json.member("failed", tasks.failed)
      .member("cancelled", tasks.cancelled)
      .member("waiting", tasks.waiting)
      .member("running", tasks.running);
  json.member("pulled_bytes", tasks.pulled_bytes)
      .member("pushed_bytes", tasks.pushed_bytes)
      .member("resident_bytes", tasks.resident_bytes);
  json.member("resident_hits", tasks.resident_hits).member("resident_parts", tasks.resident_parts);
  const auto seconds = [](TimeNs time) { return static_cast<double>(time) / second_ns; };
  json.member("pulling_s", seconds(tasks.pulling_ns)).member("queued_s", seconds(tasks.queued_ns));
  json.member("running_s", seconds(tasks.running_ns)).member("pushing_s", seconds(tasks.pushing_ns));
  const task::MessageCounters& messages = status.messages;
  json.key("messages").begin_object().member("sent", messages.sent).member("sent_bytes", messages.sent_bytes);
  json.member("received", messages.received)
      .member("received_bytes", messages.received_bytes)
      .member("from_members", messages.from_members);
  json.member("failed", messages.failed)
      .member("sending_s", seconds(messages.sending_ns))
      .member("receiving_s", seconds(messages.receiving_ns));
  json.member("lanes", messages.lanes)
      .member("held", messages.held)
      .member("held_bytes", messages.held_bytes)
      .end_object();
  json.end_object();
}

void write_tcp(Json& json, const AgentStatus& status) {
  if (!status.tcp) return;
  const TcpStatus& tcp = *status.tcp;
  json.key("tcp")
      .begin_object()
      .member("device", tcp.device)
      .member("address", tcp.address)
      .member("link_up", tcp.link_up);
  json.member("flows", tcp.flows).member("half_open", tcp.half_open);
  json.member("connected", tcp.stack.connected)
      .member("accepted", tcp.stack.accepted)
      .member("refused", tcp.stack.refused);
  json.member("failed", tcp.stack.failed)
      .member("without_seat", tcp.service.without_seat)
      .member("orphans_reset", tcp.stack.orphans_reset);
  json.member("without_memory", tcp.service.without_memory);
  json.member("segments_in", tcp.stack.segments_in).member("segments_out", tcp.stack.segments_out);
  json.member("payload_in", tcp.stack.payload_in)
      .member("payload_out", tcp.stack.payload_out)
      .member("retransmitted", tcp.stack.retransmitted);
  json.member("wishes", tcp.service.wishes).member("news", tcp.service.news);
  json.key("slow_path")
      .begin_object()
      .member("on", tcp.slow_path_is_there ? "host" : "agent")
      .member("adopted", tcp.slow_path.adopted);
  json.member("declined", tcp.slow_path.declined).member("handed_back", tcp.slow_path.handed_back);
  json.member("frames", tcp.slow_path.frames_out).member("frames_dropped", tcp.slow_path.frames_dropped).end_object();
  json.member("programs_refused", tcp.service.programs_refused).member("programs_ended", tcp.service.programs_ended);
  json.key("drops").begin_object();
  for (std::size_t i = 1; i < tcp::drop_reasons; ++i)
    if (tcp.stack.drops[i] > 0) json.member(tcp::drop_text(static_cast<tcp::Drop>(i)), tcp.stack.drops[i]);
  json.end_object().key("cores").begin_list();
  for (const TcpStatus::Core& each : tcp.cores) {
    json.begin_object().member("core", each.core).member("flows", each.flows).member("segments_in", each.segments_in);
    json.member("segments_out", each.segments_out).member("dropped_in", each.dropped_in);
    json.member("busy_s", seconds(each.loop.busy_ns))
        .member("spinning_s", seconds(each.loop.spinning_ns))
        .member("sleeps", each.loop.sleeps)
        .end_object();
  }
  json.end_list().key("programs").begin_list();
  for (const auto& each : tcp.programs) {
    json.begin_object().member("channel", each.number).member("bytes", each.bytes).member("flows", each.flows);
    json.member("listeners", each.listeners)
        .member("seats", each.seats)
        .member("receive_bytes", each.receive_bytes)
        .end_object();
  }
  json.end_list().key("connections").begin_list();
  for (const auto& each : tcp.connections) {
    json.begin_object()
        .member("channel", each.program)
        .member("core", each.core)
        .member("state", each.listens ? "LISTEN" : tcp::state_name(each.state));
    json.member("local", tcp::text_of(each.key.local))
        .member("remote", each.listens ? "" : tcp::text_of(each.key.remote));
    json.member("received", each.received).member("offered", each.offered).member("acknowledged", each.acknowledged);
    json.member("round_trip_us", each.round_trip_ns / microsecond_ns).end_object();
  }
  json.end_list().end_object();
}

void write_computes(Json& json, const AgentStatus& status) {
  const pool::ComputeCounters& computes = status.computes;
  json.key("computes")
      .begin_object()
      .member("asked", computes.asked)
      .member("failed", computes.failed)
      .member("calls", computes.calls);
  json.member("waiting", computes.waiting).member("calling", computes.calling);
  json.member("input_bytes", computes.input_bytes).member("output_bytes", computes.output_bytes).end_object();
  json.key("triggers").begin_list();
  for (const TriggerStatus& each : status.triggers) {
    json.begin_object()
        .member("pool", each.options.pool)
        .member("plugin", each.options.plugin)
        .member("function", each.options.function);
    json.member("row", each.options.row)
        .member("column", each.options.column)
        .member("result_column", each.options.result_column);
    json.member("every_s", seconds(each.options.every_ns)).member("failure", each.failure);
    json.member("calls", each.counters.calls)
        .member("failed", each.counters.failed)
        .member("dropped", each.counters.dropped);
    json.member("skipped", each.counters.skipped)
        .member("waiting", each.waiting)
        .member("running", each.running)
        .end_object();
  }
  json.end_list();
}

void write_queries(Json& json, const AgentStatus& status) {
  const pool::QueryServiceCounters& queries = status.queries;
  json.key("queries")
      .begin_object()
      .member("queries", queries.queries)
      .member("failed", queries.failed)
      .member("steps", queries.steps);
  json.member("open", queries.open).member("running", queries.running);
  json.member("rows_read", queries.rows_read)
      .member("read_bytes", queries.bytes_read)
      .member("answered_bytes", queries.bytes_answered);
  json.end_object();
}

void write_sifts(Json& json, const AgentStatus& status) {
  json.key("sifts").begin_list();
  for (const sift::SiftService::PoolStatus& each : status.sifts) {
    json.begin_object().member("name", each.name).member("options", each.text).member("user", each.user);
    json.member("track_bytes", each.track_bytes)
        .member("kept", each.kept)
        .member("restored", each.restored)
        .member("agreed", each.agreed)
        .member("rival", each.rival)
        .key("stages")
        .begin_list();
    for (const sift::StageCounters& stage : each.stages) {
      json.begin_object().member("budget_bytes", stage.budget_bytes).member("used_bytes", stage.used_bytes);
      json.member("used_bytes_peak", stage.used_bytes_peak).member("offers_waiting", stage.offers_waiting);
      json.member("outgoing", stage.outgoing).member("outgoing_bytes", stage.outgoing_bytes);
      json.member("pieces", stage.pieces_taken).member("rows", stage.rows_taken).member("repeated", stage.repeated);
      json.member("refused", stage.refused)
          .member("splits", stage.splits)
          .member("splits_under_pressure", stage.split_under_pressure);
      json.member("published", stage.published).member("published_again", stage.published_again);
      json.member("pieces_restored", stage.restored).member("pieces_lost", stage.lost).end_object();
    }
    json.end_list().end_object();
  }
  json.end_list();
}

void write_view(Json& json, const exchange::ExchangeService::ExchangeStatus& each) {
  const exchange::View& view = *each.view;
  json.member("epoch", view.epoch)
      .member("present", view.present)
      .member("expected", view.expected)
      .member("whole", view.whole);
  json.member("leader", view.leader < each.members.size() ? each.members[view.leader] : std::string());
  json.key("entries").begin_list();
  for (const exchange::ViewEntry& entry : view.entries) {
    json.begin_object()
        .member("member", each.members[entry.member])
        .member("present", entry.present)
        .member("has_value", entry.has_value);
    json.member("epoch", entry.epoch)
        .member("age_s", seconds(entry.age_ns))
        .member("bytes", entry.record.bytes.size())
        .end_object();
  }
  json.end_list().key("figures").begin_list();
  for (std::size_t i = 0; view.reduced && i < each.reductions.size(); ++i) {
    const double value = view.reduced->value(i, each.reductions[i]);
    json.begin_object().member("figure", each.reductions[i].text).member("count", view.reduced->figure(i).count);
    if (value == value) json.member("value", value);  // JSON has no NaN
    json.end_object();
  }
  json.end_list();
}

// Nodes by number: whose part each is, and the member of a leaf.
void write_tree(Json& json, const exchange::ExchangeService::ExchangeStatus& each) {
  json.key("tree").begin_list();
  for (std::size_t i = 0; each.tree && i < each.tree->nodes().size(); ++i) {
    const exchange::Node& node = each.tree->nodes()[i];
    json.begin_object();
    if (node.parent != exchange::nobody) json.member("parent", node.parent);
    if (node.member != exchange::nobody)
      json.member("member", each.members[node.member]);
    else
      json.member("name", node.name).member("level", node.level);
    json.end_object();
  }
  json.end_list();
}

void write_exchanges(Json& json, const AgentStatus& status) {
  json.key("exchanges").begin_list();
  for (const exchange::ExchangeService::ExchangeStatus& each : status.exchanges) {
    const exchange::ExchangeCounters& counters = each.counters;
    json.begin_object().member("name", each.name).member("topology", each.topology).member("failure", each.failure);
    json.member("programs", each.programs).member("has_source", each.has_publisher).member("leads", each.leads);
    write_tree(json, each);
    json.key("members").begin_list();
    for (std::size_t i = 0; i < each.members.size(); ++i)
      json.begin_object().member("name", each.members[i]).member("up", i < each.up.size() && each.up[i]).end_object();
    json.end_list();
    json.member("rounds", counters.rounds).member("complete", counters.complete).member("partial", counters.partial);
    json.member("late", counters.late).member("refused", counters.refused).member("followed", counters.followed);
    json.member("replaced", counters.replaced).member("without_value", counters.without_value);
    json.member("parcels_in", counters.parcels_in).member("parcels_out", counters.parcels_out);
    json.member("bytes_in", counters.bytes_in).member("bytes_out", counters.bytes_out);
    json.member("round_s", seconds(counters.round_ns)).member("round_s_max", seconds(counters.round_ns_max));
    json.member("overrun_s_max", seconds(counters.overrun_ns_max)).member("cost_s", seconds(each.cost_ns));
    json.member("views_pushed", each.views_pushed)
        .member("records_pulled", each.records_pulled)
        .member("torn", each.torn);
    json.member("grant_total", each.grant_total)
        .member("granted", each.granted)
        .member("held", each.held)
        .member("may_grant", each.may_grant);
    json.key("view").begin_object();
    if (each.view) write_view(json, each);
    json.end_object().end_object();
  }
  json.end_list();
}

}  // namespace

std::shared_ptr<const AgentStatus> StatusBoard::get() {
  std::unique_lock lock(mutex_);
  if (closed_) return nullptr;
  if (status_ && monotonic_ns() - published_at_ < fresh_ns) return status_;
  const std::uint64_t before = sequence_;
  if (!asked_) {
    asked_ = true;
    ask_();
  }
  published_.wait_for(lock, std::chrono::nanoseconds(answer_ns), [&] { return closed_ || sequence_ != before; });
  return !closed_ && sequence_ != before ? status_ : nullptr;
}

void StatusBoard::publish(std::shared_ptr<const AgentStatus> status, TimeNs now) {
  {
    const std::lock_guard lock(mutex_);
    status_.swap(status);
    published_at_ = now;
    ++sequence_;
    asked_ = false;
  }
  published_.notify_all();
}

void StatusBoard::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  published_.notify_all();
}

ProcessUsage process_usage() {
  ProcessUsage usage;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  usage.cpu_s = of(used.ru_utime) + of(used.ru_stime);
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t* target = word == "VmRSS:"     ? &usage.resident_bytes
                            : word == "RssAnon:" ? &usage.own_resident_bytes
                                                 : nullptr;
    if (target != nullptr && file >> *target) *target *= 1024;
    if (word == "Threads:") file >> usage.threads;
    if (word == "CapEff:") file >> usage.effective;
    if (word == "CapPrm:") file >> usage.permitted;
    if (word == "CapBnd:") file >> usage.bounding;
    if (word == "NoNewPrivs:") file >> usage.no_new_privs;
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) usage.descriptors_max = files.rlim_cur;
  return usage;
}

std::string status_json(const AgentStatus& status, const ProcessUsage& usage) {
  Json json;
  json.begin_object().member("name", status.name).member("version", status.version).member("pid", status.pid);
  json.member("incarnation", fmt::format("{:016x}", status.incarnation));  // more than a double holds
  json.member("uptime_s", seconds(status.uptime_ns)).member("profile", status.profile);
  json.key("addresses").begin_list();
  for (const std::string& address : status.addresses) json.value(address);
  json.end_list();
  json.key("process").begin_object();
  json.member("cpu_s", usage.cpu_s).member("resident_bytes", usage.resident_bytes);
  json.member("own_resident_bytes", usage.own_resident_bytes).member("threads", usage.threads);
  json.member("descriptors_max", usage.descriptors_max).end_object();
  json.key("limits").begin_object();
  json.member("channels_max", status.channels_max).member("handshakes_max", status.handshakes_max);
  json.member("streams_max", status.streams_max).end_object();
  const AcceptorCounters& acceptor = status.acceptor;
  json.key("acceptor").begin_object();
  json.member("connections", acceptor.connections)
      .member("welcomed", acceptor.welcomed)
      .member("welcomed_by_old_key", acceptor.welcomed_by_old_key);
  json.member("refused", acceptor.refused).member("handshakes", acceptor.handshakes).end_object();
  write_loop(json, status);
  write_memory(json, status);
  write_services(json, status);
  write_channels(json, status);
  write_streams_and_pools(json, status);
  write_members(json, status);
  write_sifts(json, status);
  write_queries(json, status);
  write_exchanges(json, status);
  write_sandbox(json, status, usage);
  write_plugins(json, status);
  write_alarms(json, status);
  write_sampled(json, status);
  write_computes(json, status);
  write_tasks(json, status);
  write_tcp(json, status);
  return json.end_object().text() + "\n";
}

}  // namespace offpath::agent
