#include "pool/table/reserves.h"

#include <utility>

namespace offpath::pool {

Status Reserves::add(const std::string& pool, std::uint64_t bytes, Stays stays, const std::string& member) {
  const SetAside* const before = find(pool);
  const std::uint64_t others = this->bytes() - (before != nullptr ? before->memory->bytes() : 0);
  if (bytes > bytes_max_ || others > bytes_max_ - bytes)
    return fail(Error::too_large,
                "copies of other members' objects need {} bytes of memory at {}, where {} of {} are set aside for "
                "copies already",
                bytes, member, others, bytes_max_);
  pools_.insert_or_assign(pool, SetAside{std::make_shared<Reserve>(bytes), std::move(stays)});
  return {};
}

const Reserves::SetAside* Reserves::find(const std::string& pool) const {
  const auto at = pools_.find(pool);
  return at != pools_.end() ? &at->second : nullptr;
}

std::uint64_t Reserves::bytes() const noexcept {
  std::uint64_t all = 0;
  for (const auto& [pool, reserve] : pools_) all += reserve.memory->bytes();
  return all;
}

std::uint64_t Reserves::left() const noexcept {
  std::uint64_t all = 0;
  for (const auto& [pool, reserve] : pools_) all += reserve.memory->left();
  return all;
}

}  // namespace offpath::pool
