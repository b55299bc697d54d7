// Steps that some ranks have not ended: the ranks that have ended them, the number each user may have, and the texts
// that explain the wait. The table knows which objects such a step hides.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "pool/table/gone_ranks.h"

namespace offpath::pool {

class Steps {
 public:
  struct Limits {
    std::size_t user_ends_max;         // ends of steps, each rank's counts, of one user
    std::uint64_t user_key_bytes_max;  // of the steps' row keys
  };
  explicit Steps(const Limits& limits) : limits_(limits) {}

  // True: all ranks have ended the step, and its entry was removed. Error::too_large: the pool's user has too many
  // steps that wait.
  [[nodiscard]] Result<bool> end(const std::string& pool, uid_t user, const std::string& row, std::uint32_t rank,
                                 std::uint32_t ranks, TimeNs now);
  void drop(std::string_view pool, std::string_view row_glob);

  void rank_ended(const std::string& pool, std::uint32_t rank, GoneRank gone);
  void rank_began(const std::string& pool, std::uint32_t rank) { gone_ranks_.remove(pool, rank); }

  [[nodiscard]] bool any_wait(std::string_view pool) const { return pools_.contains(pool); }
  [[nodiscard]] bool waits(std::string_view pool, const std::string& row) const { return find(pool, row) != nullptr; }
  // Empty: the step does not wait.
  [[nodiscard]] std::string describe(const std::string& pool, const std::string& row) const;
  // Fills in everything but the name and the newest row. The longest waiting steps come first.
  void list(const std::string& pool, PoolSteps& steps) const;

 private:
  struct Step {
    std::set<std::uint32_t> ended;
    std::uint32_t ranks = 0;
    TimeNs since = 0;  // its first rank ended it
  };
  struct Pool {
    uid_t user = 0;
    std::map<std::string, Step> steps{};  // never empty
  };
  struct Account {  // of one user
    std::size_t ends = 0;
    std::uint64_t key_bytes = 0;
  };
  using Pools = std::map<std::string, Pool, std::less<>>;

  [[nodiscard]] const Step* find(std::string_view pool, const std::string& row) const;
  [[nodiscard]] std::string describe(const std::string& pool, const std::string& row, const Step& step) const;
  void forget(Pool& pool, std::map<std::string, Step>::iterator step);

  Limits limits_;
  Pools pools_;
  std::map<uid_t, Account> accounts_;
  GoneRanks gone_ranks_;
};

}  // namespace offpath::pool
