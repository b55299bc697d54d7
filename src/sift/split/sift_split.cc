// An element with enough pieces splits and publishes them; in the last stage it sorts and keeps them.
#include <algorithm>

#include "sift/sift.h"

namespace offpath::sift {

namespace {

// Of time steps in one split, so that a piece's header fits a request.
constexpr std::size_t runs_of_split_max = 400;

}  // namespace

// ---- when

void Sift::consider(Element& element, TimeNs now) {
  if (!element.replays.empty()) return element.replays.front().missing == 0 ? set_due(element) : void();
  if (element.pieces.empty()) return;
  if (element.bytes >= options_.settings.threshold_bytes || !element.flushes.empty()) return set_due(element);
  const TimeNs old = deadline_after(element.pieces.front().arrived_ns, options_.settings.age_ns);
  if (old <= now) return set_due(element);
  if (element.age_timer) return;
  element.age_timer = true;
  timers_.emplace(old, Timer{Timer::Of::age, element.id});
}

void Sift::set_due(Element& element) {
  if (element.due || element.batch != nullptr || element.failures > 0) return;
  element.due = true;
  stage(element.id.stage).due.push_back(element.id);
}

// Everything that may have become possible in a stage: memory was freed, or a piece arrived.
void Sift::settle(std::uint32_t number, TimeNs now, Effects& effects) {
  if (dropped_ || !restored_) return;
  Stage& at = stage(number);
  do {
    // Splits before admissions, because splits free memory.
    while (!at.due.empty() && begin_split(*elements_.at(at.due.front()), effects)) at.due.pop_front();
    admit(number, now, effects);
  } while ((!at.due.empty() && at.counters.used_bytes + parts_overhead(number) <= at.counters.budget_bytes) ||
           relieve(number));
  if (number < options_.settings.track_stage()) send(number, effects);
}

// If offers wait and nothing under way will make room for them, the largest element is split early.
bool Sift::relieve(std::uint32_t number) {
  Stage& at = stage(number);
  if (at.waiting.empty() || at.jobs > 0 || at.counters.outgoing > 0 || !at.due.empty()) return false;
  Element* largest = nullptr;
  for (auto each = elements_.lower_bound({number, 0}); each != elements_.end() && each->first.stage == number; ++each) {
    Element& element = *each->second;
    if (element.bytes > 0 && element.failures == 0 && element.replays.empty() &&
        (largest == nullptr || element.bytes > largest->bytes))
      largest = &element;
  }
  if (largest == nullptr) return false;
  set_due(*largest);
  if (largest->due) ++at.counters.split_under_pressure;
  return largest->due;
}

// ---- split

// As many pieces as make parts that the next stage can admit, even if all rows go to one part.
std::shared_ptr<Batch> Sift::next_batch(Element& element) const {
  if (!element.replays.empty()) return replayed_batch(element);
  auto batch = std::make_shared<Batch>();
  std::uint64_t rows = 0;
  std::size_t runs = 0;
  while (!element.pieces.empty()) {
    HeldPiece& piece = element.pieces.front();
    const std::uint64_t all = rows + piece.piece.view.rows;
    runs += piece.piece.runs.size();
    if (!batch->held.empty() && !last(element.id) && runs > runs_of_split_max) break;
    if (!batch->held.empty() && !last(element.id) &&
        !check_size(charge_of(all * form_->rows->row_bytes() + overhead_bytes_, all)))
      break;
    rows = all;
    batch->charge += piece.charge;
    element.bytes -= piece.bytes;
    batch->pieces.push_back(piece.piece);
    batch->held.push_back(std::move(piece));
    element.pieces.pop_front();
  }
  return batch;
}

// False: there is no room for the parts' overhead.
bool Sift::begin_split(Element& element, Effects& effects) {
  const std::uint32_t number = element.id.stage;
  Stage& at = stage(number);
  const bool ready = element.replays.empty() ? !element.pieces.empty() : element.replays.front().missing == 0;
  if (!ready || element.batch != nullptr) {
    element.due = false;
    return true;
  }
  if (at.counters.used_bytes + parts_overhead(number) > at.counters.budget_bytes) return false;
  element.due = false;
  element.batch = next_batch(element);
  if (keeps()) number_batch(element, *element.batch);
  charge(number, parts_overhead(number));
  ++at.jobs;
  ++at.counters.splits;
  const std::uint64_t token = next_token_++;
  const std::shared_ptr<Batch> batch = element.batch;
  if (last(element.id)) {
    jobs_.emplace(token, Job{.work = Work::sort, .element = element.id, .batch = batch});
    const auto notes = keeps() ? std::make_shared<const RunNotes>(notes_of(batch->record)) : nullptr;
    effects.emplace_back(std::in_place_type<JobEffect>, token,
                         [batch, notes, form = form_->rows, memory = options_.memory]() -> Status {
                           OFP_ASSIGN(batch->run, TrackRun::sort(form, batch->pieces, memory, notes.get()));
                           return {};
                         });
    return true;
  }
  jobs_.emplace(token, Job{.work = Work::split, .element = element.id, .batch = batch});
  const SplitBits bits = options_.settings.split_bits(number);
  effects.emplace_back(std::in_place_type<JobEffect>, token,
                       [batch, bits, form = form_->rows, memory = options_.memory]() -> Status {
                         OFP_ASSIGN(batch->parts, split_pieces(*form, batch->pieces, bits, memory));
                         return {};
                       });
  return true;
}

void Sift::on_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  const auto found = jobs_.find(token);
  if (found == jobs_.end()) return;  // from before the pool was dropped
  const Job job = std::move(found->second);
  jobs_.erase(found);
  Element& element = this->element(job.element);
  switch (job.work) {
    case Work::check:
      if (status)
        take(job.arrival, now, effects);
      else
        refuse(job.arrival, status.error(), effects);
      break;
    case Work::keep:
      if (status)
        keep_result(token, job, effects);
      else
        end_keep(job, status, now, effects);
      break;
    case Work::split:
    case Work::sort:
      if (status && keeps() && !job.batch->again) return keep_result(token, job, effects);
      end_split(element, status, now, effects);
      break;
    case Work::merge:
      if (status && keeps()) return keep_result(token, job, effects);
      end_merge(job, status, effects);
      break;
    case Work::open:
      return opened(job, status, now, effects);
  }
  settle(job.element.stage, now, effects);
}

void Sift::end_split(Element& element, const Status& status, TimeNs now, Effects& effects) {
  const std::uint32_t number = element.id.stage;
  --stage(number).jobs;
  const std::shared_ptr<Batch> batch = std::move(element.batch);
  element.batch = nullptr;
  if (!status) {  // probably out of memory: its pieces still exist
    release(number, parts_overhead(number));
    if (batch->again) {
      for (HeldPiece& piece : batch->held) element.replays.front().here.emplace(piece.key, std::move(piece));
      batch->held.clear();
    }
    while (!batch->held.empty()) {
      element.bytes += batch->held.back().bytes;
      element.pieces.push_front(std::move(batch->held.back()));
      batch->held.pop_back();
    }
    timers_.emplace(retry_at(element.failures++, now), Timer{Timer::Of::job, element.id});
    return;
  }
  element.failures = 0;
  for (const HeldPiece& piece : batch->held) element.gone.take(piece.order);
  if (keeps()) {
    settle_batch(element, *batch, effects);
  } else {
    release(number, parts_overhead(number));
    release(number, batch->charge);
  }
  batch->pieces.clear();
  batch->held.clear();
  if (last(element.id)) {
    track_bytes_ += batch->run->bytes();
    element.tracks.add(std::move(batch->run));
    begin_merge(element, effects);
  }
  for (Part& part : batch->parts) {
    Outgoing piece;
    piece.header.runs = std::move(part.runs);
    piece.frame = std::move(part.frame);
    piece.crc32c_of_identifiers = part.crc32c_of_identifiers;
    piece.split = batch->number;
    publish(element.id, geometry_.next(element.id, part.number), std::move(piece),
            sequence_of(element, *batch, part.number));
  }
  pass_flushes(element);
  end_flushes(now, effects);
  consider(element, now);
}

void Sift::end_merge(const Job& job, const Status& status, Effects& effects) {
  Element& element = *elements_.at(job.element);
  element.tracks.end_merge(job.merged, status ? job.batch->run : nullptr);
  if (!status) return;
  for (const auto& run : job.merged) track_bytes_ -= run->bytes();
  track_bytes_ += job.batch->run->bytes();
  begin_merge(element, effects);
}

void Sift::begin_merge(Element& element, Effects& effects) {
  std::vector<std::shared_ptr<const TrackRun>> runs = element.tracks.begin_merge(options_.merged_bytes_max);
  if (runs.empty()) return;
  auto batch = std::make_shared<Batch>();
  const auto notes = keeps() ? std::make_shared<const RunNotes>(notes_of_merge(element, *batch, runs)) : nullptr;
  const std::uint64_t token = next_token_++;
  jobs_.emplace(token, Job{.work = Work::merge, .element = element.id, .batch = batch, .merged = runs});
  effects.emplace_back(std::in_place_type<JobEffect>, token,
                       [batch, notes, runs = std::move(runs), memory = options_.memory]() -> Status {
                         OFP_ASSIGN(batch->run, TrackRun::merge(runs, memory, notes.get()));
                         return {};
                       });
}

// ---- publish

// A mark has the number of the next piece, without using it up. `sequence`: 0 for the next one.
void Sift::publish(ElementId from, ElementId to, Outgoing piece, std::uint64_t sequence) {
  Target& target = targets_[to];
  const bool mark = piece.frame == nullptr;
  piece.from = from;
  piece.header.pool = options_.settings.pool;
  piece.header.element = to;
  piece.header.source = options_.self;
  piece.header.sequence = sequence != 0 ? sequence : mark ? target.next_sequence : target.next_sequence++;
  piece.header.overhead_bytes = overhead_bytes_;
  const std::uint64_t token = next_token_++;
  if (mark) {
    outgoing_.emplace(token, std::move(piece));
    target.marks.push_back(token);
    return send_marks(target);
  }
  target.open.insert(piece.header.sequence);
  piece.bytes = piece.frame->buffer.capacity();
  piece.charge = keeps() ? 0 : piece.bytes;  // its split has been charged for it
  Stage& at = stage(from.stage);
  charge(from.stage, piece.charge);
  ++at.counters.outgoing;
  at.counters.outgoing_bytes += piece.bytes;
  at.outgoing.push_back(token);
  outgoing_.emplace(token, std::move(piece));
}

void Sift::send_marks(Target& target) {
  while (!target.marks.empty()) {
    const Outgoing& mark = outgoing_.at(target.marks.front());
    if (!target.open.empty() && *target.open.begin() < mark.header.sequence) return;
    stage(mark.from.stage).outgoing.push_back(target.marks.front());
    target.marks.pop_front();
  }
}

void Sift::send(std::uint32_t number, Effects& effects) {
  Stage& at = stage(number);
  while (!at.outgoing.empty()) {
    const std::uint64_t token = at.outgoing.front();
    Outgoing& piece = outgoing_.at(token);
    if (at.under_way_bytes > 0 && piece.bytes > 0 && at.under_way_bytes + piece.bytes > options_.settings.credit_bytes)
      return;
    at.outgoing.pop_front();
    at.under_way_bytes += piece.bytes;
    piece.under_way = true;
    ++at.counters.published;
    if (piece.attempts > 0) ++at.counters.published_again;
    const Target& target = targets_[piece.header.element];
    piece.header.answered_below =
        target.open.empty() ? piece.header.sequence : std::min(*target.open.begin(), piece.header.sequence);
    piece.header.crc32c = seal(piece.header, piece.crc32c_of_identifiers);
    effects.emplace_back(std::in_place_type<PublishEffect>, token, geometry_.owner_name(piece.header.element, self_),
                         piece.header, piece.frame);
  }
}

void Sift::on_published(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  const auto found = outgoing_.find(token);
  if (found == outgoing_.end()) return;
  Outgoing& piece = found->second;
  const std::uint32_t number = piece.from.stage;
  Stage& at = stage(number);
  OFP_ASSERT(piece.under_way);
  piece.under_way = false;
  at.under_way_bytes -= piece.bytes;
  if (status) {
    release(number, piece.charge);
    Target& target = targets_[piece.header.element];
    if (piece.frame != nullptr) {
      --at.counters.outgoing;
      at.counters.outgoing_bytes -= piece.bytes;
      target.open.erase(piece.header.sequence);
      if (keeps()) answered(*elements_.at(piece.from), piece.split, effects);
    }
    outgoing_.erase(found);
    send_marks(target);
  } else {
    timers_.emplace(retry_at(piece.attempts++, now), Timer{Timer::Of::publish, piece.from, token});
  }
  settle(number, now, effects);
}

TimeNs Sift::retry_at(std::uint32_t failures, TimeNs now) const noexcept {
  const TimeNs wait = failures < 20 ? options_.retry_min_ns << failures : options_.retry_max_ns;
  return deadline_after(now, std::min(wait, options_.retry_max_ns));
}

// ---- time

void Sift::on_time(TimeNs now, Effects& effects) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Timer timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Element& element = *elements_.at(timer.element);
    switch (timer.of) {
      case Timer::Of::age:
        element.age_timer = false;
        break;
      case Timer::Of::job:
        if (element.batch == nullptr && element.failures > 0) {
          const std::uint32_t failures = std::exchange(element.failures, 0);
          set_due(element);
          settle(element.id.stage, now, effects);
          element.failures = failures;  // until one succeeds
        }
        break;
      case Timer::Of::read:
        if (const auto arrival = arrivals_.find(timer.token); arrival != arrivals_.end())
          effects.emplace_back(std::in_place_type<ReadEffect>, timer.token, name_of(element.id, arrival->second.key));
        else if (restoring_ != nullptr)
          effects.emplace_back(std::in_place_type<ReadEffect>, timer.token, restoring_->reading.at(timer.token).text());
        break;
      case Timer::Of::publish:
        if (outgoing_.contains(timer.token)) stage(element.id.stage).outgoing.push_back(timer.token);
        break;
    }
    consider(element, now);
    settle(element.id.stage, now, effects);
  }
  end_flushes(now, effects);
}

TimeNs Sift::next_deadline() const noexcept {
  TimeNs next = timers_.empty() ? never : timers_.begin()->first;
  for (const Flush& flush : flushes_) next = std::min(next, flush.deadline);
  return next;
}

void Sift::drop(Effects& effects) {
  dropped_ = true;
  const Status status = fail(Error::cancelled, "pool '{}' was dropped", options_.settings.pool);
  for (const auto& [token, id] : arrival_of_token_)
    effects.emplace_back(std::in_place_type<AnswerEffect>, token, status);
  for (const Flush& flush : flushes_) effects.emplace_back(std::in_place_type<FlushedEffect>, flush.token, status);
  arrivals_.clear();
  arrival_of_token_.clear();
  outgoing_.clear();
  targets_.clear();
  elements_.clear();
  jobs_.clear();
  keeping_.clear();
  restoring_ = nullptr;
  restored_ = true;
  timers_.clear();
  flushes_.clear();
  passed_.clear();
  track_bytes_ = 0;
  for (Stage& each : stages_) each = {};
}

}  // namespace offpath::sift
