#include "sift/publish/piece_pulls.h"

#include <algorithm>
#include <utility>

namespace offpath::sift {

std::optional<PiecePulls::Ended> PiecePulls::begin(std::uint64_t number, TimeNs now, service::Effects& effects) {
  const auto at = pulls_.find(number);
  if (at == pulls_.end()) return std::nullopt;
  Pull& pull = at->second;
  const auto begun = intake_.begin(token_of(number), pull.object, now, effects);
  if (begun && *begun == pool::Intake::Begun::later) {
    pull.state = Pull::State::under_way;
    return std::nullopt;
  }
  if (begun && *begun == pool::Intake::Begun::not_yet) {
    pull.state = Pull::State::waiting;
    waiting_.push_back(number);
    times_.set(number, pull.object.deadline());
    return std::nullopt;
  }
  pulls_.erase(at);
  if (!begun) return Ended{number, tl::unexpected(begun.error())};
  return Ended{number, intake_.end(token_of(number), {})};
}

std::optional<PiecePulls::Ended> PiecePulls::begin_waiting(TimeNs now, service::Effects& effects) {
  const std::uint64_t number = waiting_.front();
  waiting_.pop_front();
  times_.erase(number);
  return begin(number, now, effects);
}

bool PiecePulls::is_under_way(std::uint64_t number) const {
  const auto at = pulls_.find(number);
  return at != pulls_.end() &&
         (at->second.state == Pull::State::under_way || at->second.state == Pull::State::abandoned);
}

std::optional<PiecePulls::Ended> PiecePulls::end(std::uint64_t number, const Status& status) {
  const auto node = pulls_.extract(number);
  Ended ended{number, intake_.end(token_of(number), status)};
  if (node.mapped().state == Pull::State::abandoned) return std::nullopt;
  return ended;
}

void PiecePulls::stop_waiting(std::uint64_t number) {
  std::erase(waiting_, number);
  times_.erase(number);
}

void PiecePulls::forget(std::uint64_t number) {
  const auto node = pulls_.extract(number);
  if (!node) return;
  const Pull::State state = node.mapped().state;
  if (state == Pull::State::waiting) stop_waiting(number);
  if (state == Pull::State::under_way || state == Pull::State::abandoned) intake_.forget(token_of(number));
}

void PiecePulls::abandon(std::uint64_t number) {
  const auto at = pulls_.find(number);
  if (at == pulls_.end()) return;
  if (at->second.state == Pull::State::under_way) {
    at->second.state = Pull::State::abandoned;
    return;
  }
  if (at->second.state == Pull::State::waiting) stop_waiting(number);
  if (at->second.state != Pull::State::abandoned) pulls_.erase(at);
}

}  // namespace offpath::sift
