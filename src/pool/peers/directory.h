// Which pools this agent knows, which members live, and which of them own the rows of a pool. Read pool_name.h and
// placement.h first.
//
// An empty, unused pool is removed when its user is at the limit and names another one. It is not removed earlier,
// because a program may name it again without its options. A pool with other members may not be empty there, so it is
// removed only after all of it was dropped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "pool/directory/pool_name.h"
#include "pool/peers/pools_options.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct Definition {
  PoolName name;
  std::string text;                  // the name with its options, as sent to members
  std::vector<std::string> members;  // that live
  std::vector<std::string> before;   // those before the last change
  std::vector<std::string> missed;   // gone since rows last had all their copies, as far as this member knows
  std::vector<std::string> lost;     // gone with rows that no other member has, and not back
  std::size_t streams = 0;           // admitted, and not closed
  bool stays = false;                // while a service or the configuration owns it
  bool dropped = false;              // everything was dropped, and no stream was admitted since
  TimeNs named_at = 0;
};

class Directory {
 public:
  // The user of the directory: it learns of new pools, and is asked before one is removed.
  class Users {
   public:
    virtual void on_pool_made(const Definition& pool, uid_t user, bool by_program, TimeNs now, Effects& effects) = 0;
    virtual void on_pool_gone(const std::string& pool) = 0;
    // The pools that requests under way refer to.
    virtual void add_in_use(std::set<std::string_view>& pools) const = 0;
    // Whether rows of the pool have to move to other members, or are moving.
    [[nodiscard]] virtual bool has_moves(const std::string& pool) const = 0;
    // Whether rows of any pool are moving, or have to be compared with other members'.
    [[nodiscard]] virtual bool is_settling() const = 0;

   protected:
    ~Users() = default;
  };
  // The origin of a pool's name: a program's pools are announced to other members, and pools on disk count towards no
  // limit.
  enum class By { program, member, disk };
  using Access = FrameTable::Access;

  Directory(const PoolsOptions& options, FrameTable& table, Users& users)
      : options_(options), table_(table), users_(users) {}

  // ---- members
  void set_self(std::string name) {
    self_ = std::move(name);
    alive_ = {self_};
  }
  [[nodiscard]] const std::string& self() const noexcept { return self_; }
  // All cores of this agent, sorted, this one among them: its local pools lie on those that live (group/core_name.h).
  void set_cores(std::vector<std::string> cores) { cores_ = std::move(cores); }
  [[nodiscard]] const std::vector<std::string>& cores() const noexcept { return cores_; }
  // Members of this group, sorted, this one among them.
  [[nodiscard]] const std::vector<std::string>& alive() const noexcept { return alive_; }
  [[nodiscard]] bool is_alive(const std::string& member) const;
  // Sets each pool's members to the living ones.
  void change_members(std::vector<std::string> alive, TimeNs now);
  // Grows whenever members change.
  [[nodiscard]] std::uint64_t view() const noexcept { return view_; }
  // A row may be at any member: members changed recently, or rows are still moving. Members from the other side of a
  // partition placed rows by a view that this one never had.
  [[nodiscard]] bool is_settling(TimeNs now) const { return now < settles_until_ || users_.is_settling(); }
  // At start, with rows from disk: the time until which members are still being met. `never`: that time is over.
  [[nodiscard]] TimeNs joining_until() const noexcept { return joining_until_; }
  [[nodiscard]] bool is_joining() const noexcept { return joining_until_ != never; }
  void join_until(TimeNs at) noexcept { joining_until_ = at; }

  // ---- pools
  // Finds a pool by its name without options; null if it is not known here.
  [[nodiscard]] const Definition* known(std::string_view name) const;
  [[nodiscard]] Definition* known(std::string_view name);
  [[nodiscard]] const std::map<std::string, Definition, std::less<>>& all() const noexcept { return definitions_; }
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }  // pools that were added or removed
  // The pool of that name, null if it is not known here. An error: the name is invalid, or its options differ. The
  // error shows the options only to a user who may use the pool.
  [[nodiscard]] Result<const Definition*> find(std::string_view text, std::optional<uid_t> user = {}) const;
  // Error::denied: the pool exists, and the user may not use it this way.
  [[nodiscard]] Result<Definition*> define(std::string_view text, uid_t user, Access access, By by, TimeNs now,
                                           Effects& effects);
  // For `user`, in a pool that belongs to `owner` at the asking member. Error::exists: it belongs to another user here,
  // which stays, because this member has objects of that user.
  [[nodiscard]] Result<Definition*> define_of_member(std::string_view text, std::uint64_t owner, std::uint64_t user,
                                                     Access access, TimeNs now, Effects& effects);

  // ---- owners of rows
  // A pool of this process alone: no other member is told of it, or has rows of it. On an agent of several cores these
  // are the local pools of its services, each of which looks for its objects on its own core's disk.
  [[nodiscard]] bool is_own(const Definition& definition) const noexcept { return is_own(definition.name); }
  // The members that may have rows of the pool, this one not among them.
  [[nodiscard]] std::vector<std::string> others_of(const Definition& definition) const;
  // Checks a name that another member gave. Error::denied: the pool is this process's alone.
  [[nodiscard]] Status may_be_named(std::string_view text) const;
  [[nodiscard]] bool is_elsewhere(const Definition& definition) const noexcept;
  // Error::not_found: the pool has never had a member.
  [[nodiscard]] Status check_members(const Definition& definition) const;
  [[nodiscard]] static std::vector<std::string> owners(const Definition& definition, std::string_view row);
  [[nodiscard]] bool owns(const Definition& definition, std::string_view row) const;            // this agent
  [[nodiscard]] bool is_first_owner(const Definition& definition, std::string_view row) const;  // this agent
  [[nodiscard]] const std::string& text_of(const std::string& pool) const {
    return definitions_.find(pool)->second.text;
  }
  // A number that identifies the members of a pool, as far as this agent knows them.
  [[nodiscard]] static std::uint64_t view_of(const Definition& definition);

 private:
  [[nodiscard]] bool is_own(const PoolName& name) const noexcept {
    return name.policy == Policy::local && (cores_.size() <= 1 || is_reserved(name.name));
  }
  [[nodiscard]] std::vector<std::string> members_now(const PoolName& name) const;
  [[nodiscard]] Status make_room(uid_t user, TimeNs now);
  void note_losses(Definition& definition, const std::vector<std::string>& before) const;

  const PoolsOptions& options_;
  FrameTable& table_;
  Users& users_;
  std::string self_;
  std::vector<std::string> alive_{""};
  std::vector<std::string> cores_;  // empty: this one alone
  std::uint64_t view_ = 1;
  TimeNs settles_until_ = 0;
  TimeNs joining_until_ = never;
  std::map<std::string, Definition, std::less<>> definitions_;
  std::uint64_t changes_ = 0;
  std::map<uid_t, TimeNs> swept_at_;  // when no pool of the user could be removed
};

}  // namespace offpath::pool
