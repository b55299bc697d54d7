// The configuration of one exchange of an agent (exchange_service.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "exchange/exchange.h"
#include "exchange/topology.h"

namespace offpath::exchange {

struct DecisionActuator {
  std::uint32_t number = 0;  // of the agent's
  std::string name;
  std::uint64_t min = 0, max = 0;
  TimeNs lease_ns = 0;
};

struct DecisionSettings {
  std::string plugin, function;
  std::string arguments;  // for the function
  std::vector<DecisionActuator> actuators;
};

struct ExchangeSettings {
  ExchangeOptions options;
  Shape shape;
  std::string tree_file{};             // of Shape::Kind::file: read before the service is made
  std::vector<std::string> members{};  // empty: all of the group
  std::string source{};         // of records: empty: a program publishes them; otherwise the agent's own, by set_record
  std::optional<uid_t> user{};  // a user whose programs may take part, besides the agent's own user's and root's
  std::optional<DecisionSettings> decides{};  // none: no function decides
};

}  // namespace offpath::exchange
