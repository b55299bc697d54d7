#include "sift/sift.h"

#include <algorithm>

namespace offpath::sift {

Sift::Sift(const SiftOptions& options, Geometry geometry, std::uint32_t self)
    : options_(options),
      geometry_(std::move(geometry)),
      self_(self),
      restored_(!options.kept),
      charges_(options_, form_),
      budgets_(options.settings.track_stage(), options.settings.budget_bytes),
      arrivals_(options_, budgets_, elements_, next_token_),
      checks_(options_, geometry_, self_, form_, charges_),
      publications_(options_, geometry_, self_, budgets_),
      flushes_(options_, geometry_, self_, publications_),
      track_memory_(options_),
      merges_(options_, form_, budgets_, elements_, track_memory_),
      due_(options_, budgets_, elements_, merges_),
      batches_(options_, form_, charges_, track_memory_),
      records_(options_, geometry_, form_, charges_, budgets_, publications_),
      restoring_(options_, geometry_, self_, form_, charges_, budgets_, elements_, arrivals_, publications_,
                 track_memory_, next_token_) {}

Result<std::unique_ptr<Sift>> Sift::make(const SiftOptions& options, std::vector<std::string> members) {
  OFP_ASSIGN(Geometry geometry, Geometry::make(options.settings, std::move(members)));
  const std::uint32_t self = geometry.position_of(options.self.member);
  if (self == geometry.members().size())
    return fail(Error::invalid, "'{}' is not a member of sift pool '{}'", options.self.member, options.settings.pool);
  return std::unique_ptr<Sift>(new Sift(options, std::move(geometry), self));
}

void Sift::settle(std::uint32_t stage, TimeNs now, Effects& effects) {
  if (dropped_ || !restored_) return;
  const bool is_last = stage == options_.settings.track_stage();
  if (is_last) track_memory_.forget_unread(now, effects);
  bool room = true;
  do {
    room = begin_splits(stage, effects);  // before admissions, because splits free memory
    admit(stage, now, effects);
  } while ((!due_.empty(stage) && room) || (arrivals_.any_waits(stage) && due_.relieve(stage)));
  if (!is_last) return publications_.send(stage, effects);
  if (begin_merges(now, effects)) (void)begin_splits(stage, effects);  // sorts may have waited for it
  track_memory_.work(now, next_token_, effects);
  flushes_.held_back = track_memory_.held_back();
}

void Sift::start(Job job, std::function<Status()> run, Effects& effects) {
  const std::uint64_t token = next_token_++;
  jobs_.emplace(token, std::move(job));
  add(effects, JobEffect{token, std::move(run)});
}

// ---- puts, offers and flushes

void Sift::on_put(std::uint64_t token, std::string_view row_key, FramePtr frame, TimeNs now, Effects& effects) {
  Arrival arrival;
  arrival.put = true;
  arrival.tokens = {token};
  const Status status = dropped_ ? fail(Error::not_found, "pool '{}' was dropped", options_.settings.pool)
                                 : checks_.put(row_key, frame, arrival);
  if (!status || arrival.view->rows == 0) {
    if (!status) {
      ++budgets_[1].refused;
      forget_form_without_rows();
    }
    add(effects, StoredEffect{token, status});
    return;
  }
  arrival.order = ++element({1, 0}).taken;
  arrivals_.add(std::move(arrival));
  settle(1, now, effects);
}

void Sift::on_offer(std::uint64_t token, PieceHeader header, std::uint64_t bytes, FramePtr frame, TimeNs now,
                    Effects& effects) {
  const auto answer = [&](Status status) { add(effects, StoredEffect{token, std::move(status)}); };
  if (Status status = dropped_ ? fail(Error::not_found, "there is no sift pool '{}' here", header.pool)
                               : checks_.offer(header, bytes);
      !status) {
    forget_form_without_rows();
    return answer(std::move(status));
  }
  const std::uint32_t stage = header.element.stage;
  Element& to = element(header.element);
  auto life = to.sources[header.source.member].life(header.source);
  if (!life) return answer(tl::unexpected(life.error()));
  (*life)->take_below(header.answered_below);
  if (header.flush != 0) {
    answer({});
    flushes_.take_mark(to, header);
    due_.consider(to, now);
    pass_flushes(to, now, effects);
    return settle(stage, now, effects);
  }
  const std::uint64_t charge = charges_.of_piece(bytes, header.rows());
  if (arrivals_.offer(token, std::move(header), bytes, charge, std::move(frame), **life, effects))
    settle(stage, now, effects);
}

void Sift::on_pulled(std::uint64_t token, Result<FramePtr> frame, TimeNs now, Effects& effects) {
  const std::uint64_t id = arrivals_.end_pull(token);
  if (id == 0) return;
  Arrival& arrival = arrivals_.at(id);
  const std::uint32_t stage = arrival.header.element.stage;
  if (frame) {
    arrival.frame = std::move(*frame);
    arrived(id, now, effects);
  } else if (!arrivals_.pull_elsewhere(id, token, frame.error(), effects)) {
    refuse(id, frame.error(), effects);
  }
  settle(stage, now, effects);
}

void Sift::on_offer_gone(std::uint64_t token, TimeNs now, Effects& effects) {
  const std::uint32_t stage = arrivals_.withdraw(token, effects);
  if (stage == 0) return;
  forget_form_without_rows();
  settle(stage, now, effects);
}

void Sift::on_flush(std::uint64_t token, std::uint64_t flush, TimeNs deadline, TimeNs now, Effects& effects) {
  if (dropped_ || flush == 0)
    return add(
        effects,
        FlushedEffect{token, dropped_ ? Status(fail(Error::not_found, "pool '{}' was dropped", options_.settings.pool))
                                      : Status(fail(Error::invalid, "flushes count from 1"))});
  if (flushes_.begin(token, flush, deadline) && may_put()) {  // otherwise no member waits for this member's marks
    Element& first = element({1, 0});
    first.newest_flush = flush;
    first.flushes.push_back({flush, first.taken});  // pieces that wait to be admitted precede it too
    due_.consider(first, now);
    flushes_.pass(first, form_.overhead_bytes);
    settle(1, now, effects);
  }
  flushes_.end(elements_, now, effects);
}

void Sift::pass_flushes(Element& element, TimeNs now, Effects& effects) {
  flushes_.pass(element, form_.overhead_bytes);
  flushes_.end(elements_, now, effects);
}

// ---- pieces that arrive

void Sift::admit(std::uint32_t stage, TimeNs now, Effects& effects) {
  // The memory that a split takes beside its rows is unknown only before the first kept piece is read.
  const auto is_room_known = [&] { return form_.overhead_bytes != 0 || budgets_[stage].used_bytes == 0; };
  while (const auto id = is_room_known() ? arrivals_.admit(stage, charges_.of_split(stage)) : std::nullopt) {
    Arrival& arrival = arrivals_.at(*id);
    if (arrival.frame != nullptr)
      arrived(*id, now, effects);
    else if (arrival.restored)
      add(effects, ReadEffect{*id, piece_name(arrival.header.element, arrival.key)});
    else
      arrivals_.pull(arrival, effects);
  }
}

void Sift::arrived(std::uint64_t id, TimeNs now, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  if (arrival.put && arrival.view->text == nullptr) return take(id, now, effects);
  if (const Status status = arrival.put ? Status{} : checks_.frame(arrival); !status)
    return refuse(id, status.error(), effects);
  std::function<Status()> check = checks_.of_rows(arrival);
  if (checks_.is_done_in_job(*arrival.view))
    return start(Job{Work::check, arrival.header.element, id}, std::move(check), effects);
  if (const Status status = check(); !status) return refuse(id, status.error(), effects);
  take(id, now, effects);
}

void Sift::take(std::uint64_t id, TimeNs now, Effects& effects) {
  const Arrival& arrival = arrivals_.at(id);
  if (keeps() && !arrival.kept) return begin_keep(id, effects);
  Element& to = element(arrival.header.element);
  const bool taken = arrivals_.take(id, now, effects);
  forget_form_without_rows();
  if (taken) due_.consider(to, now);
}

void Sift::refuse(std::uint64_t id, const Failure& why, Effects& effects) {
  arrivals_.refuse(id, why, effects);
  forget_form_without_rows();
}

// A pool has the columns of its first rows, and frames that are refused say nothing of them.
void Sift::forget_form_without_rows() {
  if (!arrivals_.empty()) return;
  for (std::uint32_t number = 1; number <= options_.settings.track_stage(); ++number)
    if (budgets_[number].pieces_taken + budgets_[number].restored > 0) return;
  if (track_memory_.count_runs().first == 0) form_ = {};
}

// ---- splits and sorts

// Begins the splits that are due. False: there is no room for the next one.
bool Sift::begin_splits(std::uint32_t stage, Effects& effects) {
  for (; !due_.empty(stage); due_.pop_first(stage))
    if (!begin_split(due_.first(stage), effects)) return false;
  return true;
}

// False: there is no room for the parts' overhead, or for the run.
bool Sift::begin_split(Element& element, Effects& effects) {
  if (!Batches::is_ready(element)) return true;
  const std::uint32_t stage = element.id.stage;
  const std::uint64_t overhead = charges_.of_split(stage);
  if (!budgets_.has_room(stage, overhead)) return false;
  const std::uint64_t run_bytes = last(element.id) ? batches_.next_run_bytes(element) : 0;
  if (last(element.id) && !track_memory_.take(run_bytes, TrackMemory::For::sort)) return false;
  const std::shared_ptr<Batch> batch = element.batch = batches_.take(element);
  batch->run_bytes = run_bytes;
  if ((keeps() || last(element.id)) && !batch->again) batch->number = ++element.number;
  budgets_.charge(stage, overhead);
  due_.begin(stage);
  ++budgets_[stage].splits;
  if (last(element.id)) {
    const auto notes = keeps() ? std::make_shared<const RunNotes>(records_.note_sort(element, *batch)) : nullptr;
    start(
        Job{.work = Work::sort, .element = element.id, .batch = batch},
        [batch, notes, form = form_.tracks->rows, memory = options_.memory,
         block_bytes = track_memory_.block_bytes()]() -> Status {
          OFP_ASSIGN(batch->run, TrackRun::sort(form, batch->pieces, memory, notes.get(), block_bytes));
          return {};
        },
        effects);
    return true;
  }
  start(
      Job{.work = Work::split, .element = element.id, .batch = batch},
      [batch, bits = options_.settings.split_bits(stage), form = form_.tracks->rows,
       memory = options_.memory]() -> Status {
        OFP_ASSIGN(batch->parts, split_pieces(*form, batch->pieces, bits, memory));
        return {};
      },
      effects);
  return true;
}

void Sift::on_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  if (restoring_.has_job(token)) {
    restoring_.on_job(token, status, now);
    return go_on_if_restored(now, effects);
  }
  const auto found = jobs_.find(token);
  if (found == jobs_.end()) return;  // from before the pool was dropped
  const Job job = std::move(found->second);
  jobs_.erase(found);
  switch (job.work) {
    case Work::check:
      if (status)
        take(job.arrival, now, effects);
      else if (arrivals_.at(job.arrival).put && status.error().code != Error::protocol &&
               status.error().code != Error::schema)
        arrived(job.arrival, now, effects);  // the job itself failed, not its check; a put is not offered again
      else
        refuse(job.arrival, status.error(), effects);
      break;
    case Work::reopen:
      end_reopen(job.arrival, status, now, effects);
      break;
    case Work::keep:
      if (status)
        keep_result(token, job, effects);
      else
        end_keep(job, status, effects);
      break;
    case Work::split:
    case Work::sort:
      if (status && keeps() && !job.batch->again) return keep_result(token, job, effects);
      end_split(element(job.element), status, now, effects);
      break;
    case Work::merge:
      if (status && keeps()) return keep_result(token, job, effects);
      end_merge(job, status, now, effects);
      break;
  }
  settle(job.element.stage, now, effects);
}

void Sift::end_split(Element& element, const Status& status, TimeNs now, Effects& effects) {
  const std::uint32_t stage = element.id.stage;
  due_.end(stage);
  const std::shared_ptr<Batch> batch = std::move(element.batch);
  element.batch = nullptr;
  track_memory_.give_back(batch->run_bytes);
  if (!status) {  // probably out of memory: its pieces still exist
    budgets_.release(stage, charges_.of_split(stage));
    Batches::put_back(element, *batch);
    return due_.rest(element, now);
  }
  element.failures = 0;
  for (const HeldPiece& piece : batch->held) element.gone.take(piece.order);
  if (!keeps())
    budgets_.release(stage, charges_.of_split(stage) + batch->charge);
  else if (last(element.id))
    records_.settle_sort(element, *batch, effects);
  else
    records_.settle_split(element, *batch, effects);
  batch->pieces.clear();
  batch->held.clear();
  if (last(element.id)) {
    track_memory_.add(batch->run, run_name(element.id, batch->number), keeps());
    element.tracks.add(std::move(batch->run));
    merges_.queue(element, now);
  }
  publish_parts(element, *batch);
  pass_flushes(element, now, effects);
  due_.consider(element, now);
}

void Sift::publish_parts(Element& element, Batch& batch) {
  for (Part& part : batch.parts)
    publications_.publish(element.id, geometry_.next(element.id, part.number),
                          {.runs = std::move(part.runs),
                           .frame = std::move(part.frame),
                           .crc32c_of_identifiers = part.crc32c_of_identifiers,
                           .overhead_bytes = form_.overhead_bytes,
                           .split = batch.number,
                           .sequence = ElementRecords::sequence_of(element, batch, part.number)});
}

void Sift::on_published(std::uint64_t token, const Status& status, TimeNs now, Effects& effects) {
  const auto [stage, piece] = publications_.on_published(token, status, now);
  if (stage == 0) return;
  if (piece && piece->has_rows && keeps()) records_.on_answered(element(piece->from), piece->split, effects);
  settle(stage, now, effects);
}

// ---- merges

// True: some have begun.
bool Sift::begin_merges(TimeNs now, Effects& effects) {
  bool any = false;
  while (auto merge = merges_.begin(now)) {
    Element& element = merge->element;
    if (merge->runs.empty()) {
      due_.consider(element, now);
      continue;
    }
    any = true;
    auto batch = std::make_shared<Batch>();
    batch->run_bytes = merge->run_bytes;
    batch->number = ++element.number;
    const auto notes =
        keeps() ? std::make_shared<const RunNotes>(records_.note_merge(element, *batch, merge->runs)) : nullptr;
    start(
        Job{.work = Work::merge, .element = element.id, .batch = batch, .merged = merge->runs},
        [batch, notes, runs = merge->runs, memory = options_.memory,
         block_bytes = track_memory_.block_bytes()]() mutable -> Status {
          OFP_ASSIGN(batch->run, TrackRun::merge(runs, memory, notes.get(), block_bytes, &batch->unread));
          runs.clear();
          return {};
        },
        effects);
  }
  return any;
}

void Sift::end_merge(const Job& job, const Status& status, TimeNs now, Effects& effects) {
  Element& merged = element(job.element);
  merges_.end(merged, *job.batch, job.merged, run_name(job.element, job.batch->number), status, now, effects);
  due_.consider(merged, now);
}

void Sift::on_spilled(std::uint64_t token, Result<FramePtr> unread, TimeNs now, Effects& effects) {
  if (!track_memory_.on_spilled(token, std::move(unread), now)) return;  // from before the pool was dropped
  settle(options_.settings.track_stage(), now, effects);
}

// ---- a kept pool: pieces and results are kept before they take effect

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
  const auto object = std::make_shared<FramePtr>();
  start(
      Job{.work = Work::keep,
          .element = header.element,
          .arrival = id,
          .object = object,
          .name = piece_name(header.element, arrival.key)},
      [header, object, frame = arrival.frame, memory = options_.memory]() -> Status {
        OFP_ASSIGN(*object, keep_piece(frame, header, memory));
        return {};
      },
      effects);
}

// Its object, a copy of the checked frame, becomes its frame.
Status Sift::open_kept_piece(Arrival& arrival, const FramePtr& object) const {
  OFP_ASSIGN(const KeptParts parts, open_kept({object->buffer.data(), object->bytes}));
  OFP_ASSIGN(arrival.view, form_.tracks->rows->view_ends(parts.body));
  arrival.frame = object;
  arrival.kept = true;
  return {};
}

void Sift::end_keep(const Job& job, const Status& status, Effects& effects) {
  Arrival& arrival = arrivals_.at(job.arrival);
  SourceHistory& history = element(job.element).sources[arrival.header.source.member];
  const auto life = history.life(arrival.header.source);
  Status done = status;
  if (done && !life) done = tl::unexpected(life.error());
  if (done) done = open_kept_piece(arrival, *job.object);
  if (done) {
    if (arrival.put) (*life)->take(arrival.header.sequence);
    return;
  }
  if (arrival.put) {  // its number is not reused, and its object may exist: it is ignored
    add(effects, ForgetEffect{job.name});
    if (TakenSequences* const settled = history.settled(options_.self.incarnation))
      settled->take(arrival.header.sequence);
  }
  refuse(job.arrival, done.error(), effects);
}

// The object with the record of the batch's split. Null: there is no memory, which counts as a failure to keep it.
FramePtr Sift::record_of(Element& element, Batch& batch) {
  records_.note_split(element, batch);
  const std::vector<std::byte> record = encode(batch.record);
  auto object = std::make_shared<service::Frame>();
  object->bytes = kept_bytes(0, record.size());
  auto memory = options_.memory.cache->take(object->bytes, options_.memory.user);
  if (!memory) return nullptr;
  object->buffer = std::move(*memory);
  write_notes(object->buffer.bytes(), 0, record);
  return object;
}

void Sift::keep_result(std::uint64_t token, Job job, Effects& effects) {
  FramePtr object;
  if (job.work == Work::keep) {
    object = *job.object;
  } else if (job.work == Work::split) {
    object = record_of(element(job.element), *job.batch);
    job.name = split_name(job.element, job.batch->number);
  } else {
    object = job.batch->run->object();
    job.name = run_name(job.element, job.batch->number);
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
    end_keep(job, status, effects);
    if (arrivals_.find(job.arrival) != nullptr) take(job.arrival, now, effects);
    return settle(job.element.stage, now, effects);
  }
  if (!status) {  // the object may exist nevertheless
    add(effects, ForgetEffect{job.name});
    if (job.work != Work::split) element.abandoned.take(job.batch->number, job.batch->number);
  }
  if (job.work == Work::merge) {
    if (status) ElementRecords::settle_merge(element, *job.batch, job.merged);
    end_merge(job, status, now, effects);
  } else {
    end_split(element, status, now, effects);
  }
  settle(job.element.stage, now, effects);
}

// ---- a kept pool: after a restart

void Sift::restore(std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now, Effects& effects) {
  OFP_ASSERT(!restored_ && !restoring_.is_under_way());
  options_.self.incarnation = incarnation;
  restoring_.begin(items, effects);
  go_on_if_restored(now, effects);
}

void Sift::on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects) {
  if (!restoring_.is_under_way()) return reopened(token, std::move(object), now, effects);
  restoring_.on_read(token, std::move(object), now, effects);
  go_on_if_restored(now, effects);
}

void Sift::go_on_if_restored(TimeNs now, Effects& effects) {
  if (!restoring_.complete(effects)) return;
  restored_ = true;
  for (const auto& [id, each] : elements_.all())
    if (last(id)) merges_.queue(*each, now);
  if (const auto own = element({1, 0}).sources[options_.self.member].life(options_.self))
    put_sequence_ = (*own)->largest();
  for (std::uint32_t number = 1; number <= options_.settings.track_stage(); ++number) settle(number, now, effects);
}

// As pieces that arrive, it is taken once its identifiers are checked.
void Sift::reopened(std::uint64_t id, Result<FramePtr> object, TimeNs now, Effects& effects) {
  Arrival* const arrival = arrivals_.find(id);
  if (arrival == nullptr || !arrival->restored) return;
  const Status status =
      object ? checks_.kept_frame(*arrival, std::move(*object)) : Status(tl::unexpected(object.error()));
  if (!status || arrival->view->text == nullptr) return end_reopen(id, status, now, effects);
  std::function<Status()> check = checks_.of_kept_rows(*arrival);
  if (!checks_.is_done_in_job(*arrival->view)) return end_reopen(id, check(), now, effects);
  start(Job{Work::reopen, arrival->header.element, id}, std::move(check), effects);
}

void Sift::end_reopen(std::uint64_t id, const Status& status, TimeNs now, Effects& effects) {
  Element& to = element(arrivals_.at(id).header.element);
  if (!restoring_.take(id, status, now)) return;
  forget_form_without_rows();
  due_.consider(to, now);
  pass_flushes(to, now, effects);
  settle(to.id.stage, now, effects);
}

// ---- time

void Sift::on_time(TimeNs now, Effects& effects) {
  while (Element* const element = due_.take_timer(now)) {
    due_.consider(*element, now);
    settle(element->id.stage, now, effects);
  }
  while (Element* const element = merges_.take_timer(now)) {
    due_.consider(*element, now);
    settle(element->id.stage, now, effects);
  }
  for (const std::uint32_t stage : publications_.retry(now)) settle(stage, now, effects);
  restoring_.on_time(now, effects);
  if (track_memory_.next_deadline() <= now) settle(options_.settings.track_stage(), now, effects);
  flushes_.end(elements_, now, effects);
}

TimeNs Sift::next_deadline() const noexcept {
  const TimeNs tracks = restored_ ? track_memory_.next_deadline() : never;
  return std::min({due_.next_deadline(), merges_.next_deadline(), restoring_.next_deadline(), tracks,
                   publications_.next_retry(), flushes_.next_deadline()});
}

void Sift::drop(Effects& effects) {
  dropped_ = true;
  const Status status = fail(Error::cancelled, "pool '{}' was dropped", options_.settings.pool);
  arrivals_.drop(status, effects);
  flushes_.drop(status, effects);
  publications_.clear();
  elements_.clear();
  jobs_.clear();
  keeping_.clear();
  restoring_.clear();
  restored_ = true;
  due_.clear();
  track_memory_.clear();
  merges_.clear();
  budgets_.clear();
}

// ---- tracks

TrackSnapshot Sift::tracks() const {
  TrackSnapshot snapshot(form_.tracks, options_.settings.elements(options_.settings.track_stage()));
  const Elements::Map& all = elements_.all();
  for (auto at = all.lower_bound({options_.settings.track_stage(), 0}); at != all.end(); ++at)
    snapshot.add(at->first.index, at->second->tracks.runs());
  return snapshot;
}

TrackSnapshot Sift::tracks(std::span<const std::uint32_t> elements) const {
  TrackSnapshot snapshot(form_.tracks, options_.settings.elements(options_.settings.track_stage()));
  for (const std::uint32_t index : elements)
    if (const auto found = elements_.all().find({options_.settings.track_stage(), index});
        found != elements_.all().end())
      snapshot.add(index, found->second->tracks.runs());
  return snapshot;
}

bool Sift::idle() const noexcept {
  if (!restored_ || !arrivals_.empty() || !publications_.empty() || !jobs_.empty() || !keeping_.empty()) return false;
  return std::ranges::all_of(
      elements_.all(), [](const auto& each) { return each.second->pieces.empty() && each.second->batch == nullptr; });
}

}  // namespace offpath::sift
