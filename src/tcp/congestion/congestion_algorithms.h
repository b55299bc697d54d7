// The congestion control algorithms; each has a file of its own.
#pragma once

#include "tcp/congestion/congestion.h"

namespace offpath::tcp {

// RFC 5681, RFC 6582.
class NewReno final : public CongestionControl {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "new_reno"; }
  [[nodiscard]] wire::TcpCongestion kind() const noexcept override { return wire::TcpCongestion::new_reno; }
  void on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept override;
  void on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs now) const noexcept override;
};

// RFC 9438.
class Cubic final : public CongestionControl {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "cubic"; }
  [[nodiscard]] wire::TcpCongestion kind() const noexcept override { return wire::TcpCongestion::cubic; }
  void on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept override;
  void on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs now) const noexcept override;
  void on_idle(Congestion& congestion, std::uint32_t mss, TimeNs idle_ns, TimeNs timeout_ns) const noexcept override;
  void undo(Congestion& congestion, const Congestion& before, std::uint32_t in_flight, std::uint32_t mss,
            TimeNs ago_ns) const noexcept override;
};

// RFC 8257's estimate of congestion, applied to a rate as TAS does (Kaufmann et al., EuroSys 2019).
class Dctcp final : public CongestionControl {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "dctcp"; }
  [[nodiscard]] wire::TcpCongestion kind() const noexcept override { return wire::TcpCongestion::dctcp; }
  [[nodiscard]] bool wants_ecn() const noexcept override { return true; }
  void begin(Congestion& congestion, std::uint32_t mss, TimeNs now) const noexcept override;
  void take_over(Congestion& congestion) const noexcept override;
  void on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept override;
  void on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs now) const noexcept override;
};

// Delay and its gradient (Mittal et al., SIGCOMM 2015).
class Timely final : public CongestionControl {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "timely"; }
  [[nodiscard]] wire::TcpCongestion kind() const noexcept override { return wire::TcpCongestion::timely; }
  void on_acknowledged(Congestion& congestion, const Acknowledged& what) const noexcept override;
  void on_loss(Congestion& congestion, std::uint32_t in_flight, std::uint32_t mss, TimeNs now) const noexcept override;
};

// Sets a rate and its window: one and a half round trips of it, at least four segments.
void set_rate(Congestion& congestion, double bytes_per_second, TimeNs rtt_ns, std::uint32_t mss) noexcept;
// As window_was_used, for a window that set_rate made: a paced flow has about one round trip of data in flight, in
// bursts.
[[nodiscard]] inline bool rate_was_used(const Congestion& congestion, const Acknowledged& what) noexcept {
  return congestion.rate == 0 ? window_was_used(congestion, what)
                              : 2 * (what.in_flight + 2ull * what.mss) >= congestion.window;
}

}  // namespace offpath::tcp
