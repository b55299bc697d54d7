// All reserves of pools for objects that other members keep here: one Reserve per pool, and a bound on their sum. Read
// reserve.h first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "pool/table/reserve.h"

namespace offpath::pool {

// Used on the loop alone; jobs may release an object's share of a Reserve, even after its pool's entry is gone.
class Reserves {
 public:
  using Stays = std::function<bool(std::string_view column)>;
  struct SetAside {
    std::shared_ptr<Reserve> memory;
    Stays stays;  // true for columns whose objects use the reserve only when there is no other room
  };

  explicit Reserves(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Replaces the pool's earlier reserve. Error::too_large if the sum would exceed the bound: nothing changes then.
  // `member` is this agent's name, for the error's text.
  [[nodiscard]] Status add(const std::string& pool, std::uint64_t bytes, Stays stays, const std::string& member);
  void remove(const std::string& pool) { pools_.erase(pool); }
  [[nodiscard]] const SetAside* find(const std::string& pool) const;  // null if the pool has no reserve
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] std::uint64_t left() const noexcept;  // bytes() without those in use
  [[nodiscard]] const std::map<std::string, SetAside>& pools() const noexcept { return pools_; }

 private:
  std::uint64_t bytes_max_;
  std::map<std::string, SetAside> pools_;
};

}  // namespace offpath::pool
