// An actuator whose setting is a number in memory.
#pragma once

#include <cstdint>
#include <string>

#include "actuator/actuator.h"
#include "base/text.h"

namespace offpath::actuator {

class MemoryActuator final : public Actuator {
 public:
  // `setting` outlives it.
  explicit MemoryActuator(std::uint64_t& setting) : setting_(setting) {}

  Result<std::string> hold() override { return fails ? Result<std::string>(failure()) : std::to_string(setting_); }
  Status set(std::uint64_t value) override {
    if (fails || refuses) return failure();
    setting_ = value;
    return {};
  }
  Status restore(const std::string& held) override {
    if (fails) return failure();
    setting_ = *number_of<std::uint64_t>(held);
    return {};
  }
  void release() override {}

  bool fails = false, refuses = false;  // refuses: values only

 private:
  static tl::unexpected<Failure> failure() { return fail(Error::io, "a faulty actuator"); }
  std::uint64_t& setting_;
};

}  // namespace offpath::actuator
