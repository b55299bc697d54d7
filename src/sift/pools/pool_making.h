// Makes the sift pools of one agent: of names with all their settings, of other members' definitions, and of what was
// kept on disk; and drops them. A pool that lacks members, or first rows, waits until it can be made.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sift/kept/unread_pools.h"
#include "sift/pools/awaited_pools.h"
#include "sift/pools/known_pools.h"
#include "sift/pools/pool_effects.h"

namespace offpath::sift {

class PoolMaking {
 public:
  // All members are known to have agreed on the pool's definition.
  using Agreed = std::function<void(SiftPool& pool, TimeNs now, service::Effects& effects)>;

  // The references outlive this.
  PoolMaking(const ServiceContext& context, KnownPools& known, PoolEffects& pool_effects, Agreed agreed);

  // ---- texts as in KnownPools
  // The pool, which is made if it does not exist: with the members that live, once all cores of this agent do.
  [[nodiscard]] Result<SiftPool*> define(std::string_view text, uid_t user, service::Effects& effects);
  // The same, of a definition (definition.h), which has its members: of another member, or from before a restart.
  [[nodiscard]] Result<SiftPool*> define_exactly(std::string_view text, uid_t user, service::Effects& effects);
  // The definition has one of this agent's cores, but not all: some had not joined when it was made.
  [[nodiscard]] Result<bool> lacks_own_core(std::string_view text) const;
  [[nodiscard]] Result<SiftPool*> existing(std::string_view text, uid_t user) const;
  // The text by which puts name the pool from now on: with all settings, so that it is made again if it was dropped
  // meanwhile. The pool is made, or waits.
  [[nodiscard]] Result<std::string> admit(const std::string& text, uid_t user, service::Effects& effects);
  // For a member that may take no rows of the pool.
  [[nodiscard]] Status make(const std::string& text, uid_t user, service::Effects& effects);
  // The pool for a frame of rows, which may learn its ranges from it. Null: `again` is called when it is made.
  [[nodiscard]] Result<SiftPool*> make_for(const std::string& text, uid_t user, const service::Frame* frame,
                                           DeferredRequests::Serve again, service::Effects& effects);
  // After a change of members, or of pools that are being read.
  void make_awaited(TimeNs now, service::Effects& effects);
  // The pool's name is free again, and requests that waited for it are served anew.
  void drop(SiftPool& pool, TimeNs now, service::Effects& effects);
  [[nodiscard]] const AwaitedPools& awaited() const noexcept { return awaited_; }

  // ---- pools that are found on the disk at start
  void recover(TimeNs now, service::Effects& effects);
  void read(TimeNs now, service::Effects& effects) { unread_.read(now, effects); }
  [[nodiscard]] TimeNs next_deadline() const noexcept { return unread_.next_deadline(); }

 private:
  [[nodiscard]] Status may_make(std::string_view text) const;
  [[nodiscard]] Status all_cores_live(std::string_view text) const;
  [[nodiscard]] Result<SiftPool*> make_of(std::string_view text, const Settings& asked,
                                          std::span<const std::string> alive, uid_t user, service::Effects& effects);
  [[nodiscard]] bool is_unknown_reference(std::string_view text) const;
  [[nodiscard]] Result<std::string> await(std::string_view text, uid_t user, const Failure& why);
  [[nodiscard]] Result<SiftPool*> make_from(const service::Frame* frame, std::string_view name,
                                            service::Effects& effects);
  [[nodiscard]] Status open_kept(SiftPool& pool, service::Effects& effects);
  [[nodiscard]] Status take_up(const std::string& own, uid_t user, const Result<Identity>& identity, TimeNs now,
                               service::Effects& effects);

  const ServiceContext& context_;
  KnownPools& known_;
  PoolEffects& pool_effects_;
  Agreed agreed_;
  AwaitedPools awaited_;
  UnreadPools unread_;
};

}  // namespace offpath::sift
