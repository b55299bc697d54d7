// The agent's status. The loop fills an AgentStatus when asked, at most every 100 ms; everything else, including
// formatting, happens on the threads that asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/connections/tcp_status.h"
#include "agent/recent_lines.h"
#include "agent/services/dispatcher.h"
#include "agent/status/acceptor_counters.h"
#include "agent/status/status_board.h"
#include "agent/telemetry/alarm_watch.h"
#include "agent/telemetry/sampled.h"
#include "link/card/card_device.h"
#include "loop/job_pool.h"
#include "loop/loop.h"
#include "plugin/workers.h"
#include "pool/compute/compute_service.h"
#include "pool/query/query_service.h"
#include "sift/sift_service.h"
#include "task/task_service.h"

namespace offpath::agent {

// The state of one [[trigger]].
struct TriggerStatus {
  pool::TriggerOptions options;
  pool::TriggerCounters counters;
  std::size_t waiting, running;
  std::string failure;  // of the last call; empty: it succeeded
};

struct AgentStatus {
  // constant after the start
  std::string name, version, profile;
  std::vector<std::string> addresses;
  std::int64_t pid = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t memory_bytes_max = 0, cached_bytes_max = 0, channels_max = 0, handshakes_max = 0, streams_max = 0;

  TimeNs uptime_ns = 0;
  loop::LoopCounters loop;
  channel::LookCounters look_outs;
  loop::JobPoolCounters jobs;
  AcceptorCounters acceptor;
  mover::MoverCounters mover;
  mover::MoverLatencies move_latencies{};
  service::RequestLatencies request_latencies{};
  service::BufferCacheCounters buffers;
  std::uint64_t used_bytes = 0, free_bytes = 0, reserved_bytes = 0;
  pool::FrameTableCounters table;
  std::vector<pool::Pools::PoolStatus> pools;
  std::vector<pool::PoolSteps> steps;
  pool::WaitingPuts waiting_puts;
  pool::ListedGets waiting_gets;
  pool::PoolsCounters remote_pools;
  struct DiskStatus {
    std::string where, failure;  // of the last write; empty: it succeeded
    pool::DiskCounters counters;
    std::uint64_t spilled_bytes = 0;  // of objects that are only on disk
  };
  std::optional<DiskStatus> disk;
  std::vector<Dispatcher::ChannelStatus> channels;
  std::vector<mover::Mover::StreamStatus> streams;
  mover::RecentRates recent;                     // of all streams, those that were closed too
  std::vector<service::FailedRequest> failures;  // the newest last, as the lines of the log
  std::uint64_t failures_count = 0;
  std::vector<LogLine> lines;
  bool shows_events = true;  // false: `lines` and the reasons of failures are left out

  std::vector<group::Member> members;   // this agent first, then the others by name
  std::size_t directory_questions = 0;  // of programs and members, that wait for a change
  std::size_t waiting_seeds = 0;        // addresses of members that have not answered yet
  TimeNs taken_at = 0;                  // the reference for the members' times
  group::GroupCounters group;
  group::ReachCounters reach;
  link::CardFigures cards;
  std::vector<sift::SiftService::PoolStatus> sifts;
  sift::TrackParts::Counters track_files;
  pool::QueryServiceCounters queries;
  pool::ComputeCounters computes;
  task::TaskCounters tasks;
  task::MessageCounters messages{};
  std::vector<exchange::ExchangeService::ExchangeStatus> exchanges;
  std::vector<TriggerStatus> triggers;
  std::optional<TcpStatus> tcp;
  std::vector<plugin::PluginStatus> plugins;
  std::optional<plugin::Sandbox> sandbox;  // the agent's system call filter; none: the kernel does not support it
  std::vector<Sampled> sampled;            // hosts, this machine, gauges of programs
  std::vector<AlarmStatus> alarms;         // currently raised
  std::vector<std::string> alarm_rules;
  AlarmHook::Counters alarm_hook;
};

}  // namespace offpath::agent
