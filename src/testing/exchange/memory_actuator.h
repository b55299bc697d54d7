// An actuator whose setting is a number in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actuator/actuator.h"

namespace offpath::actuator {

class MemoryActuator final : public Actuator {
 public:
  // `setting` outlives it.
  explicit MemoryActuator(std::uint64_t& setting) : setting_(setting) {}

  bool was_left() const override { return former_.has_value(); }
  Status hold() override {
    if (fails) return failure();
    if (!former_) former_ = setting_;
    return {};
  }
  Status set(std::uint64_t value) override {
    if (fails || refuses) return failure();
    setting_ = value;
    return {};
  }
  Result<std::optional<std::string>> restore() override {
    if (fails) return failure();
    setting_ = *former_;
    return std::nullopt;
  }
  void release() override { former_.reset(); }

  bool fails = false, refuses = false;  // refuses: values only

 private:
  static tl::unexpected<Failure> failure() { return fail(Error::io, "a faulty actuator"); }
  std::uint64_t& setting_;
  std::optional<std::uint64_t> former_{};
};

}  // namespace offpath::actuator
