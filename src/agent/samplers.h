// The state machines of src/exchange that sample hosts and this machine, joined with sockets, clocks and the loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/sampled.h"
#include "agent/sampling_settings.h"
#include "exchange/sampling.h"
#include "exchange/udp_port.h"
#include "loop/loop.h"

namespace offpath::agent {

class Samplers final : public loop::Poller {
 public:
  // Reads the key, asks for addresses, opens sources: before programs may connect, for it may wait for a name server.
  [[nodiscard]] static Result<std::unique_ptr<Samplers>> make(loop::Loop& loop, const SamplingSettings& settings, TimeNs now);
  ~Samplers() override;
  Samplers(const Samplers&) = delete;
  Samplers& operator=(const Samplers&) = delete;

  [[nodiscard]] std::vector<Sampled> status(TimeNs now) const;
  // Every producer's schema and newest sample, where there is one.
  void visit(const SampleVisitor& visitor) const;

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs) override { return true; }
  [[nodiscard]] TimeNs next_deadline() const override;

 private:
  struct Host {
    Host(std::string where, exchange::SamplingOptions options, exchange::UdpPort at, TimeNs now)
        : address(std::move(where)), sampling(std::move(options), now), port(std::move(at)) {}
    std::string address;
    exchange::Sampling sampling;
    exchange::UdpPort port;
  };
  // The sources of this machine.
  struct Own {
    std::vector<std::shared_ptr<const SourceSettings>> settings;
    std::vector<char> memory;
    ofs_sources sources{};
    exchange::Schema schema;
    exchange::Sample newest;
    TimeNs next_at = 0, newest_at = never;
    std::uint64_t spent_ns = 0;
  };

  explicit Samplers(loop::Loop& loop) : loop_(loop) {}
  [[nodiscard]] Status open_hosts(const SamplingSettings& settings, TimeNs now);
  [[nodiscard]] Status open_own(const SamplingSettings& settings, TimeNs now);
  void on_readable(Host& host, TimeNs now);
  void send(Host& host);
  void read_own(TimeNs now);

  loop::Loop& loop_;
  TimeNs interval_ns_ = second_ns;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::unique_ptr<Own> own_;
  exchange::SamplingEffects effects_;
  std::vector<std::byte> buffer_;
};

}  // namespace offpath::agent
