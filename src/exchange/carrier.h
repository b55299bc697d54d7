// A carrier brings parcels from one member to another. Every implementation keeps these rules, which tests/conformance
// tests.
//
//   - A parcel arrives whole or not at all, as it was sent, from the member that sent it. It may come late, or twice;
//     those of one member to another need not keep their order.
//   - send() never waits. A parcel that cannot arrive by its deadline may be left out, and a member that is slow,
//     stopped or dead costs the others nothing but its own parcels.
//   - poll() hands over the parcels that have arrived. It fails when the carrier has ended for good, and names the
//     cause.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/status.h"
#include "exchange/parcel.h"

namespace offpath::exchange {

class Carrier {
 public:
  using Take = std::function<void(MemberIndex from, SharedBytes parcel)>;
  virtual ~Carrier() = default;
  virtual void send(MemberIndex to, SharedBytes parcel, TimeNs deadline, TimeNs now) = 0;
  [[nodiscard]] virtual Status poll(TimeNs now, const Take& take) = 0;
};

}  // namespace offpath::exchange
