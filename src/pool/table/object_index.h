// All objects by pool, row and column, and in the order in which they became visible. It knows each pool's owner and
// the bytes of its objects; it knows no disks, channels or requests.
//
// A pool belongs to the user whose stream or request named it first; another user gets Error::denied, unless the pool's
// options name him as a reader, who may get and list.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pool/directory/pool_name.h"
#include "pool/directory/put_id.h"
#include "pool/table/object_store.h"
#include "pool/table/query_source.h"

namespace offpath::pool {

class ObjectIndex {
 public:
  using Keys = std::pair<std::string, std::string>;  // row, column
  using KeysView = std::pair<std::string_view, std::string_view>;
  // Looked up by views: most requests have their keys in their own bytes.
  struct KeyOrder {
    using is_transparent = void;
    [[nodiscard]] bool operator()(const auto& a, const auto& b) const noexcept {
      const int row = std::string_view(a.first).compare(b.first);
      return row != 0 ? row < 0 : std::string_view(a.second) < std::string_view(b.second);
    }
  };
  [[nodiscard]] static std::uint64_t bytes_of(const Keys& keys) noexcept {
    return keys.first.size() + keys.second.size();
  }
  enum class Access { read, write };
  static constexpr uid_t root = 0;  // may use every pool

  struct Object {
    FramePtr frame;
    std::uint64_t sequence;  // 0 while hidden
    std::uint64_t keep;      // as its stream declared
    bool hidden;             // until its step has ended on all ranks
    PutId id;
    RecordPtr file = nullptr;     // its file, if it is on disk; if only there, the frame is unread
    std::uint64_t writing = 0;    // the number of the file being written, or 0
    std::uint64_t used = 0;       // its place in by_use, or 0
    bool read_meanwhile = false;  // while it was written
  };
  using Objects = std::map<Keys, Object, KeyOrder>;
  // The part of a pool that is in memory; only Spilling changes it.
  struct InMemory {
    // With spill: objects in memory that are not being written, the longest unread first.
    std::map<std::uint64_t, Keys> by_use;
    std::uint64_t bytes = 0;            // of objects in memory; compared with the budget
    std::uint64_t writing_bytes = 0;    // of these
    mutable std::uint64_t lacking = 0;  // bytes that have to leave for the last refused put
  };
  struct Pool {
    std::string_view name;
    uid_t user = 0;
    Objects objects{};
    std::map<std::uint64_t, Objects::iterator> by_sequence{};  // visible objects, in the order in which they became
                                                               // visible
    std::uint64_t bytes = 0;
    PoolOptions options{};
    std::uint64_t budget_bytes = 0;  // this process's share of the options'; 0: as much as the agent has
    InMemory memory{};
  };
  using Pools = std::map<std::string, Pool, std::less<>>;

  // ---- pools
  [[nodiscard]] Result<Pool*> open(const std::string& name, uid_t user, Access access);  // makes it if it does not
                                                                                         // exist
  [[nodiscard]] Result<const Pool*> existing(std::string_view name, uid_t user, Access access) const;
  [[nodiscard]] Result<Pool*> existing(std::string_view name, uid_t user, Access access);
  [[nodiscard]] Pool* find(std::string_view name) {  // null if it does not exist
    const auto at = pools_.find(name);
    return at != pools_.end() ? &at->second : nullptr;
  }
  [[nodiscard]] const Pool* find(std::string_view name) const {
    const auto at = pools_.find(name);
    return at != pools_.end() ? &at->second : nullptr;
  }
  [[nodiscard]] static Status may_use(const Pool& pool, uid_t user, Access access) {
    return pool.user == user || user == root ? Status{} : may_read_as(pool, user, access);
  }
  [[nodiscard]] std::size_t pools_of(uid_t user) const;
  void forget(const std::string& name);  // an empty one
  [[nodiscard]] const Pools& pools() const noexcept { return pools_; }

  // ---- objects
  // Hidden, in front of the object `before`.
  Objects::iterator add(Pool& pool, Objects::iterator before, Keys&& keys, Object&& object);
  Keys remove(Pool& pool, Objects::iterator at);  // returns its keys
  void show(Pool& pool, Objects::iterator at);    // makes it visible, as the newest of its pool
  [[nodiscard]] const Objects::value_type* find(const std::string& pool, const KeysView& keys) const;
  [[nodiscard]] Object* find(const std::string& pool, const KeysView& keys);
  [[nodiscard]] bool holds_row(const std::string& pool, std::string_view row) const;
  struct Item {
    std::uint64_t sequence, bytes, rows;
    bool arrow;
    std::string row, column;
    std::string member{};  // in listings over several members: which answers for it in queries
  };
  // Those after `after` in the order of storing, about `bytes_max` bytes of them; `more` says whether there are others.
  [[nodiscard]] static std::vector<Item> list(const Pool& pool, std::string_view row_glob, std::string_view column_glob,
                                              std::uint64_t after, std::size_t bytes_max, bool& more);
  // Visible objects whose keys match, in storing order.
  [[nodiscard]] static std::vector<QuerySource> choose(const Pool& pool, std::string_view row_glob,
                                                       std::string_view column_glob);

  // ---- freed bytes and totals
  void note_freed(const Pool& pool);
  [[nodiscard]] std::uint64_t freed() const noexcept { return freed_; }
  [[nodiscard]] std::set<std::string, std::less<>> take_freed() { return std::exchange(freed_pools_, {}); }
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t key_bytes() const noexcept { return key_bytes_; }

 private:
  // Whether a user who does not own the pool may read it.
  [[nodiscard]] static Status may_read_as(const Pool& pool, uid_t user, Access access);

  Pools pools_;
  std::map<uid_t, std::size_t> pools_of_users_;
  std::uint64_t next_sequence_ = 1, freed_ = 0;
  std::uint64_t frames_ = 0, bytes_ = 0, key_bytes_ = 0;
  std::set<std::string, std::less<>> freed_pools_;
};

}  // namespace offpath::pool
