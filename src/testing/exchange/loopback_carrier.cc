#include "testing/exchange/loopback_carrier.h"

namespace offpath::exchange {

void LoopbackFabric::post(MemberIndex from, MemberIndex to, SharedBytes parcel, TimeNs now) {
  if ((cut_ && cut_(from, to)) || happens(faults_.lost)) return;
  const int copies = happens(faults_.doubled) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    const TimeNs most = happens(faults_.late) ? faults_.late_ns : faults_.delay_max_ns;
    const TimeNs delay =
        std::uniform_int_distribution<TimeNs>(faults_.delay_min_ns, std::max(most, faults_.delay_min_ns))(random_);
    arriving_[to].emplace(now + delay, Arriving{from, parcel});
  }
}

bool LoopbackFabric::take(MemberIndex member, TimeNs now, const Carrier::Take& take) {
  auto& arriving = arriving_[member];
  if (arriving.empty() || arriving.begin()->first > now) return false;
  const auto node = arriving.extract(arriving.begin());
  take(node.mapped().from, node.mapped().parcel);
  return true;
}

TimeNs LoopbackFabric::next_arrival(MemberIndex member) const {
  return arriving_[member].empty() ? never : arriving_[member].begin()->first;
}

}  // namespace offpath::exchange
