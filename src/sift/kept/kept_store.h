// Kept objects of one sift pool on this agent. They are in a pool of their own (pool/members/pools.h), which provides
// copies and disk: `local:` with spill=durable, or `hash:` with replicas. There each member has a row (copies.h), of
// which it is the first owner. The row's columns are the names of the objects (journal.h), and the identity
// (identity.h).
//
// Before anything of the pool is taken, every member reserves memory for the others' copies. Otherwise the credit of a
// stage, which depends on copies, could wait for memory of another stage or of a program.
//
// A pool with spill=on keeps runs of tracks that left memory there, for as long as the agent lives: it has no identity,
// and objects of a former life are removed.
//
// At its start an agent finds its row on its disk. Without a disk it asks all other members for it, and waits until all
// have answered, because a member that does not may be the only one that has it. Requests to the pool wait until then.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pool/members/pools.h"
#include "sift/effects.h"
#include "sift/kept/identity.h"
#include "sift/kept/journal.h"
#include "sift/split/geometry.h"

namespace offpath::sift {

class KeptStore {
 public:
  struct Options {
    std::string name, text;  // of the sift pool
    uid_t user = 0;
    Settings settings;
    FrameMemory memory;
    std::string self;           // this agent
    std::uint64_t process = 0;  // the source as which a new pool's member publishes
    TimeNs moves_ns = 0;        // after members have changed, a row may be on its way here for this long
  };
  // Calls to the owner, which must not destroy this object during them.
  struct Events {
    // The objects from before a restart, and the source under which the member publishes.
    std::function<void(std::uint64_t incarnation, const std::vector<KeptItem>&, TimeNs now, service::Effects&)> found;
    std::function<void(std::uint64_t token, const Status&, TimeNs now, service::Effects&)> kept;
    std::function<void(std::uint64_t token, Result<FramePtr>, TimeNs now, service::Effects&)> read;
    std::function<void(std::uint64_t token, Result<FramePtr>, TimeNs now, service::Effects&)> spilled;
    std::function<void()> changed;  // next_deadline() or is_idle()
  };

  // `pools` and `geometry` outlive this.
  KeptStore(Options options, const Geometry& geometry, pool::Pools& pools, Events events);

  // Makes the pool of the objects, with memory for the other members' copies.
  [[nodiscard]] Status open(TimeNs now, service::Effects& effects);
  // The members have agreed on the sift pool: from now on this looks for objects from before a restart, until `found`.
  void begin(TimeNs now) {
    if (options_.settings.kept()) set_due(now);
  }
  void work(TimeNs now, service::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept { return due_; }

  void keep(KeepEffect effect, TimeNs now, service::Effects& effects);  // then `kept`
  void read(const ReadEffect& effect, TimeNs now, service::Effects& effects);
  void spill(SpillEffect effect, TimeNs now, service::Effects& effects);  // then `spilled`
  void forget(std::string name, TimeNs now, service::Effects& effects);
  // The sift pool was dropped: `found` is not called any more.
  void drop(TimeNs now, service::Effects& effects);

  [[nodiscard]] const std::string& own() const noexcept { return own_; }  // the pool of the objects
  // No operation is under way whose end would call `events`.
  [[nodiscard]] bool is_idle() const noexcept { return under_way_ == 0; }

 private:
  struct Elsewhere {  // an object of this member's row that another member has
    std::string member;
    std::uint64_t bytes = 0, rows = 0;
  };

  void set_due(TimeNs at);
  void ended();
  [[nodiscard]] Status reserve();
  void on_listed(const std::string& member, const Result<std::vector<pool::FrameTable::Item>>& items, TimeNs now);
  void begin_restore(TimeNs now, service::Effects& effects);
  void identified(const Result<std::uint64_t>& incarnation, const std::vector<KeptItem>& items, TimeNs now,
                  service::Effects& effects);
  [[nodiscard]] mover::Store::Place place_of(std::string name) const;
  [[nodiscard]] std::string member_with(std::string_view name) const;

  Options options_;
  const Geometry& geometry_;
  pool::Pools& pools_;
  Events events_;
  std::string own_, row_;          // the pool that keeps the objects, and this member's row there
  std::set<std::string> unasked_;  // members that may have objects of the row, and have not answered
  std::set<std::string> asked_;    // a subset of these
  std::map<std::string, Elsewhere, std::less<>> elsewhere_;
  enum class State : std::uint8_t { looking, restoring, found } state_ = State::looking;
  TimeNs due_ = never, opened_at_ = 0, tell_at_ = never;
  std::size_t under_way_ = 0;
};

}  // namespace offpath::sift
