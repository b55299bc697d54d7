// Puts: an object, the end of a step, or a pool's definition, sent to all members that should have it. An owner that
// has no room, or cannot be reached, is asked again until the put's deadline.
//
// An object without room here waits for its pool's budget, and is looked at when bytes of that pool become free. A put
// into a durable pool goes to disk first, then into the table, and then counts as stored.
//
// Read this first in src/pool/rows, then gets.h, arrivals.h and intake.h (objects from members), moves.h and
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

// The result of a service's put.
using Kept = std::function<void(const Status& status, TimeNs now, Effects& effects)>;

// A message for several members.
struct Put {
  enum class What { object, step_end, definition } what = What::object;
  Place place{};
  FramePtr frame{};  // the object
  std::uint32_t rank = 0, ranks = 0;
  PutId id{};                         // the object's
  std::uint64_t token = 0;            // the mover's; 0: no program waits for it
  bool moves = false;                 // to new owners, because members changed
  bool drop_after = false;            // and does not stay here
  std::uint32_t failures = 0;         // of this move's earlier attempts
  bool keeping = false;               // it is being written to disk here
  std::uint64_t number = 0;           // of this process's puts
  std::vector<std::string> owners{};  // members that should have it
  std::set<std::string> done{}, asked{};
  TimeNs retry_at = never, deadline = never;
  Failure last{Error::timeout, "its owners did not answer in time"};
  Kept kept{};  // a service's

  // True for puts of programs and services, not for rows that move to new owners or definitions of pools.
  [[nodiscard]] bool waits() const noexcept { return !moves && what != What::definition; }
};

class Puts final : public Drops::UnderWay {
 public:
  // The consequences of a put that has ended.
  class Ends {
   public:
    virtual void on_move_ended(const Put& move, const Status& status, TimeNs now, Effects& effects) = 0;
    // Some owners have the object; others lack it, or have one of another failed put.
    virtual void on_put_divided(TimeNs now) = 0;

   protected:
    ~Ends() = default;
  };

  Puts(PoolContext& context, Versions& versions, Ends& ends) : context_(context), versions_(versions), ends_(ends) {}
  void set_process(std::uint64_t process) noexcept { process_ = process; }

  // A program's object; done at once if this agent is the only owner.
  [[nodiscard]] Result<mover::Stored> put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now,
                                          Effects& effects);
  [[nodiscard]] Status end_step(const std::string& pool, const std::string& row, std::uint32_t rank,
                                std::uint32_t ranks, TimeNs now, Effects& effects);
  // Announces a pool to `members`, so that all agree on the places of its rows.
  void define(const std::string& pool, uid_t user, std::vector<std::string> members, TimeNs now, Effects& effects);
  // The same for a new pool of a program. No object in it counts as stored until each member has answered, because a
  // program may ask any member for a stored object.
  void define_first(const std::string& pool, uid_t user, std::vector<std::string> members, TimeNs now,
                    Effects& effects);
  void start(Put put, TimeNs now, Effects& effects);
  void cancel_kept(const std::string& pool, TimeNs now, Effects& effects);

  // Recomputes owners from the living members. `anew`: members that lived before too, as another process.
  void on_members(const std::vector<std::string>& anew, TimeNs now);
  void on_answer(const Asking& asked, Result<std::uint64_t> later, TimeNs now, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_due() const noexcept { return times_.first(); }
  // Some wait for the budget of a pool, or for room for keys.
  [[nodiscard]] bool waits_for_budget() const noexcept { return !budget_waiting_.empty(); }
  // Room became free since the last on_time.
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
  // The reason why the mover's put waits, for its program. Empty: it is not under way here.
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
  // Puts that wait for the budget of their pool here, by pool; under "" those that wait for room for their keys.
  std::set<std::pair<std::string, std::uint64_t>> budget_waiting_;
  std::uint64_t freed_seen_ = 0;                  // of the table
  std::map<uid_t, EndsUnderWay> ends_under_way_;  // of steps, to other members
  std::set<std::uint64_t> moving_;                // puts that are moves
  // Members that have not yet answered the first announcement of a pool.
  std::map<std::string, std::set<std::string>, std::less<>> untold_;
  WaitsTold told_;
};

}  // namespace offpath::pool
