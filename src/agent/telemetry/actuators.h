// The agent's side of the keeper of actuators (actuator/keeper_process.h): settings go out, and each is answered once,
// by the keeper, or with an error when the keeper has ended.
#pragma once

#include <cstdint>
#include <map>

#include "actuator/keeper_process.h"
#include "exchange/exchange_service.h"
#include "loop/loop.h"

namespace offpath::agent {

class Actuators {
 public:
  using Done = exchange::ExchangeService::SetDone;

  Actuators(loop::Loop& loop, actuator::KeeperProcess keeper);
  ~Actuators();
  Actuators(const Actuators&) = delete;
  Actuators& operator=(const Actuators&) = delete;

  // `until`: CLOCK_BOOTTIME; 0: gives it up. Never waits; `done` may be called at once.
  void set(std::uint32_t actuator, std::uint64_t value, TimeNs until, Done done, TimeNs now);

 private:
  void on_readable(TimeNs now);

  loop::Loop& loop_;
  actuator::KeeperProcess keeper_;
  bool is_there_ = true;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Done> waiting_;  // by number
};

}  // namespace offpath::agent
