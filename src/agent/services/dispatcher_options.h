// Options and limits of all services (dispatcher.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "channel/agent_end_options.h"
#include "exchange/exchange_settings.h"
#include "mover/options.h"
#include "pool/compute/compute_limits.h"
#include "pool/peers/pools_options.h"
#include "pool/query/query_limits.h"
#include "service/buffer_cache.h"
#include "sift/sift_service_options.h"
#include "task/task_limits.h"

namespace offpath::agent {

struct DispatcherOptions {
  mover::MoverOptions mover;
  service::BufferCacheOptions buffers;
  pool::PoolsOptions pools;
  pool::QueryServiceLimits queries;
  sift::SiftServiceOptions sifts;
  pool::ComputeLimits computes;
  task::TaskLimits tasks;
  channel::AgentEndOptions channels;
  TimeNs gauges_interval_ns = second_ns;   // between two reads of programs' gauges
  std::int64_t (*real_clock)() = nullptr;  // CLOCK_REALTIME; null: the time argument, as in a simulation
  TimeNs (*suspended)() = nullptr;         // time that the machine was suspended; null: 0, as in a simulation
  std::vector<exchange::ExchangeSettings> exchanges;
  std::uint64_t nonce = 0;              // random for each process
  std::vector<std::string> cores{};     // names of all cores of this agent, this one's among them; empty: it has one
  bool (*memory_is_there)() = nullptr;  // false: channels postpone new requests; null: always true
};

}  // namespace offpath::agent
