// The sift pools of one agent, by name; when to look at each of them again; and dropped ones, until nothing under way
// refers to them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/due_times.h"
#include "sift/pools/foreign_definitions.h"
#include "sift/pools/service_context.h"
#include "sift/pools/sift_pool.h"
#include "sift/pools/under_way.h"

namespace offpath::sift {

class KnownPools {
 public:
  using Pools = std::map<std::string, std::unique_ptr<SiftPool>, std::less<>>;

  // The references outlive this.
  KnownPools(const ServiceContext& context, const UnderWay& under_way) noexcept
      : context_(context), under_way_(under_way) {}

  [[nodiscard]] static Status may_use(const SiftPool& pool, uid_t user);

  // ---- look-ups. `text`: a name with or without options, a definition, or the reference to one that is known here.
  [[nodiscard]] const Pools& all() const noexcept { return by_name_; }
  // The pool of the name in `text`, whatever its options; null: there is none.
  [[nodiscard]] SiftPool* named(std::string_view text) const;
  // The pool of the name in `text`; null: there is none. Error::exists: `text` has other options.
  [[nodiscard]] Result<SiftPool*> find(std::string_view text) const;
  // The definition itself. Error::would_block: of a reference to one that is not known here.
  [[nodiscard]] Result<std::string> resolve(std::string_view text) const;
  [[nodiscard]] ForeignDefinitions& foreign() noexcept { return foreign_; }
  [[nodiscard]] std::size_t count_of(uid_t user) const;
  // False: it was dropped.
  [[nodiscard]] bool has(const SiftPool& pool) const { return named(pool.name) == &pool; }

  // ---- changes
  SiftPool& add(std::unique_ptr<SiftPool> pool);
  // Its name is free again.
  void drop(const SiftPool& pool);
  // Something of a pool that other agents are told has changed.
  void note_change() noexcept { ++changes_; }
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

  // ---- dropped pools
  void forget_dropped();
  // As soon as possible: a dropped pool may have become unused.
  void forget_later() noexcept { forget_later_ = true; }

  // ---- time
  // After a change of the pool, which may have another deadline. A dropped pool has none.
  void note_deadline(const SiftPool& pool);
  // The names of pools with something to do. Then on_time_done().
  [[nodiscard]] std::vector<std::string> take_due(TimeNs now) { return times_.take(now); }
  void on_time_done() {
    if (std::exchange(forget_later_, false)) forget_dropped();
  }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return forget_later_ && !dropped_.empty() ? 0 : times_.first();
  }

 private:
  const ServiceContext& context_;
  const UnderWay& under_way_;
  Pools by_name_;
  DueTimes<std::string> times_;
  ForeignDefinitions foreign_;
  std::vector<std::unique_ptr<SiftPool>> dropped_;
  bool forget_later_ = false;
  std::uint64_t changes_ = 0;
};

}  // namespace offpath::sift
