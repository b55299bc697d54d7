// This agent's frames by (pool, row, column). Requests for an object that does not exist yet wait here until it is
// stored or their deadline passes. The owners of rows are decided elsewhere (pools.h).
//
// The table puts, shows and finds objects, and serves requests. Its parts are:
//
//   ObjectIndex   all objects, their owners and their memory
//   Steps         which steps wait for which ranks
//   Spilling      which objects are in memory and which on disk
//   WaitingGets   requests that wait for objects
//   HandOvers     how objects reach programs and members; leases
//   FileWrites    pools that are written into programs' files
//
// Read this first in src/pool/table, then object_index.h and waiting_gets.h, hand_overs.h, and for disks
// object_store.h, spilling.h and disk.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "mover/store.h"
#include "pool/directory/pool_name.h"
#include "pool/table/disk.h"
#include "pool/table/file_writes.h"
#include "pool/table/hand_overs.h"
#include "pool/table/object_index.h"
#include "pool/table/query_source.h"
#include "pool/table/spilling.h"
#include "pool/table/steps.h"
#include "pool/table/table_limits.h"
#include "pool/table/wait_accounts.h"
#include "pool/table/waiting_gets.h"
#include "service/effects.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::pool {

using service::ChannelNumber;
using service::Effects;
using service::FramePtr;

struct FrameTableCounters {
  std::uint64_t pools = 0, frames = 0, bytes = 0, key_bytes = 0, puts = 0, gets = 0, drops = 0, expired = 0,
                waiting = 0, leases = 0;
  std::uint64_t written_bytes = 0;
};

class FrameTable final : private FileWrites::Objects {
 public:
  using Limits = TableLimits;
  explicit FrameTable(const Limits& limits)
      : limits_(limits),
        waits_(std::make_shared<WaitAccounts>(WaitAccounts::Limits{
            limits.waiting_max, limits.user_waiting_max, limits.waiting_key_bytes_max, wire::short_keys_bytes})),
        steps_({limits.user_steps_max, limits.waiting_key_bytes_max}),
        hand_overs_(limits.leases_max),
        writes_(*this, limits.offer_wait_ns) {}
  FrameTable(const FrameTable&) = delete;
  FrameTable& operator=(const FrameTable&) = delete;
  using DiskUse = Spilling::DiskUse;
  void keep_on(std::unique_ptr<Disk> disk, DiskUse use) { spilling_.keep_on(std::move(disk), std::move(use)); }

  using Place = mover::Store::Place;  // whose pool is a name without options
  using Keys = ObjectIndex::Keys;     // row, column
  using KeysView = ObjectIndex::KeysView;
  using KeyOrder = ObjectIndex::KeyOrder;
  using Access = ObjectIndex::Access;
  [[nodiscard]] Status may_use(const std::string& pool, uid_t user,
                               Access access) const;  // true also for a missing pool
  // Sets a pool's options for objects here; before that it has the defaults.
  // `shares`: of the pool's budget, one of which is this process's.
  [[nodiscard]] Status define(const std::string& pool, const PoolOptions& options, uid_t user,
                              std::uint64_t shares = 1);
  [[nodiscard]] Status admit(const std::string& pool, uid_t user);
  // Error::would_block: the pool's budget is used up, or the memory for keys is. Error::too_large: it never fits.
  // Error::exists: no overwriting.
  [[nodiscard]] Status may_put(const Place& place, std::uint64_t bytes, const PutId& id) const;
  // `file`: its file, if it is on disk already; removed if the object is not taken.
  [[nodiscard]] Status put(const Place& place, FramePtr frame, TimeNs now, Effects& effects, PutId id = {},
                           const RecordPtr& file = nullptr);
  [[nodiscard]] Result<FramePtr> find(const std::string& pool, const std::string& row_key,
                                      const std::string& column_key, uid_t user);
  // Error::too_large: the pool's user has too many steps that wait for ranks.
  [[nodiscard]] Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank,
                                std::uint32_t ranks, TimeNs now, Effects& effects);

  // ---- steps that wait for ranks
  void rank_ended(const std::string& pool, std::uint32_t rank, GoneRank gone) {
    steps_.rank_ended(pool, rank, std::move(gone));
  }
  void rank_began(const std::string& pool, std::uint32_t rank) { steps_.rank_began(pool, rank); }
  [[nodiscard]] std::vector<PoolSteps> steps() const;

  // A request for an object, of a program or of another member.
  using Get = pool::Get;
  void get(Get get, Effects& effects);
  // Charges a request of that user, and its keys, while it waits here or for other members. Error::too_large: it may
  // not wait.
  [[nodiscard]] Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) {
    return WaitAccounts::charge(waits_, user, bytes);
  }
  // The same for a get that is not charged yet, with its bytes besides the keys.
  [[nodiscard]] Status charge(Get& get, std::uint64_t more_bytes = 0);
  // Answers with this object; a program gets a lease.
  void answer(const Get& get, const FramePtr& frame, Effects& effects);
  // Sends an object to a member that has no room prepared for it; answers the get.
  std::function<void(const Get& get, FramePtr frame, Effects& effects)> deliver;

  using Item = ObjectIndex::Item;
  // Those after `after` in the order of storing, about `bytes_max` bytes of them; `more` says whether there are others.
  [[nodiscard]] Result<std::vector<Item>> list(const std::string& pool, uid_t user, std::string_view row_glob,
                                               std::string_view column_glob, std::uint64_t after, std::size_t bytes_max,
                                               bool& more);
  static constexpr std::size_t listed_bytes_max = 16 * 1024;  // of one reply; the host asks for the rest
  static void answer_list(ChannelNumber channel, std::uint64_t ticket, std::vector<Item> items, bool more,
                          Effects& effects);
  [[nodiscard]] Result<std::vector<Keys>> drop(std::string_view pool, uid_t user, std::string_view row_glob,
                                               std::string_view column_glob);
  [[nodiscard]] uid_t user_of(const std::string& pool) const;  // root, if the pool does not exist
  [[nodiscard]] bool has(const std::string& pool) const { return index_.find(pool) != nullptr; }
  [[nodiscard]] std::size_t pools_of(uid_t user) const { return index_.pools_of(user); }
  // The pool is empty, and no object is being written to its disk.
  [[nodiscard]] bool is_empty(const std::string& pool) const;
  void forget(const std::string& pool);                          // an empty one
  void add_waited_for(std::set<std::string_view>& pools) const;  // those that requests wait for
  [[nodiscard]] bool holds(const std::string& pool, const Keys& keys) const {
    return index_.find(pool, KeysView(keys)) != nullptr;
  }
  // Every object of a pool, hidden ones too.
  struct Held {
    Keys keys;
    FramePtr frame;
    std::uint64_t keep;
    bool hidden;
    PutId id;
  };
  [[nodiscard]] std::vector<Held> held(const std::string& pool) const;
  [[nodiscard]] std::optional<Held> held(const std::string& pool, const Keys& keys) const;
  void remove(const std::string& pool, const Keys& keys);
  [[nodiscard]] const PutId* id_of(const std::string& pool, const KeysView& keys) const;  // null: it is not here
  // Records that the object here knows of that put, as if it had replaced it.
  void learn(const std::string& pool, const KeysView& keys, const PutId& other);
  // Removes waiting requests from the table: all `chosen` ones, or the one with a name.
  [[nodiscard]] std::vector<Get> take_waiting(const std::function<bool(const Get& get)>& chosen);
  [[nodiscard]] std::vector<Get> take_waiting(ChannelNumber channel, bool of_member, std::uint64_t name);
  [[nodiscard]] const WaitingGets& waiting() const noexcept { return waiting_; }
  // Why the object cannot be had.
  [[nodiscard]] std::string describe_absence(const Get& get) const;
  // Incremented when bytes of a pool become free.
  [[nodiscard]] std::uint64_t freed() const noexcept { return index_.freed(); }
  // The pools with freed bytes since the last call.
  [[nodiscard]] std::set<std::string, std::less<>> take_freed() { return index_.take_freed(); }
  // Whether the keys of all objects leave room for these, regardless of the pool's budget.
  [[nodiscard]] bool has_room_for_keys(const Place& place) const noexcept {
    return index_.key_bytes() + place.row_key.size() + place.column_key.size() <= limits_.key_bytes_max;
  }

  // The objects that a query reads: visible ones whose keys match, in the order of storing.
  [[nodiscard]] Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                        std::string_view column_glob, uid_t user);

  // The object, or all visible ones of its row by column if `column` is empty. Error::not_found names what is missing.
  [[nodiscard]] Result<std::vector<QuerySource>> row(const std::string& pool, const std::string& row,
                                                     const std::string& column, uid_t user);
  [[nodiscard]] bool holds_row(const std::string& pool, const std::string& row) const {
    return index_.holds_row(pool, row);
  }
  // Called when an object becomes visible, from within the table: it may not change anything here.
  std::function<void(const std::string& pool, const Keys& keys, const FramePtr& frame)> shown;

  // ---- requests: pool_get, pool_list, pool_drop, pool_write, push_lease, release
  void on_channel_open(ChannelNumber channel, uid_t user);
  void on_channel_closed(ChannelNumber channel);
  void on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd,
                Effects& effects);  // `fd`: or why it was not taken
  // The descriptor that a member offered, charged to the agent's user. Empty if it has not come.
  [[nodiscard]] Fd take_offer(ChannelNumber channel, std::uint64_t number) {
    return writes_.take_offer(channel, number);
  }
  void on_transfer(std::uint64_t token, Status status, Effects& effects) {
    hand_overs_.on_transfer(token, std::move(status), effects);
  }
  void on_job(std::uint64_t token, Status status, Effects& effects) {
    writes_.on_job(token, std::move(status), effects);
  }
  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // ---- objects on disk
  [[nodiscard]] Disk* disk() noexcept { return spilling_.disk(); }  // null: there is none
  [[nodiscard]] const Disk* disk() const noexcept { return spilling_.disk(); }
  [[nodiscard]] bool is_durable(const std::string& pool) const;
  // Writes an object of a durable pool to disk before it is put into the table. Several are written at a time, but
  // results are reported in the order of the calls, which is the storing order.
  void keep(const Place& place, const FramePtr& frame, PutId id, Disk::Written done, Effects& effects) {
    spilling_.keep(place, frame, std::move(id), std::move(done), effects);
  }
  // Adds an object that was found at start. Its pool exists.
  void recover(const RecordPtr& record, TimeNs now);
  // Reads an unread frame when there is memory for it. A failing read is tried again until `until`, or for a second if
  // that is 0. Error::io: it failed, or the object is lost here and removed from its pool. Error::would_block: there
  // was no memory.
  template <class Visit>
  void visit_reads(const Visit& visit) const {  // of gets whose objects are read back from disk
    spilling_.visit_reads([&](const Get& get, std::string why) {
      if (hand_overs_.is_open(get.channel)) visit(get, std::move(why));
    });
  }
  void read_back(const FramePtr& frame, TimeNs until, Disk::Read done, Effects& effects) {  // for a service
    spilling_.read_back({frame, until, 0, std::move(done)}, effects);
  }
  // Called for an object that was lost here, after its removal from the pool.
  void on_lost(std::function<void(const RecordPtr& record, Effects& effects)> lost) {
    spilling_.lost_here = std::move(lost);
  }
  // Called for a get whose object could not be read back; without a handler the get fails.
  std::function<void(Get get, Failure why, Effects& effects)> unreadable;
  // The object leaves memory, if it is on disk.
  void let_go(const std::string& pool, const Keys& keys);
  // Moves objects out of full memory, the longest unread first.
  void lighten(TimeNs now, Effects& effects) { spilling_.lighten(now, effects); }
  // Writes all objects of pools with spill that are in memory only. Blocks; called at the end.
  void flush() { spilling_.flush(); }

  [[nodiscard]] FrameTableCounters counters() const noexcept;
  struct PoolStatus {
    std::string name;
    uid_t user;
    std::uint64_t frames, bytes, rows;
    std::uint64_t spilled_bytes;  // of these, on disk alone
    std::uint64_t arrow_frames;   // slabs with their rows
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;

 private:
  using Pool = ObjectIndex::Pool;
  using Object = ObjectIndex::Object;
  using Objects = ObjectIndex::Objects;
  struct Expiry {
    std::string pool;
    Keys keys;
    std::uint64_t sequence;  // identifies the object: another may have come under its keys
  };

  // The table as FileWrites uses it.
  [[nodiscard]] Status may_read(const std::string& pool, uid_t user) const override;
  [[nodiscard]] Result<std::vector<QuerySource>> visible(const std::string& pool, uid_t user) const override;

  void get(const channel::Entry& request, ChannelNumber number, uid_t user, TimeNs now, Effects& effects);
  void list(const channel::Entry& request, ChannelNumber number, uid_t user, Effects& effects);
  void drop(const channel::Entry& request, ChannelNumber number, uid_t user, Effects& effects);
  void serve_waiting(const std::string& pool, const Keys& keys, const FramePtr& frame, Effects& effects);
  void expire(TimeNs now);
  void expire_later(const Pool& pool, Objects::iterator at, TimeNs now);
  void show(const std::string& name, Pool& pool, Objects::iterator at, TimeNs now, Effects& effects);
  void keep_newest(Pool& pool, std::uint64_t keep);
  [[nodiscard]] Status may_put(const Pool& pool, const Place& place, std::uint64_t bytes, const PutId& id) const;
  [[nodiscard]] Status may_replace(const Pool& pool, const Place& place, const PutId& id) const;
  [[nodiscard]] Status put_file(Pool& pool, const Place& place, FramePtr frame, TimeNs now, Effects& effects, PutId id,
                                const RecordPtr& file);
  void add(Pool& pool, Objects::iterator before, Keys&& keys, Object&& object, const Place& place, TimeNs now,
           Effects& effects);
  void answer_unread(Get get, const FramePtr& frame, Effects& effects);

  Limits limits_;
  std::shared_ptr<WaitAccounts> waits_;
  std::unordered_map<ChannelNumber, uid_t> users_;  // of open channels
  ObjectIndex index_;
  Spilling spilling_{index_};
  Steps steps_;
  WaitingGets waiting_;
  HandOvers hand_overs_;
  FileWrites writes_;
  std::multimap<TimeNs, Expiry> expiries_;
  FrameTableCounters counters_;  // puts, gets, drops, expired; counters() adds what the parts count
};

}  // namespace offpath::pool
