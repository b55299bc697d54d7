// Joins the state machines of src/telemetry that sample hosts and this machine with sockets, clocks and the loop.
//
// Read this first in src/agent/telemetry, then sampled.h (the state of each producer), sample_records.h (records for
// other agents), and for alarms alarm_watch.h and alarm_hook.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/sampling_settings.h"
#include "agent/telemetry/sampled.h"
#include "loop/job_pool.h"
#include "loop/loop.h"
#include "telemetry/sampling.h"
#include "telemetry/udp_port.h"

namespace offpath::agent {

class Samplers final : public loop::Poller {
 public:
  // Reads the key and opens sources. Hosts' names are looked up on another thread, repeatedly while a name is unknown
  // or its host silent: no name server delays the agent, and a host may move.
  [[nodiscard]] static Result<std::unique_ptr<Samplers>> make(loop::Loop& loop, const SamplingSettings& settings,
                                                              TimeNs now);
  ~Samplers() override;
  Samplers(const Samplers&) = delete;
  Samplers& operator=(const Samplers&) = delete;

  [[nodiscard]] std::vector<Sampled> status(TimeNs now) const;
  // Every producer's schema and newest sample, if there is one.
  void visit(const SampleVisitor& visitor) const;

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs) override { return true; }
  [[nodiscard]] TimeNs next_deadline() const override { return next_at_; }

 private:
  struct Host {
    Host(std::string where, exchange::SamplingOptions options, TimeNs now)
        : address(std::move(where)), sampling(std::move(options), now) {}
    std::string address;
    exchange::Sampling sampling;
    std::optional<exchange::UdpPort> port;  // none: its address is still unknown
    TimeNs look_up_at = 0;                  // when to look its name up again; never: a look-up is under way
    std::string trouble;                    // the error of its look-up; empty: none
  };
  // The sources of this machine. A job reads them, because a sensor or a disk may take its time; the loop uses them
  // only while none does.
  struct Sources {
    ~Sources() { ofs_sources_close(&all); }
    std::vector<std::shared_ptr<const SourceSettings>> settings{};
    std::vector<char> memory{};
    ofs_sources all{};
    std::int64_t read_at_real_ns = 0;
    std::uint64_t spent_ns = 0;
  };
  struct Own {
    std::shared_ptr<Sources> sources;
    exchange::Schema schema;
    exchange::Sample newest;
    TimeNs next_at = 0, newest_at = never;
    TimeNs due = 0;  // of the next job; never: it is under way
    std::uint64_t spent_ns = 0, failures = 0;
  };

  explicit Samplers(loop::Loop& loop) : loop_(loop) {}
  [[nodiscard]] Status open_hosts(const SamplingSettings& settings, TimeNs now);
  [[nodiscard]] Status open_own(const SamplingSettings& settings, TimeNs now);
  void look_up(Host& host);
  void on_looked_up(Host& host, Result<exchange::UdpPort> port, TimeNs now);
  void on_readable(Host& host, TimeNs now);
  void send(Host& host);
  void read_own(TimeNs now);
  void on_read(bool sampled, bool well, TimeNs now);
  void note_deadline();

  loop::Loop& loop_;
  TimeNs interval_ns_ = second_ns;
  TimeNs next_at_ = 0;  // the earliest deadline: the loop asks in every round, and there may be many hosts
  std::vector<std::unique_ptr<Host>> hosts_;
  std::unique_ptr<loop::JobPool> names_;  // a thread of its own: a name server may take seconds. Destroyed before
                                          // hosts_
  std::unique_ptr<Own> own_;
  std::unique_ptr<loop::JobPool> reads_;  // of own_; a thread of its own
  exchange::SamplingEffects effects_;
  std::vector<std::byte> buffer_;
};

}  // namespace offpath::agent
