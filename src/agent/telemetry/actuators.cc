#include "agent/telemetry/actuators.h"

#include <utility>

#include "base/log.h"

namespace offpath::agent {

Actuators::Actuators(loop::Loop& loop, actuator::KeeperProcess keeper) : loop_(loop), keeper_(std::move(keeper)) {
  const Status watched = loop_.watch(
      keeper_.socket(), EPOLLIN, [this](std::uint32_t, TimeNs now) { on_readable(now); }, loop::Loop::After::sleep);
  if (watched) return;
  is_there_ = false;
  log(LogLevel::error, "actuators: {}; functions cannot set them", watched.error().message);
}

Actuators::~Actuators() {
  if (is_there_) loop_.unwatch(keeper_.socket());
}

void Actuators::set(std::uint32_t actuator, std::uint64_t value, TimeNs until, Done done, TimeNs now) {
  if (!is_there_) return done(fail(Error::peer_lost, "the keeper of actuators has ended"), now);
  const std::uint64_t number = next_++;
  if (Status asked = keeper_.ask(number, actuator, value, until); !asked)
    return done(tl::unexpected(std::move(asked).error()), now);
  waiting_.emplace(number, std::move(done));
}

void Actuators::on_readable(TimeNs now) {
  auto answers = keeper_.receive();
  if (!answers) {
    is_there_ = false;
    loop_.unwatch(keeper_.socket());
    log(LogLevel::error, "{}: settings in force stay until they are changed; restart the agent",
        answers.error().message);
    for (auto& [number, done] : std::exchange(waiting_, {})) done(tl::unexpected(answers.error()), now);
    return;
  }
  for (actuator::Answer& each : *answers)
    if (auto node = waiting_.extract(each.number)) node.mapped()(std::move(each.value), now);
}

}  // namespace offpath::agent
