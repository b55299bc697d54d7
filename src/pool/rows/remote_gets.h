// Gets and computations of programs that other members are asked for, or will be: by number, by the request's name, by
// the pool that nobody has made yet, and by the time when they are looked at again. No event but a change of members
// looks at all of them.
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
  // A copy that member `from` has, or why there is none. `unsure`: some owner did not say that it has none.
  using Copied =
      std::function<void(const std::string& from, Result<FramePtr> copy, bool unsure, TimeNs now, Effects& effects)>;
  FrameTable::Get get{};             // of no channel, if it is a copy
  Copied copied{};                   // fetch_copy's: instead of an answer to a program
  ComputationPtr computation{};      // the reader wants its output; null: the object itself
  std::vector<std::string> tried{};  // members that had it not, or did not answer
  std::size_t of_all = 0;            // so many members of Directory::view `view` were looked at besides its owners
  std::uint64_t view = 0;
  bool last_look = false;        // all said no: only the owners are asked, once more
  bool unreadable = false;       // here, where it is not looked for again
  std::uint64_t asking = 0;      // the token's number; 0: none
  std::string owner{};           // that is asked
  bool unsure = false;           // some owner did not say that it has none
  bool fetched = false;          // by fetch(): nobody else is asked
  bool waits = false;            // nobody had it: it is waited for where it is to come
  QueryMembers::Fetched tell{};  // fetch_part's: instead of an answer to a program
  FramePtr delivered{};
  Failure last{Error::timeout, ""};

  // An object may be at an owner that cannot read it, or did not answer, though others have none.
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

  // When it is looked at again; `never`: not before its owner has answered.
  void set_due(Number number, TimeNs at) { times_.set(number, at); }
  [[nodiscard]] std::vector<Number> take_due(TimeNs now) { return times_.take(now); }
  [[nodiscard]] TimeNs next_due() const noexcept { return times_.first(); }

  // Somebody may make its pool.
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
