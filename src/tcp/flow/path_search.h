// Finds the largest segment of a path without messages of routers: packetization-layer path MTU discovery (RFC 4821). A
// search begins when segments have shrunk, after timeouts in a row or by ICMP. It sends one larger segment at a time
// amid others; the loss of a probe alone is not a sign of congestion. The first probe has the former size, because the
// path was often dead or has changed; then the search proceeds by halves.
#pragma once

#include <cstdint>

#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class PathSearch {
 public:
  static constexpr std::uint16_t precision = 16;    // bytes: less is not worth a probe
  static constexpr std::uint16_t first_mtu = 1024;  // RFC 4821, 7.2: after timeouts in a row

  void begin(std::uint16_t most) noexcept {
    most_ = most;
    tried_ = 0;
    failed_ = probed_ = false;
  }
  // Bytes of the next probe, or 0.
  [[nodiscard]] std::uint16_t next(std::uint16_t mss) const noexcept {
    if (tried_ != 0 || most_ <= mss) return 0;
    return failed_ ? static_cast<std::uint16_t>(mss + (most_ - mss + 1) / 2) : most_;
  }
  [[nodiscard]] bool searches() const noexcept { return most_ != 0; }
  [[nodiscard]] bool without_probe() const noexcept { return searches() && !probed_; }      // since it began
  [[nodiscard]] SequenceRange probe() const noexcept { return {begin_, begin_ + tried_}; }  // empty if no probe is in
                                                                                            // flight
  void sent(Sequence begin, std::uint16_t bytes) noexcept {
    begin_ = begin;
    tried_ = bytes;
    probed_ = true;
  }
  // Resent in smaller segments: the arrival of the bytes proves nothing any more.
  void sent_again(SequenceRange what) noexcept {
    if (what.begin < probe().end && begin_ < what.end) tried_ = 0;
  }
  // The probe's result. Returns the size of segments from now on.
  std::uint16_t arrived(std::uint16_t mss) noexcept {
    const std::uint16_t now = tried_ > mss ? tried_ : mss;
    tried_ = 0;
    end_if_close(now);
    return now;
  }
  void lost(std::uint16_t mss) noexcept {
    most_ = static_cast<std::uint16_t>(tried_ - 1);
    tried_ = 0;
    failed_ = true;
    end_if_close(mss);
  }

 private:
  void end_if_close(std::uint16_t mss) noexcept {
    if (most_ < mss + precision) most_ = 0;
  }

  Sequence begin_{};
  std::uint16_t most_ = 0, tried_ = 0;
  bool failed_ = false, probed_ = false;
};

}  // namespace offpath::tcp
