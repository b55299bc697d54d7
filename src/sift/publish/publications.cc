#include "sift/publish/publications.h"

#include <algorithm>

namespace offpath::sift {

Publications::Publications(const SiftOptions& options, const Geometry& geometry, std::uint32_t self,
                           StageBudgets& budgets)
    : options_(options), geometry_(geometry), self_(self), budgets_(budgets), stages_(options.settings.track_stage()) {}

Publications::Piece Publications::piece(ElementId from, ElementId to, std::uint32_t overhead_bytes) const {
  Piece made;
  made.from = from;
  made.header.pool = options_.settings.pool;
  made.header.element = to;
  made.header.source = options_.self;
  made.header.overhead_bytes = overhead_bytes;
  return made;
}

void Publications::publish(ElementId from, ElementId to, Rows rows) {
  Target& target = targets_[to];
  Piece made = piece(from, to, rows.overhead_bytes);
  made.header.runs = std::move(rows.runs);
  made.header.sequence = rows.sequence != 0 ? rows.sequence : target.next_sequence++;
  made.frame = std::move(rows.frame);
  made.crc32c_of_identifiers = rows.crc32c_of_identifiers;
  made.split = rows.split;
  made.bytes = made.frame->buffer.capacity();
  made.charge = options_.kept ? 0 : made.bytes;  // its split was charged for it
  target.open.insert(made.header.sequence);
  budgets_.charge(from.stage, made.charge);
  StageCounters& counters = budgets_[from.stage];
  ++counters.outgoing;
  counters.outgoing_bytes += made.bytes;
  const std::uint64_t token = next_token_++;
  stages_[from.stage - 1].waiting.push_back(token);
  outgoing_.emplace(token, std::move(made));
}

void Publications::publish_mark(ElementId from, ElementId to, std::uint64_t flush, std::uint32_t overhead_bytes) {
  Target& target = targets_[to];
  Piece mark = piece(from, to, overhead_bytes);
  mark.header.flush = flush;
  mark.header.sequence = target.next_sequence;
  const std::uint64_t token = next_token_++;
  outgoing_.emplace(token, std::move(mark));
  target.marks.push_back(token);
  send_marks(target);
}

void Publications::send_marks(Target& target) {
  while (!target.marks.empty()) {
    const Piece& mark = outgoing_.at(target.marks.front());
    if (!target.open.empty() && *target.open.begin() < mark.header.sequence) return;
    stages_[mark.from.stage - 1].waiting.push_back(target.marks.front());
    target.marks.pop_front();
  }
}

void Publications::send(std::uint32_t number, Effects& effects) {
  Stage& at = stages_[number - 1];
  StageCounters& counters = budgets_[number];
  while (!at.waiting.empty()) {
    const std::uint64_t token = at.waiting.front();
    Piece& next = outgoing_.at(token);
    if (at.under_way_bytes > 0 && next.bytes > 0 && at.under_way_bytes + next.bytes > options_.settings.credit_bytes)
      return;
    at.waiting.pop_front();
    at.under_way_bytes += next.bytes;
    next.under_way = true;
    ++counters.published;
    if (next.attempts > 0) ++counters.published_again;
    const std::set<std::uint64_t>& open = targets_[next.header.element].open;
    next.header.answered_below = open.empty() ? next.header.sequence : std::min(*open.begin(), next.header.sequence);
    next.header.crc32c = seal(next.header, next.crc32c_of_identifiers);
    add(effects, PublishEffect{token, geometry_.owner_name(next.header.element, self_), next.header, next.frame});
  }
}

Publications::Outcome Publications::on_published(std::uint64_t token, const Status& status, TimeNs now) {
  const auto found = outgoing_.find(token);
  if (found == outgoing_.end()) return {};
  Piece& offered = found->second;
  Outcome outcome{.stage = offered.from.stage};
  OFP_ASSERT(offered.under_way);
  offered.under_way = false;
  stages_[outcome.stage - 1].under_way_bytes -= offered.bytes;
  if (!status) {
    retries_.emplace(options_.retry_at(offered.attempts++, now), token);
    return outcome;
  }
  budgets_.release(outcome.stage, offered.charge);
  Target& target = targets_[offered.header.element];
  outcome.answered = Answered{offered.from, offered.split, offered.frame != nullptr};
  if (offered.frame != nullptr) {
    StageCounters& counters = budgets_[outcome.stage];
    --counters.outgoing;
    counters.outgoing_bytes -= offered.bytes;
    target.open.erase(offered.header.sequence);
  }
  outgoing_.erase(found);
  send_marks(target);
  return outcome;
}

std::set<std::uint32_t> Publications::retry(TimeNs now) {
  std::set<std::uint32_t> stages;
  while (!retries_.empty() && retries_.begin()->first <= now) {
    const std::uint64_t token = retries_.begin()->second;
    retries_.erase(retries_.begin());
    const std::uint32_t stage = outgoing_.at(token).from.stage;
    stages_[stage - 1].waiting.push_back(token);
    stages.insert(stage);
  }
  return stages;
}

void Publications::clear() {
  targets_.clear();
  outgoing_.clear();
  retries_.clear();
  std::ranges::fill(stages_, Stage{});
}

}  // namespace offpath::sift
