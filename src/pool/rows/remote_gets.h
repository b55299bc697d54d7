// Gets and computations of programs at other members: by number, by the request's name, by a pool that does not exist
// yet, and by the time of the next look. Only a change of members visits all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "pool/query/query_members.h"
#include "pool/rows/computation.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct RemoteGet {
  // A copy that member `from` has, or the reason why there is no copy. `unsure`: some owner did not answer or could not
  // read it.
  using Copied =
      std::function<void(const std::string& from, Result<FramePtr> copy, bool unsure, TimeNs now, Effects& effects)>;
  FrameTable::Get get{};             // without a channel if it is for a copy
  Copied copied{};                   // for fetch_copy, instead of an answer to a program
  ComputationPtr computation{};      // the computation to run; null: the object itself is wanted
  std::vector<std::string> tried{};  // members that do not have it, or did not answer
  std::size_t of_all = 0;            // the number of other members of Directory::view `view` that were tried
  std::uint64_t view = 0;
  bool last_look = false;        // second round: only the owners are asked
  bool unreadable = false;       // present here, but unreadable: not looked up again
  std::uint64_t asking = 0;      // the token's number; 0: no request under way
  std::string owner{};           // being asked
  bool unsure = false;           // some owner did not answer or could not read it
  bool fetched = false;          // by fetch(): no other member is asked
  bool waits = false;            // no member has it: the get waits at its first owner
  QueryMembers::Fetched tell{};  // for fetch_part, instead of an answer to a program
  FramePtr delivered{};
  Failure last{Error::timeout, ""};

  // An owner that cannot read the object, or did not answer, may have it even if no other owner has.
  void note(Failure said) {
    unsure |= said.code != Error::not_found;
    if (said.code != Error::not_found || !unsure) last = std::move(said);
  }
  void ask_all_again() {
    tried.clear();
    of_all = 0;
    last_look = unsure = false;
  }
};

class RemoteGets {
 public:
  using Number = std::uint64_t;

  RemoteGet& add(Number number, RemoteGet remote);
  [[nodiscard]] RemoteGet* find(Number number);  // null: it is over
  [[nodiscard]] RemoteGet& at(Number number) { return gets_.at(number); }
  RemoteGet take(Number number);  // one that is there
  [[nodiscard]] const std::map<Number, RemoteGet>& all() const noexcept { return gets_; }

  [[nodiscard]] std::vector<Number> of_channel(ChannelNumber channel) const;
  [[nodiscard]] std::vector<Number> of_request(ChannelNumber channel, std::uint64_t ticket) const;

  // The time of the next look; `never`: only when its owner has answered.
  void set_due(Number number, TimeNs at) { times_.set(number, at); }
  [[nodiscard]] std::vector<Number> take_due(TimeNs now) { return times_.take(now); }
  [[nodiscard]] TimeNs next_due() const noexcept { return times_.first(); }

  // It waits for its pool to be made.
  void await_pool(Number number);
  void pool_made(const std::string& pool, TimeNs now);

 private:
  using Named = std::tuple<ChannelNumber, std::uint64_t, Number>;  // channel, ticket
  [[nodiscard]] std::vector<Number> between(const Named& first, const Named& last) const;

  std::map<Number, RemoteGet> gets_;
  std::set<Named> by_name_;
  std::set<std::pair<std::string, Number>> awaiting_pool_;
  DueTimes<Number> times_;
};

}  // namespace offpath::pool
