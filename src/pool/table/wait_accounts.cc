#include "pool/table/wait_accounts.h"

#include <algorithm>

namespace offpath::pool {

Result<WaitCharge> WaitAccounts::charge(const std::shared_ptr<WaitAccounts>& accounts, uid_t user,
                                        std::uint64_t bytes) {
  WaitAccounts& all = *accounts;
  const auto known = all.users_.find(user);
  OFP_TRY(all.may_add(user, known != all.users_.end() ? known->second : Sum{}, bytes));
  const auto of_user = all.users_.try_emplace(user).first;
  for (Sum* const sum : {&all.all_, &of_user->second}) {
    ++sum->requests;
    sum->bytes += bytes;
  }
  return std::make_shared<const Charge>(of_user, bytes, accounts);
}

Status WaitAccounts::may_add(uid_t user, const Sum& of_user, std::uint64_t bytes) const {
  if (all_.requests >= limits_.requests_max)
    return fail(Error::too_large, "{} requests are waiting for objects, which is the limit (limits.waiting_max)",
                all_.requests);
  if (of_user.requests >= limits_.user_requests_max)
    return fail(Error::too_large,
                "{} requests of user {} are waiting, which is the limit of each user (limits.user_waiting_max)",
                of_user.requests, user);
  if (bytes <= limits_.short_bytes) return {};
  if (all_.bytes + bytes > limits_.bytes_max)
    return fail(Error::too_large, "requests that wait for objects would have keys of {} bytes, at most {} are allowed",
                all_.bytes + bytes, limits_.bytes_max);
  const std::uint64_t user_bytes_max =
      limits_.bytes_max * std::min(limits_.user_requests_max, limits_.requests_max) / limits_.requests_max;
  if (of_user.bytes + bytes > user_bytes_max)
    return fail(Error::too_large,
                "requests of user {} that wait would have keys of {} bytes, at most {} are allowed to each user "
                "(limits.user_waiting_max)",
                user, of_user.bytes + bytes, user_bytes_max);
  return {};
}

void WaitAccounts::end(std::map<uid_t, Sum>::iterator user, std::uint64_t bytes) noexcept {
  --all_.requests;
  all_.bytes -= bytes;
  user->second.bytes -= bytes;
  if (--user->second.requests == 0) users_.erase(user);
}

}  // namespace offpath::pool
