#include "plugin/workers.h"

#include <algorithm>

#include "base/backoff.h"
#include "base/config.h"
#include "base/log.h"

namespace offpath::plugin {

namespace {

std::string place_of(const PluginOptions& options, std::string_view function) {
  return fmt::format("plug-in '{}', function '{}'", options.name, function);
}

std::string rounded(TimeNs duration_ns) {
  const TimeNs unit = duration_ns >= 10 * second_ns        ? second_ns
                      : duration_ns >= 10 * millisecond_ns ? millisecond_ns
                                                           : microsecond_ns;
  return format_duration(duration_ns / unit * unit);
}

std::string names_of(const std::vector<FunctionInfo>& functions) {
  std::string names;
  for (const FunctionInfo& function : functions) names += (names.empty() ? "" : ", ") + function.name;
  return names;
}

// Whether outputs without memory of their own are in the call's rooms.
bool lies_in_its_rooms(const Call& call, const Outputs& outputs) {
  return std::ranges::all_of(outputs, [&](const Output& output) {
    const auto room = std::ranges::find(call.rooms, output.name, &Room::name);
    return !output.in_room || (room != call.rooms.end() && room->kept != 0 && output.bytes <= room->bytes);
  });
}

}  // namespace

Workers::Workers(std::vector<PluginOptions> plugins) {
  for (PluginOptions& options : plugins) add_plugin(std::move(options));
}

Workers::Plugin& Workers::add_plugin(PluginOptions options) {
  OFP_ASSERT(options.workers > 0);
  Plugin& plugin = plugins_.emplace_back();
  plugin.number = next_plugin_++;
  plugin.workers.resize(options.workers);
  plugin.options = std::move(options);
  return plugin;
}

Workers::Plugin* Workers::find_plugin(std::string_view name) {
  const auto found = std::ranges::find_if(
      plugins_, [&](const Plugin& plugin) { return !plugin.options.own && plugin.options.name == name; });
  return found == plugins_.end() ? nullptr : &*found;
}

Workers::Plugin& Workers::find_own(const std::shared_ptr<const PluginOptions>& own) {
  const auto found = std::ranges::find_if(plugins_, [&](const Plugin& plugin) { return plugin.owners.lock() == own; });
  if (found != plugins_.end()) return *found;
  Plugin& plugin = add_plugin(*own);
  plugin.options.own = true;
  plugin.owners = own;
  return plugin;
}

const PluginOptions& Workers::options(std::size_t plugin) const {
  const auto found = std::ranges::find(plugins_, plugin, &Plugin::number);
  OFP_ASSERT(found != plugins_.end());
  return found->options;
}

// A waiting or running call owns its plug-in, so these plug-ins have no calls.
void Workers::end_unused(Effects& effects) {
  bool any = false;
  for (Plugin& plugin : plugins_) {
    if (!plugin.options.own || !plugin.owners.expired()) continue;
    any = true;
    for (Worker& worker : plugin.workers)
      if (worker.state != Worker::State::none && worker.state != Worker::State::leaving) kill(plugin, worker, effects);
  }
  if (!any) return;
  std::erase_if(plugins_, [](const Plugin& plugin) {
    return plugin.options.own && plugin.owners.expired() &&
           std::ranges::all_of(plugin.workers,
                               [](const Worker& worker) { return worker.state == Worker::State::none; });
  });
  find_next_deadline();
}

std::pair<Workers::Plugin*, Workers::Worker*> Workers::find_worker(WorkerNumber number) {
  for (Plugin& plugin : plugins_) {
    for (Worker& worker : plugin.workers) {
      if (worker.state != Worker::State::none && worker.number == number) return {&plugin, &worker};
    }
  }
  return {nullptr, nullptr};
}

// ---- calls

Status Workers::check_call(Plugin& plugin, const Call& call, TimeNs deadline_ns, TimeNs now) const {
  if (!is_function_name(call.function))
    return fail(Error::invalid, "plug-in '{}': a function's name has 1 to {} letters, digits, _ . -",
                plugin.options.name, name_bytes_max);
  const std::string place = place_of(plugin.options, call.function);
  if (!plugin.functions.empty() &&
      std::ranges::find(plugin.functions, call.function, &FunctionInfo::name) == plugin.functions.end())
    return fail(Error::not_found, "{}: there is no such function; there are {}", place, names_of(plugin.functions));
  if (deadline_ns <= now) return fail(Error::timeout, "{}: the deadline had passed when it was requested", place);
  const bool alive = std::ranges::any_of(plugin.workers, [](const Worker& worker) {
    return worker.state != Worker::State::none && worker.state != Worker::State::leaving;
  });
  if (!plugin.failure.empty() && !alive && plugin.not_before > now)
    return fail(Error::function_failed, "{}: {}; the next attempt is in {}", place, plugin.failure,
                rounded(plugin.not_before - now));
  if (plugin.waiting.size() >= plugin.options.waiting_max)
    return fail(Error::would_block, "{}: {} calls are waiting, which is the limit (plugin.waiting_max)", place,
                plugin.waiting.size());
  return {};
}

Result<CallNumber> Workers::call(Call call, TimeNs now, Effects& effects) {
  Plugin* plugin = find_plugin(call.plugin);
  if (plugin == nullptr && call.own) plugin = &find_own(call.own);
  if (plugin == nullptr) {
    std::string names;
    for (const Plugin& each : plugins_)
      if (!each.options.own) names += (names.empty() ? "" : ", ") + each.options.name;
    if (!call.own_refused.empty())
      return fail(Error::denied, "plug-in '{}' is not configured, and the program's own may not run: {}",
                  is_function_name(call.plugin) ? call.plugin : "?", call.own_refused);
    return fail(Error::not_found, "there is no plug-in '{}'; {}", is_function_name(call.plugin) ? call.plugin : "?",
                names.empty() ? "this agent's configuration names none" : "there are " + names);
  }
  const TimeNs deadline_ns = std::min(call.deadline_ns, deadline_after(now, plugin->options.deadline_ns));
  if (Status checked = check_call(*plugin, call, deadline_ns, now); !checked) {
    ++plugin->counters.refused;
    return tl::unexpected<Failure>(std::move(checked).error());
  }
  const CallNumber number = next_call_++;
  ++plugin->counters.calls;
  const std::optional<std::size_t> place = lane_place(*plugin, call);
  plugin->waiting.push_back({number, std::make_shared<const Call>(std::move(call)), now, deadline_ns, place});
  give_out(*plugin, now, effects);
  find_next_deadline();
  return number;
}

bool Workers::cancel(CallNumber number, TimeNs now, Effects& effects) {
  for (Plugin& plugin : plugins_) {
    const auto waits = std::ranges::find(plugin.waiting, number, &Taken::number);
    const auto runs = std::ranges::find_if(plugin.workers, [&](const Worker& worker) {
      return worker.state == Worker::State::running && worker.taken.number == number;
    });
    if (waits == plugin.waiting.end() && runs == plugin.workers.end()) continue;
    const Taken taken = waits != plugin.waiting.end() ? *waits : runs->taken;
    if (waits != plugin.waiting.end()) {
      plugin.waiting.erase(waits);
    } else {
      count_time(plugin, *runs, now);
      runs->state = Worker::State::abandoned;
      runs->deadline_ns = std::min(runs->deadline_ns, now + cancel_grace_ns);
      effects.emplace_back(std::in_place_type<CancelEffect>, CancelEffect{runs->number, number});
    }
    end_call(plugin, taken, &PluginCounters::cancelled,
             fail(Error::cancelled, "{}: cancelled", place_of(plugin.options, taken.call->function)), effects);
    find_next_deadline();
    return true;
  }
  return false;
}

// Not inlined: otherwise GCC 12 warns that absent outputs are read (maybe-uninitialized).
[[gnu::noinline]] void Workers::end_call(Plugin& plugin, const Taken& taken, Counter counter, Outcome outcome,
                                         Effects& effects) {
  ++(plugin.counters.*counter);
  effects.emplace_back(std::in_place_type<ReplyEffect>, ReplyEffect{taken.number, std::move(outcome)});
}

// Adds the time of the call that a worker runs. `now` may be the time of a round in which the call was sent later.
void Workers::count_time(Plugin& plugin, const Worker& worker, TimeNs now) {
  const TimeNs ended = std::max(now, worker.since);
  plugin.counters.running_ns += ended - worker.since;
  if (worker.taken.call->report) worker.taken.call->report->ended = ended;
}

void Workers::on_sent(WorkerNumber number, CallNumber call, TimeNs at) {
  const auto [plugin, worker] = find_worker(number);
  if (worker == nullptr || worker->state != Worker::State::running || worker->taken.number != call) return;
  if (at <= worker->since) return;
  plugin->counters.waiting_ns += at - worker->since;
  worker->since = at;
  if (worker->taken.call->report) *worker->taken.call->report = {number, at, at};
}

// The call of a worker that runs one, with a failure. An abandoned call was already answered.
void Workers::end_running(Plugin& plugin, Worker& worker, Counter counter, Failure failure, TimeNs now,
                          Effects& effects) {
  if (worker.state != Worker::State::running) return;
  count_time(plugin, worker, now);
  failure.message = fmt::format("{}: {}", place_of(plugin.options, worker.taken.call->function), failure.message);
  end_call(plugin, worker.taken, counter, tl::unexpected<Failure>(std::move(failure)), effects);
}

// ---- workers

void Workers::start(TimeNs now, Effects& effects) {
  for (Plugin& plugin : plugins_) start_worker(plugin, plugin.workers.front(), now, effects);
  find_next_deadline();
}

void Workers::start_worker(Plugin& plugin, Worker& worker, TimeNs now, Effects& effects) {
  worker = Worker();
  worker.state = Worker::State::starting;
  worker.number = next_worker_++;
  worker.since = now;
  worker.deadline_ns = deadline_after(now, plugin.options.start_deadline_ns);
  ++plugin.counters.starts;
  effects.emplace_back(std::in_place_type<StartEffect>, StartEffect{worker.number, plugin.number});
}

// A lane's call runs only in its lane's place. A lane of a team gets, at its first call, a place with as few lanes of
// its team as possible; of these one with as few lanes of other teams as possible; of these the next from its own
// number on.
std::optional<std::size_t> Workers::lane_place(Plugin& plugin, const Call& call) {
  if (call.lanes == 0) return std::nullopt;
  const std::size_t places = plugin.workers.size(), usual = call.lane % places;
  if (!call.team) return usual;
  if (const auto known = plugin.team_places.find(call.team); known != plugin.team_places.end()) return known->second;
  std::erase_if(plugin.team_places, [](const auto& each) { return each.first.expired(); });
  std::vector<std::pair<std::size_t, std::size_t>> lanes(places);  // of its team, of all teams
  for (const auto& [lane, place] : plugin.team_places) {
    const auto team = lane.lock();
    lanes[place].first += team && *team == *call.team ? 1 : 0;
    ++lanes[place].second;
  }
  std::size_t best = usual;
  for (std::size_t step = 1; step < places; ++step) {
    const std::size_t place = (usual + step) % places;
    if (lanes[place] < lanes[best]) best = place;
  }
  plugin.team_places.emplace(call.team, best);
  return best;
}

// Whether a worker in this place would have work: for a waiting lane, or because more calls wait for any worker than
// workers are being started.
bool Workers::lacks(const Plugin& plugin, std::size_t place) {
  if (plugin.workers[place].state != Worker::State::none) return false;
  std::size_t any = 0;
  for (const Taken& taken : plugin.waiting) {
    if (!taken.place)
      ++any;
    else if (*taken.place == place)
      return true;
  }
  return any > static_cast<std::size_t>(std::ranges::count(plugin.workers, Worker::State::starting, &Worker::state));
}

// Assigns calls to idle workers, and starts as many new workers as calls are left, within the limit.
void Workers::give_out(Plugin& plugin, TimeNs now, Effects& effects) {
  for (std::size_t place = 0; place < plugin.workers.size() && !plugin.waiting.empty(); ++place) {
    Worker& worker = plugin.workers[place];
    if (worker.state != Worker::State::idle || worker.deaf_until_ns != never) continue;
    const auto next =
        std::ranges::find_if(plugin.waiting, [&](const Taken& taken) { return taken.place.value_or(place) == place; });
    if (next == plugin.waiting.end()) continue;
    worker.lines = 0;
    worker.taken = std::move(*next);
    plugin.waiting.erase(next);
    worker.state = Worker::State::running;
    worker.since = now;
    worker.deadline_ns = worker.taken.deadline_ns;
    plugin.counters.waiting_ns += now - worker.taken.taken_at;
    if (worker.taken.call->report) *worker.taken.call->report = {worker.number, now, now};
    effects.emplace_back(std::in_place_type<SendEffect>,
                         SendEffect{worker.number, worker.taken.number, worker.taken.call, worker.taken.deadline_ns});
  }
  if (now < plugin.not_before) return;
  for (std::size_t place = 0; place < plugin.workers.size(); ++place) {
    // After a crash, one worker alone is started as a trial.
    if (plugin.failures > 0 && std::ranges::count(plugin.workers, Worker::State::starting, &Worker::state) > 0) return;
    if (lacks(plugin, place)) start_worker(plugin, plugin.workers[place], now, effects);
  }
}

void Workers::kill(Plugin& plugin, Worker& worker, Effects& effects) {
  worker.state = Worker::State::leaving;
  worker.deadline_ns = worker.deaf_until_ns = never;
  worker.blame_taken = true;
  ++plugin.counters.kills;
  effects.emplace_back(std::in_place_type<KillEffect>, KillEffect{worker.number});
}

// The first failure has no delay: the next call gets a new worker. Then 10 ms, 20, 40 and so on.
void Workers::count_failure(Plugin& plugin, TimeNs now) {
  ++plugin.failures;
  if (plugin.failures == 1) return;
  plugin.not_before = now + backoff_ns(backoff_first_ns, plugin.failures - 2, backoff_most_ns);
}

// Waiting calls would only wait for the next failure, unless this plug-in has other workers.
void Workers::fail_start(Plugin& plugin, Worker& worker, const std::string& reason, TimeNs now, Effects& effects) {
  std::string failure = fmt::format("{} cannot be used: {}", plugin.options.path, reason);
  if (failure != plugin.failure) log(LogLevel::error, "plug-in '{}': {}", plugin.options.name, failure);
  if (failure != plugin.failure) ++changes_;
  plugin.failure = std::move(failure);
  count_failure(plugin, now);
  // A broken file is not repaired within microseconds; until then calls fail at once.
  plugin.not_before = std::max(plugin.not_before, now + backoff_first_ns);
  const bool others = std::ranges::any_of(plugin.workers, [&](const Worker& each) {
    return &each != &worker && (each.state == Worker::State::idle || each.state == Worker::State::running ||
                                each.state == Worker::State::abandoned);
  });
  if (others) return;
  std::deque<Taken> waiting = std::exchange(plugin.waiting, {});
  for (const Taken& taken : waiting)
    end_call(plugin, taken, &PluginCounters::unstarted,
             fail(Error::function_failed, "{}: {}", place_of(plugin.options, taken.call->function), plugin.failure),
             effects);
}

void Workers::on_start_failed(WorkerNumber number, const Failure& failure, TimeNs now, Effects& effects) {
  const auto [plugin, worker] = find_worker(number);
  if (worker == nullptr) return;
  worker->state = Worker::State::none;
  fail_start(*plugin, *worker, failure.message, now, effects);
  give_out(*plugin, now, effects);
  find_next_deadline();
}

void Workers::on_ready(Plugin& plugin, Worker& worker, Ready ready, TimeNs now, Effects& effects) {
  if (ready.protocol != protocol_version) {
    fail_start(plugin, worker,
               fmt::format("offpath-worker speaks version {}, this agent {}: was it upgraded while the agent ran?",
                           ready.protocol, protocol_version),
               now, effects);
    return kill(plugin, worker, effects);
  }
  if (plugin.functions.empty() || !plugin.failure.empty()) ++changes_;
  if (plugin.functions.empty() || !plugin.failure.empty())
    log(LogLevel::info, "plug-in '{}': {} has {}", plugin.options.name, plugin.options.path, names_of(ready.functions));
  plugin.functions = std::move(ready.functions);
  plugin.confinement = std::move(ready.confinement);
  plugin.failure.clear();
  worker.state = Worker::State::idle;
  worker.deadline_ns = never;
  refuse_unknown(plugin, effects);
}

// Calls accepted before the functions were known.
void Workers::refuse_unknown(Plugin& plugin, Effects& effects) {
  std::erase_if(plugin.waiting, [&](const Taken& taken) {
    if (std::ranges::find(plugin.functions, taken.call->function, &FunctionInfo::name) != plugin.functions.end())
      return false;
    end_call(plugin, taken, &PluginCounters::failed,
             fail(Error::not_found, "{}: there is no such function; there are {}",
                  place_of(plugin.options, taken.call->function), names_of(plugin.functions)),
             effects);
    return true;
  });
}

void Workers::on_finished(Plugin& plugin, Worker& worker, Finished finished, TimeNs now, Effects& effects) {
  plugin.failures = 0;
  plugin.not_before = 0;
  const Call& call = *worker.taken.call;
  std::uint64_t bytes = 0;
  for (const Output& output : finished.outputs) bytes += output.bytes;  // 250 of less than 2^46
  const std::uint64_t bytes_max = std::min(call.output_bytes_max, plugin.options.memory_bytes);
  if (finished.status != 0) {
    end_running(plugin, worker, &PluginCounters::failed,
                {Error::function_failed, finished.error.empty()
                                             ? fmt::format("it returned {}", finished.status)
                                             : fmt::format("{} (it returned {})", finished.error, finished.status)},
                now, effects);
  } else if (bytes > bytes_max) {
    end_running(plugin, worker, &PluginCounters::failed,
                {Error::too_large, fmt::format("its outputs have {} bytes, at most {} are allowed", bytes, bytes_max)},
                now, effects);
  } else if (worker.state == Worker::State::running) {
    count_time(plugin, worker, now);
    end_call(plugin, worker.taken, &PluginCounters::done, std::move(finished.outputs), effects);
  }
  worker.taken = Taken();
  worker.state = Worker::State::idle;
  worker.deadline_ns = never;
}

// ---- events

// A message of a running function. False: it is another message.
bool Workers::on_operation(Worker& worker, WorkerEvent& event, Effects& effects) {
  const Taken& taken = worker.taken;
  if (const auto* read = std::get_if<TakenNotice>(&event); read != nullptr && read->call == taken.number) {
    effects.emplace_back(std::in_place_type<TakenEffect>, TakenEffect{read->call, read->operation});
    return true;
  }
  Operation operation;
  if (auto* sending = std::get_if<Sending>(&event); sending != nullptr && sending->notice.call == taken.number) {
    operation.number = sending->notice.operation;
    operation.lane = sending->notice.lane;
    operation.tag = sending->notice.tag;
    operation.bytes = sending->notice.bytes;
    operation.enclosed = std::move(sending->notice.enclosed);
    operation.memory = std::move(sending->memory);
  } else if (const auto* wanted = std::get_if<ReceiveNotice>(&event);
             wanted != nullptr && wanted->call == taken.number) {
    operation.kind = Operation::Kind::receive;
    operation.number = wanted->operation;
    operation.lane = wanted->lane;
    operation.tag = wanted->tag;
    operation.bytes = wanted->room;
  } else {
    return false;
  }
  if (worker.state == Worker::State::abandoned) {
    effects.emplace_back(
        std::in_place_type<AnswerEffect>,
        AnswerEffect{
            worker.number, taken.number, operation.number, {Error::cancelled, "the call is no longer wanted"}});
    return true;
  }
  operation.worker = worker.number;
  operation.call = taken.number;
  operation.session = taken.call->session;
  operation.deadline_ns = taken.deadline_ns - std::min(operation_grace_ns, (taken.deadline_ns - worker.since) / 10);
  effects.emplace_back(std::in_place_type<AskEffect>, AskEffect{std::move(operation)});
  return true;
}

void Workers::on_event(WorkerNumber number, WorkerEvent event, TimeNs now, Effects& effects) {
  const auto [plugin, worker] = find_worker(number);
  if (worker == nullptr || worker->state == Worker::State::leaving) return;
  const bool busy = worker->state == Worker::State::running || worker->state == Worker::State::abandoned;
  if (auto* line = std::get_if<LogLine>(&event); line != nullptr && busy) {
    if (++worker->lines > lines_max)
      return on_garbage(number, {Error::protocol, "more log lines than allowed"}, now, effects);
    if (!plugin->options.own)
      log(line->level, "{}: {}", place_of(plugin->options, worker->taken.call->function), line->line);
    return;
  }
  if (busy && on_operation(*worker, event, effects)) return;
  if (auto* ready = std::get_if<Ready>(&event); ready != nullptr && worker->state == Worker::State::starting) {
    on_ready(*plugin, *worker, std::move(*ready), now, effects);
  } else if (auto* unusable = std::get_if<Unusable>(&event);
             unusable != nullptr && worker->state == Worker::State::starting) {
    fail_start(*plugin, *worker, unusable->reason, now, effects);
    kill(*plugin, *worker, effects);
  } else if (auto* finished = std::get_if<Finished>(&event);
             finished != nullptr && busy && finished->call == worker->taken.number) {
    if (!lies_in_its_rooms(*worker->taken.call, finished->outputs))
      return on_garbage(number, {Error::protocol, "an output in a room that does not exist"}, now, effects);
    on_finished(*plugin, *worker, std::move(*finished), now, effects);
  } else {
    return on_garbage(number, {Error::protocol, "an unexpected message"}, now, effects);
  }
  give_out(*plugin, now, effects);
  find_next_deadline();
}

void Workers::on_garbage(WorkerNumber number, const Failure& failure, TimeNs now, Effects& effects) {
  const auto [plugin, worker] = find_worker(number);
  if (worker == nullptr || worker->state == Worker::State::leaving) return;
  if (failure.code == Error::peer_lost) {
    // It has probably ended: on_exit follows with the reason. If it has closed its socket and lives, it is killed.
    worker->deaf_until_ns = std::min(worker->deaf_until_ns, now + exit_grace_ns);
    return find_next_deadline();
  }
  kill_liar(*plugin, *worker, fmt::format("it sent an invalid message: {}", failure.message), now, effects);
  find_next_deadline();
}

void Workers::kill_liar(Plugin& plugin, Worker& worker, const std::string& reason, TimeNs now, Effects& effects) {
  log(LogLevel::warning, "plug-in '{}': a worker is killed: {}", plugin.options.name, reason);
  if (worker.state == Worker::State::starting) {
    fail_start(plugin, worker, reason, now, effects);
  } else {
    count_failure(plugin, now);
    end_running(plugin, worker, &PluginCounters::crashed, {Error::function_failed, "its worker was killed: " + reason},
                now, effects);
  }
  kill(plugin, worker, effects);
}

void Workers::on_refused(WorkerNumber number, Failure failure, TimeNs now, Effects& effects) {
  const auto [plugin, worker] = find_worker(number);
  if (worker == nullptr || (worker->state != Worker::State::running && worker->state != Worker::State::abandoned))
    return;
  end_running(*plugin, *worker, &PluginCounters::failed, std::move(failure), now, effects);
  worker->taken = Taken();
  worker->state = Worker::State::idle;
  worker->deadline_ns = never;
  give_out(*plugin, now, effects);
  find_next_deadline();
}

void Workers::on_exit(WorkerNumber number, const Exit& exit, TimeNs now, Effects& effects) {
  const auto [plugin, worker] = find_worker(number);
  if (worker == nullptr) return;
  if (!worker->blame_taken) {
    ++plugin->counters.unexpected_exits;
    if (worker->state == Worker::State::starting) {
      fail_start(*plugin, *worker, fmt::format("its worker {} while loading it", exit_text(exit)), now, effects);
    } else {
      log(LogLevel::warning, "plug-in '{}': a worker {}", plugin->options.name, exit_text(exit));
      count_failure(*plugin, now);
      end_running(*plugin, *worker, &PluginCounters::crashed,
                  {Error::function_failed, fmt::format("its worker {} while running it", exit_text(exit))}, now,
                  effects);
    }
  }
  *worker = Worker();
  give_out(*plugin, now, effects);
  find_next_deadline();
}

// ---- time

void Workers::on_time(TimeNs now, Effects& effects) {
  if (now < next_deadline_) return;
  for (Plugin& plugin : plugins_) pass_time(plugin, now, effects);
  find_next_deadline();
}

void Workers::pass_time(Plugin& plugin, TimeNs now, Effects& effects) {
  std::erase_if(plugin.waiting, [&](const Taken& taken) {
    if (taken.deadline_ns > now) return false;
    end_call(plugin, taken, &PluginCounters::timed_out,
             fail(Error::timeout, "{}: the deadline of {} passed while it waited for a worker ({} of {} are busy)",
                  place_of(plugin.options, taken.call->function), rounded(taken.deadline_ns - taken.taken_at),
                  std::ranges::count(plugin.workers, Worker::State::running, &Worker::state), plugin.workers.size()),
             effects);
    return true;
  });
  for (Worker& worker : plugin.workers) {
    if (worker.deaf_until_ns <= now) kill_liar(plugin, worker, "it closed its socket", now, effects);
    if (worker.deadline_ns > now) continue;
    if (worker.state == Worker::State::starting)
      fail_start(
          plugin, worker,
          fmt::format("it did not load within {} (plugin.start_deadline)", rounded(plugin.options.start_deadline_ns)),
          now, effects);
    end_running(plugin, worker, &PluginCounters::timed_out,
                {Error::timeout, fmt::format("the deadline of {} passed while it ran; its worker was killed",
                                             rounded(worker.deadline_ns - worker.taken.taken_at))},
                now, effects);
    kill(plugin, worker, effects);
  }
  give_out(plugin, now, effects);
}

void Workers::find_next_deadline() noexcept {
  next_deadline_ = never;
  for (const Plugin& plugin : plugins_) {
    for (const Taken& taken : plugin.waiting) next_deadline_ = std::min(next_deadline_, taken.deadline_ns);
    bool may_start = false;
    for (std::size_t place = 0; place < plugin.workers.size(); ++place) {
      next_deadline_ =
          std::min({next_deadline_, plugin.workers[place].deadline_ns, plugin.workers[place].deaf_until_ns});
      may_start = may_start || lacks(plugin, place);
    }
    const bool nobody = std::ranges::none_of(
        plugin.workers, [](const Worker& worker) { return worker.state == Worker::State::starting; });
    if (may_start && nobody) next_deadline_ = std::min(next_deadline_, plugin.not_before);
  }
}

std::vector<PluginStatus> Workers::status() const {
  std::vector<PluginStatus> all;
  for (const Plugin& plugin : plugins_) {
    PluginStatus status;
    status.name = plugin.options.name;
    status.path = plugin.options.path;
    status.failure = plugin.failure;
    status.functions = plugin.functions;
    status.own = plugin.options.own;
    status.confinement = plugin.confinement;
    status.workers_max = plugin.options.workers;
    for (const Worker& worker : plugin.workers) {
      if (worker.state != Worker::State::none) ++status.workers;
      if (worker.state == Worker::State::running || worker.state == Worker::State::abandoned) ++status.running;
    }
    status.waiting = plugin.waiting.size();
    status.waiting_max = plugin.options.waiting_max;
    status.counters = plugin.counters;
    all.push_back(std::move(status));
  }
  return all;
}

}  // namespace offpath::plugin
