#include "agent/status/status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "agent/status/figures.h"
#include "agent/status/figures_network.h"
#include "agent/status/json.h"
#include "agent/status/latency_figures.h"
#include "wire/messages/stream_messages.h"

namespace offpath::agent {

namespace {

double in_seconds(std::int64_t ns) { return static_cast<double>(ns) / second_ns; }

// Writes a separate object.
template <class Of>
void write_object(Json& json, std::string_view key, std::type_identity_t<std::span<const Figure<Of>>> figures,
                  const Of& of) {
  json.key(key).begin_object();
  write_figures(json, figures, of);
  json.end_object();
}

void write_services(Json& json, const AgentStatus& status) {
  write_object(json, "loop", loop_figures, status.loop);
  write_object(json, "look_out", look_out_figures, status.look_outs);
  write_object(json, "jobs", job_figures, status.jobs);
  write_object(json, "memory", memory_figures, status);
  json.key("buffers").begin_object();
  write_figures(json, buffer_figures, status.buffers);
  write_figures(json, cache_figures, status);
  json.end_object();
  write_object(json, "mover", mover_figures, status.mover);
  write_latencies(json, status);
  write_object(json, "table", table_figures, status.table);
  if (status.disk) {
    json.key("disk").begin_object().member("directory", status.disk->where).member("failure", status.disk->failure);
    write_figures(json, disk_status_figures, *status.disk);
    write_figures(json, disk_figures, status.disk->counters);
    json.end_object();
  }
  write_object(json, "remote", remote_figures, status.remote_pools);
}

// How often a ring was full, and for how long it has been.
void write_full(Json& json, const std::string& name, const FullRing& ring, TimeNs now) {
  json.member(name + "_full", ring.times);
  if (ring.since != never) json.member(name + "_full_s", in_seconds(std::max<TimeNs>(now - ring.since, 0)));
}

// The job or launch that a program belongs to, if any.
void write_job_labels(Json& json, const wire::JobLabels& labels) {
  if (!labels.job.empty()) json.member("job", labels.job);
  if (!labels.step.empty()) json.member("step", labels.step);
  if (!labels.cgroup.empty()) json.member("cgroup", labels.cgroup);
}

void write_channels(Json& json, const AgentStatus& status) {
  json.key("channels").begin_list();
  for (const Dispatcher::ChannelStatus& channel : status.channels) {
    json.begin_object().member("number", channel.number).member("program", channel.client.program);
    json.member("user", channel.client.user).member("pid", channel.client.pid).member("host", channel.client.host);
    write_job_labels(json, channel.client.job_labels);
    json.member("link", channel.traits.name).member("one_sided", channel.traits.one_sided);
    json.member("staged", channel.traits.staged)
        .member("reason", channel.traits.reason)
        .member("asleep", channel.asleep);
    write_figures(json, channel_figures, channel.counters);
    write_full(json, "requests", channel.requests_full, status.taken_at);
    write_full(json, "replies", channel.replies_full, status.taken_at);
    if (channel.requests_full.since != never) json.member("requests_wait_for", channel.why_requests_wait);
    json.end_object();
  }
  json.end_list();
}

// The newest row, and the steps that not all ranks have ended.
void write_steps(Json& json, const pool::PoolSteps& steps, TimeNs now) {
  json.member("newest_row", steps.newest).member("steps_waiting", steps.waiting).key("steps").begin_list();
  for (const pool::WaitingStep& step : steps.listed) {
    json.begin_object().member("row", step.row).member("ended", step.ended).member("ranks", step.ranks);
    json.member("waits_s", in_seconds(std::max<TimeNs>(now - step.since, 0)));
    json.member("gone", step.gone).key("missing").begin_list();
    for (const std::uint32_t rank : step.missing) json.value(rank);
    json.end_list().end_object();
  }
  json.end_list();
}

// A curve: rates by interval, the oldest first.
void write_recent(Json& json, const mover::RecentRates& recent) {
  json.key("recent").begin_object().member("every_s", in_seconds(mover::RateRing::interval_ns));
  json.member("ended_s", in_seconds(recent.ended_ns)).key("bytes_per_s").begin_list();
  for (const double rate : recent.bytes_per_s) json.value(static_cast<std::uint64_t>(rate));
  json.end_list().end_object();
}

void write_streams_and_pools(Json& json, const AgentStatus& status) {
  json.key("streams").begin_list();
  for (const mover::Mover::StreamStatus& stream : status.streams) {
    json.begin_object().member("name", stream.name).member("program", stream.program).member("pool", stream.pool);
    json.member("destination", wire::destination_name(stream.destination)).member("rows_max", stream.rows_max);
    json.member("compression", wire::compression_name(stream.compression));
    json.member("sent", stream.sent).member("bytes", stream.bytes).member("pulled", stream.pulled);
    json.member("stored", stream.stored).member("credit_left_bytes", stream.credit_left).member("pid", stream.pid);
    if (stream.ranks > 0) json.member("rank", stream.rank).member("ranks", stream.ranks);
    if (stream.lacking_since != never)
      json.member("waits_for_credit_s", in_seconds(std::max<TimeNs>(status.taken_at - stream.lacking_since, 0)))
          .member("credit_lacking_bytes", stream.credit_lacking);
    if (stream.recent) write_recent(json, *stream.recent);
    json.end_object();
  }
  json.end_list();
  write_recent(json, status.recent);
  json.key("pools").begin_list();
  for (const pool::Pools::PoolStatus& pool : status.pools) {
    json.begin_object().member("name", pool.name).member("user", pool.user).member("frames", pool.frames);
    json.member("bytes", pool.bytes).member("spilled_bytes", pool.spilled_bytes).key("rows");
    if (pool.frames > 0 && pool.arrow_frames == 0)
      json.null();  // bytes have no rows
    else
      json.value(pool.rows);
    json.member("options", pool.options).member("members", pool.members);
    if (const auto at = std::ranges::find(status.steps, pool.name, &pool::PoolSteps::pool); at != status.steps.end())
      write_steps(json, *at, status.taken_at);
    json.end_object();
  }
  json.end_list();
}

void write_waiting_puts(Json& json, const AgentStatus& status) {
  json.key("waiting_puts").begin_object().member("count", status.waiting_puts.count).key("longest").begin_list();
  for (const pool::WaitingPut& put : status.waiting_puts.longest) {
    json.begin_object().member("pool", put.pool).member("row", put.row).member("column", put.column);
    json.member("waits_s", in_seconds(std::max<TimeNs>(status.taken_at - put.since, 0))).member("why", put.why);
    json.key("members").begin_list();
    for (const std::string& member : put.members) json.value(member);
    json.end_list().end_object();
  }
  json.end_list().end_object();
}

void write_waiting_gets(Json& json, const AgentStatus& status) {
  json.key("waiting_gets").begin_object().member("count", status.waiting_gets.count).key("longest").begin_list();
  for (const pool::ListedGet& get : status.waiting_gets.longest) {
    json.begin_object().member("pool", get.pool).member("row", get.row).member("column", get.column);
    json.member("waits_s", in_seconds(std::max<TimeNs>(status.taken_at - get.since, 0))).member("what", get.what);
    json.member("why", get.why);
    const auto at = std::ranges::find(status.channels, get.channel, &Dispatcher::ChannelStatus::number);
    json.member("program", at != status.channels.end() ? at->client.program : "");
    json.member("pid", at != status.channels.end() ? at->client.pid : 0).end_object();
  }
  json.end_list().end_object();
}

constexpr std::string_view level_names[] = {"debug", "info", "warning", "error", "off"};

// The newest events: requests that failed, and lines of the log.
void write_events(Json& json, const AgentStatus& status) {
  json.member("failures_count", status.failures_count).member("shows_events", status.shows_events);
  json.key("failures").begin_list();
  for (const service::FailedRequest& each : status.failures) {
    json.begin_object().member("ago_s", in_seconds(std::max<TimeNs>(status.taken_at - each.at, 0)));
    json.member("program", each.program).member("channel", each.channel).member("error", error_name(each.why.code));
    json.member("why", each.why.message).end_object();
  }
  json.end_list().key("events").begin_list();
  for (const LogLine& each : status.lines) {
    json.begin_object().member("at_s", in_seconds(each.at_ns));
    json.member("level", level_names[static_cast<std::size_t>(each.level)]).member("what", each.text).end_object();
  }
  json.end_list();
}

void write_alarms(Json& json, const AgentStatus& status) {
  json.key("alarms").begin_list();
  for (const AlarmStatus& alarm : status.alarms) {
    json.begin_object().member("name", alarm.name).member("host", alarm.producer).member("when", alarm.condition);
    json.member("value", alarm.value).member("for_s", in_seconds(alarm.for_ns)).end_object();
  }
  json.end_list();
}

void write_sampled(Json& json, const AgentStatus& status) {
  json.key("sampled").begin_list();
  for (const Sampled& each : status.sampled) {
    json.begin_object().member("name", each.producer).member("way", way_name(each.way)).member("where", each.where);
    write_job_labels(json, each.job_labels);
    json.member("age_s", in_seconds(each.age_ns)).member("trouble", each.trouble);
    write_figures(json, sample_figures, each);
    if (each.way == Sampled::Way::host) {
      write_figures(json, datagram_figures, each.requests);
      write_figures(json, host_figures, each);
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
    json.member("for_s", in_seconds(std::max<TimeNs>(status.taken_at - member.since, 0))).member("why", member.why);
    json.member("host", member.id.host).member("address", member.id.address).member("http", member.id.http);
    json.member("flight", member.id.flight).member("rack", member.id.rack);
    json.member("role", group::role_name(member.id.role)).end_object();
  }
  json.end_list();
  json.key("group").begin_object().member("addresses_waiting", status.waiting_seeds);
  json.member("directory_questions", status.directory_questions);
  write_figures(json, group_figures, status.group);
  write_figures(json, reach_figures, status.reach);
  json.end_object();
  json.key("cards").begin_object();
  write_figures(json, card_figures, status.cards);
  json.end_object();
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
    write_figures(json, plugin_figures, each);
    write_figures(json, plugin_call_figures, each.counters);
    json.end_object();
  }
  json.end_list();
}

void write_tasks(Json& json, const AgentStatus& status) {
  json.key("tasks").begin_object();
  write_figures(json, task_figures, status.tasks);
  write_object(json, "messages", message_figures, status.messages);
  json.end_object();
}

void write_tcp(Json& json, const AgentStatus& status) {
  if (!status.tcp) return;
  const TcpStatus& tcp = *status.tcp;
  json.key("tcp").begin_object().member("device", tcp.device).member("address", tcp.address);
  json.member("address6", tcp.address6).member("address6_state", tcp.address6_state).member("router6", tcp.router6);
  write_figures(json, tcp_figures, tcp);
  write_figures(json, stack_figures, tcp.stack);
  write_figures(json, tcp_service_figures, tcp.service);
  json.key("port").begin_object();
  write_figures(json, port_figures, tcp.port);
  json.end_object().key("slow_path").begin_object().member("on", tcp.slow_path_is_there ? "host" : "agent");
  write_figures(json, slow_path_figures, tcp.slow_path);
  json.end_object();
  json.key("linked").begin_object();
  write_figures(json, linked_figures, tcp.link);
  json.end_object();
  json.key("drops").begin_object();
  for (std::size_t i = 1; i < tcp::drop_reasons; ++i)
    if (tcp.stack.drops[i] > 0) json.member(tcp::drop_text(static_cast<tcp::Drop>(i)), tcp.stack.drops[i]);
  json.end_object().key("cores").begin_list();
  for (const TcpStatus::Core& each : tcp.cores) {
    json.begin_object().member("core", each.core);
    write_figures(json, core_figures, each);
    json.end_object();
  }
  json.end_list().key("programs").begin_list();
  for (const auto& each : tcp.programs) {
    json.begin_object().member("channel", each.number).member("bytes", each.bytes).member("flows", each.flows);
    json.member("listeners", each.listeners)
        .member("accept_slots", each.accept_slots)
        .member("receive_bytes", each.receive_bytes)
        .member("lent_bytes", each.lent_bytes);
    write_full(json, "commands", each.commands_full, status.taken_at);
    write_full(json, "events", each.events_full, status.taken_at);
    json.end_object();
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
  write_object(json, "computes", compute_figures, status.computes);
  json.key("triggers").begin_list();
  for (const TriggerStatus& each : status.triggers) {
    json.begin_object()
        .member("pool", each.options.pool)
        .member("plugin", each.options.plugin)
        .member("function", each.options.function);
    json.member("row", each.options.row)
        .member("column", each.options.column)
        .member("result_column", each.options.result_column);
    json.member("every_s", in_seconds(each.options.every_ns)).member("failure", each.failure);
    write_figures(json, trigger_figures, each.counters);
    json.member("waiting", each.waiting).member("running", each.running).end_object();
  }
  json.end_list();
}

void write_sifts(Json& json, const AgentStatus& status) {
  json.key("sifts").begin_list();
  for (const sift::SiftService::PoolStatus& each : status.sifts) {
    json.begin_object().member("name", each.name).member("options", each.text).member("user", each.user);
    json.member("track_bytes", each.track_bytes)
        .member("spilled_track_bytes", each.spilled_track_bytes)
        .member("kept", each.kept)
        .member("restored", each.restored)
        .member("agreed", each.agreed)
        .member("rival", each.rival)
        .key("stages")
        .begin_list();
    for (const sift::StageCounters& stage : each.stages) {
      json.begin_object();
      write_figures(json, stage_figures, stage);
      json.end_object();
    }
    json.end_list().end_object();
  }
  json.end_list();
  json.key("track_files").begin_object();
  write_figures(json, track_file_figures, status.track_files);
  json.end_object();
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
        .member("age_s", in_seconds(entry.age_ns))
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

// Nodes by number: the range of members of each, and the member of a leaf.
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
    json.begin_object().member("name", each.name).member("topology", each.topology).member("failure", each.failure);
    write_tree(json, each);
    json.key("members").begin_list();
    for (std::size_t i = 0; i < each.members.size(); ++i)
      json.begin_object().member("name", each.members[i]).member("up", i < each.up.size() && each.up[i]).end_object();
    json.end_list();
    write_figures(json, exchange_figures, each.counters);
    write_figures(json, exchange_status_figures, each);
    write_figures(json, decision_figures, each.decisions);
    write_figures(json, grant_figures, each);
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

std::string schemas_json(const AgentStatus& status) {
  Json json;
  json.begin_list();
  for (const mover::Mover::StreamStatus& stream : status.streams) {
    json.begin_object().member("name", stream.name).member("program", stream.program).member("pid", stream.pid);
    if (stream.ranks > 0) json.member("rank", stream.rank);
    json.member("pool", stream.pool).key("columns").begin_list();
    for (std::size_t i = 0; stream.form && i < stream.form->schema.fields.size(); ++i) {
      const frame::Field& field = stream.form->schema.fields[i];
      json.begin_object().member("name", field.name).member("type", frame::describe(field));
      json.member("nullable", field.nullable).end_object();
    }
    json.end_list().end_object();
  }
  return json.end_list().text() + "\n";
}

std::string status_json(const AgentStatus& status, const ProcessUsage& usage) {
  Json json;
  json.begin_object().member("name", status.name).member("version", status.version).member("pid", status.pid);
  json.member("incarnation", fmt::format("{:016x}", status.incarnation));  // as text: more digits than a double holds
  json.member("uptime_s", in_seconds(status.uptime_ns)).member("profile", status.profile);
  json.key("addresses").begin_list();
  for (const std::string& address : status.addresses) json.value(address);
  json.end_list();
  write_object(json, "process", process_figures, usage);
  write_object(json, "limits", limit_figures, status);
  write_object(json, "acceptor", acceptor_figures, status.acceptor);
  write_services(json, status);
  write_channels(json, status);
  write_streams_and_pools(json, status);
  write_waiting_puts(json, status);
  write_waiting_gets(json, status);
  write_events(json, status);
  write_members(json, status);
  write_sifts(json, status);
  write_object(json, "queries", query_figures, status.queries);
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

std::string status_json_without_events(const AgentStatus& status, const ProcessUsage& usage) {
  AgentStatus shown = status;
  for (service::FailedRequest& each : shown.failures) each.why.message.clear();
  shown.lines.clear();
  shown.shows_events = false;
  return status_json(shown, usage);
}

}  // namespace offpath::agent
