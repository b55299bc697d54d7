// Puts: an object, the end of a step, or a pool's definition to all members that are to have it. An owner that has no
// room, or cannot be reached, is asked again until the put's time is over.
//
// An object whose owner here is full waits for the budget of its pool, and is looked at when bytes of that pool become
// free. A put into a durable pool is on disk first, then in the table, and then stored.
//
// Read this first in src/pool/rows, then gets.h, arrivals.h and intake.h (what comes from members), moves.h and
// move_queue.h (after members have changed), comparisons.h, versions.h and repairs.h (how owners come to agree).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "mover/store.h"
#include "pool/peers/drops.h"
#include "pool/peers/pool_context.h"
#include "pool/rows/versions.h"
#include "pool/rows/waiting.h"

namespace offpath::pool {

// How a put of a service ended.
using Kept = std::function<void(const Status& status, TimeNs now, Effects& effects)>;

// One thing that several members are to have.
struct Put {
  enum class What { object, step_end, definition } what = What::object;
  Place place{};
  FramePtr frame{};  // the object
  std::uint32_t rank = 0, ranks = 0;
  PutId id{};                         // the object's
  std::uint64_t token = 0;            // the mover's; 0: nobody waits for it
  bool moves = false;                 // to new owners, because members changed
  bool drop_after = false;            // and does not stay here
  std::uint32_t failures = 0;         // of this move before
  bool keeping = false;               // it is being written to disk here
  std::uint64_t number = 0;           // of this process's puts
  std::vector<std::string> owners{};  // that are to have it
  std::set<std::string> done{}, asked{};
  TimeNs retry_at = never, deadline = never;
  Failure last{Error::timeout, "its owners did not answer in time"};
  Kept kept{};  // a service's

  // Of a program or a service: neither a row that goes to new owners, nor what members are told of a pool.
  [[nodiscard]] bool waits() const noexcept { return !moves && what != What::definition; }
};

class Puts final : public Drops::UnderWay {
 public:
  // The consequences of a put that has ended.
  class Ends {
   public:
    virtual void on_move_ended(const Put& move, const Status& status, TimeNs now, Effects& effects) = 0;
    // Some owners have the object, and others lack it or have another one that failed as well.
    virtual void on_put_divided(TimeNs now) = 0;

   protected:
    ~Ends() = default;
  };

  Puts(PoolContext& context, Versions& versions, Ends& ends) : context_(context), versions_(versions), ends_(ends) {}
  void set_process(std::uint64_t process) noexcept { process_ = process; }

  // A program's object: at once if it lies here alone.
  [[nodiscard]] Result<mover::Stored> put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now,
                                          Effects& effects);
  [[nodiscard]] Status end_step(const std::string& pool, const std::string& row, std::uint32_t rank,
                                std::uint32_t ranks, TimeNs now, Effects& effects);
  // `members` learn of a pool, so that all agree where its rows lie.
  void define(const std::string& pool, uid_t user, std::vector<std::string> members, TimeNs now, Effects& effects);
  // The same for a pool that a program has just made: nothing in it counts as stored until each of the members has
  // answered, for a program may ask any of them for what it was told is stored.
  void define_first(const std::string& pool, uid_t user, std::vector<std::string> members, TimeNs now,
                    Effects& effects);
  void start(Put put, TimeNs now, Effects& effects);
  void cancel_kept(const std::string& pool, TimeNs now, Effects& effects);

  // Owners are those that live now. `anew`: those that lived before too, as another process.
  void on_members(const std::vector<std::string>& anew, TimeNs now);
  void on_answer(const Asking& asked, Result<std::uint64_t> later, TimeNs now, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_due() const noexcept { return times_.first(); }
  // Some wait for the budget of a pool, or for room for keys.
  [[nodiscard]] bool waits_for_budget() const noexcept { return !budget_waiting_.empty(); }
  // Something became free since the last on_time.
  [[nodiscard]] bool has_freed() const noexcept { return freed_seen_ != context_.table.freed(); }

  // ---- rows on their way to new owners
  [[nodiscard]] std::size_t moves() const noexcept { return moving_.size(); }
  [[nodiscard]] std::vector<std::uint64_t> under_way(const std::string& pool, std::string_view row_glob,
                                                     std::string_view column_glob) const override;
  template <class Matches>
  [[nodiscard]] bool any_move(const std::string& pool, Matches matches) const {
    return std::ranges::any_of(moving_, [&](std::uint64_t number) {
      const Put& put = puts_.at(number);
      return put.place.pool == pool && matches(put.place.row_key, put.owners);
    });
  }

  // ---- waiting.cc: puts that wait, for the status and the log
  [[nodiscard]] WaitingPuts waiting(TimeNs now) const;
  // Writes a line for those that have waited for a second; returns when to look again.
  [[nodiscard]] TimeNs tell_of_waits(TimeNs now);
  // What the mover's put waits for, for its program. Empty: it is not under way here.
  [[nodiscard]] std::string why_waits(std::uint64_t token) const;

  [[nodiscard]] std::size_t size() const noexcept { return puts_.size(); }
  void add_pools(std::set<std::string_view>& names) const;

 private:
  struct EndsUnderWay {
    std::size_t count = 0;
    std::uint64_t key_bytes = 0;
  };
  void work(std::uint64_t number, TimeNs now, Effects& effects);
  void set_due(const Put& put, TimeNs now);
  void end_budget_wait(const Put& put);
  void take_budget_waiting(std::vector<std::uint64_t>& ready);
  [[nodiscard]] bool has_copies(Put& put) const;
  [[nodiscard]] bool is_pool_known(Put& put) const;
  void on_told(const std::string& pool, const std::string& member);
  [[nodiscard]] Status put_here(Put& put, TimeNs now, Effects& effects);
  [[nodiscard]] Status put_on_disk(Put& put, TimeNs now, Effects& effects);
  void on_disk(std::uint64_t number, Result<RecordPtr> file, TimeNs now, Effects& effects);
  void ask_owner(const Put& put, const std::string& owner, TimeNs now, Effects& effects);
  void stamp_again(Put& put, std::uint64_t later, TimeNs now) noexcept;
  void finish(std::uint64_t number, Status status, TimeNs now, Effects& effects);
  [[nodiscard]] WaitingPut waiting_put(const Put& put) const;

  PoolContext& context_;
  Versions& versions_;
  Ends& ends_;
  std::uint64_t process_ = 0;
  std::map<std::uint64_t, Put> puts_;
  std::unordered_map<std::uint64_t, std::uint64_t> by_token_;  // the mover's -> number
  DueTimes<std::uint64_t> times_;                              // when each is looked at again
  // Puts that wait for the budget of their pool here, by pool; by "" those that wait for room for their keys.
  std::set<std::pair<std::string, std::uint64_t>> budget_waiting_;
  std::uint64_t freed_seen_ = 0;                  // of the table
  std::map<uid_t, EndsUnderWay> ends_under_way_;  // of steps, to other members
  std::set<std::uint64_t> moving_;                // puts that are moves
  // Members that were told of a pool first and have not answered yet.
  std::map<std::string, std::set<std::string>, std::less<>> untold_;
  WaitsTold told_;
};

}  // namespace offpath::pool
