// Telemetry: a program's gauges, its part in an exchange, and the parcels of agents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// Values in a segment of the program, which the agent reads from now on (wire/areas/gauges_layout.h). Answered by Done,
// with the number of the gauges.
struct GaugesOpen {
  BufferRef memory;
  std::string_view name;
  Bytes schema;  // exchange::encode
};

struct GaugesClose {
  std::uint64_t number;
};

// Exchanges (wire/areas/exchange_area.h has the memory). The program takes part in one: its records are pulled from
// `area`, and views are pushed there. Done: the number for later requests.
struct ExchangeOpen {
  std::string_view name;
  bool publishes;              // the exchange's records come from this program
  std::uint64_t record_bytes;  // of the largest record: the size of the area's slots
  std::uint64_t view_bytes;
  BufferRef area;
  Bytes fields;  // an encoded ExchangeField each; empty: those of the configuration
};

// An ExchangeDescription is pushed to `room`, if it fits. Done: its length.
struct ExchangeInfo {
  std::uint64_t number;
  BufferRef room;
};

// Done with the number of the newest view in the area, when it is more than `after`, or when `wait_ns` has passed.
struct ExchangeWait {
  std::uint64_t number;
  std::uint64_t after;
  std::int64_t wait_ns;
};

// The grants that the program wants to give; they stay until changed, or until the program ends. Done: 1 if this agent
// leads and grants.
struct ExchangeTarget {
  std::uint32_t member;
  std::uint32_t zero;
  std::uint64_t amount;
};
static_assert(sizeof(ExchangeTarget) == 16);
struct ExchangeGrant {
  std::uint64_t number;
  std::vector<ExchangeTarget> targets;
};
inline constexpr std::size_t exchange_targets_max = 2048;  // of one request

struct ExchangeClose {
  std::uint64_t number;
};

// Agent to agent: a parcel (src/exchange/parcel.h) of exchange `tag`, or a part of a larger one: `parcel` counts the
// sender's parcels. The bytes are enclosed, or are to be pulled. Done when the reader has them.
struct PeerExchange {
  std::uint64_t tag;
  std::uint64_t parcel;
  std::uint64_t total_bytes;
  std::uint64_t offset;
  BufferRef part;
  Bytes bytes;  // enclosed; empty: pulled
};
inline constexpr std::uint64_t exchange_enclosed_max = 4096;
inline constexpr std::uint64_t exchange_part_max = 1 << 20;

// clang-format off: a list
#define OFFPATH_EXCHANGE_MESSAGES(X) \
  X(GaugesOpen) X(GaugesClose) X(ExchangeOpen) X(ExchangeInfo) X(ExchangeWait) X(ExchangeGrant) X(ExchangeClose) \
  X(PeerExchange)
// clang-format on
OFFPATH_EXCHANGE_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
