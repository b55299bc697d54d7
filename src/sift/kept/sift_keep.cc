// Objects are kept before they take effect: pieces before they are answered, splits before they are published, runs
// before their pieces and runs are dropped. journal.h has the reasons. Objects from before a restart are restored.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "sift/sift.h"

namespace offpath::sift {

// ---- pieces

void Sift::begin_keep(std::uint64_t id, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  if (arrival.put) {
    arrival.header.pool = options_.settings.pool;
    arrival.header.source = options_.self;
    arrival.header.sequence = ++put_sequence_;
    arrival.header.overhead_bytes = form_.overhead_bytes;
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
  add(effects, JobEffect{token, [header, object, frame = arrival.frame, memory = options_.memory]() -> Status {
                           OFP_ASSIGN(*object, keep_piece(frame, header, memory));
                           return {};
                         }});
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
    OFP_ASSIGN(arrival.view, form_.tracks->rows->view(parts.body));
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
    add(effects, ForgetEffect{job.name});
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
  add(effects, KeepEffect{token, job.name, std::move(object)});
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
    add(effects, ForgetEffect{job.name});
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
    if (const auto made = form_.tracks->rows->make_frame(0, options_.memory))
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
    record.next_sequences.push_back(publications_.next_sequence(geometry_.next(element.id, part)));
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
    for (const PieceKey& key : keys) add(effects, ForgetEffect{name_of(element.id, key)});
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
        publications_.await_no_answer(geometry_.next(element.id, part), sequence);
    element.replays.pop_front();
    return;
  }
  split.pieces = std::move(keys);
  split.parts = batch.record.open.back().parts;
  for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
    publications_.set_next_sequence(geometry_.next(element.id, part), batch.record.next_sequences[part]);
  if (!element.kept_split.empty()) add(effects, ForgetEffect{element.kept_split});
  element.kept_split = KeptName{KeptName::Kind::split, element.id, {}, batch.number}.text();
}

// A part of a split was answered: after the last one its pieces are not needed any more.
void Sift::answered(Element& element, std::uint64_t number, Effects& effects) {
  const auto split = element.splits.find(number);
  if (split == element.splits.end() || --split->second.unanswered > 0) return;
  release(element.id.stage, split->second.charge);
  for (const PieceKey& key : split->second.pieces) add(effects, ForgetEffect{name_of(element.id, key)});
  element.splits.erase(split);
}

void Sift::cover(Element& element, const Job& job, Effects& effects) {
  for (const std::shared_ptr<const TrackRun>& run : job.merged) {
    const auto kept = element.kept_runs.find(run.get());
    add(effects, ForgetEffect{KeptName{KeptName::Kind::run, element.id, {}, kept->second.number}.text()});
    element.kept_runs.erase(kept);
  }
  element.kept_runs[job.batch->run.get()] = {job.batch->number, job.batch->record.covers};
}

// ---- after a restart
//
// Its splits and runs are read first. Then its pieces come back like offers, when their stage has room: first those of
// splits with unanswered parts, which are split again in the same way; then all others.

void Sift::restore(std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now, Effects& effects) {
  OFP_ASSERT(!restored_ && former_ == nullptr);
  options_.self.incarnation = incarnation;
  former_ = std::make_unique<FormerLife>(options_, form_, next_token_);
  former_->begin(items, geometry_, self_, elements_, effects);
  end_restore_if_complete(now, effects);
}

void Sift::on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects) {
  if (former_ == nullptr) return reopened(token, std::move(object), now, effects);
  former_->on_read(token, std::move(object), now, effects);
  end_restore_if_complete(now, effects);
}

void Sift::end_restore_if_complete(TimeNs now, Effects& effects) {
  if (!former_->is_complete()) return;
  const std::unique_ptr<FormerLife> found = std::move(former_);
  restored_ = true;
  for (auto& [id, runs] : found->runs) restore_runs(element(id), std::move(runs), effects);
  for (auto& [id, record] : found->splits)
    element(id).replays = replays_of(element(id), std::move(record), found->pieces);
  // First those of splits, split by split: so the pieces of the first one all find room.
  std::map<std::pair<ElementId, PieceKey>, const KeptItem*> items;
  for (const auto& [name, item] : found->pieces) items.emplace(std::pair(name.element, name.piece), &item);
  for (const auto& [id, each] : elements_.all())
    for (const Replay& replay : each->replays)
      for (const PieceKey& key : replay.pieces) {
        const auto at = items.find({id, key});
        queue_again(*each, *at->second, key, replay.number);
        items.erase(at);
      }
  for (const auto& [where, item] : items) restore_piece(element(where.first), *item, where.second, effects);
  if (const auto own = element({1, 0}).sources[options_.self.member].life(options_.self))
    put_sequence_ = (*own)->largest();
  for (std::uint32_t number = 1; number <= options_.settings.track_stage(); ++number) settle(number, now, effects);
}

// Runs that were merged into others are ignored, even if they still exist.
void Sift::restore_runs(Element& element, std::vector<FormerLife::Run> runs, Effects& effects) {
  std::ranges::sort(runs, {}, [](const FormerLife::Run& run) { return run.record.number; });
  for (const FormerLife::Run& each : runs) {
    const std::uint64_t number = each.record.number;
    take_up(element, each.record);
    const bool covered = std::ranges::any_of(runs, [&](const FormerLife::Run& other) {
      return other.record.number > number && other.record.covers.has(number);
    });
    if (covered) {
      add(effects, ForgetEffect{KeptName{KeptName::Kind::run, element.id, {}, number}.text()});
      continue;
    }
    track_bytes_ += each.run->bytes();
    element.kept_runs[each.run.get()] = {number, each.record.covers};
    element.tracks.add(each.run);
  }
}

void Sift::take_up(Element& element, const ElementRecord& record) {
  for (const ElementRecord::Source& source : record.sources)
    if (source.source < geometry_.members().size()) element.sources[geometry_.members()[source.source]].take_up(source);
}

// Splits with all of their pieces. If all parts of a split were answered, some of its pieces may already have been
// dropped.
std::deque<Replay> Sift::replays_of(Element& element, ElementRecord record,
                                    const std::vector<std::pair<KeptName, KeptItem>>& pieces) {
  element.kept_split = KeptName{KeptName::Kind::split, element.id, {}, record.number}.text();
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

void Sift::restore_piece(Element& element, const KeptItem& item, const PieceKey& key, Effects& effects) {
  if (key.source >= geometry_.members().size()) return;
  const std::string& member = geometry_.members()[key.source];
  SourceHistory& history = element.sources[member];
  const auto life = history.life({member, key.incarnation});
  if (!life || history.settled(key.incarnation)->has(key.sequence)) {
    add(effects, ForgetEffect{item.name});
    return;
  }
  (*life)->take(key.sequence);
  queue_again(element, item, key, 0);
}

void Sift::queue_again(Element& element, const KeptItem& item, const PieceKey& key, std::uint64_t replay) {
  Arrival arrival;
  arrival.header.element = element.id;
  arrival.header.source = {geometry_.members()[key.source], key.incarnation};
  arrival.header.sequence = key.sequence;
  arrival.key = key;
  arrival.kept = arrival.restored = true;
  arrival.replay = replay;
  arrival.order = ++element.taken;
  // At most its former charge, because the object includes its notes.
  arrival.charge = BufferCache::class_bytes(item.bytes) +
                   std::max(item.bytes + item.bytes / 8, item.rows * TrackRun::sort_bytes_per_row);
  arrival.charge =
      std::min(arrival.charge, options_.settings.budget_bytes -
                                   std::min(options_.settings.budget_bytes, parts_overhead(element.id.stage)));
  queue(std::move(arrival));
}

Status Sift::reopen(Arrival& arrival, FramePtr object) {
  OFP_ASSIGN(const KeptParts parts, open_kept({object->buffer.data(), object->bytes}));
  OFP_ASSIGN(PieceHeader header, decode_piece_header(parts.notes));
  if (header.element != arrival.header.element || header.source != arrival.header.source ||
      header.sequence != arrival.header.sequence)
    return fail(Error::protocol, "another object, piece {} of '{}', has its name", header.sequence,
                header.source.member);
  if (form_.tracks == nullptr) {
    OFP_ASSIGN(form_.tracks, TrackForm::of_frame(parts.body, options_.settings.key));
    form_.overhead_bytes = form_.tracks->rows->overhead_bytes();
  }
  OFP_ASSIGN(arrival.view, form_.tracks->rows->view(parts.body));
  if (arrival.view->rows != header.rows())
    return fail(Error::protocol, "a piece has {} rows, but its header says {}", arrival.view->rows, header.rows());
  arrival.header = std::move(header);
  arrival.bytes = parts.body.size();
  arrival.frame = std::move(object);
  return {};
}

void Sift::reopened(std::uint64_t id, Result<FramePtr> object, TimeNs now, Effects& effects) {
  const auto found = arrivals_.find(id);
  if (found == arrivals_.end() || !found->second.restored) return;
  Arrival& arrival = found->second;
  Element& to = element(arrival.header.element);
  if (!object && !is_lost(object.error().code)) {
    timers_.emplace(deadline_after(now, options_.retry_max_ns), Timer{Timer::Of::read, to.id, id});
    return;
  }
  const Status status = object ? reopen(arrival, std::move(*object)) : Status(tl::unexpected(object.error()));
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
    release(to.id.stage, arrival.charge);
    to.gone.take(arrival.order);
  }
  forget(id);
  if (of_split != 0) {
    Replay& replay = *std::ranges::find(to.replays, of_split, &Replay::number);
    --replay.missing;
    if (status) replay.here.emplace(held.key, std::move(held));
    skip_empty(to);
  } else if (status) {
    to.bytes += held.bytes;
    to.pieces.push_back(std::move(held));
  }
  consider(to, now);
  pass_flushes(to);
  flushes_.end(elements_, now, effects);
  settle(to.id.stage, now, effects);
}

// Drops splits of which no piece could be read.
void Sift::skip_empty(Element& element) {
  while (!element.replays.empty() && element.replays.front().missing == 0 && element.replays.front().here.empty() &&
         element.batch == nullptr) {
    for (const auto& [part, sequence] : element.replays.front().parts)
      publications_.await_no_answer(geometry_.next(element.id, part), sequence);
    element.replays.pop_front();
  }
}

std::shared_ptr<Batch> Sift::replayed_batch(Element& element) {
  auto batch = std::make_shared<Batch>();
  Replay& replay = element.replays.front();
  batch->number = replay.number;
  batch->again = true;
  for (const PieceKey& key : replay.pieces) {
    const auto piece = replay.here.find(key);
    if (piece == replay.here.end()) continue;
    batch->charge += piece->second.charge;
    batch->pieces.push_back(piece->second.piece);
    batch->held.push_back(std::move(piece->second));
  }
  replay.here.clear();
  return batch;
}

}  // namespace offpath::sift
