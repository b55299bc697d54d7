#include "sift/elements/restoring.h"

#include <algorithm>
#include <set>

#include "base/log.h"

namespace offpath::sift {

void Restoring::begin(const std::vector<KeptItem>& items, Effects& effects) {
  former_ = std::make_unique<FormerLife>(options_, form_, next_token_);
  former_->begin(items, geometry_, self_, elements_, effects);
}

bool Restoring::complete(Effects& effects) {
  if (former_ == nullptr || !former_->is_complete()) return false;
  const std::unique_ptr<FormerLife> found = std::move(former_);
  for (auto& [id, runs] : found->runs) restore_runs(elements_[id], std::move(runs), effects);
  for (auto& [id, record] : found->splits)
    elements_[id].replays = replays_of(elements_[id], std::move(record), found->pieces);
  // First those of splits, split by split: so the pieces of the first one all find room.
  std::map<std::pair<ElementId, PieceKey>, const KeptItem*> items;
  for (const auto& [name, item] : found->pieces) items.emplace(std::pair(name.element, name.piece), &item);
  for (const auto& [id, each] : elements_.all())
    for (const Replay& replay : each->replays)
      for (const PieceKey& key : replay.pieces) {
        const auto at = items.find({id, key});
        queue(*each, *at->second, key, replay.number);
        items.erase(at);
      }
  for (const auto& [where, item] : items) restore_piece(elements_[where.first], *item, where.second, effects);
  return true;
}

// Runs that were merged into others are ignored, even if they still exist.
void Restoring::restore_runs(Element& element, std::vector<FormerLife::Run> runs, Effects& effects) {
  std::ranges::sort(runs, {}, [](const FormerLife::Run& run) { return run.record.number; });
  for (const FormerLife::Run& each : runs) {
    const std::uint64_t number = each.record.number;
    take_up(element, each.record);
    const bool covered = std::ranges::any_of(runs, [&](const FormerLife::Run& other) {
      return other.record.number > number && other.record.covers.has(number);
    });
    if (covered) {
      add(effects, ForgetEffect{run_name(element.id, number)});
      continue;
    }
    memory_.add(each.run, run_name(element.id, number), true);
    element.kept_runs[each.run.get()] = {number, each.record.covers};
    element.tracks.add(each.run);
  }
}

void Restoring::take_up(Element& element, const ElementRecord& record) {
  for (const ElementRecord::Source& source : record.sources)
    if (source.source < geometry_.members().size()) element.sources[geometry_.members()[source.source]].take_up(source);
}

// Splits with all of their pieces. If all parts of a split were answered, some of its pieces may already have been
// dropped.
std::deque<Replay> Restoring::replays_of(Element& element, ElementRecord record,
                                         const std::vector<std::pair<KeptName, KeptItem>>& pieces) {
  element.kept_split = split_name(element.id, record.number);
  take_up(element, record);
  record.next_sequences.resize(options_.settings.fanout, 1);
  for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
    publications_.set_next_sequence(geometry_.next(element.id, part), record.next_sequences[part]);
  std::set<PieceKey> there;
  for (const auto& [name, item] : pieces)
    if (name.element == element.id) there.insert(name.piece);
  std::deque<Replay> replays;
  for (ElementRecord::Split& split : record.open) {
    if (!std::ranges::all_of(split.pieces, [&](const PieceKey& key) { return there.contains(key); })) continue;
    for (const PieceKey& key : split.pieces) there.erase(key);
    Replay replay;
    replay.number = split.number;
    replay.missing = split.pieces.size();
    replay.pieces = std::move(split.pieces);
    replay.parts = std::move(split.parts);
    for (const auto& [part, sequence] : replay.parts)
      publications_.await_answer(geometry_.next(element.id, part), sequence);
    replays.push_back(std::move(replay));
  }
  return replays;
}

// ---- pieces

void Restoring::restore_piece(Element& element, const KeptItem& item, const PieceKey& key, Effects& effects) {
  const std::string& member = geometry_.members()[key.source];
  SourceHistory& history = element.sources[member];
  const auto life = history.life({member, key.incarnation});
  if (!life || history.settled(key.incarnation)->has(key.sequence)) {
    add(effects, ForgetEffect{item.name});
    return;
  }
  (*life)->take(key.sequence);
  queue(element, item, key, 0);
}

void Restoring::queue(Element& element, const KeptItem& item, const PieceKey& key, std::uint64_t replay) {
  Arrival arrival;
  arrival.header.element = element.id;
  arrival.header.source = {geometry_.members()[key.source], key.incarnation};
  arrival.header.sequence = key.sequence;
  arrival.key = key;
  arrival.kept = arrival.restored = true;
  arrival.replay = replay;
  arrival.order = ++element.taken;
  arrival.charge = charges_.of_kept_piece(item, element.id.stage);
  arrivals_.add(std::move(arrival));
}

bool Restoring::take(std::uint64_t id, const Status& status, TimeNs now) {
  Arrival& arrival = arrivals_.at(id);
  Element& to = elements_[arrival.header.element];
  if (!status && !is_lost(status.error().code)) {
    retries_.emplace(deadline_after(now, options_.retry_max_ns), id);
    return false;
  }
  StageCounters& counters = budgets_[to.id.stage];
  const std::uint64_t of_split = arrival.replay;
  HeldPiece held{{std::move(arrival.frame), {}, std::move(arrival.header.runs)},
                 arrival.bytes,
                 arrival.charge,
                 now,
                 arrival.order,
                 arrival.key};
  if (status) {
    ++counters.restored;
    held.piece.view = std::move(*arrival.view);
  } else {
    ++counters.lost;
    log(LogLevel::error, "pool '{}': piece {} of '{}' for element {} of stage {} is lost: {}", options_.settings.pool,
        arrival.key.sequence, arrival.header.source.member, to.id.index, to.id.stage, status.error().message);
    budgets_.release(to.id.stage, arrival.charge);
    to.gone.take(arrival.order);
  }
  arrivals_.forget(id);
  if (of_split != 0) {
    Replay& replay = *std::ranges::find(to.replays, of_split, &Replay::number);
    --replay.missing;
    if (status) replay.here.emplace(held.key, std::move(held));
    skip_empty(to);
  } else if (status) {
    to.bytes += held.bytes;
    to.pieces.push_back(std::move(held));
  }
  return true;
}

// Drops splits of which no piece could be read.
void Restoring::skip_empty(Element& element) {
  while (!element.replays.empty() && element.replays.front().missing == 0 && element.replays.front().here.empty() &&
         element.batch == nullptr) {
    for (const auto& [part, sequence] : element.replays.front().parts)
      publications_.await_no_answer(geometry_.next(element.id, part), sequence);
    element.replays.pop_front();
  }
}

// ---- time

void Restoring::on_time(TimeNs now, Effects& effects) {
  while (!retries_.empty() && retries_.begin()->first <= now) {
    const std::uint64_t id = retries_.begin()->second;
    retries_.erase(retries_.begin());
    if (const Arrival* const arrival = arrivals_.find(id))
      add(effects, ReadEffect{id, piece_name(arrival->header.element, arrival->key)});
  }
  if (former_ != nullptr) former_->on_time(now, effects);
}

TimeNs Restoring::next_deadline() const noexcept {
  const TimeNs next = retries_.empty() ? never : retries_.begin()->first;
  return former_ != nullptr ? std::min(next, former_->next_deadline()) : next;
}

void Restoring::clear() {
  former_ = nullptr;
  retries_.clear();
}

}  // namespace offpath::sift
