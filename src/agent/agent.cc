#include "agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "agent/confinement.h"
#include "agent/connections/tcp_programs.h"
#include "agent/connections/tcp_relay.h"
#include "agent/flight.h"
#include "agent/plugin_processes.h"
#include "agent/services/dispatcher.h"
#include "agent/services/resource_sections.h"
#include "agent/status/status.h"
#include "agent/telemetry/actuators.h"
#include "agent/telemetry/alarm_watch.h"
#include "agent/telemetry/sample_records.h"
#include "agent/telemetry/samplers.h"
#include "base/log.h"
#include "base/memory_reserve.h"
#include "offpath/offpath.h"
#include "pool/table/spill_directory.h"

#define OFP_TEXT_(number) #number
#define OFP_TEXT(number) OFP_TEXT_(number)

namespace offpath::agent {

const char* const agent_version =
    OFP_TEXT(OFP_VERSION_MAJOR) "." OFP_TEXT(OFP_VERSION_MINOR) "." OFP_TEXT(OFP_VERSION_PATCH);

namespace {

constexpr unsigned file_threads = 2;
// A program can hold the lock of its own file, and with it the agent's write: by writing to it from memory that never
// becomes readable. Each user has one write at a time, so users up to the number of stand-ins delay nobody else.
constexpr loop::JobPatience file_patience{.stand_in_after_ns = second_ns,
                                          .stand_ins_max = 16,
                                          .give_up_after_ns = 30 * second_ns,
                                          .end_within_ns = second_ns};
// several, so that the disk has several writes at a time and readers do not wait for all of them
constexpr unsigned disk_threads = 4;
constexpr TimeNs idle_thread_ends_ns = 10 * second_ns;  // of those for files, which few agents use

Result<link::AgentPolicy> make_policy(const AgentSettings& settings, std::shared_ptr<link::CardDevices> devices,
                                      std::shared_ptr<ReceivedFds> received,
                                      std::shared_ptr<link::UserReaders> readers = nullptr) {
  link::AgentPolicy policy;
  policy.uids = settings.allow_uids;
  policy.segments = settings.segments;
  policy.silence_ns = settings.silence_ns;
  policy.force_staging = settings.force_staging;
  if (!settings.key_file.empty()) {
    OFP_ASSIGN(policy.key, link::SharedKey::load(settings.key_file));
  }
  for (const std::string& file : settings.old_key_files) {
    OFP_ASSIGN(link::SharedKey key, link::SharedKey::load(file));
    policy.old_keys.push_back(std::move(key));
  }
  if (!settings.tls_certificate_file.empty()) {
    OFP_ASSIGN(policy.tls, link::TlsContext::for_agent(settings.tls_certificate_file, settings.tls_key_file));
  }
  policy.devices = std::move(devices);
  policy.received = std::move(received);
  if (readers) policy.readers = std::move(readers);
  return policy;
}

// Adds to the system's error the setting that it concerns, and where the privilege comes from.
Failure without_device(const TcpSettings& settings, Failure why) {
  if (!why.message.starts_with("tcp.")) why.message = fmt::format("tcp.device {}: {}", settings.device, why.message);
  if (why.code != Error::denied) return why;
  const bool is_service = std::getenv("INVOCATION_ID") != nullptr;  // systemd's
  why.message += is_service ? "; a drop-in gives a service the privilege: cp -r "
                              "/usr/share/offpath/offpath-agent.service.d /etc/systemd/system/"
                            : "; opening it takes CAP_NET_RAW, CAP_NET_ADMIN for TAP, and CAP_BPF with both for xdp";
  return why;
}

}  // namespace

Agent::Agent(AgentSettings settings)
    : settings_(std::move(settings)), incarnation_(link::random_number()), started_at_(monotonic_ns()) {}

Agent::~Agent() {
  if (board_) board_->close();
}

Result<std::unique_ptr<Agent>> Agent::make(AgentSettings settings, std::optional<actuator::KeeperProcess> keeper,
                                           const Confine& confine, std::optional<CoreEnds> core) {
  std::unique_ptr<Agent> agent(new Agent(std::move(settings)));
  if (core) agent->core_.emplace(std::move(*core));
  if (keeper) agent->keeper_.emplace(std::move(*keeper));
  OFP_TRY(agent->prepare(confine));
  return agent;
}

Status Agent::prepare(const Confine& confine) {
  const auto by_a_card = [](const link::Address& at) {
    return at.kind == link::Address::Kind::verbs || at.kind == link::Address::Kind::doca;
  };
  if (std::ranges::any_of(settings_.listen, by_a_card))
    settings_.dispatcher.buffers.lasting = std::make_shared<link::LastingMemory>();
  service::BufferCacheOptions& buffers = settings_.dispatcher.buffers;
  if (buffers.buffers_max == 0) buffers.buffers_max = frames_that_fit();
  if (buffers.user_buffers_max == 0) buffers.user_buffers_max = share_of_user(buffers.buffers_max);
  const auto received = std::make_shared<ReceivedFds>(beside_frames(buffers.buffers_max, settings_.received));
  devices_ = std::make_shared<link::CardDevices>(buffers.lasting);
  OFP_ASSIGN(link::AgentPolicy policy, make_policy(settings_, devices_, received));
  policy_ = std::make_shared<const link::AgentPolicy>(std::move(policy));
  OFP_ASSIGN(loop_, loop::Loop::make(settings_.loop));
  channel_watch_.emplace(*loop_, [this] { core_->handed_ended(); });
  group_.emplace(settings_, incarnation_, core_ ? &core_->ends() : nullptr, devices_, *loop_);
  OFP_TRY(listen());
  if (settings_.group_from_launcher) OFP_TRY(group_->meet_launched());
  OFP_ASSIGN(Fd http_socket, listen_for_pages());
  OFP_TRY(open_disk());
  if (settings_.tcp && settings_.tcp->kind == TcpSettings::Kind::agent) {
    OFP_TRY(make_relay(received));
  } else if (settings_.tcp) {
    settings_.tcp->loop = settings_.loop;
    // while this process still has the privileges
    auto opened = TcpPrograms::make(*loop_, *settings_.tcp, received, monotonic_ns());
    if (!opened) return tl::unexpected<Failure>(without_device(*settings_.tcp, std::move(opened).error()));
    tcp_ = std::move(*opened);
  }
  OFP_TRY(read_trees());
  settings_.dispatcher.nonce = incarnation_;
  settings_.dispatcher.memory_is_there = MemoryReserve::is_whole;
  OFP_ASSIGN(sandbox_, confine());
  OFP_TRY(join_parts());
  if (tcp_) OFP_TRY(tcp_->start());
  OFP_TRY(start_pages(std::move(http_socket)));
  if (settings_.flight) {
    OFP_ASSIGN(flight_,
               FlightEndpoint::start(*settings_.flight, settings_.name, settings_.dispatcher, *loop_, *dispatcher_));
    group_->group().set_flight(flight_->text(machine_name()), monotonic_ns());
  }
  return core_ ? join_cores() : Status();
}

// The trees of exchanges are separate files.
Status Agent::read_trees() {
  for (exchange::ExchangeSettings& each : settings_.dispatcher.exchanges) {
    if (each.tree_file.empty()) continue;
    std::ifstream file(each.tree_file);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file) return fail(Error::io, "exchange {}: {} cannot be read", each.options.name, each.tree_file);
    each.shape.tree = std::move(text);
    auto members = exchange::tree_members(each.shape.tree);
    if (!members)
      return fail(Error::invalid, "exchange {}: {}: {}", each.options.name, each.tree_file, members.error().message);
    each.members = std::move(*members);
    std::vector<exchange::Place> places;
    for (const std::string& name : each.members) places.push_back({name});
    if (auto tree = exchange::Topology::make(each.shape, places); !tree)
      return fail(Error::invalid, "exchange {}: {}: {}", each.options.name, each.tree_file, tree.error().message);
  }
  return {};
}

Status Agent::open_disk() {
  if (settings_.spill_directory.empty()) return {};
  OFP_ASSIGN(settings_.dispatcher.pools.store, pool::SpillDirectory::open(settings_.spill_directory));
  return {};
}

Status Agent::listen() {
  wire::Welcome welcome;
  welcome.incarnation = incarnation_;
  // So that a program learns at once if a batch can never fit.
  welcome.memory_bytes_max =
      std::min(settings_.dispatcher.mover.memory_bytes_max, settings_.dispatcher.mover.user_bytes_max);
  welcome.pid = getpid();
  welcome.agent_name = settings_.name;
  welcome.agent_version = agent_version;
  acceptor_ = std::make_unique<Acceptor>(
      *loop_, policy_, std::move(welcome),
      Acceptor::Options{settings_.handshakes_max, std::max<std::size_t>(settings_.handshakes_max / 4, 1),
                        !settings_.allow_uids.empty()},
      [this](uid_t user) { return may_welcome(user); },
      [this](Acceptor::Arrival arrival, TimeNs now) { on_arrival(std::move(arrival), now); });
  if (core_) return core_->adopt_listeners(*acceptor_);
  for (link::Address& address : settings_.listen) OFP_TRY(acceptor_->listen(address));
  return {};
}

// The order of polling, and why:
//   1. results of jobs    they free memory and advance completion lines, which the channels then write out
//   2. channels           rings, pulls, replies
//   3. connections        after channels, which announce and withdraw programs' memory: it stays valid meanwhile
//   4. the group          it posts little; other members' posts arrived by its channels
//   5. plug-ins           calls that arrived by channels go to workers; deadlines of running calls
//   6. samplers           requests that are due; answers of hosts arrive by descriptors of the loop
//   7. alarms, records    made from the newest samples, for people and for exchanges
//   8. status requests    last, so that they show the state after this round
// New connections and workers' messages arrive by descriptors of the loop, before all of these.
Status Agent::join_parts() {
  make_jobs();
  make_dispatcher();
  loop_->add(channels_);
  join_connections();
  group_->make();
  OFP_TRY(join_group());
  join_plugins();
  OFP_TRY(join_samplers());
  join_status();
  return {};
}

void Agent::make_jobs() {
  jobs_ = std::make_unique<loop::JobPool>(*loop_, settings_.jobs);
  file_jobs_ = std::make_unique<loop::JobPool>(
      *loop_, loop::JobPoolOptions{file_threads, settings_.jobs.queue_max, file_patience, idle_thread_ends_ns});
  if (settings_.dispatcher.pools.store)
    disk_jobs_ = std::make_unique<loop::JobPool>(*loop_, loop::JobPoolOptions{disk_threads, settings_.jobs.queue_max});
}

void Agent::make_dispatcher() {
  dispatcher_ =
      std::make_unique<Dispatcher>(settings_.dispatcher, [this](std::uint64_t token, std::function<Status()> run) {
        const service::ServiceId service = service::service_of(token);
        const bool is_file_job = service == service::ServiceId::pool || service::is_file_job(token);
        loop::JobPool& pool = service == service::ServiceId::disk ? *disk_jobs_ : is_file_job ? *file_jobs_ : *jobs_;
        pool.start(std::move(run),
                   [this, token](Status status, TimeNs now) { dispatcher_->on_job(token, std::move(status), now); });
      });
  dispatcher_->on_added = [this](const channel::AgentEnd& channel) {
    channel_watch_->add(*dispatcher_->find(channel.number()), std::exchange(arrival_handed_, false));
  };
  dispatcher_->on_closing_channel = [this](const channel::AgentEnd& channel) { channel_watch_->remove(channel); };
}

void Agent::join_connections() {
  if (tcp_) {
    tcp_->on_ended = [this](std::uint64_t channel, Failure why) {
      dispatcher_->close_channel(channel, std::move(why));
    };
    dispatcher_->serve_tcp(
        {[this](channel::AgentEnd& channel, const channel::Entry& request, uid_t user, TimeNs now) {
           tcp_->on_request(channel, request, {user, user == 0 || user == geteuid()}, now);
         },
         [this](std::uint64_t channel, bool ended, TimeNs now) { tcp_->on_channel_closed(channel, ended, now); },
         [this](std::uint64_t token, Status status, TimeNs now) { tcp_->on_transfer(token, std::move(status), now); }});
    loop_->add(*tcp_);
  }
  if (tcp_relay_) {
    tcp_relay_->on_ended = [this](std::uint64_t channel, Failure why) {
      dispatcher_->close_channel(channel, std::move(why));
    };
    dispatcher_->serve_tcp(
        {[this](channel::AgentEnd& channel, const channel::Entry& request, uid_t user, TimeNs now) {
           tcp_relay_->on_request(channel, request, user, user == 0 || user == geteuid(), now);
         },
         [this](std::uint64_t channel, bool ended, TimeNs now) { tcp_relay_->on_channel_closed(channel, ended, now); },
         {}});
    loop_->add(*tcp_relay_);
  }
}

Status Agent::join_group() {
  dispatcher_->serve_group(group_->group(), geteuid(), monotonic_ns());
  for (const PoolSettings& pool : settings_.pools) {
    if (core_ && sift::SiftService::is_own(pool.name)) continue;  // join_cores() makes it
    OFP_TRY(dispatcher_->make_pool(pool.name, pool.user.value_or(geteuid())));
  }
  OFP_TRY(dispatcher_->recover(monotonic_ns()));
  group_->group().on_change([this](const group::Change& change, TimeNs) {
    if (change.member.process != incarnation_ || change.state != group::MemberState::dead) return;
    replaced_ = change.why;
    loop_->stop();
  });
  loop_->add(group_->group());
  return {};
}

Status Agent::join_cores() {
  group_->group().on_change([this](const group::Change&, TimeNs) { core_->members_changed(); });
  const auto all_met = [this] {
    return std::ranges::all_of(settings_.dispatcher.cores, [this](const std::string& name) {
      const group::Member* const core = group_->group().membership().find(name);
      return core != nullptr && core->state == group::MemberState::alive;
    });
  };
  return core_->join(*loop_, all_met, [this] {
    for (const PoolSettings& pool : settings_.pools) {
      if (!sift::SiftService::is_own(pool.name)) continue;  // the others were made by join_group()
      if (Status made = dispatcher_->make_pool(pool.name, pool.user.value_or(geteuid())); !made)
        log(LogLevel::error, "pool \"{}\" could not be made: {}", pool.name, made.error().message);
    }
    return flight();
  });
}

void Agent::join_plugins() {
  plugins_ = std::make_unique<PluginProcesses>(*loop_, settings_.plugins);
  loop_->add(*plugins_);
  dispatcher_->serve_plugins({[this](plugin::Call call, TimeNs now, CallFunctions::Done done) {
                                return plugins_->call(std::move(call), now, std::move(done));
                              },
                              [this](plugin::CallNumber number, TimeNs now) { plugins_->cancel(number, now); },
                              [this](std::uint64_t worker, plugin::CallNumber call, plugin::OperationNumber operation,
                                     const plugin::OperationAnswer& answer,
                                     TimeNs now) { plugins_->answer(worker, call, operation, answer, now); }});
  plugins_->serve_messages(
      {[this](plugin::Operation operation, TimeNs now) { dispatcher_->on_operation(std::move(operation), now); },
       [this](plugin::CallNumber call, plugin::OperationNumber operation, TimeNs) {
         dispatcher_->on_message_taken(call, operation);
       },
       [this](plugin::CallNumber call, TimeNs now) { dispatcher_->on_call_ended(call, now); }});
  dispatcher_->add_resources(
      function_section([this] { return plugins_->status(); }, [this] { return plugins_->changes(); }));
  plugins_->start(monotonic_ns());
}

Status Agent::join_samplers() {
  OFP_ASSIGN(samplers_, Samplers::make(*loop_, settings_.sampling, monotonic_ns()));
  loop_->add(*samplers_);
  std::vector<std::string> expected;
  for (const HostSettings& host : settings_.sampling.hosts) expected.push_back(host.name);
  if (!settings_.sampling.sources.empty()) expected.push_back(settings_.sampling.own_name);
  const auto visit = [this](const SampleVisitor& visitor) {
    samplers_->visit(visitor);
    for (const exchange::Gauges::Set* set : dispatcher_->gauges().sets()) {
      if (set->newest_at != never) visitor(set->schema, set->newest, set->newest_at);
    }
  };
  alarms_ = std::make_unique<AlarmWatch>(*loop_, settings_.alarms, settings_.sampling.interval_ns, visit, expected,
                                         monotonic_ns());
  loop_->add(*alarms_);
  records_ = std::make_unique<SampleRecords>(settings_.dispatcher.exchanges, settings_.sampling.interval_ns, visit,
                                             dispatcher_->exchanges(), monotonic_ns());
  loop_->add(*records_);
  if (keeper_) actuators_ = std::make_unique<Actuators>(*loop_, std::move(*keeper_));
  dispatcher_->exchanges().serve_decisions(visit, [this](std::uint32_t actuator, std::uint64_t value, TimeNs until,
                                                         exchange::ExchangeService::SetDone done) {
    if (!actuators_) return done(fail(Error::unsupported, "no actuator is configured ([[actuator]])"), monotonic_ns());
    actuators_->set(actuator, value, until, std::move(done), monotonic_ns());
  });
  return {};
}

void Agent::join_status() {
  status_requests_ = std::make_unique<loop::Mailbox<int>>(*loop_, 2, [this](int, TimeNs now) {
    if (!tcp_) return publish(std::nullopt, now);
    tcp_->ask_status([this](TcpStatus tcp, TimeNs at) { publish(std::move(tcp), at); }, now);
  });
  loop_->add(*status_requests_);
  board_ = std::make_unique<StatusBoard>([this] { (void)status_requests_->post(0); });  // full: a request is under way
}

std::string Agent::flight() const { return flight_ ? flight_->text() : std::string(); }

std::string Agent::http() const { return settings_.http ? http_text(*settings_.http) : std::string(); }

Status Agent::change_keys(const AgentSettings& settings) {
  AgentSettings changed = settings_;
  changed.key_file = settings.key_file;
  changed.old_key_files = settings.old_key_files;
  changed.tls_certificate_file = settings.tls_certificate_file;
  changed.tls_key_file = settings.tls_key_file;
  OFP_TRY(check_exposure(changed));  // no address may lose a key or certificate that it needs
  OFP_ASSIGN(link::AgentPolicy policy, make_policy(changed, devices_, policy_->received, policy_->readers));
  std::optional<std::string> token;
  if (flight_ && settings.flight) {
    OFP_ASSIGN(token, read_token(settings.flight->token_file));
  }
  policy_ = std::make_shared<const link::AgentPolicy>(std::move(policy));
  acceptor_->set_policy(policy_);
  if (token) flight_->change_token(std::move(*token));
  settings_ = std::move(changed);
  return {};
}

// The other agent is reached as members of the group are.
Status Agent::make_relay(std::shared_ptr<ReceivedFds> received) {
  TcpRelayOptions options;
  OFP_ASSIGN(options.agent, link::Address::parse(settings_.tcp->device));
  options.host.layout = {.request_slots = 1024, .reply_slots = 256, .streams_max = 1};
  options.host.key_file = settings_.key_file;
  options.host.tls_ca_file = settings_.group_tls_ca_file;
  options.host.devices = devices_;
  options.programs_max = settings_.tcp->limits.programs_max;
  tcp_relay_ = std::make_unique<TcpRelay>(*loop_, std::move(options), std::move(received));
  log(LogLevel::info, "tcp: programs use the connections of the agent at {}", settings_.tcp->device);
  return {};
}

// ---- channels

Status Agent::may_welcome(uid_t user) const {
  if (!MemoryReserve::is_whole())
    return fail(Error::no_memory, "this agent has no memory for another program now: try again");
  if (channel_watch_->size() >= settings_.channels_max)
    return fail(Error::too_large, "{} programs are connected, which is this agent's limit (limits.channels_max)",
                channel_watch_->size());
  if (const std::size_t own = dispatcher_->channels_of(user); own >= settings_.user_channels_max)
    return fail(Error::too_large,
                "{} programs of user {} are connected, which is the limit of each user (limits.user_channels_max)", own,
                user);
  return {};
}

void Agent::on_arrival(Acceptor::Arrival arrival, TimeNs now) {
  std::unique_ptr<link::AgentLink> link = std::move(arrival.link);
  if (settings_.profile.name != "none")
    link = std::make_unique<link::ShapedAgentLink>(std::move(link), settings_.profile);
  arrival_handed_ = arrival.handed;
  dispatcher_->add_channel(std::move(link), arrival.layout, arrival.client, now);
  if (std::exchange(arrival_handed_, false)) core_->handed_ended();  // it has not become a channel
}

bool Agent::Channels::poll(TimeNs now) { return agent_.dispatcher_->poll(now); }

bool Agent::Channels::fall_asleep(TimeNs now) {
  agent_.devices_->rest(now);  // links that are busy do it as they look
  return agent_.dispatcher_->fall_asleep(now) && agent_.channel_watch_->wakes_for_all();
}

bool Agent::Channels::expects_more() const { return agent_.dispatcher_->expects_more(); }

TimeNs Agent::Channels::next_deadline() const {
  return std::min(agent_.dispatcher_->next_deadline(), agent_.devices_->next_rest());
}

// ---- status

Result<Fd> Agent::listen_for_pages() {
  if (core_) {
    CoreEnds& ends = core_->ends();
    if (ends.pages) settings_.http = ends.pages_at;
    return std::move(ends.pages);
  }
  if (!settings_.http) return Fd();
  Status ready;
  if (settings_.http->kind == link::Address::Kind::unix_socket)
    ready = prepare_directory_of(settings_.http->path, false);
  Result<Fd> socket = ready ? link::listen_at(*settings_.http, false) : tl::unexpected<Failure>(ready.error());
  if (socket || settings_.http_named) return socket;
  log(LogLevel::warning, "no status pages are served: {}", socket.error().message);
  settings_.http.reset();
  return Fd();
}

Status Agent::start_pages(Fd listener) {
  if (!settings_.http) return {};
  auto server = HttpServer::start(std::move(listener),
                                  {*settings_.http, settings_.http_hosts, settings_.http_events, !core_}, *board_);
  if (!server) return tl::unexpected<Failure>(std::move(server).error());
  http_.emplace(std::move(*server));
  if (!core_ || !core_->ends().agent_pages) return {};
  CoreEnds& ends = core_->ends();
  auto all = HttpServer::start(std::move(ends.agent_pages),
                               {*ends.agent_pages_at, settings_.http_hosts, settings_.http_events, false, ends.others},
                               *board_);
  if (!all) return tl::unexpected<Failure>(std::move(all).error());
  all_pages_.emplace(std::move(*all));
  return {};
}

void Agent::publish(std::optional<TcpStatus> tcp, TimeNs now) {
  auto status = std::make_shared<AgentStatus>();
  status->name = settings_.name;
  status->version = agent_version;
  status->profile = settings_.profile.name;
  for (const link::Address& address : core_ ? core_->ends().addresses : settings_.listen)
    status->addresses.push_back(address.text());
  status->pid = getpid();
  status->incarnation = incarnation_;
  status->memory_bytes_max = settings_.dispatcher.mover.memory_bytes_max;
  status->cached_bytes_max = settings_.dispatcher.buffers.cached_bytes_max;
  status->channels_max = settings_.channels_max;
  status->handshakes_max = settings_.handshakes_max;
  status->streams_max = settings_.dispatcher.mover.streams_max;
  status->uptime_ns = now - started_at_;
  status->loop = loop_->counters();
  status->look_outs = dispatcher_->look_outs();
  status->jobs = jobs_->counters();
  status->acceptor = acceptor_->counters();
  status->mover = dispatcher_->mover().counters();
  status->move_latencies = dispatcher_->mover().latencies();
  status->request_latencies = dispatcher_->latencies();
  status->buffers = dispatcher_->buffers().counters();
  status->used_bytes = dispatcher_->buffers().used_bytes();
  status->free_bytes = dispatcher_->mover().credit().memory_free_for_programs();
  status->reserved_bytes = dispatcher_->pools().reserved();
  status->table = dispatcher_->pools().table().counters();
  status->remote_pools = dispatcher_->pools().counters();
  status->pools = dispatcher_->pools().pools();
  status->steps = dispatcher_->pools().table().steps();
  status->waiting_puts = dispatcher_->pools().waiting_puts(now);
  status->waiting_gets = dispatcher_->pools().waiting_gets(now);
  status->waiting_gets.add(dispatcher_->computes().waiting(now));
  if (const pool::Disk* disk = dispatcher_->pools().table().disk(); disk != nullptr) {
    status->disk = {disk->described(), disk->failure(), disk->counters(), 0};
    for (const auto& pool : status->pools) status->disk->spilled_bytes += pool.spilled_bytes;
  }
  status->channels = dispatcher_->channels();
  status->streams = dispatcher_->mover().streams(now);
  status->recent = dispatcher_->mover().recent(now);
  for (const service::FailedRequest& each : dispatcher_->failures().newest_last()) status->failures.push_back(each);
  status->failures_count = dispatcher_->failures().count();
  if (lines_) status->lines = lines_();
  const group::Group& group = group_->group();
  const group::Membership& membership = group.membership();
  status->members.push_back(membership.self());
  for (const auto& [name, member] : membership.others()) status->members.push_back(member);
  status->waiting_seeds = membership.waiting_seeds();
  status->directory_questions = dispatcher_->resources().waiting();
  status->taken_at = now;
  status->group = group.counters();
  status->reach = group.reach().counters();
  status->cards = devices_->figures();
  status->plugins = plugins_->status();
  status->sandbox = sandbox_;
  status->sifts = dispatcher_->sifts().pools();
  status->track_files = dispatcher_->sifts().track_files();
  status->queries = dispatcher_->queries().counters();
  status->computes = dispatcher_->computes().counters();
  status->tasks = dispatcher_->tasks().counters();
  status->messages = dispatcher_->tasks().messages().counters();
  status->exchanges = dispatcher_->exchanges().status(now);
  status->tcp = std::move(tcp);
  for (const pool::Trigger& each : dispatcher_->computes().triggers())
    status->triggers.push_back({each.options, each.counters, each.queue.size(), each.running, each.failure});
  status->alarms = alarms_->active(now);
  for (const exchange::AlarmRule& rule : alarms_->rules()) status->alarm_rules.push_back(rule.name);
  status->alarm_hook = alarms_->hook();
  status->sampled = samplers_->status(now);
  for (const exchange::Gauges::Set* set : dispatcher_->gauges().sets()) {
    Sampled& gauges = status->sampled.emplace_back(sampled_of(*set, now));
    const auto at = std::ranges::find(status->channels, set->channel, &Dispatcher::ChannelStatus::number);
    if (at != status->channels.end()) gauges.job_labels = at->client.job_labels;
  }
  board_->publish(std::move(status), monotonic_ns());
}

// ---- running

Agent::End Agent::run(Signals& signals, const std::function<void()>& reload) {
  const Status watched = loop_->watch(signals.fd(), EPOLLIN, [&](std::uint32_t, TimeNs) {
    const Signals::Arrived arrived = signals.take();
    if (arrived.reload) reload();
    if (arrived.stop) loop_->stop();
  });
  OFP_ASSERT(watched);
  loop_->run();
  const bool replaced = !replaced_.empty();
  if (replaced)
    log(LogLevel::error, "this agent ends: {}; each agent of a group needs a name of its own (agent.name)", replaced_);
  else
    group_->leave();
  loop_->unwatch(signals.fd());
  log(LogLevel::info, "stopping: {} channels", channel_watch_->size());
  board_->close();
  all_pages_.reset();
  http_.reset();
  flight_.reset();
  acceptor_->close();
  if (replaced)
    close_channels({Error::peer_lost, fmt::format("agent {} has ended: {}", settings_.name, replaced_)}, true);
  else
    close_channels({Error::closed, "the agent was stopped"}, false);
  disk_jobs_.reset();  // finishes the running jobs; queued ones are written here
  dispatcher_->flush();
  return replaced ? End::replaced : End::asked;
}

// Programs learn of the end at once, not by a reset.
void Agent::close_channels(const Failure& why, bool tells) {
  for (const Dispatcher::ChannelStatus& channel : dispatcher_->channels())
    dispatcher_->close_channel(channel.number, why, tells);
  for (int round = 0; round < 16 && channel_watch_->size() > 0; ++round) dispatcher_->poll(monotonic_ns());
  if (tcp_) tcp_->poll(monotonic_ns());  // tells peers as well
}

}  // namespace offpath::agent
