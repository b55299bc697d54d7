// Objects that other members put or deliver here, pulled by this agent. An object without memory, budget or descriptor
// waits unpulled: its bytes stay at the sender, with their credit. Later objects may pass it, since each pool has a
// budget of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/peers/pool_context.h"
#include "pool/rows/comparisons.h"
#include "pool/rows/intake.h"
#include "pool/rows/moves.h"
#include "pool/rows/remote_gets.h"
#include "pool/rows/versions.h"
#include "pool/table/reserves.h"

namespace offpath::pool {

class Arrivals {
 public:
  // The result; the value is 0, or the counter of a later put that this agent has.
  using Ended = std::function<void(const Result<std::uint64_t>& later, TimeNs now, Effects& effects)>;
  // Other parts that an arrival concerns.
  struct Parts {
    Versions& versions;
    RemoteGets& gets;
    Moves& moves;
    Comparisons& comparisons;
    Reserves& reserves;
  };

  // `room`: whether so many bytes of memory may be taken. `unused`: whether so many are free, or set aside.
  Arrivals(PoolContext& context, Parts parts, std::shared_ptr<service::BufferCache> buffers,
           const std::function<bool(std::uint64_t bytes)>& room, std::function<bool(std::uint64_t bytes)> unused)
      : context_(context),
        parts_(parts),
        room_(room),
        intake_(
            std::move(buffers), context.options.object_bytes_max, room,
            [this](ChannelNumber channel, std::uint64_t number) { return context_.table.take_offer(channel, number); },
            std::move(unused)) {}

  // Another member's peer_put, and its peer_deliver of an object for a get or computation.
  [[nodiscard]] Status serve_put(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status serve_delivery(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                      Effects& effects);
  // An object in memory that goes to disk before it is in the table.
  void keep(const Place& place, const PutId& id, const FramePtr& frame, Ended ended, Effects& effects);

  // Starts pulls of all objects that have room.
  void admit(TimeNs now, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  void on_pulled(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);
  void on_channel_closed(ChannelNumber channel);

  [[nodiscard]] bool is_waiting() const noexcept { return !waiting_.empty(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  // Some object waits for the budget of its pool.
  [[nodiscard]] bool waits_for_budget() const noexcept { return waits_for_budget_; }
  // The bytes missing for the first waiting object.
  [[nodiscard]] std::uint64_t wanted() const {
    return waiting_.empty() || room_(waiting_.front().object.bytes) ? 0 : waiting_.front().object.bytes;
  }
  void on_pool_gone(const std::string& pool) { bytes_.erase(pool); }
  void add_pools(std::set<std::string_view>& names) const;

 private:
  struct Arrival {
    Intake::Object object{};
    std::uint64_t ticket = 0;
    Place place{};  // of a put
    PutId id{};
    std::uint64_t delivery = 0;  // of a delivered object; 0: it is a put
    std::uint64_t rows = 0;
    bool arrow = false;
    TimeNs deadline = never;  // for room
    Failure last{};           // why it has none
  };
  [[nodiscard]] Result<bool> begin(Arrival& arrival, TimeNs now, Effects& effects);
  void set_reserve(Arrival& arrival) const;
  void arrived(Arrival arrival, Result<FramePtr> object, TimeNs now, Effects& effects);
  [[nodiscard]] Status take(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects,
                            const RecordPtr& file = nullptr);

  PoolContext& context_;
  Parts parts_;
  std::function<bool(std::uint64_t)> room_;
  Intake intake_;
  std::deque<Arrival> waiting_;                        // for room
  std::unordered_map<std::uint64_t, Arrival> pulled_;  // by number of the token
  std::map<std::string, std::uint64_t> bytes_;         // on their way into pools
  bool waits_for_budget_ = false;
};

}  // namespace offpath::pool
