#include "sift/elements/element_records.h"

#include <algorithm>

namespace offpath::sift {

ElementRecord ElementRecords::record_of(const Element& element, const std::vector<HeldPiece>& settled) const {
  ElementRecord record;
  for (const auto& [member, history] : element.sources) {
    ElementRecord::Source source = history.record(geometry_.position_of(member));
    if (source.lives.empty() && source.forgotten.empty()) continue;
    for (const HeldPiece& piece : settled) {
      if (piece.key.source != source.source) continue;
      const auto life = std::ranges::find(source.lives, piece.key.incarnation, &ElementRecord::Life::incarnation);
      if (life != source.lives.end()) life->settled.take(piece.key.sequence);
    }
    record.sources.push_back(std::move(source));
  }
  return record;
}

// ---- before the result is kept

RunNotes ElementRecords::note_sort(Element& element, Batch& batch) { return note_run(element, batch, batch.held, {}); }

RunNotes ElementRecords::note_merge(Element& element, Batch& batch, Runs merged) {
  return note_run(element, batch, {}, merged);
}

RunNotes ElementRecords::note_run(Element& element, Batch& batch, const std::vector<HeldPiece>& settled, Runs merged) {
  batch.record = record_of(element, settled);
  batch.record.number = batch.number;
  batch.record.covers = element.abandoned;
  batch.record.covers.take(batch.number);
  for (const std::shared_ptr<const TrackRun>& run : merged)
    batch.record.covers.take(element.kept_runs.at(run.get()).covers);
  if (schema_.empty())
    if (const auto made = form_.tracks->rows->make_frame(0, options_.memory))
      schema_.assign(made->frame->buffer.data(), made->frame->buffer.data() + made->frame->bytes);
  return {.record = encode(batch.record), .schema = schema_};
}

void ElementRecords::note_split(Element& element, Batch& batch) {
  ElementRecord& record = batch.record = record_of(element, batch.held);
  record.number = batch.number;
  for (const auto& [number, split] : element.splits) record.open.push_back({number, split.pieces, split.parts});
  ElementRecord::Split split{batch.number, {}, {}};
  for (const HeldPiece& piece : batch.held) split.pieces.push_back(piece.key);
  for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
    record.next_sequences.push_back(publications_.next_sequence(geometry_.next(element.id, part)));
  for (const Part& part : batch.parts) split.parts.emplace_back(part.number, record.next_sequences[part.number]++);
  record.open.push_back(std::move(split));
}

// ---- once it is kept

std::vector<PieceKey> ElementRecords::settle_pieces(Element& element, const Batch& batch) {
  std::vector<PieceKey> keys;
  for (const HeldPiece& piece : batch.held) {
    keys.push_back(piece.key);
    if (TakenSequences* const settled =
            element.sources[geometry_.members()[piece.key.source]].settled(piece.key.incarnation))
      settled->take(piece.key.sequence);
  }
  return keys;
}

void ElementRecords::settle_sort(Element& element, Batch& batch, Effects& effects) {
  const std::vector<PieceKey> keys = settle_pieces(element, batch);
  budgets_.release(element.id.stage, charges_.of_split(element.id.stage) + batch.charge);
  element.kept_runs[batch.run.get()] = {batch.number, batch.record.covers};
  for (const PieceKey& key : keys) add(effects, ForgetEffect{piece_name(element.id, key)});
}

void ElementRecords::settle_split(Element& element, Batch& batch, Effects& effects) {
  std::vector<PieceKey> keys = settle_pieces(element, batch);
  OpenSplit& split = element.splits[batch.number];
  split.charge = batch.charge + charges_.of_split(element.id.stage);
  split.unanswered = batch.parts.size();
  if (batch.again) {
    Replay& replay = element.replays.front();
    split.pieces = std::move(replay.pieces);
    split.parts = std::move(replay.parts);
    // Lost pieces may have no parts any more, so their answers are not awaited.
    for (const auto& [part, sequence] : split.parts)
      if (std::ranges::find(batch.parts, part, &Part::number) == batch.parts.end())
        publications_.await_no_answer(geometry_.next(element.id, part), sequence);
    element.replays.pop_front();
    return;
  }
  split.pieces = std::move(keys);
  split.parts = batch.record.open.back().parts;
  for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
    publications_.set_next_sequence(geometry_.next(element.id, part), batch.record.next_sequences[part]);
  if (!element.kept_split.empty()) add(effects, ForgetEffect{element.kept_split});
  element.kept_split = split_name(element.id, batch.number);
}

void ElementRecords::settle_merge(Element& element, const Batch& batch, Runs merged) {
  for (const std::shared_ptr<const TrackRun>& run : merged) element.kept_runs.erase(run.get());
  element.kept_runs[batch.run.get()] = {batch.number, batch.record.covers};
}

std::uint64_t ElementRecords::sequence_of(const Element& element, const Batch& batch, std::uint32_t part) {
  const auto split = element.splits.find(batch.number);
  if (split == element.splits.end()) return 0;
  for (const auto& [number, sequence] : split->second.parts)
    if (number == part) return sequence;
  return 0;
}

void ElementRecords::on_answered(Element& element, std::uint64_t number, Effects& effects) {
  const auto split = element.splits.find(number);
  if (split == element.splits.end() || --split->second.unanswered > 0) return;
  budgets_.release(element.id.stage, split->second.charge);
  for (const PieceKey& key : split->second.pieces) add(effects, ForgetEffect{piece_name(element.id, key)});
  element.splits.erase(split);
}

}  // namespace offpath::sift
