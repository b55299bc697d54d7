// Objects are kept before they take effect: pieces before they are answered, splits before they are published, runs
// before their pieces and runs are dropped. journal.h has the reasons.
#include <algorithm>

#include "sift/sift.h"

namespace offpath::sift {

// ---- pieces

void Sift::begin_keep(std::uint64_t id, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  if (arrival.put) {
    arrival.header.pool = options_.settings.pool;
    arrival.header.source = options_.self;
    arrival.header.sequence = ++put_sequence_;
    arrival.header.overhead_bytes = overhead_bytes_;
  }
  const PieceHeader& header = arrival.header;
  arrival.key = {geometry_.position_of(header.source.member), header.source.incarnation, header.sequence};
  const std::uint64_t token = next_token_++;
  const auto object = std::make_shared<FramePtr>();
  jobs_.emplace(token, Job{.work = Work::keep,
                           .element = header.element,
                           .arrival = id,
                           .object = object,
                           .name = name_of(header.element, arrival.key)});
  effects.emplace_back(std::in_place_type<JobEffect>, token,
                       [header, object, frame = arrival.frame, memory = options_.memory]() -> Status {
                         OFP_ASSIGN(*object, keep_piece(frame, header, memory));
                         return {};
                       });
}

void Sift::end_keep(const Job& job, const Status& status, TimeNs, Effects& effects) {
  Arrival& arrival = arrivals_.at(job.arrival);
  Element& to = element(job.element);
  const auto life = to.sources[arrival.header.source.member].life(arrival.header.source);
  const auto reopened = [&]() -> Status {
    OFP_TRY(status);
    OFP_TRY(life);
    const FramePtr& object = *job.object;
    OFP_ASSIGN(const KeptParts parts, open_kept({object->buffer.data(), object->bytes}));
    OFP_ASSIGN(arrival.view, form_->rows->view(parts.body));
    arrival.frame = object;
    arrival.kept = true;
    return {};
  };
  const Status done = reopened();
  if (done) {
    if (arrival.put) (*life)->take(arrival.header.sequence);
    return;
  }
  if (arrival.put) {  // its number is not reused, and its object may exist: it is ignored
    effects.emplace_back(std::in_place_type<ForgetEffect>, job.name);
    if (TakenSequences* const settled = to.sources[options_.self.member].settled(options_.self.incarnation))
      settled->take(arrival.header.sequence);
  }
  refuse(job.arrival, done.error(), effects);
}

// ---- results

void Sift::keep_result(std::uint64_t token, Job job, Effects& effects) {
  FramePtr object;
  if (job.work == Work::keep) {
    object = *job.object;
  } else if (job.work == Work::split) {
    plan_parts(element(job.element), *job.batch);
    const std::vector<std::byte> record = encode(job.batch->record);
    job.name = KeptName{KeptName::Kind::split, job.element, {}, job.batch->number}.text();
    object = std::make_shared<service::Frame>();
    object->bytes = kept_bytes(0, record.size());
    if (auto memory = options_.memory.cache->take(object->bytes, options_.memory.user)) {
      object->buffer = std::move(*memory);
      write_notes(object->buffer.bytes(), 0, record);
    } else {
      object = nullptr;  // reported as a failure to keep it
    }
  } else {
    job.name = KeptName{KeptName::Kind::run, job.element, {}, job.batch->number}.text();
    object = job.batch->run->object();
  }
  effects.emplace_back(std::in_place_type<KeepEffect>, token, job.name, std::move(object));
  keeping_.emplace(token, std::move(job));
}

void Sift::on_kept(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  const auto node = keeping_.extract(token);
  if (!node) return;  // from before the pool was dropped
  const Job& job = node.mapped();
  Element& element = this->element(job.element);
  if (job.work == Work::keep) {
    end_keep(job, status, now, effects);
    if (const auto arrival = arrivals_.find(job.arrival); arrival != arrivals_.end()) take(job.arrival, now, effects);
    return settle(job.element.stage, now, effects);
  }
  if (!status) {  // the object may exist nevertheless
    effects.emplace_back(std::in_place_type<ForgetEffect>, job.name);
    if (job.work != Work::split) element.abandoned.take(job.batch->number, job.batch->number);
  }
  if (job.work == Work::merge) {
    if (status) cover(element, job, effects);
    end_merge(job, status, effects);
  } else {
    end_split(element, status, now, effects);
  }
  settle(job.element.stage, now, effects);
}

// ---- records

// The settled sequences, with these pieces.
ElementRecord Sift::record_of(const Element& element, const std::vector<HeldPiece>& settled) const {
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

void Sift::number_batch(Element& element, Batch& batch) const {
  if (batch.again) return;
  batch.number = ++element.number;
  if (!last(element.id)) return;
  batch.record = record_of(element, batch.held);
  batch.record.number = batch.number;
  batch.record.covers = element.abandoned;
  batch.record.covers.take(batch.number);
}

RunNotes Sift::notes_of(const ElementRecord& record) {
  if (schema_.empty())
    if (const auto made = form_->rows->make_frame(0, options_.memory))
      schema_.assign(made->frame->buffer.data(), made->frame->buffer.data() + made->frame->bytes);
  return {.record = encode(record), .schema = schema_};
}

RunNotes Sift::notes_of_merge(Element& element, Batch& batch,
                              const std::vector<std::shared_ptr<const TrackRun>>& runs) {
  batch.number = ++element.number;
  batch.record = record_of(element, {});
  batch.record.number = batch.number;
  batch.record.covers = element.abandoned;
  batch.record.covers.take(batch.number);
  for (const std::shared_ptr<const TrackRun>& run : runs)
    batch.record.covers.take(element.kept_runs.at(run.get()).covers);
  return notes_of(batch.record);
}

// Makes the record of the batch's split. No other agent publishes to the elements of its parts.
void Sift::plan_parts(Element& element, Batch& batch) {
  ElementRecord& record = batch.record = record_of(element, batch.held);
  record.number = batch.number;
  for (const auto& [number, split] : element.splits) record.open.push_back({number, split.pieces, split.parts});
  ElementRecord::Split split{batch.number, {}, {}};
  for (const HeldPiece& piece : batch.held) split.pieces.push_back(piece.key);
  for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
    record.next_sequences.push_back(targets_[geometry_.next(element.id, part)].next_sequence);
  for (const Part& part : batch.parts) split.parts.emplace_back(part.number, record.next_sequences[part.number]++);
  record.open.push_back(std::move(split));
}

// Returns the sequence of a part; 0: the next one.
std::uint64_t Sift::sequence_of(const Element& element, const Batch& batch, std::uint32_t part) {
  const auto split = element.splits.find(batch.number);
  if (split == element.splits.end()) return 0;
  for (const auto& [number, sequence] : split->second.parts)
    if (number == part) return sequence;
  return 0;
}

// ---- once they are kept

void Sift::settle_batch(Element& element, Batch& batch, Effects& effects) {
  const std::uint32_t number = element.id.stage;
  std::vector<PieceKey> keys;
  for (const HeldPiece& piece : batch.held) {
    keys.push_back(piece.key);
    if (TakenSequences* const settled =
            element.sources[geometry_.members()[piece.key.source]].settled(piece.key.incarnation))
      settled->take(piece.key.sequence);
  }
  if (last(element.id)) {
    release(number, parts_overhead(number) + batch.charge);
    element.kept_runs[batch.run.get()] = {batch.number, batch.record.covers};
    for (const PieceKey& key : keys) effects.emplace_back(std::in_place_type<ForgetEffect>, name_of(element.id, key));
    return;
  }
  OpenSplit& split = element.splits[batch.number];
  split.charge = batch.charge + parts_overhead(number);
  split.unanswered = batch.parts.size();
  if (batch.again) {
    Replay& replay = element.replays.front();
    split.pieces = std::move(replay.pieces);
    split.parts = std::move(replay.parts);
    // Lost pieces may have no parts any more, so their answers are not awaited.
    for (const auto& [part, sequence] : split.parts)
      if (std::ranges::find(batch.parts, part, &Part::number) == batch.parts.end())
        targets_[geometry_.next(element.id, part)].open.erase(sequence);
    element.replays.pop_front();
    return;
  }
  split.pieces = std::move(keys);
  split.parts = batch.record.open.back().parts;
  for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
    targets_[geometry_.next(element.id, part)].next_sequence = batch.record.next_sequences[part];
  if (!element.kept_split.empty()) effects.emplace_back(std::in_place_type<ForgetEffect>, element.kept_split);
  element.kept_split = KeptName{KeptName::Kind::split, element.id, {}, batch.number}.text();
}

// A part of a split was answered: after the last one its pieces are not needed any more.
void Sift::answered(Element& element, std::uint64_t number, Effects& effects) {
  const auto split = element.splits.find(number);
  if (split == element.splits.end() || --split->second.unanswered > 0) return;
  release(element.id.stage, split->second.charge);
  for (const PieceKey& key : split->second.pieces)
    effects.emplace_back(std::in_place_type<ForgetEffect>, name_of(element.id, key));
  element.splits.erase(split);
}

void Sift::cover(Element& element, const Job& job, Effects& effects) {
  for (const std::shared_ptr<const TrackRun>& run : job.merged) {
    const auto kept = element.kept_runs.find(run.get());
    effects.emplace_back(std::in_place_type<ForgetEffect>,
                         KeptName{KeptName::Kind::run, element.id, {}, kept->second.number}.text());
    element.kept_runs.erase(kept);
  }
  element.kept_runs[job.batch->run.get()] = {job.batch->number, job.batch->record.covers};
}

}  // namespace offpath::sift
