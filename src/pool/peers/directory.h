// Which pools this agent knows, which members live, and which of them own the rows of a pool. Read pool_name.h and
// placement.h first.
//
// A pool that is empty and that nobody uses goes when its user has as many as are allowed and names another: not
// before, for a program may name it without its options again. A pool that other members have, too, may not be empty
// there: it goes only after all of it was dropped.
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
  std::string text;                  // the name with its options, as members are told it
  std::vector<std::string> members;  // that live
  std::vector<std::string> before;   // those before the last change
  std::vector<std::string> missed;   // that went since rows last had all their copies, as far as this member knows
  std::vector<std::string> lost;     // that went with rows which no other member has, and are not back
  std::size_t streams = 0;           // admitted, and not closed
  bool stays = false;                // while it is a service's, or the configuration's
  bool dropped = false;              // all that was in it was, and no stream was admitted since
  TimeNs named_at = 0;
};

class Directory {
 public:
  // The user of the pools, which is told of them and asked before one is removed.
  class Users {
   public:
    virtual void on_pool_made(const Definition& pool, uid_t user, bool by_program, TimeNs now, Effects& effects) = 0;
    virtual void on_pool_gone(const std::string& pool) = 0;
    // The pools that something under way means.
    virtual void add_in_use(std::set<std::string_view>& pools) const = 0;
    // Whether rows of the pool are to go to other members, or are on their way to them.
    [[nodiscard]] virtual bool has_moves(const std::string& pool) const = 0;
    // Whether rows of any pool are on their way, or are to be compared with those of other members.
    [[nodiscard]] virtual bool is_settling() const = 0;

   protected:
    ~Users() = default;
  };
  // The origin of a pool's name: other members are told of a program's pools, and pools on disk count for no limit.
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
  // Members of this group, sorted, this one among them.
  [[nodiscard]] const std::vector<std::string>& alive() const noexcept { return alive_; }
  [[nodiscard]] bool is_alive(const std::string& member) const;
  // Each pool's members are those that live from now on.
  void change_members(std::vector<std::string> alive, TimeNs now);
  // Grows whenever members change.
  [[nodiscard]] std::uint64_t view() const noexcept { return view_; }
  // A row may lie at any member: members changed a while ago at most, or rows are still on their way. Those that come
  // from another half of a network have rows by a view of members that this one never had.
  [[nodiscard]] bool is_settling(TimeNs now) const { return now < settles_until_ || users_.is_settling(); }
  // At start, with rows from disk: until then members are still met. `never`: that is over.
  [[nodiscard]] TimeNs joining_until() const noexcept { return joining_until_; }
  [[nodiscard]] bool is_joining() const noexcept { return joining_until_ != never; }
  void join_until(TimeNs at) noexcept { joining_until_ = at; }

  // ---- pools
  // By its name without options; null if it is not known here.
  [[nodiscard]] const Definition* known(std::string_view name) const;
  [[nodiscard]] Definition* known(std::string_view name);
  [[nodiscard]] const std::map<std::string, Definition, std::less<>>& all() const noexcept { return definitions_; }
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }  // pools that came or went
  // The pool of that name, null if it is not known here. An error: the name is none, or its options contradict.
  // Its options are told in an error only to a user who may use the pool.
  [[nodiscard]] Result<const Definition*> find(std::string_view text, std::optional<uid_t> user = {}) const;
  // Error::denied: it is there, and the user may not use it so.
  [[nodiscard]] Result<Definition*> define(std::string_view text, uid_t user, Access access, By by, TimeNs now,
                                           Effects& effects);
  // For `user`, in a pool that is `owner`'s at the asking member. Error::exists: it is another user's here. That stays,
  // for this member has objects of that user's.
  [[nodiscard]] Result<Definition*> define_of_member(std::string_view text, std::uint64_t owner, std::uint64_t user,
                                                     Access access, TimeNs now, Effects& effects);

  // ---- who has what
  [[nodiscard]] bool is_elsewhere(const Definition& definition) const noexcept;
  // Error::not_found: no member has been one of the pool's.
  [[nodiscard]] Status check_members(const Definition& definition) const;
  [[nodiscard]] static std::vector<std::string> owners(const Definition& definition, std::string_view row);
  [[nodiscard]] bool owns(const Definition& definition, std::string_view row) const;            // this agent
  [[nodiscard]] bool is_first_owner(const Definition& definition, std::string_view row) const;  // this agent
  [[nodiscard]] const std::string& text_of(const std::string& pool) const {
    return definitions_.find(pool)->second.text;
  }
  // A number for the members of a pool, as far as this agent knows them.
  [[nodiscard]] static std::uint64_t view_of(const Definition& definition);

 private:
  [[nodiscard]] Status make_room(uid_t user, TimeNs now);
  void note_losses(Definition& definition, const std::vector<std::string>& before) const;

  const PoolsOptions& options_;
  FrameTable& table_;
  Users& users_;
  std::string self_;
  std::vector<std::string> alive_{""};
  std::uint64_t view_ = 1;
  TimeNs settles_until_ = 0;
  TimeNs joining_until_ = never;
  std::map<std::string, Definition, std::less<>> definitions_;
  std::uint64_t changes_ = 0;
  std::map<uid_t, TimeNs> swept_at_;  // when nothing of the user's could go
};

}  // namespace offpath::pool
