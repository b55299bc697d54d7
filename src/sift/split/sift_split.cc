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
    while (!at.due.empty() && begin_split(elements_[at.due.front()], effects)) at.due.pop_front();
    admit(number, now, effects);
  } while ((!at.due.empty() && budgets_.has_room(number, parts_overhead(number))) || relieve(number));
  if (number < options_.settings.track_stage()) publications_.send(number, effects);
}

// If offers wait and nothing under way will make room for them, the largest element is split early.
bool Sift::relieve(std::uint32_t number) {
  Stage& at = stage(number);
  if (at.waiting.empty() || at.jobs > 0 || budgets_[number].outgoing > 0 || !at.due.empty()) return false;
  Element* largest = nullptr;
  const Elements::Map& all = elements_.all();
  for (auto each = all.lower_bound({number, 0}); each != all.end() && each->first.stage == number; ++each) {
    Element& element = *each->second;
    if (element.bytes > 0 && element.failures == 0 && element.replays.empty() &&
        (largest == nullptr || element.bytes > largest->bytes))
      largest = &element;
  }
  if (largest == nullptr) return false;
  set_due(*largest);
  if (largest->due) ++budgets_[number].split_under_pressure;
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
        !check_size(charge_of(all * form_.tracks->rows->row_bytes() + form_.overhead_bytes, all)))
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
  if (!budgets_.has_room(number, parts_overhead(number))) return false;
  element.due = false;
  element.batch = next_batch(element);
  if (keeps()) number_batch(element, *element.batch);
  budgets_.charge(number, parts_overhead(number));
  ++at.jobs;
  ++budgets_[number].splits;
  const std::uint64_t token = next_token_++;
  const std::shared_ptr<Batch> batch = element.batch;
  if (last(element.id)) {
    jobs_.emplace(token, Job{.work = Work::sort, .element = element.id, .batch = batch});
    const auto notes = keeps() ? std::make_shared<const RunNotes>(notes_of(batch->record)) : nullptr;
    add(effects, JobEffect{token, [batch, notes, form = form_.tracks->rows, memory = options_.memory]() -> Status {
                             OFP_ASSIGN(batch->run, TrackRun::sort(form, batch->pieces, memory, notes.get()));
                             return {};
                           }});
    return true;
  }
  jobs_.emplace(token, Job{.work = Work::split, .element = element.id, .batch = batch});
  const SplitBits bits = options_.settings.split_bits(number);
  add(effects, JobEffect{token, [batch, bits, form = form_.tracks->rows, memory = options_.memory]() -> Status {
                           OFP_ASSIGN(batch->parts, split_pieces(*form, batch->pieces, bits, memory));
                           return {};
                         }});
  return true;
}

void Sift::on_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  if (former_ != nullptr && former_->has_job(token)) {
    former_->on_job(token, status, now);
    return end_restore_if_complete(now, effects);
  }
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
    timers_.emplace(options_.retry_at(element.failures++, now), Timer{Timer::Of::job, element.id});
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
  publish_parts(element, *batch);
  pass_flushes(element);
  flushes_.end(elements_, now, effects);
  consider(element, now);
}

void Sift::end_merge(const Job& job, const Status& status, Effects& effects) {
  Element& element = elements_[job.element];
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
  add(effects, JobEffect{token, [batch, notes, runs = std::move(runs), memory = options_.memory]() -> Status {
                           OFP_ASSIGN(batch->run, TrackRun::merge(runs, memory, notes.get()));
                           return {};
                         }});
}

// ---- publish

void Sift::publish_parts(Element& element, Batch& batch) {
  for (Part& part : batch.parts)
    publications_.publish(element.id, geometry_.next(element.id, part.number),
                          {.runs = std::move(part.runs),
                           .frame = std::move(part.frame),
                           .crc32c_of_identifiers = part.crc32c_of_identifiers,
                           .overhead_bytes = form_.overhead_bytes,
                           .split = batch.number,
                           .sequence = sequence_of(element, batch, part.number)});
}

void Sift::on_published(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  const auto [stage, piece] = publications_.on_published(token, status, now);
  if (stage == 0) return;
  if (piece && piece->has_rows && keeps()) answered(elements_[piece->from], piece->split, effects);
  settle(stage, now, effects);
}

// ---- time

void Sift::on_time(TimeNs now, Effects& effects) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Timer timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Element& element = elements_[timer.element];
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
          add(effects, ReadEffect{timer.token, name_of(element.id, arrival->second.key)});
        break;
    }
    consider(element, now);
    settle(element.id.stage, now, effects);
  }
  for (const std::uint32_t number : publications_.retry(now)) settle(number, now, effects);
  if (former_ != nullptr) former_->on_time(now, effects);
  flushes_.end(elements_, now, effects);
}

TimeNs Sift::next_deadline() const noexcept {
  TimeNs next = timers_.empty() ? never : timers_.begin()->first;
  if (former_ != nullptr) next = std::min(next, former_->next_deadline());
  return std::min({next, publications_.next_retry(), flushes_.next_deadline()});
}

void Sift::drop(Effects& effects) {
  dropped_ = true;
  const Status status = fail(Error::cancelled, "pool '{}' was dropped", options_.settings.pool);
  for (const auto& [token, id] : arrival_of_token_) add(effects, StoredEffect{token, status});
  flushes_.drop(status, effects);
  arrivals_.clear();
  arrival_of_token_.clear();
  publications_.clear();
  elements_.clear();
  jobs_.clear();
  keeping_.clear();
  former_ = nullptr;
  restored_ = true;
  timers_.clear();
  track_bytes_ = 0;
  for (Stage& each : stages_) each = {};
  budgets_.clear();
}

}  // namespace offpath::sift
