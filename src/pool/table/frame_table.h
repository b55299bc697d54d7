// Frames in memory by (pool, row, column): what this agent holds of its pools. Requests for an object that is not there
// yet wait here until it is stored or their deadline passes. Which rows belong here is not its business (pools.h).
//
// With a disk (frame_table_spill.cc) objects of pools whose options say so lie there too, or there alone: their frames
// are `unread`, and whoever wants their bytes reads them back first.
//
// A pool belongs to the user whose stream or request named it first; another user gets Error::denied, unless the pool's
// options name him as a reader, who may get and list.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
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
#include "mover/mover.h"
#include "pool/directory/pool_name.h"
#include "pool/table/disk.h"
#include "pool/table/gone_ranks.h"
#include "pool/table/query_source.h"
#include "pool/table/wait_accounts.h"
#include "pool/table/waiting_gets.h"
#include "pool/table/waiting_reads.h"
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

class FrameTable {
 public:
  struct Limits {
    std::size_t waiting_max = 65536, user_waiting_max = 65536;  // requests that wait, here or for other members
    std::size_t leases_max = 65536;                             // of one channel
    std::uint64_t key_bytes_max = 1 << 30;                      // of all objects, on disk or not
    std::uint64_t waiting_key_bytes_max = 64 << 20;             // of them; of one user's steps that wait for ranks
    std::size_t user_pools_max = 16384;
    std::size_t user_steps_max = 262144;  // of one user: ends of steps, each rank's counts, that wait for other ranks
    TimeNs offer_wait_ns = second_ns;     // for the descriptor of a write that was asked for already
  };
  explicit FrameTable(const Limits& limits)
      : limits_(limits),
        waits_(std::make_shared<WaitAccounts>(WaitAccounts::Limits{
            limits.waiting_max, limits.user_waiting_max, limits.waiting_key_bytes_max, wire::short_keys_bytes})) {}
  struct DiskUse {
    std::function<bool(std::uint64_t bytes)> room;  // may so many bytes of memory be taken for what is read back
    std::function<std::uint64_t()> wanted;          // bytes of memory that objects are to leave
  };
  void keep_on(std::unique_ptr<Disk> disk, DiskUse use);

  using Place = mover::Store::Place;                 // whose pool is a name without options
  using Keys = std::pair<std::string, std::string>;  // row, column
  using KeysView = std::pair<std::string_view, std::string_view>;
  // Looked up by views: most requests name keys that lie in their own bytes.
  struct KeyOrder {
    using is_transparent = void;
    [[nodiscard]] bool operator()(const auto& a, const auto& b) const noexcept {
      const int row = std::string_view(a.first).compare(b.first);
      return row != 0 ? row < 0 : std::string_view(a.second) < std::string_view(b.second);
    }
  };

  enum class Access { read, write };
  [[nodiscard]] Status may_use(const std::string& pool, uid_t user,
                               Access access) const;  // of one that is not there: yes
  // What a pool's options say of objects here; before that it has those of a pool without.
  [[nodiscard]] Status define(const std::string& pool, const PoolOptions& options, uid_t user);
  [[nodiscard]] Status admit(const std::string& pool, uid_t user);
  // Error::would_block: the pool's budget is used up, or the memory for keys is. Error::too_large: it never fits.
  // Error::exists: no overwriting.
  [[nodiscard]] Status may_put(const Place& place, std::uint64_t bytes, const PutId& id) const;
  // `file`: it is on disk already, and will be removed there if it is not taken.
  [[nodiscard]] Status put(const Place& place, FramePtr frame, TimeNs now, Effects& effects, PutId id = {},
                           const RecordPtr& file = nullptr);
  [[nodiscard]] Result<FramePtr> find(const std::string& pool, const std::string& row_key,
                                      const std::string& column_key, uid_t user);
  // Error::too_large: the pool's user has too many steps that wait for ranks.
  [[nodiscard]] Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank,
                                std::uint32_t ranks, TimeNs now, Effects& effects);

  // ---- frame_table_steps.cc
  void rank_ended(const std::string& pool, std::uint32_t rank, GoneRank gone);
  void rank_began(const std::string& pool, std::uint32_t rank) { gone_ranks_.remove(pool, rank); }
  [[nodiscard]] std::vector<PoolSteps> steps() const;

  // A request for an object, of a program or of another member.
  using Get = pool::Get;
  void get(Get get, Effects& effects);
  // Counts a request of that user, and its keys, while it waits: here, or for other members. Error::too_large: it may
  // not wait.
  [[nodiscard]] Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) {
    return WaitAccounts::charge(waits_, user, bytes);
  }
  // The same of a get, unless it is counted already, with what it has besides its keys.
  [[nodiscard]] Status charge(Get& get, std::uint64_t more_bytes = 0);
  // The object is this one, wherever it was. A program has it leased.
  void answer(const Get& get, const FramePtr& frame, Effects& effects);
  // Sends an object to a member that has no room prepared for it; answers the get.
  std::function<void(const Get& get, FramePtr frame, Effects& effects)> deliver;

  struct Item {
    std::uint64_t sequence, bytes, rows;
    bool arrow;
    std::string row, column;
  };
  // Those after `after` in the order of storing, about `bytes_max` bytes of them; `more` says whether there are others.
  [[nodiscard]] Result<std::vector<Item>> list(const std::string& pool, uid_t user, std::string_view row_glob,
                                               std::string_view column_glob, std::uint64_t after, std::size_t bytes_max,
                                               bool& more);
  static constexpr std::size_t listed_bytes_max = 16 * 1024;  // of one reply; the host asks for the rest
  static void answer_list(ChannelNumber channel, std::uint64_t ticket, std::vector<Item> items, bool more,
                          Effects& effects);
  [[nodiscard]] Result<std::vector<Keys>> drop(std::string_view pool, uid_t user, std::string_view row_glob,
                                               std::string_view column_glob);
  [[nodiscard]] uid_t user_of(const std::string& pool) const;  // root, if there is none
  [[nodiscard]] bool has(const std::string& pool) const { return pools_.contains(pool); }
  [[nodiscard]] std::size_t pools_of(uid_t user) const;
  // Nothing is in the pool, or on its way to its disk.
  [[nodiscard]] bool is_empty(const std::string& pool) const;
  void forget(const std::string& pool);                          // an empty one
  void add_waited_for(std::set<std::string_view>& pools) const;  // those that requests wait for
  [[nodiscard]] bool holds(const std::string& pool, const Keys& keys) const;
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
  // The object here knows of that put from now on, as if it had replaced it.
  void learn(const std::string& pool, const KeysView& keys, const PutId& other);
  // Takes requests that wait for objects out of the table: those `chosen`, of all; that of a name.
  [[nodiscard]] std::vector<Get> take_waiting(const std::function<bool(const Get& get)>& chosen);
  [[nodiscard]] std::vector<Get> take_waiting(ChannelNumber channel, bool of_member, std::uint64_t name);
  // Grows whenever bytes of a pool become free.
  [[nodiscard]] std::uint64_t freed() const noexcept { return freed_; }
  // Of which pools, since this was asked last.
  [[nodiscard]] std::set<std::string, std::less<>> take_freed() { return std::exchange(freed_pools_, {}); }
  // Whether the keys of all objects leave room for these, whatever the pool's budget says.
  [[nodiscard]] bool has_room_for_keys(const Place& place) const noexcept {
    return counters_.key_bytes + place.row_key.size() + place.column_key.size() <= limits_.key_bytes_max;
  }

  // What a query is to read: visible objects whose keys match, in the order of storing.
  [[nodiscard]] Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                        std::string_view column_glob, uid_t user);

  // The object, or all visible ones of its row by column where `column` is empty. Error::not_found says what is
  // missing.
  [[nodiscard]] Result<std::vector<QuerySource>> row(const std::string& pool, const std::string& row,
                                                     const std::string& column, uid_t user);
  [[nodiscard]] bool holds_row(const std::string& pool, const std::string& row) const;
  // Called when an object becomes visible, from within the table: it may not change anything here.
  std::function<void(const std::string& pool, const Keys& keys, const FramePtr& frame)> shown;

  // ---- requests: pool_get, pool_list, pool_drop, pool_write, push_lease, release
  void on_channel_open(ChannelNumber channel, uid_t user);
  void on_channel_closed(ChannelNumber channel);
  void on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd,
                Effects& effects);  // `fd`: or why it was not taken
  // Of a member, which is of the agent's user. None, if it has not come.
  [[nodiscard]] Fd take_offer(ChannelNumber channel, std::uint64_t number);
  void on_transfer(std::uint64_t token, Status status, Effects& effects);
  void on_job(std::uint64_t token, Status status, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // ---- objects on disk
  [[nodiscard]] Disk* disk() noexcept { return disk_.get(); }  // null: there is none
  [[nodiscard]] const Disk* disk() const noexcept { return disk_.get(); }
  [[nodiscard]] bool is_durable(const std::string& pool) const;
  // An object of a durable pool goes to disk before it is put. It is not in the table yet. They are told in the order
  // of asking, though several are written at a time: that of storing is theirs.
  void keep(const Place& place, const FramePtr& frame, PutId id, Disk::Written done, Effects& effects);
  // Of what was found at start. Its pool is there.
  void recover(const RecordPtr& record, TimeNs now);
  // An unread frame's bytes, when there is memory for them. What cannot be read is tried again until then, or for a
  // second where that is 0. Error::io: it could not, or is lost here, and no object of its pool any more.
  // Error::would_block: there was no memory.
  void read_back(const FramePtr& frame, TimeNs until, Disk::Read done, Effects& effects);  // for a service
  // An object that was lost here; no object of its pool any more.
  std::function<void(const RecordPtr& record, Effects& effects)> lost_here;
  // A get whose object could not be read back; without, it fails.
  std::function<void(Get get, Failure why, Effects& effects)> unreadable;
  // The object leaves memory, if it is on disk.
  void let_go(const std::string& pool, const Keys& keys);
  // Objects leave memory where that is full, the one that was longest unread first.
  void lighten(TimeNs now, Effects& effects);
  // Everything of pools with spill that is in memory alone is written. Blocks: at the end.
  void flush();

  [[nodiscard]] const FrameTableCounters& counters() const noexcept { return counters_; }
  struct PoolStatus {
    std::string name;
    uid_t user;
    std::uint64_t frames, bytes, rows;
    std::uint64_t spilled_bytes;  // of these, on disk alone
    std::uint64_t arrow_frames;   // which have the rows
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;

 private:
  struct Object {
    FramePtr frame;
    std::uint64_t sequence;  // 0 while hidden
    std::uint64_t keep;      // as its stream said
    bool hidden;             // until its step has ended on all ranks
    PutId id;
    RecordPtr file = nullptr;     // it is on disk as well, or there alone: then the frame is unread
    std::uint64_t writing = 0;    // the number of the file that is being written; 0: none
    std::uint64_t used = 0;       // its place in by_use; 0: it is not in there
    bool read_meanwhile = false;  // while it was written
  };
  using Objects = std::map<Keys, Object, KeyOrder>;
  struct Step {
    std::set<std::uint32_t> ended;
    std::uint32_t ranks = 0;
  };
  struct Keeping {
    std::uint64_t number;
    Disk::Written done;
    std::optional<Result<RecordPtr>> outcome;  // none: it is being written
  };
  struct Pool {
    std::string_view name;
    uid_t user = 0;
    Objects objects;
    std::map<std::uint64_t, Objects::iterator> by_sequence;  // those readers see, in the order in which they came to
    std::map<std::string, Step> steps;                       // not ended on all ranks yet
    std::uint64_t bytes = 0;
    PoolOptions options;
    // With spill: objects in memory that are not being written, the one that was longest unread first.
    std::map<std::uint64_t, Keys> by_use;
    std::uint64_t memory_bytes = 0;     // of objects in memory; what the budget is compared with
    std::uint64_t writing_bytes = 0;    // of these
    std::deque<Keeping> keeping{};      // of a durable pool, in the order in which they are to be put
    mutable std::uint64_t lacking = 0;  // what has to leave before the put that was refused last
  };
  struct Account {  // of one user
    std::size_t pools = 0, step_ends = 0;
    std::uint64_t step_key_bytes = 0;
  };
  struct Expiry {
    std::string pool;
    Keys keys;
    std::uint64_t sequence;  // of the object that is meant: another may have come under its keys
  };
  struct Channel {
    uid_t user = 0;
    std::unordered_map<std::uint64_t, FramePtr> leases;
    std::map<std::uint64_t, Result<Fd>> offers;  // by number, which grows
  };
  // The request comes through the ring, its descriptor over the socket: either may be seen first. One for each channel.
  struct Write {
    ChannelNumber channel;
    std::uint64_t ticket;
    std::string pool;
    std::uint64_t offer;
    TimeNs deadline;
  };
  // What a job that writes shares with the table.
  struct Written {
    std::atomic<bool> cancelled{false};
    std::uint64_t bytes = 0;
  };
  struct Transfer {  // a push, or a job that writes
    ChannelNumber channel;
    std::uint64_t ticket;
    wire::Got got{};
    uid_t user = 0;
    std::shared_ptr<Written> written{};
  };
  struct LaterWrite {
    Write write;
    uid_t user;
    Fd descriptor;
  };

  [[nodiscard]] Result<Pool*> open(const std::string& name, uid_t user, Access access);
  [[nodiscard]] Result<Pool*> existing(std::string_view name, uid_t user, Access access);
  [[nodiscard]] static Status may_use(std::string_view name, const Pool& pool, uid_t user, Access access);
  void get(const Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now, Effects& effects);
  void push(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects);
  void push(ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, wire::RegionId region,
            std::uint64_t offset, Effects& effects);
  void list(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects);
  void drop(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects);
  void write(Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now, Effects& effects);
  void begin_write(const Write& write, uid_t user, Result<Fd> offered, Effects& effects);
  void start_write(const Write& write, uid_t user, Fd descriptor, Effects& effects);
  [[nodiscard]] Result<Pool*> may_write(std::string_view pool, uid_t user) {
    std::erase_if(hanging_, [](const auto& each) { return each.second.expired(); });
    if (!hanging_.contains(user)) return existing(pool, user, Access::read);
    return fail(Error::unsupported,
                "a write of user {} waits for the process that holds its file: until it ends, programs write others",
                user);
  }
  void serve_waiting(const std::string& pool, const Keys& keys, const FramePtr& frame, Effects& effects);
  void expire(TimeNs now);
  Keys remove(Pool& pool, Objects::iterator at);  // what its keys were
  void show(const std::string& name, Pool& pool, Objects::iterator at, TimeNs now, Effects& effects);
  void keep_newest(Pool& pool, std::uint64_t keep);
  void forget_step(Pool& pool, std::map<std::string, Step>::iterator step);
  [[nodiscard]] Status may_put(const Pool& pool, const Place& place, std::uint64_t bytes, const PutId& id) const;
  [[nodiscard]] std::string describe_absence(const Get& get) const;
  [[nodiscard]] std::string describe_step(const std::string& pool, const std::string& row, const Step& step) const;

  // frame_table_spill.cc
  [[nodiscard]] bool spills(const Pool& pool) const noexcept {
    return disk_ != nullptr && pool.options.spill != Spill::off;
  }
  [[nodiscard]] Status may_replace(const Pool& pool, const Place& place, const PutId& id) const;
  [[nodiscard]] Status put_file(Pool& pool, const Place& place, FramePtr frame, TimeNs now, Effects& effects, PutId id,
                                const RecordPtr& file);
  void add(const std::string& name, Pool& pool, Objects::iterator before, Keys keys, Object object, const Place& place,
           TimeNs now, Effects& effects);
  void enter_memory(Pool& pool, const Keys& keys, Object& object);
  void leave_memory(Pool& pool, Object& object);
  void touch(Pool& pool, const Keys& keys, Object& object);
  void note_freed(const Pool& pool);
  void evict(Pool& pool, Object& object);
  void start_spilling(Pool& pool, const std::string& name);
  [[nodiscard]] bool let_go(const std::string& name, Pool& pool, std::uint64_t used, std::uint64_t& want, TimeNs now,
                            Effects& effects);
  void lighten_pool(const std::string& name, Pool& pool, std::uint64_t want, TimeNs now, Effects& effects);
  void lighten_all(std::uint64_t want, TimeNs now, Effects& effects);
  void on_spilled(const std::string& name, const Keys& keys, std::uint64_t number, std::uint64_t bytes,
                  Result<RecordPtr> record, Effects& effects);
  [[nodiscard]] ObjectRecord record_of(const std::string& name, const Pool& pool, const Keys& keys, uid_t user,
                                       std::uint64_t keep, bool hidden, PutId id);
  void answer_unread(Get get, const FramePtr& frame, Effects& effects);
  void came_back(const RecordPtr& record, const FramePtr& frame);
  void lose(const RecordPtr& record, Effects& effects);
  void read_now(WaitingReads::Read read, Effects& effects);
  void read_waiting(TimeNs now, Effects& effects);

  Limits limits_;
  std::shared_ptr<WaitAccounts> waits_;
  std::map<std::string, Pool, std::less<>> pools_;
  std::map<uid_t, Account> accounts_;
  GoneRanks gone_ranks_;
  std::unordered_map<ChannelNumber, Channel> channels_;
  WaitingGets waiting_;
  std::multimap<TimeNs, Expiry> expiries_;
  std::vector<Write> writes_;            // that wait for their descriptors
  std::deque<LaterWrite> later_writes_;  // that wait for another one of their user
  std::unordered_map<std::uint64_t, Transfer> transfers_;
  std::map<uid_t, std::weak_ptr<Written>> hanging_;  // failed by time; their jobs have these until they end
  std::uint64_t next_sequence_ = 1, next_lease_ = 1, next_token_ = 1;
  std::uint64_t freed_ = 0;
  std::set<std::string, std::less<>> freed_pools_;
  std::unique_ptr<Disk> disk_;
  DiskUse use_;
  std::map<std::string, Pool*> spilling_;  // pools with spill
  WaitingReads reads_waiting_;
  std::uint64_t next_use_ = 1;
  mutable bool stirred_ = false;  // something may have to leave memory
  TimeNs lighten_at_ = never;     // when what could not be written is tried again
  FrameTableCounters counters_;
};

}  // namespace offpath::pool
