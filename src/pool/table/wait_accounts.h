// The memory of waiting requests, by user: requests that wait for objects, for other members, or for memory to read an
// object back. One account counts all of them, so a user gains nothing by waiting in several places.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/status.h"

namespace offpath::pool {

class WaitAccounts {
  struct Sum {
    std::size_t requests = 0;
    std::uint64_t bytes = 0;
  };

 public:
  struct Limits {
    std::size_t requests_max, user_requests_max;
    std::uint64_t bytes_max;        // of keys, patterns and arguments; a user's share is that of requests
    std::uint64_t short_bytes = 0;  // a request of up to so many bytes is bounded by the number of requests alone
  };

  // Counts one request until it is destroyed.
  class Charge {
   public:
    Charge(std::map<uid_t, Sum>::iterator user, std::uint64_t bytes, std::shared_ptr<WaitAccounts> of)
        : of_(std::move(of)), user_(user), bytes_(bytes) {}
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;
    ~Charge() { of_->end(user_, bytes_); }

   private:
    std::shared_ptr<WaitAccounts> of_;
    std::map<uid_t, Sum>::iterator user_;
    std::uint64_t bytes_;
  };
  using ChargePtr = std::shared_ptr<const Charge>;

  explicit WaitAccounts(const Limits& limits) : limits_(limits) {}

  // Error::too_large: there are too many.
  [[nodiscard]] static Result<ChargePtr> charge(const std::shared_ptr<WaitAccounts>& accounts, uid_t user,
                                                std::uint64_t bytes);

 private:
  [[nodiscard]] Status may_add(uid_t user, const Sum& of_user, std::uint64_t bytes) const;
  void end(std::map<uid_t, Sum>::iterator user, std::uint64_t bytes) noexcept;

  Limits limits_;
  Sum all_;
  std::map<uid_t, Sum> users_;
};
using WaitCharge = WaitAccounts::ChargePtr;

}  // namespace offpath::pool
