#include "sift/pools/known_pools.h"

#include <algorithm>

namespace offpath::sift {

Status KnownPools::may_use(const SiftPool& pool, uid_t user) {
  if (pool.user == user || user == 0) return {};
  return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", pool.name, pool.user, user);
}

SiftPool* KnownPools::named(std::string_view text) const {
  const auto known = by_name_.find(name_in(text));
  return known == by_name_.end() ? nullptr : known->second.get();
}

Result<SiftPool*> KnownPools::find(std::string_view text) const {
  SiftPool* const pool = named(text);
  if (pool == nullptr || text == pool->reference) return pool;
  if (is_reference(text)) {
    OFP_ASSIGN(const std::string full, resolve(text));
    return find(full);
  }
  if (text != pool->text && !pool->has_replaced(text)) OFP_TRY(check_same(text, pool->settings, pool->text));
  return pool;
}

Result<std::string> KnownPools::resolve(std::string_view text) const {
  if (!is_reference(text)) return std::string(text);
  if (const SiftPool* const pool = named(text); pool != nullptr && pool->reference == text) return pool->text;
  if (const std::string* const foreign = foreign_.find(text)) return *foreign;
  return fail(Error::would_block, "member {} does not have the definition of pool \"{}\" yet", context_.self,
              name_in(text));
}

std::size_t KnownPools::count_of(uid_t user) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(by_name_, [&](const auto& each) { return each.second->user == user; }));
}

// ---- changes

SiftPool& KnownPools::add(std::unique_ptr<SiftPool> pool) {
  ++changes_;
  std::string name = pool->name;
  return *by_name_.emplace(std::move(name), std::move(pool)).first->second;
}

void KnownPools::drop(const SiftPool& pool) {
  times_.erase(pool.name);
  auto node = by_name_.extract(pool.name);
  ++changes_;
  dropped_.push_back(std::move(node.mapped()));
}

void KnownPools::forget_dropped() {
  std::erase_if(dropped_, [this](const std::unique_ptr<SiftPool>& pool) {
    return pool->is_idle() && !under_way_.concerns(*pool);
  });
}

void KnownPools::note_deadline(const SiftPool& pool) {
  if (has(pool)) times_.set(pool.name, pool.next_deadline());
}

}  // namespace offpath::sift
