// Pulls of pieces that other members offer. A piece is pulled when its stage has room (AdmitEffect). A pull that finds
// no memory, or whose descriptor has not arrived, waits and is tried again in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/due_times.h"
#include "pool/rows/intake.h"
#include "service/effects.h"

namespace offpath::sift {

class PiecePulls {
 public:
  using Object = pool::Intake::Object;
  struct Ended {
    std::uint64_t number;
    Result<service::FramePtr> frame;
  };

  // As in pool::Intake.
  PiecePulls(std::shared_ptr<service::BufferCache> buffers, std::uint64_t bytes_max,
             std::function<bool(std::uint64_t)> room,
             std::function<Fd(service::ChannelNumber, std::uint64_t)> take_offer)
      : intake_(std::move(buffers), bytes_max, std::move(room), std::move(take_offer)) {}

  // Adds an offered piece under a number of the sift service. The number is also in the token of its transfer or job.
  void add(std::uint64_t number, Object object) { pulls_.emplace(number, Pull{std::move(object)}); }
  // Its channel has ended: the pull is dropped.
  void forget(std::uint64_t number);
  // Its offer was answered in another way: a pull that waits is dropped, and one under way ends without an outcome.
  void abandon(std::uint64_t number);

  // Empty: it waits, is under way, or is unknown.
  [[nodiscard]] std::optional<Ended> begin(std::uint64_t number, TimeNs now, service::Effects& effects);
  // Tries the pull that has waited longest. If it still has to wait, it goes to the end of the queue.
  [[nodiscard]] std::optional<Ended> begin_waiting(TimeNs now, service::Effects& effects);
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  // When to try a waiting pull again even if no event arrives.
  [[nodiscard]] TimeNs next_deadline() const noexcept { return times_.first(); }

  // Ends a transfer or job for which `is_under_way` is true. nullopt: it was abandoned.
  [[nodiscard]] bool is_under_way(std::uint64_t number) const;
  [[nodiscard]] std::optional<Ended> end(std::uint64_t number, const Status& status);

 private:
  struct Pull {
    Object object;
    enum class State : std::uint8_t { offered, waiting, under_way, abandoned } state = State::offered;
  };
  [[nodiscard]] static std::uint64_t token_of(std::uint64_t number) noexcept {
    return service::token_of(service::ServiceId::sift, number);
  }
  void stop_waiting(std::uint64_t number);

  pool::Intake intake_;
  std::unordered_map<std::uint64_t, Pull> pulls_;
  std::deque<std::uint64_t> waiting_;  // in the order of waiting
  DueTimes<std::uint64_t> times_;      // of those that wait for a descriptor
};

}  // namespace offpath::sift
