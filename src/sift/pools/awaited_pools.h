// Pools that will be made when enough members live and, with ranges=sample, when their first rows are put here. Puts
// wait for them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "service/effects.h"
#include "sift/pools/deferred_requests.h"

namespace offpath::sift {

struct AwaitedPool {
  std::string text;
  uid_t user;
  std::string learnt{};  // the text with ranges of these rows
  DeferredRequests deferred{};
};

class AwaitedPools {
 public:
  using Pools = std::map<std::string, AwaitedPool, std::less<>>;

  // `user_pools_max`: of one user.
  explicit AwaitedPools(std::size_t user_pools_max) noexcept : user_pools_max_(user_pools_max) {}

  // The pool waits from now on, or `text` names one that waits already. Its text.
  [[nodiscard]] Result<std::string> add(std::string_view text, uid_t user, const Failure& why);
  // The waiting pool that `text` stands for, with the pool's user. Nothing: `text` names itself.
  [[nodiscard]] Result<std::optional<std::pair<std::string, uid_t>>> meant(std::string_view text, uid_t user) const;
  // Learns the ranges of ranges=sample from a frame of first rows. Empty: there is nothing to learn, or not from these.
  [[nodiscard]] Result<std::string> learn(std::string_view name, const service::Frame* frame);
  void forget_learnt(std::string_view name);

  [[nodiscard]] const Pools& all() const noexcept { return all_; }
  // By the name in `text`; null: it does not wait.
  [[nodiscard]] AwaitedPool* find(std::string_view text);
  [[nodiscard]] bool has(std::string_view text) const;
  // It is made now.
  [[nodiscard]] std::optional<AwaitedPool> take(std::string_view text);
  // It will not be made.
  void drop(std::string_view text);
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

 private:
  std::size_t user_pools_max_;
  Pools all_;
  std::uint64_t changes_ = 0;  // except pools that were made
};

}  // namespace offpath::sift
