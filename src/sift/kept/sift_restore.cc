// How an agent continues the work of its former life. Splits and runs are read first: they say which pieces are needed.
// Then kept pieces come back like offers, when their stage has room: first those of splits with unanswered parts, which
// are split again in the same way; then all others.
#include <algorithm>

#include "base/log.h"
#include "sift/sift.h"

namespace offpath::sift {

// ---- splits and runs

void Sift::restore(std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now, Effects& effects) {
  OFP_ASSERT(!restored_ && restoring_ == nullptr);
  options_.self.incarnation = incarnation;
  restoring_ = std::make_unique<Restoring>();
  std::map<ElementId, KeptName> newest;
  std::vector<KeptName> wanted;
  for (const KeptItem& item : items) {
    const auto name = KeptName::parse(item.name);
    if (!name || !geometry_.holds(self_, name->element)) continue;
    if (name->kind == KeptName::Kind::piece) {
      restoring_->pieces.emplace_back(*name, item);
      continue;
    }
    // No name is reused, whether its object can be read or not.
    Element& of = element(name->element);
    of.number = std::max(of.number, name->number);
    if (name->kind == KeptName::Kind::run) {
      wanted.push_back(*name);
    } else {
      auto [at, fresh] = newest.try_emplace(name->element, *name);
      const KeptName older = fresh || at->second.number > name->number ? *name : std::exchange(at->second, *name);
      if (!fresh) effects.emplace_back(std::in_place_type<ForgetEffect>, older.text());
    }
  }
  for (const auto& [element, name] : newest) wanted.push_back(name);
  for (const KeptName& name : wanted) {
    const std::uint64_t token = next_token_++;
    restoring_->reading.emplace(token, name);
    effects.emplace_back(std::in_place_type<ReadEffect>, token, name.text());
  }
  if (wanted.empty()) end_restore(now, effects);
}

void Sift::on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects) {
  if (restoring_ == nullptr) return reopened(token, std::move(object), now, effects);
  const auto reading = restoring_->reading.find(token);
  if (reading == restoring_->reading.end()) return;
  const KeptName name = reading->second;
  if (!object && !is_lost(object.error().code)) return read_later(token, name, now);
  restoring_->reading.erase(reading);
  open_record(name, std::move(object), effects);
  if (restoring_->reading.empty() && restoring_->jobs == 0) end_restore(now, effects);
}

void Sift::read_later(std::uint64_t token, const KeptName& name, TimeNs now) {
  restoring_->reading.emplace(token, name);
  timers_.emplace(deadline_after(now, options_.retry_max_ns), Timer{Timer::Of::read, name.element, token});
}

void Sift::open_record(const KeptName& name, Result<FramePtr> object, Effects& effects) {
  const auto open = [&]() -> Status {
    OFP_TRY(object);
    OFP_ASSIGN(const KeptParts parts, open_kept({(*object)->buffer.data(), (*object)->bytes}));
    if (name.kind == KeptName::Kind::split) {
      OFP_ASSIGN(ElementRecord record, decode_record(parts.notes));
      restoring_->splits.emplace(name.element, std::move(record));
      return {};
    }
    OFP_ASSIGN(RunNotes notes, decode_run_notes(parts.notes));
    const auto batch = std::make_shared<Batch>();
    OFP_ASSIGN(batch->record, decode_record(notes.record));
    if (form_ == nullptr) {
      OFP_ASSIGN(form_, TrackForm::of_frame(notes.schema, options_.settings.key));
      overhead_bytes_ = form_->rows->overhead_bytes();
    }
    OFP_TRY(form_->rows->view(notes.schema));
    const std::uint64_t token = next_token_++;
    ++restoring_->jobs;
    jobs_.emplace(token, Job{.work = Work::open, .element = name.element, .batch = batch, .name = name.text()});
    effects.emplace_back(std::in_place_type<JobEffect>, token,
                         [batch, notes = std::move(notes), run = *object, form = form_->rows]() -> Status {
                           OFP_ASSIGN(batch->run, TrackRun::open(form, run, notes));
                           return {};
                         });
    return {};
  };
  if (const Status opened = open(); !opened)
    log(LogLevel::error, "pool '{}': {} of '{}' is lost: {}", options_.settings.pool, name.text(), options_.self.member,
        opened.error().message);
}

void Sift::opened(const Job& job, const Status& status, TimeNs now, Effects& effects) {
  if (restoring_ == nullptr) return;
  --restoring_->jobs;
  if (status)
    restoring_->runs[job.element].push_back({job.batch->record, job.batch->run});
  else if (!is_lost(status.error().code))
    read_later(next_token_++, KeptName::parse(job.name).value(), now);
  else
    log(LogLevel::error, "pool '{}': {} of '{}' is lost: {}", options_.settings.pool, job.name, options_.self.member,
        status.error().message);
  if (restoring_->reading.empty() && restoring_->jobs == 0) end_restore(now, effects);
}

void Sift::end_restore(TimeNs now, Effects& effects) {
  const std::unique_ptr<Restoring> found = std::move(restoring_);
  restored_ = true;
  for (auto& [id, runs] : found->runs) restore_runs(element(id), std::move(runs), effects);
  for (auto& [id, record] : found->splits)
    element(id).replays = replays_of(element(id), std::move(record), found->pieces);
  // First those of splits, split by split: so the pieces of the first one all find room.
  std::map<std::pair<ElementId, PieceKey>, const KeptItem*> items;
  for (const auto& [name, item] : found->pieces) items.emplace(std::pair(name.element, name.piece), &item);
  for (const auto& [id, each] : elements_)
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
void Sift::restore_runs(Element& element, std::vector<Restoring::Run> runs, Effects& effects) {
  std::ranges::sort(runs, {}, [](const Restoring::Run& run) { return run.record.number; });
  for (const Restoring::Run& each : runs) {
    const std::uint64_t number = each.record.number;
    take_up(element, each.record);
    const bool covered = std::ranges::any_of(runs, [&](const Restoring::Run& other) {
      return other.record.number > number && other.record.covers.has(number);
    });
    if (covered) {
      effects.emplace_back(std::in_place_type<ForgetEffect>,
                           KeptName{KeptName::Kind::run, element.id, {}, number}.text());
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
    targets_[geometry_.next(element.id, part)].next_sequence = record.next_sequences[part];
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
    for (const auto& [part, sequence] : replay.parts) targets_[geometry_.next(element.id, part)].open.insert(sequence);
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
    effects.emplace_back(std::in_place_type<ForgetEffect>, item.name);
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
  if (form_ == nullptr) {
    OFP_ASSIGN(form_, TrackForm::of_frame(parts.body, options_.settings.key));
    overhead_bytes_ = form_->rows->overhead_bytes();
  }
  OFP_ASSIGN(arrival.view, form_->rows->view(parts.body));
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
  StageCounters& counters = stage(to.id.stage).counters;
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
  end_flushes(now, effects);
  settle(to.id.stage, now, effects);
}

// Drops splits of which no piece could be read.
void Sift::skip_empty(Element& element) {
  while (!element.replays.empty() && element.replays.front().missing == 0 && element.replays.front().here.empty() &&
         element.batch == nullptr) {
    for (const auto& [part, sequence] : element.replays.front().parts)
      targets_[geometry_.next(element.id, part)].open.erase(sequence);
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
