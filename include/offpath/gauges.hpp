// Values that the agent reads out of this program's memory. Channel::gauges gives them.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_GAUGES_HPP
#define OFFPATH_GAUGES_HPP

#include <offpath/handle.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace offpath {

// The unit and meaning of a gauge; empty texts: none.
struct Gauge {
  std::string name;
  std::string type = "u64";    // or i64, f64
  std::string kind = "gauge";  // or counter
  std::string unit{}, description{};
};

// Values that the agent reads from this program's memory; a change costs one store.
class Gauges {
 public:
  // One gauge. Setting it is one store, from any thread. Valid as long as its Gauges.
  class Slot {
   public:
    void set(std::uint64_t value) const noexcept { ofp_gauge_u64(at_, value); }
    void set(std::int64_t value) const noexcept { ofp_gauge_i64(at_, value); }
    void set(double value) const noexcept { ofp_gauge_f64(at_, value); }

   private:
    friend class Gauges;
    explicit Slot(volatile std::uint64_t* at) : at_(at) {}
    volatile std::uint64_t* at_;
  };
  // From this call on it has a value, initially 0.
  [[nodiscard]] Slot slot(std::uint32_t index) const {
    volatile std::uint64_t* at = ofp_gauge_slot(gauges_.get(), index);
    if (at == nullptr) throw std::out_of_range("there is no gauge " + std::to_string(index));
    return Slot(at);
  }
  void clear(std::uint32_t index) const noexcept { ofp_gauge_clear(gauges_.get(), index); }

 private:
  friend class Channel;
  Gauges(detail::SharedChannel channel, ofp_gauges* gauges) : channel_(std::move(channel)), gauges_(gauges) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_gauges> gauges_;
};

}  // namespace offpath

#endif  // OFFPATH_GAUGES_HPP
