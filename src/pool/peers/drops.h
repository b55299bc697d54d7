// Drops that follow rows on their way.
//
// A drop is asked of all members. One that has sent a row to its new owner may be asked before that one has it, or
// after, when the new owner was asked before it came: either way nobody had it to drop. So a member that sends a row,
// or has sent it within the time that a drop takes, asks its new owners to drop it too, once they have it, and answers
// the drop only then: what is put after that is not touched.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/peers/pool_context.h"
#include "service/service.h"

namespace offpath::pool {

// A drop that a member is asked for.
[[nodiscard]] MemberRequests::Compose compose_drop(uid_t user, std::string text, std::string row_glob,
                                                   std::string column_glob);

class Drops {
 public:
  // `dropped`: how many rows new owners had.
  using Followed = std::function<void(Result<std::uint64_t> dropped, Effects& effects)>;
  // Rows on their way to new owners.
  class UnderWay {
   public:
    // Numbers of moves whose keys the patterns match.
    [[nodiscard]] virtual std::vector<std::uint64_t> under_way(const std::string& pool, std::string_view row_glob,
                                                               std::string_view column_glob) const = 0;

   protected:
    ~UnderWay() = default;
  };

  Drops(PoolContext& context, const UnderWay& moves) : context_(context), moves_(moves) {}

  // This member's objects of it. Of the rows, those of which it is the first owner are counted; the other owners drop
  // theirs.
  [[nodiscard]] Result<std::uint64_t> drop_here(const std::string& pool, uid_t user, std::string_view row_glob,
                                                std::string_view column_glob);
  // `over` is called when all new owners have dropped theirs: there and then, if no row is on its way.
  void follow(const std::string& pool, uid_t user, std::string_view row_glob, std::string_view column_glob,
              Followed over, TimeNs now, Effects& effects);
  // Another member's.
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);

  // Whatever came of the move: its answer may be lost.
  void on_move_ended(std::uint64_t move, const Place& place, const std::vector<std::string>& owners, TimeNs now,
                     Effects& effects);
  void on_answer(std::uint64_t number, const Result<service::Answer>& answer, Effects& effects);

 private:
  struct Following {
    uid_t user = 0;
    std::size_t open = 0;
    std::uint64_t dropped = 0;
    std::optional<Failure> failure{};
    Followed over{};
  };
  struct Sent {
    TimeNs at;
    std::string pool;
    FrameTable::Keys keys;
    std::vector<std::string> owners;
  };
  void drop_at(std::uint64_t number, const std::string& pool, const FrameTable::Keys& keys,
               const std::vector<std::string>& owners, TimeNs now, Effects& effects);
  void end(std::uint64_t number, Effects& effects);

  PoolContext& context_;
  const UnderWay& moves_;
  std::unordered_map<std::uint64_t, Following> followings_;
  std::multimap<std::uint64_t, std::uint64_t> of_moves_;  // followings that wait for a move
  std::deque<Sent> sent_;                                 // rows that went to new owners not long ago
};

}  // namespace offpath::pool
