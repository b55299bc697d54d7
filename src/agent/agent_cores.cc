// The agent as one core of several: its listeners, its meeting with the other cores, and its end with the process that
// started it.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/agent.h"
#include "agent/flight.h"
#include "agent/services/dispatcher.h"
#include "base/log.h"

namespace offpath::agent {

namespace {

// A core whose neighbours are gone serves without them after this time.
constexpr TimeNs meeting_ns = 3 * second_ns;

}  // namespace

Status Agent::adopt_listeners() {
  acceptor_->count_handed({[this] { core_->loads->took(core_->core); }, [this] { core_->loads->ended(core_->core); }});
  for (CoreEnds::Listener& each : core_->listeners)
    OFP_TRY(acceptor_->adopt(std::move(each.socket), each.kind, each.handed));
  return {};
}

// Programs come when the cores know each other: a row that one of them has taken is then found by all.
Status Agent::join_cores() {
  if (!core_) return {};
  group_->on_change([this](const group::Change&, TimeNs) { meet_cores(); });
  (void)loop_->timers().start(monotonic_ns() + meeting_ns, [this](TimeNs, TimeNs) {
    if (core_serves_) return;
    log(LogLevel::warning, "not all cores of this agent were met; this one serves without them");
    serve_programs();
  });
  return loop_->watch(core_->control.get(), EPOLLIN, [this](std::uint32_t, TimeNs) {
    char byte = 0;
    if (recv(core_->control.get(), &byte, sizeof byte, MSG_DONTWAIT) > 0) return;
    log(LogLevel::warning, "the process that started this core has ended");
    loop_->unwatch(core_->control.get());
    loop_->stop();
  });
}

void Agent::meet_cores() {
  const auto is_met = [this](const std::string& name) {
    const group::Member* const core = group_->membership().find(name);
    return core != nullptr && core->state == group::MemberState::alive;
  };
  if (!core_serves_ && std::ranges::all_of(settings_.dispatcher.cores, is_met)) serve_programs();
}

void Agent::serve_programs() {
  core_serves_ = true;
  for (const PoolSettings& pool : settings_.pools) {
    if (!sift::SiftService::is_own(pool.name)) continue;
    if (Status made = dispatcher_->make_pool(pool.name, pool.user.value_or(geteuid())); !made)
      log(LogLevel::error, "pool \"{}\" could not be made: {}", pool.name, made.error().message);
  }
  const std::string told = core_serves_mark + flight();
  if (send(core_->control.get(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    log(LogLevel::error, "the process that started this core does not hear it: {}", std::strerror(errno));
}

}  // namespace offpath::agent
