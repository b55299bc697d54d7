// Drops that follow rows on their way.
//
// A drop is sent to all members. While a row moves, its sender and its new owner may both be asked at a time when they
// do not have it. So a member that sends a row, or has sent it within the time of a drop, asks the new owners to drop
// it too, once they have it. It answers the drop only then, so later puts are not touched.
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

// A drop that a member asks for.
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

  // Drops this member's objects. Counts only rows of which it is the first owner; the other owners drop theirs.
  [[nodiscard]] Result<std::uint64_t> drop_here(const std::string& pool, uid_t user, std::string_view row_glob,
                                                std::string_view column_glob);
  // Calls `over` when all new owners have dropped their rows; at once if no row is moving.
  void follow(const std::string& pool, uid_t user, std::string_view row_glob, std::string_view column_glob,
              Followed over, TimeNs now, Effects& effects);
  // A request of another member.
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);

  // Regardless of the move's result: its answer may be lost.
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
  std::deque<Sent> sent_;                                 // rows that went to new owners recently
};

}  // namespace offpath::pool
