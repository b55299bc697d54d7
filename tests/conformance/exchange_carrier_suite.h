// The rules of carrier.h, tested for every carrier by the same code. Under MPI each process is one member, and all of
// them run it; the others run all members in one process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exchange/carrier.h"
#include "exchange/exchange.h"

namespace offpath::conformance {

class CarrierMembers {
 public:
  virtual ~CarrierMembers() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  // The members that run here.
  [[nodiscard]] virtual const std::vector<exchange::MemberIndex>& here() const = 0;
  [[nodiscard]] virtual exchange::Carrier& carrier(exchange::MemberIndex member) = 0;
  [[nodiscard]] virtual TimeNs now() const = 0;
  // Lets time go by.
  virtual void pause() = 0;
  // All members, wherever they run, have come here. Until then this one does `meanwhile` over and over.
  virtual void meet_after(const std::function<void()>& meanwhile) = 0;
  // All members have come here, and no parcel is on its way.
  virtual void meet() = 0;
};

// Each returns the error, or an empty text.
[[nodiscard]] std::string parcels_arrive_whole(CarrierMembers& members, std::uint64_t bytes);
// A parcel that a member takes makes it send the next one, as exchanges do, and others as well while some are still on
// their way.
[[nodiscard]] std::string parcels_sent_while_taking_arrive_whole(CarrierMembers& members, std::uint64_t bytes);
[[nodiscard]] std::string views_become_complete(CarrierMembers& members, const std::string& shape,
                                                std::uint64_t record_bytes, bool variable);
// The last member does nothing for a while.
[[nodiscard]] std::string a_stopped_member_is_survived(CarrierMembers& members, const std::string& shape);

}  // namespace offpath::conformance
