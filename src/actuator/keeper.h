// The settings of actuators in force, each with a lease: a value within its bounds until a time. When that has come, or
// all are given up, the actuator has the setting again that it had before the first one. A state machine without
// process or clock; keeper_process.h runs it in a process that outlives the agent.
//
// Times are of CLOCK_BOOTTIME: a machine that was suspended has kept a limit for that much longer than others expect.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actuator/actuator.h"
#include "base/clock.h"

namespace offpath::actuator {

class Keeper {
 public:
  struct Kept {
    std::unique_ptr<Actuator> actuator;
    std::string name;
    std::uint64_t min = 0, max = 0;
    TimeNs lease_ns = 0;
  };
  static constexpr TimeNs again_ns = second_ns;  // until a failed return to the former value is tried again

  // `say` gets a line for events without a request: failed restores, once until they succeed, and settings of other
  // processes.
  explicit Keeper(std::vector<Kept> kept, std::function<void(const std::string&)> say = {});

  // Restores the settings that a killed keeper has left. Called once, before the first set.
  void recover(TimeNs now);
  // Sets the value that is nearest within the bounds, and returns it. Its lease ends at `until`, or earlier if that is
  // longer than allowed. An error leaves the setting before it and its lease in force.
  [[nodiscard]] Result<std::uint64_t> set(std::uint32_t actuator, std::uint64_t value, TimeNs until, TimeNs now);
  // Returns it to its former setting now. An error: it stays, and is tried again when its lease ends, or earlier.
  [[nodiscard]] Status give_up(std::uint32_t actuator, TimeNs now);
  // Returns the first error, if any: that actuator is tried again.
  Status on_time(TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  // Gives up all of them.
  Status restore_all(TimeNs now);
  [[nodiscard]] bool holds_any() const noexcept;

 private:
  struct Entry {
    Kept kept;
    bool is_held = false;  // false: the former setting is in force
    bool has_said = false;
    TimeNs until = never;
  };
  [[nodiscard]] Status restore(Entry& entry, TimeNs now);
  static void forget(Entry& entry);
  std::vector<Entry> entries_;
  std::function<void(const std::string&)> say_;
};

}  // namespace offpath::actuator
