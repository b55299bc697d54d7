// Requests for missing objects. One user may have tens of thousands; the work of a put or a round of the loop does not
// grow with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "mover/store.h"
#include "pool/table/wait_accounts.h"
#include "wire/region.h"

namespace offpath::pool {

struct Get {
  service::ChannelNumber channel = 0;
  std::uint64_t ticket = 0;
  uid_t user = 0;
  std::string pool;
  std::pair<std::string, std::string> keys;  // row, column
  bool of_member = false;
  wire::BufferRef inbox{};     // of the member; a larger object is delivered
  std::string reader{};        // the member
  std::uint64_t delivery = 0;  // its number for it
  std::int64_t wait_ns = 0;
  TimeNs deadline = never;
  TimeNs asked_at = 0;
  WaitCharge charge{};  // while it waits here or at another member

  // The name by which its channel refers to it.
  [[nodiscard]] std::uint64_t name() const noexcept { return of_member ? delivery : ticket; }
};

class WaitingGets {
 public:
  void add(Get get);
  [[nodiscard]] std::size_t size() const noexcept { return gets_.size(); }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return by_deadline_.empty() ? never : by_deadline_.begin()->first;
  }

  [[nodiscard]] const std::map<std::uint64_t, Get>& all() const noexcept { return gets_; }
  void add_pools(std::set<std::string_view>& names) const;  // that are waited for

  // In the order of arrival; late ones in the order of their deadlines.
  [[nodiscard]] std::vector<Get> take(const std::string& pool, const std::pair<std::string, std::string>& keys);
  [[nodiscard]] std::vector<Get> take_late(TimeNs now);
  [[nodiscard]] std::vector<Get> take(service::ChannelNumber channel, bool of_member, std::uint64_t name);
  [[nodiscard]] std::vector<Get> take(service::ChannelNumber channel);                    // all of it
  [[nodiscard]] std::vector<Get> take_if(const std::function<bool(const Get&)>& chosen);  // looks at all of them

 private:
  using Number = std::uint64_t;  // counts them
  struct Wanted {
    const std::string* pool;  // of the get itself, which does not move
    const std::pair<std::string, std::string>* keys;
    Number number;
    [[nodiscard]] bool operator<(const Wanted& other) const noexcept {
      if (const int order = pool->compare(*other.pool); order != 0) return order < 0;
      if (const auto order = *keys <=> *other.keys; order != 0) return order < 0;
      return number < other.number;
    }
  };
  using Named = std::tuple<service::ChannelNumber, bool, std::uint64_t, Number>;  // channel, of_member, name
  [[nodiscard]] static Named named(const Get& get, Number number) noexcept {
    return {get.channel, get.of_member, get.name(), number};
  }
  [[nodiscard]] std::vector<Get> take(const Named& first, const Named& last);
  Get extract(Number number);

  std::map<Number, Get> gets_;
  std::set<Wanted> by_keys_;
  std::set<std::pair<TimeNs, Number>> by_deadline_;
  std::set<Named> by_name_;
  Number last_ = 0;
};

}  // namespace offpath::pool
