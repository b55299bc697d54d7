// Answers whose rows are in order, whichever members they are of: each member's are, and a frame of each is at hand.
// Rows that no later row can precede are merged, in a job; then those whose frame is used up are asked for their next.
#include <algorithm>
#include <utility>

#include "pool/query/query_answer.h"

namespace offpath::pool {

using service::Effects;

// Columns that the order needs and the answer may not have.
void QueryService::put_in_order(Spread& spread) {
  spread.order.columns = spread.over.order;
  spread.order.hidden = spread.ordered() && !spread.part_query.projections.empty();
  if (!spread.order.hidden) return;
  for (const std::string& column : spread.order.columns)
    spread.part_query.projections.push_back({"order by " + column, field(column)});
}

// May end the answer: this member's own frame comes at once, if it is there.
void QueryService::pump_in_order(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  if (spread.merging) return;
  const std::uint64_t number = answer.number;
  for (std::size_t i = 0; i < spread.parts.size(); ++i) {
    if (spread.parts[i].state == Part::State::open && spread.parts[i].head.frame == nullptr)
      fetch(answer, spread.parts[i], now, effects);
    if (!answers_.contains(number) || spread.merging || answer.failure || answer.finished) return;
  }
  if (std::ranges::any_of(spread.parts, [](const Part& part) { return part.state == Part::State::fetching; })) return;
  const bool rows_left = std::ranges::any_of(spread.parts, [](const Part& part) { return part.head.frame != nullptr; });
  if (rows_left || (!spread.merged && spread.first)) {
    spread.merging = true;
    return want_step(answer, effects);
  }
  answer.finished = true;
  if (answer.asked) serve(answer, now, effects);
}

std::function<Status()> QueryService::merge_job(const Answer& answer) const {
  std::vector<MergeHead> heads;
  for (const Part& part : answer.spread->parts)
    if (part.head.frame) heads.push_back(part.head);
  if (heads.empty()) heads.push_back({answer.spread->first, 0});  // nothing was chosen: the schema alone
  return [heads = std::move(heads), order = answer.spread->order, bytes_max = limits_.query.frame_bytes_max,
          memory_max = limits_.query.memory_bytes_max, cache = cache_, user = answer.user,
          result = answer.result]() -> Status {
    OFP_ASSIGN(Merged merged, merge(heads, order, bytes_max, *cache, user, memory_max));
    result->step.frames = std::move(merged.frames);
    result->heads = std::move(merged.heads);
    return {};
  };
}

void QueryService::on_merged(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  spread.merging = false;
  spread.merged = true;
  std::size_t merged = 0;
  for (Part& part : spread.parts)
    if (part.head.frame != nullptr) part.head = std::move(answer.result->heads[merged++]);
  answer.result.reset();
  if (answer.asked)
    serve(answer, now, effects);
  else
    pump(answer, now, effects);
}

}  // namespace offpath::pool
