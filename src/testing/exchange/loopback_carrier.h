// Members of one process, in virtual time and by a seed: parcels are delayed, lost, doubled and reordered as set. For
// tests and simulations, and the model of the others.
//
// Read this first in src/testing/exchange, then loopback_members.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "exchange/carrier.h"

namespace offpath::exchange {

class LoopbackFabric {
 public:
  struct Faults {
    TimeNs delay_min_ns = 2 * microsecond_ns, delay_max_ns = 20 * microsecond_ns;
    double lost = 0, doubled = 0;
    double late = 0;  // of parcels that take up to late_ns
    TimeNs late_ns = 0;
  };
  LoopbackFabric(std::size_t members, std::uint64_t seed) : random_(seed), arriving_(members) {}

  void set_faults(const Faults& faults) { faults_ = faults; }
  // Parcels of `from` for `to` vanish while it says so.
  void set_cut(std::function<bool(MemberIndex from, MemberIndex to)> cut) { cut_ = std::move(cut); }
  void post(MemberIndex from, MemberIndex to, SharedBytes parcel, TimeNs now);
  [[nodiscard]] bool take(MemberIndex member, TimeNs now, const Carrier::Take& take);
  [[nodiscard]] TimeNs next_arrival(MemberIndex member) const;
  void forget(MemberIndex member) { arriving_[member].clear(); }  // it is another process now

 private:
  struct Arriving {
    MemberIndex from;
    SharedBytes parcel;
  };
  [[nodiscard]] bool happens(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }

  std::mt19937_64 random_;
  Faults faults_;
  std::function<bool(MemberIndex, MemberIndex)> cut_;
  std::vector<std::multimap<TimeNs, Arriving>> arriving_;
};

class LoopbackCarrier final : public Carrier {
 public:
  LoopbackCarrier(LoopbackFabric& fabric, MemberIndex self) : fabric_(fabric), self_(self) {}
  void send(MemberIndex to, SharedBytes parcel, TimeNs, TimeNs now) override {
    fabric_.post(self_, to, std::move(parcel), now);
  }
  [[nodiscard]] Status poll(TimeNs now, const Take& take) override {
    while (fabric_.take(self_, now, take)) {
    }
    return {};
  }

 private:
  LoopbackFabric& fabric_;
  MemberIndex self_;
};

}  // namespace offpath::exchange
