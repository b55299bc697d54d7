// Flows without an owner whose peers are not done, bounded for each program and in all.
#pragma once

#include <map>
#include <optional>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

class Orphans {
 public:
  explicit Orphans(std::uint32_t most) noexcept : most_(most) {}

  [[nodiscard]] std::uint64_t add(const FlowShare& share, FlowId flow);  // its number, which is not 0
  void remove(const FlowShare& share, std::uint64_t number) noexcept;
  // The flow to reset: the program's oldest if it has too many; the oldest of the user with the most if there are too
  // many in all.
  [[nodiscard]] std::optional<FlowId> one_too_many(const FlowShare& share) const;

 private:
  struct Program {
    std::uint32_t user;
    std::map<std::uint64_t, FlowId> flows;  // by number: the oldest first
  };

  std::uint32_t most_;
  std::size_t size_ = 0;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Program> programs_;
};

}  // namespace offpath::tcp
