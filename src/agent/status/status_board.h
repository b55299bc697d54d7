// Passes a status (status.h) from the loop to the threads that ask for it, and writes it in the formats that they want.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace offpath::agent {

struct AgentStatus;

// Passes a status from the loop to other threads. No thread waits longer than `answer_ns`, even if the loop is stuck.
class StatusBoard {
 public:
  static constexpr TimeNs fresh_ns = 100 * millisecond_ns;
  static constexpr TimeNs answer_ns = second_ns;

  // `ask` makes the loop call publish(); it must not block.
  explicit StatusBoard(std::function<void()> ask) : ask_(std::move(ask)) {}

  // ---- any thread. Null: the loop did not answer, or the board is closed.
  [[nodiscard]] std::shared_ptr<const AgentStatus> get();
  // ---- the loop's thread
  void publish(std::shared_ptr<const AgentStatus> status, TimeNs now);
  void close();  // ends all waits

 private:
  std::function<void()> ask_;
  std::mutex mutex_;
  std::condition_variable published_;
  std::shared_ptr<const AgentStatus> status_;
  TimeNs published_at_ = 0;
  std::uint64_t sequence_ = 0;
  bool asked_ = false, closed_ = false;
};

// Resource usage of this process, as the kernel counts it.
struct ProcessUsage {
  double cpu_s = 0;
  std::uint64_t resident_bytes = 0, own_resident_bytes = 0;  // own: neither files nor shared memory (frames)
  std::uint64_t threads = 0, descriptors_max = 0;
  bool no_new_privs = false;
  std::string effective{}, permitted{}, bounding{};  // capabilities, as the kernel writes them
};
[[nodiscard]] ProcessUsage process_usage();

[[nodiscard]] std::string status_json(const AgentStatus& status, const ProcessUsage& usage);
[[nodiscard]] std::string status_json_without_events(const AgentStatus& status, const ProcessUsage& usage);
// The columns of each stream: large, and therefore not part of the status.
[[nodiscard]] std::string schemas_json(const AgentStatus& status);
// Prometheus' text format, version 0.0.4; or OpenMetrics 1.0 if `openmetrics`.
[[nodiscard]] std::string metrics_text(const AgentStatus& status, const ProcessUsage& usage);
[[nodiscard]] std::string openmetrics_text(const AgentStatus& status, const ProcessUsage& usage);

}  // namespace offpath::agent
