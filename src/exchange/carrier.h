// What brings parcels from one member to another. Whatever it is made of, it keeps to this; tests/conformance asks it
// of all of them.
//
//   - A parcel arrives whole or not at all, as it was sent, from the member that sent it. It may come late, or twice;
//     those of one member to another need not keep their order.
//   - send() never waits. What cannot be brought by its deadline may be left out, and a member that is slow, stopped or
//     dead costs the others nothing but its own parcels.
//   - poll() hands over what has come. It fails when the carrier has ended for good, and says by whose fault.
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
