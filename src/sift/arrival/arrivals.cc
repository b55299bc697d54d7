#include "sift/arrival/arrivals.h"

#include <algorithm>

namespace offpath::sift {

Arrivals::Arrivals(const SiftOptions& options, StageBudgets& budgets, Elements& elements, std::uint64_t& next_token)
    : options_(options),
      budgets_(budgets),
      elements_(elements),
      next_token_(next_token),
      waiting_(options.settings.track_stage()) {}

void Arrivals::add(Arrival arrival) {
  const std::uint64_t id = next_token_++;
  for (const std::uint64_t token : arrival.tokens) arrival_of_token_[token] = id;
  const std::uint32_t stage = arrival.header.element.stage;
  waiting_[stage - 1].push_back(id);
  ++budgets_[stage].offers_waiting;
  arrivals_.emplace(id, std::move(arrival));
}

bool Arrivals::offer(std::uint64_t token, PieceHeader header, std::uint64_t bytes, std::uint64_t charge, FramePtr frame,
                     TakenSequences& taken, Effects& effects) {
  const auto answer = [&](Status status) {
    sift::add(effects, StoredEffect{token, std::move(status)});
    return false;
  };
  StageCounters& counters = budgets_[header.element.stage];
  if (taken.has(header.sequence)) {
    ++counters.repeated;
    return answer({});
  }
  if (!taken.can_take(header.sequence))
    return answer(fail(Error::would_block, "too many pieces of '{}' are missing before number {}", header.source.member,
                       header.sequence));
  Element& to = elements_[header.element];
  const auto [found, fresh] = to.arriving.try_emplace({header.source, header.sequence}, next_token_);
  if (!fresh) {  // known already; its answer was lost or is slow
    arrivals_.at(found->second).tokens.push_back(token);
    arrival_of_token_[token] = found->second;
    ++counters.repeated;
    return false;
  }
  if (counters.offers_waiting >= options_.offers_max) {
    to.arriving.erase(found);
    return answer(
        fail(Error::would_block, "{} offers wait for stage {} already", counters.offers_waiting, header.element.stage));
  }
  Arrival arrival;
  arrival.tokens = {token};
  arrival.bytes = bytes;
  arrival.charge = charge;
  arrival.header = std::move(header);
  arrival.frame = std::move(frame);
  add(std::move(arrival));
  return true;
}

std::optional<std::uint64_t> Arrivals::admit(std::uint32_t stage, std::uint64_t free_bytes) {
  std::deque<std::uint64_t>& waiting = waiting_[stage - 1];
  if (waiting.empty()) return std::nullopt;
  const std::uint64_t id = waiting.front();
  Arrival& arrival = arrivals_.at(id);
  if (!budgets_.has_room(stage, arrival.charge + free_bytes)) return std::nullopt;
  waiting.pop_front();
  --budgets_[stage].offers_waiting;
  budgets_.charge(stage, arrival.charge);
  arrival.admitted = true;
  return id;
}

Arrival* Arrivals::find(std::uint64_t id) noexcept {
  const auto found = arrivals_.find(id);
  return found == arrivals_.end() ? nullptr : &found->second;
}

// ---- offers

void Arrivals::pull(Arrival& arrival, Effects& effects) {
  arrival.pulling = true;
  arrival.pulled_from = arrival.tokens.back();
  sift::add(effects, AdmitEffect{arrival.pulled_from});
}

std::uint64_t Arrivals::end_pull(std::uint64_t token) {
  const auto found = arrival_of_token_.find(token);
  if (found == arrival_of_token_.end()) return 0;
  Arrival& arrival = arrivals_.at(found->second);
  if (!arrival.pulling || arrival.pulled_from != token) return 0;
  arrival.pulling = false;
  return found->second;
}

bool Arrivals::pull_elsewhere(std::uint64_t id, std::uint64_t failed, const Failure& why, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  if (arrival.tokens.size() <= 1) return false;
  std::erase(arrival.tokens, failed);
  arrival_of_token_.erase(failed);
  sift::add(effects, StoredEffect{failed, tl::unexpected(why)});
  pull(arrival, effects);
  return true;
}

std::uint32_t Arrivals::withdraw(std::uint64_t token, Effects& effects) {
  const auto found = arrival_of_token_.find(token);
  if (found == arrival_of_token_.end()) return 0;
  const std::uint64_t id = found->second;
  Arrival& arrival = arrivals_.at(id);
  const std::uint32_t stage = arrival.header.element.stage;
  std::erase(arrival.tokens, token);
  arrival_of_token_.erase(found);
  if (arrival.frame != nullptr) return 0;  // its rows have arrived, so they are taken
  if (!arrival.tokens.empty()) {
    if (arrival.pulling && arrival.pulled_from == token) pull(arrival, effects);
    return 0;
  }
  if (!arrival.admitted) {
    std::erase(waiting_[stage - 1], id);
    --budgets_[stage].offers_waiting;
  } else {
    budgets_.release(stage, arrival.charge);
  }
  forget(id);
  return stage;
}

// ---- ends

bool Arrivals::take(std::uint64_t id, TimeNs now, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  Element& to = elements_[arrival.header.element];
  StageCounters& counters = budgets_[to.id.stage];
  if (!arrival.put) {
    auto life = to.sources[arrival.header.source.member].life(arrival.header.source);
    if (!life) {
      refuse(id, life.error(), effects);
      return false;
    }
    if ((*life)->has(arrival.header.sequence)) {  // another offer of it reported meanwhile that it was answered
      if (options_.kept) sift::add(effects, ForgetEffect{piece_name(to.id, arrival.key)});
      budgets_.release(to.id.stage, arrival.charge);
      for (const std::uint64_t token : arrival.tokens) sift::add(effects, StoredEffect{token, Status{}});
      forget(id);
      return false;
    }
    (*life)->take(arrival.header.sequence);
  }
  ++counters.pieces_taken;
  counters.rows_taken += arrival.view->rows;
  for (const std::uint64_t token : arrival.tokens) sift::add(effects, StoredEffect{token, Status{}});
  if (arrival.order == 0) arrival.order = ++to.taken;
  to.pieces.push_back({{std::move(arrival.frame), std::move(*arrival.view), std::move(arrival.header.runs)},
                       arrival.bytes,
                       arrival.charge,
                       now,
                       arrival.order,
                       arrival.key});
  to.bytes += arrival.bytes;
  forget(id);
  return true;
}

void Arrivals::refuse(std::uint64_t id, const Failure& why, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  const std::uint32_t stage = arrival.header.element.stage;
  ++budgets_[stage].refused;
  if (arrival.admitted) budgets_.release(stage, arrival.charge);
  if (arrival.order != 0) elements_[arrival.header.element].gone.take(arrival.order);
  for (const std::uint64_t token : arrival.tokens) sift::add(effects, StoredEffect{token, tl::unexpected(why)});
  forget(id);
}

void Arrivals::forget(std::uint64_t id) {
  const auto found = arrivals_.find(id);
  for (const std::uint64_t token : found->second.tokens) arrival_of_token_.erase(token);
  if (!found->second.put && !found->second.restored)
    elements_[found->second.header.element].arriving.erase(
        {found->second.header.source, found->second.header.sequence});
  arrivals_.erase(found);
}

void Arrivals::drop(const Status& status, Effects& effects) {
  for (const auto& [token, id] : arrival_of_token_) sift::add(effects, StoredEffect{token, status});
  arrivals_.clear();
  arrival_of_token_.clear();
  for (std::deque<std::uint64_t>& each : waiting_) each.clear();
}

}  // namespace offpath::sift
