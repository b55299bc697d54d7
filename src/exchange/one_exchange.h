// One exchange of the service (exchange_service.h) and the programs that take part in it. For exchange_service.cc,
// exchange_programs.cc and exchange_decisions.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange_service.h"
#include "exchange/interval_watch.h"

namespace offpath::exchange {

// At most one line of the log a minute about one condition.
[[nodiscard]] inline bool is_due(TimeNs& logged_at, TimeNs now) noexcept {
  if (logged_at != never && now - logged_at < 60 * second_ns) return false;
  logged_at = now;
  return true;
}

struct ExchangeService::One {
  explicit One(ExchangeSettings given);

  // In an exchange with grants: what makes them here. If a function is to, programs do not count. Its grants stay when
  // a call fails; if its calls fail for a lease, another member is to lead.
  [[nodiscard]] Deciding deciding(TimeNs now) const;
  void tell_deciding(TimeNs now);  // to the exchange, whenever it may have changed

  ExchangeSettings settings;
  std::uint64_t tag;
  std::vector<wire::ExchangeField> fields;  // of the configuration, or of the first program
  std::string failure{"its members are not known yet"};
  std::vector<Place> places;
  std::unique_ptr<Exchange> exchange;  // null: it does not run here
  std::unique_ptr<ChannelCarrier> carrier;
  std::map<std::uint64_t, Subscriber> subscribers;  // by number
  std::uint64_t publisher = 0;                      // its number; 0: none
  Record record{};                                  // the newest one
  TimeNs record_made_at = 0;
  ViewPtr view;
  std::uint64_t views_pushed = 0, records_pulled = 0, torn = 0, bytes_max = 0;
  TimeNs cost_ns = 0;
  std::uint64_t last_epoch = 0;
  std::unique_ptr<Decision> decision;  // null: no function decides
  bool has_granted = false;            // that function
  TimeNs failing_since = never;        // its calls; never: the last one did not fail
  TimeNs failure_logged_at = never, refusal_logged_at = never;
  IntervalWatch interval_watch;
  TimeNs interval_logged_at = never, interval_held_ns = 0;
};

}  // namespace offpath::exchange
