#include "agent/plugin_processes.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <utility>

#include "base/log.h"

namespace offpath::agent {

namespace {

constexpr unsigned messages_of_one_round = 16;  // a worker that floods the agent with lines delays no other

}  // namespace

std::string worker_program() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  std::string program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  // Works also after an upgrade has replaced the file that this process runs.
  return program.substr(0, program.rfind('/') + 1) + "offpath-worker";
}

PluginProcesses::PluginProcesses(loop::Loop& loop, std::vector<plugin::PluginOptions> plugins, std::string program)
    : loop_(loop), program_(std::move(program)), workers_(std::move(plugins)) {}

PluginProcesses::~PluginProcesses() {
  for (const auto& [number, process] : processes_) {
    loop_.unwatch(process.socket());
    loop_.unwatch(process.process());
  }
}

void PluginProcesses::start(TimeNs now) {
  workers_.start(now, effects_);
  carry_out(now);
}

Result<plugin::CallNumber> PluginProcesses::call(plugin::Call call, TimeNs now, Done done) {
  OFP_ASSIGN(const plugin::CallNumber number, workers_.call(std::move(call), now, effects_));
  calls_.emplace(number, std::move(done));
  return number;  // effects are carried out by the next poll: `done` is never called from here
}

bool PluginProcesses::cancel(plugin::CallNumber number, TimeNs now) { return workers_.cancel(number, now, effects_); }

bool PluginProcesses::poll(TimeNs now) {
  workers_.on_time(now, effects_);
  workers_.end_unused(effects_);
  // Picks up results of short calls before their descriptors' turn in the loop.
  std::vector<plugin::WorkerNumber> finished;
  for (auto& [number, process] : processes_)
    if (process.take_finished()) finished.push_back(number);
  for (const plugin::WorkerNumber number : finished) receive(number, messages_of_one_round, now);
  if (effects_.empty()) return false;
  carry_out(now);
  return true;
}

// ---- effects. Carrying one out may add new ones, and `done` may call functions: both are appended and done in turn.

void PluginProcesses::carry_out(TimeNs now) {
  while (!effects_.empty()) {
    plugin::Effects effects = std::exchange(effects_, {});
    for (plugin::Effect& effect : effects) std::visit([&](auto& each) { carry_out(each, now); }, effect);
  }
}

Status PluginProcesses::watch(plugin::WorkerNumber number, const plugin::WorkerProcess& process) {
  OFP_TRY(
      loop_.watch(process.socket(), EPOLLIN, [this, number](std::uint32_t, TimeNs now) { on_readable(number, now); }));
  return loop_.watch(process.process(), EPOLLIN, [this, number](std::uint32_t, TimeNs now) { on_ended(number, now); });
}

void PluginProcesses::carry_out(plugin::StartEffect& effect, TimeNs now) {
  const plugin::PluginOptions& options = workers_.options(effect.plugin);
  auto process = plugin::WorkerProcess::start(options, program_, received_->of(options.user.value_or(geteuid())));
  Status watched = process ? watch(effect.worker, *process) : Status(tl::unexpected<Failure>(process.error()));
  if (!watched) {
    if (process) loop_.unwatch(process->socket());
    return workers_.on_start_failed(effect.worker, watched.error(), now, effects_);
  }
  processes_.emplace(effect.worker, std::move(*process));
}

void PluginProcesses::carry_out(plugin::SendEffect& effect, TimeNs now) {
  const auto found = processes_.find(effect.worker);
  if (found == processes_.end()) return;  // it has ended, and so has the call
  const TimeNs sent_at = monotonic_ns();  // before, because the worker may return while the message is being sent
  Status sent = found->second.send(effect.number, *effect.call, effect.deadline_ns, effect.worker);
  if (sent) return workers_.on_sent(effect.worker, effect.number, sent_at);
  if (sent.error().code == Error::peer_lost) return workers_.on_garbage(effect.worker, sent.error(), now, effects_);
  workers_.on_refused(effect.worker, std::move(sent).error(), now, effects_);
}

void PluginProcesses::carry_out(plugin::CancelEffect& effect, TimeNs) {
  if (const auto found = processes_.find(effect.worker); found != processes_.end()) found->second.cancel(effect.number);
}

void PluginProcesses::carry_out(plugin::KillEffect& effect, TimeNs) {
  const auto found = processes_.find(effect.worker);
  if (found == processes_.end()) return;
  loop_.unwatch(found->second.socket());
  found->second.kill();
}

void PluginProcesses::carry_out(plugin::ReplyEffect& effect, TimeNs now) {
  const auto call = calls_.extract(effect.number);
  OFP_ASSERT(call);
  if (asking_.erase(effect.number) != 0) messages_.ended(effect.number, now);
  call.mapped()(std::move(effect.outcome), now);
}

void PluginProcesses::carry_out(plugin::AskEffect& effect, TimeNs now) {
  plugin::Operation& operation = effect.operation;
  if (!messages_.ask)
    return answer(operation.worker, operation.call, operation.number,
                  {fail(Error::unsupported, "this agent serves no messages")}, now);
  asking_.insert(operation.call);
  messages_.ask(std::move(operation), now);
}

void PluginProcesses::carry_out(plugin::TakenEffect& effect, TimeNs now) {
  if (messages_.taken) messages_.taken(effect.call, effect.operation, now);
}

void PluginProcesses::carry_out(plugin::AnswerEffect& effect, TimeNs now) {
  answer(effect.worker, effect.call, effect.operation, {tl::unexpected(std::move(effect.why))}, now);
}

void PluginProcesses::answer(plugin::WorkerNumber worker, plugin::CallNumber call, plugin::OperationNumber operation,
                             const plugin::OperationAnswer& answer, TimeNs now) {
  const auto found = processes_.find(worker);
  if (found == processes_.end()) return;
  if (Status sent = found->second.answer(call, operation, answer); !sent)
    workers_.on_garbage(worker, sent.error(), now, effects_);
}

// ---- events of processes

void PluginProcesses::receive(plugin::WorkerNumber number, unsigned messages_max, TimeNs now) {
  for (unsigned i = 0; i < messages_max; ++i) {
    const auto found = processes_.find(number);
    if (found == processes_.end()) return;
    auto event = found->second.receive();
    if (!event) {
      loop_.unwatch(found->second.socket());  // the worker sends no valid message any more
      return workers_.on_garbage(number, event.error(), now, effects_);
    }
    if (!*event) return;
    // A result may come within the round that gave out its call.
    workers_.on_event(number, std::move(**event), monotonic_ns(), effects_);
  }
}

void PluginProcesses::on_readable(plugin::WorkerNumber number, TimeNs now) {
  receive(number, messages_of_one_round, now);
  carry_out(now);
}

// Messages that it sent before its end count: the reason why it cannot be used, or a result.
void PluginProcesses::on_ended(plugin::WorkerNumber number, TimeNs now) {
  const auto found = processes_.find(number);
  if (found == processes_.end()) return;
  receive(number, plugin::lines_max + 2, now);
  const std::optional<plugin::Exit> exit = found->second.reap();
  if (!exit) return;
  loop_.unwatch(found->second.socket());
  loop_.unwatch(found->second.process());
  processes_.erase(found);
  workers_.on_exit(number, *exit, now, effects_);
  carry_out(now);
}

}  // namespace offpath::agent
