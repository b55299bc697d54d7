#include "sift/sift.h"

#include <algorithm>
#include <set>

namespace offpath::sift {

Sift::Sift(const SiftOptions& options, Geometry geometry, std::uint32_t self)
    : options_(options),
      geometry_(std::move(geometry)),
      self_(self),
      budgets_(options.settings.track_stage(), options.settings.budget_bytes),
      stages_(options.settings.track_stage()),
      publications_(options_, geometry_, self_, budgets_),
      flushes_(options_, geometry_, self_, publications_),
      restored_(!options.kept) {}

Result<std::unique_ptr<Sift>> Sift::make(const SiftOptions& options, std::vector<std::string> members) {
  OFP_ASSIGN(Geometry geometry, Geometry::make(options.settings, std::move(members)));
  const std::uint32_t self = geometry.position_of(options.self.member);
  if (self == geometry.members().size())
    return fail(Error::invalid, "'{}' is not a member of sift pool '{}'", options.self.member, options.settings.pool);
  return std::unique_ptr<Sift>(new Sift(options, std::move(geometry), self));
}

// ---- charges of a piece

std::uint64_t Sift::charge_of(std::uint64_t frame_bytes, std::uint64_t rows) const noexcept {
  // The piece itself, and either its rows once more, in parts' frames, or the memory of a sort beside its run. Before
  // that, in a kept pool, the copy with its notes needs the first of the two.
  if (keeps()) frame_bytes += kept_notes_bytes_max;
  return BufferCache::class_bytes(frame_bytes) +
         std::max(frame_bytes + frame_bytes / 8, rows * TrackRun::sort_bytes_per_row);
}

std::uint64_t Sift::parts_overhead(std::uint32_t number) const noexcept {
  if (number == options_.settings.track_stage()) return 0;
  return parts_bytes_max(0, 0, options_.settings.fanout, form_.overhead_bytes);
}

Status Sift::check_size(std::uint64_t charge) const {
  const std::uint64_t needed = charge + parts_overhead(1);
  if (needed <= options_.settings.budget_bytes) return {};
  return fail(
      Error::too_large,
      "a piece may need {} bytes to be split, but the budget of '{}' is {} bytes for each stage: name the pool with a "
      "larger budget=, or send fewer rows at a time",
      needed, options_.settings.pool, options_.settings.budget_bytes);
}

// ---- puts and offers

Status Sift::may_put() const {
  if (geometry_.holds(self_, {1, 0})) return {};
  return fail(Error::unsupported,
              "'{}' takes no rows of sift pool '{}', of which stage1={}: put them through an agent of "
              "that stage",
              options_.self.member, options_.settings.pool, options_.settings.selectors.at(1));
}

Status Sift::check_put(std::string_view row_key, const FramePtr& frame, Arrival& arrival) {
  if (dropped_) return fail(Error::not_found, "pool '{}' was dropped", options_.settings.pool);
  OFP_TRY(may_put());
  OFP_ASSIGN(const std::int64_t step, step_of(row_key));
  if (frame == nullptr || !frame->arrow)
    return fail(Error::schema, "'{}' is not an Arrow frame: sift pools take frames of the destination ipc-page or ipc",
                row_key.substr(0, 200));
  const Bytes bytes(frame->buffer.data(), frame->bytes);
  std::shared_ptr<const TrackForm> form = form_.tracks;
  if (form == nullptr) {
    OFP_ASSIGN(form, TrackForm::of_frame(bytes, options_.settings.key));
  }
  const RowForm& row_form = *form->rows;
  OFP_ASSIGN(arrival.view, row_form.view(bytes));
  if (arrival.view->rows == 0) return {};
  if (form_.tracks == nullptr && form_.overhead_bytes != 0 && form_.overhead_bytes != row_form.overhead_bytes())
    return fail(Error::schema, "frames of the pool have {} bytes beside their rows, but this one has {}",
                form_.overhead_bytes, row_form.overhead_bytes());
  form_.tracks = std::move(form);
  form_.overhead_bytes = row_form.overhead_bytes();
  arrival.header.runs = {{step, arrival.view->rows}};
  const std::uint64_t rows = arrival.view->rows;
  arrival.bytes = std::max(frame->bytes, rows * row_form.row_bytes() + form_.overhead_bytes);
  arrival.charge = charge_of(std::max(arrival.bytes, frame->buffer.capacity()), rows);
  arrival.frame = frame;
  return check_size(arrival.charge);
}

void Sift::on_put(std::uint64_t token, std::string_view row_key, FramePtr frame, TimeNs now, Effects& effects) {
  Arrival arrival;
  arrival.put = true;
  arrival.tokens = {token};
  const Status status = check_put(row_key, frame, arrival);
  if (!status || arrival.view->rows == 0) {
    if (!status) ++budgets_[1].refused;
    add(effects, StoredEffect{token, status});
    return;
  }
  arrival.order = ++element({1, 0}).taken;
  queue(std::move(arrival));
  settle(1, now, effects);
}

Status Sift::check_offer(const PieceHeader& header, std::uint64_t bytes) {
  if (dropped_ || header.pool != options_.settings.pool)
    return fail(Error::not_found, "there is no sift pool '{}' here", header.pool);
  if (header.element.stage < 2 || !geometry_.holds(self_, header.element)) {
    return fail(Error::not_found, "'{}' does not hold element {} of stage {} of '{}'", options_.self.member,
                header.element.index, header.element.stage, header.pool);
  }
  if (keeps() && geometry_.position_of(header.source.member) == geometry_.members().size())
    return fail(Error::denied, "'{}' is not a member of sift pool '{}'", header.source.member, header.pool);
  if (header.flush != 0) return {};
  if (form_.overhead_bytes == 0) form_.overhead_bytes = header.overhead_bytes;
  if (header.overhead_bytes != form_.overhead_bytes) {
    return fail(Error::schema, "a piece of '{}' has {} bytes beside its rows, but the pool's have {}",
                header.source.member, header.overhead_bytes, form_.overhead_bytes);
  }
  return check_size(charge_of(bytes, header.rows()));
}

void Sift::on_offer(std::uint64_t token, PieceHeader header, std::uint64_t bytes, FramePtr frame, TimeNs now,
                    Effects& effects) {
  const auto answer = [&](Status status) { add(effects, StoredEffect{token, std::move(status)}); };
  if (Status status = check_offer(header, bytes); !status) return answer(std::move(status));
  StageCounters& counters = budgets_[header.element.stage];
  Element& to = element(header.element);
  auto life = to.sources[header.source.member].life(header.source);
  if (!life) return answer(tl::unexpected(life.error()));
  (*life)->take_below(header.answered_below);
  if (header.flush != 0) {
    answer({});
    flushes_.take_mark(to, header);
    consider(to, now);
    pass_flushes(to);
    flushes_.end(elements_, now, effects);
    return settle(header.element.stage, now, effects);
  }
  if ((*life)->has(header.sequence)) {
    ++counters.repeated;
    return answer({});
  }
  if (!(*life)->can_take(header.sequence))
    return answer(fail(Error::would_block, "too many pieces of '{}' are missing before number {}", header.source.member,
                       header.sequence));
  const auto [found, fresh] = to.arriving.try_emplace({header.source, header.sequence}, next_token_);
  if (!fresh) {  // known already; its answer was lost or is slow
    arrivals_.at(found->second).tokens.push_back(token);
    arrival_of_token_[token] = found->second;
    ++counters.repeated;
    return;
  }
  if (counters.offers_waiting >= options_.offers_max) {
    to.arriving.erase(found);
    return answer(
        fail(Error::would_block, "{} offers wait for stage {} already", counters.offers_waiting, header.element.stage));
  }
  Arrival arrival;
  arrival.tokens = {token};
  arrival.bytes = bytes;
  arrival.charge = charge_of(bytes, header.rows());
  arrival.header = std::move(header);
  arrival.frame = std::move(frame);
  const std::uint32_t number = arrival.header.element.stage;
  queue(std::move(arrival));
  settle(number, now, effects);
}

void Sift::queue(Arrival arrival) {
  const std::uint64_t id = next_token_++;
  for (const std::uint64_t token : arrival.tokens) arrival_of_token_[token] = id;
  const std::uint32_t number = arrival.header.element.stage;
  stage(number).waiting.push_back(id);
  ++budgets_[number].offers_waiting;
  arrivals_.emplace(id, std::move(arrival));
}

// In the order of arrival. The first piece without room delays the others of its stage, so that smaller ones do not
// overtake it forever.
void Sift::admit(std::uint32_t number, TimeNs now, Effects& effects) {
  Stage& at = stage(number);
  while (!at.waiting.empty()) {
    const std::uint64_t id = at.waiting.front();
    Arrival& arrival = arrivals_.at(id);
    if (!budgets_.has_room(number, arrival.charge + parts_overhead(number))) return;
    at.waiting.pop_front();
    --budgets_[number].offers_waiting;
    budgets_.charge(number, arrival.charge);
    arrival.admitted = true;
    if (arrival.frame != nullptr) {
      arrived(id, now, effects);
      continue;
    }
    if (arrival.restored)
      add(effects, ReadEffect{id, name_of(arrival.header.element, arrival.key)});
    else
      pull(arrival, effects);
  }
}

// From the member that offered it last: the others may have given up.
void Sift::pull(Arrival& arrival, Effects& effects) {
  arrival.pulling = true;
  arrival.pulled_from = arrival.tokens.back();
  add(effects, AdmitEffect{arrival.pulled_from});
}

void Sift::on_pulled(std::uint64_t token, Result<FramePtr> frame, TimeNs now, Effects& effects) {
  const auto found = arrival_of_token_.find(token);
  if (found == arrival_of_token_.end()) return;
  const std::uint64_t id = found->second;
  Arrival& arrival = arrivals_.at(id);
  const std::uint32_t number = arrival.header.element.stage;
  if (!arrival.pulling || arrival.pulled_from != token) return;
  arrival.pulling = false;
  if (frame) {
    arrival.frame = std::move(*frame);
    arrived(id, now, effects);
  } else if (arrival.tokens.size() > 1) {  // another member offers it again
    std::erase(arrival.tokens, token);
    arrival_of_token_.erase(token);
    add(effects, StoredEffect{token, tl::unexpected(frame.error())});
    pull(arrival, effects);
  } else {
    refuse(id, frame.error(), effects);
  }
  settle(number, now, effects);
}

void Sift::on_offer_gone(std::uint64_t token, TimeNs now, Effects& effects) {
  const auto found = arrival_of_token_.find(token);
  if (found == arrival_of_token_.end()) return;
  const std::uint64_t id = found->second;
  Arrival& arrival = arrivals_.at(id);
  const std::uint32_t number = arrival.header.element.stage;
  std::erase(arrival.tokens, token);
  arrival_of_token_.erase(found);
  if (arrival.frame != nullptr) return;  // its rows have arrived, so they are taken
  if (!arrival.tokens.empty()) {
    if (arrival.pulling && arrival.pulled_from == token) pull(arrival, effects);
    return;
  }
  if (!arrival.admitted) {
    std::erase(stage(number).waiting, id);
    --budgets_[number].offers_waiting;
  } else {
    release(number, arrival.charge);
  }
  forget(id);
  settle(number, now, effects);
}

void Sift::on_flush(std::uint64_t token, std::uint64_t flush, TimeNs deadline, TimeNs now, Effects& effects) {
  if (dropped_ || flush == 0)
    return add(
        effects,
        FlushedEffect{token, dropped_ ? Status(fail(Error::not_found, "pool '{}' was dropped", options_.settings.pool))
                                      : Status(fail(Error::invalid, "flushes count from 1"))});
  if (flushes_.begin(token, flush, deadline) && may_put()) {  // otherwise nobody waits for this member's marks
    Element& first = element({1, 0});
    first.newest_flush = flush;
    first.flushes.push_back({flush, first.taken});  // pieces that wait to be admitted precede it too
    consider(first, now);
    pass_flushes(first);
    settle(1, now, effects);
  }
  flushes_.end(elements_, now, effects);
}

// ---- frames that have arrived

Status Sift::check_frame(Arrival& arrival) {
  const Bytes bytes(arrival.frame->buffer.data(), arrival.frame->bytes);
  if (bytes.size() != arrival.bytes)
    return fail(Error::protocol, "a piece of '{}' has {} bytes, but {} were offered", arrival.header.source.member,
                bytes.size(), arrival.bytes);
  if (form_.tracks == nullptr) {
    OFP_ASSIGN(const std::shared_ptr<const TrackForm> form, TrackForm::of_frame(bytes, options_.settings.key));
    if (form->rows->overhead_bytes() != form_.overhead_bytes)
      return fail(Error::schema, "a piece has {} bytes beside its rows, but its header says {}",
                  form->rows->overhead_bytes(), form_.overhead_bytes);
    form_.tracks = form;
  }
  OFP_ASSIGN(arrival.view, form_.tracks->rows->view(bytes));
  if (arrival.view->rows != arrival.header.rows())
    return fail(Error::protocol, "a piece has {} rows, but its header says {}", arrival.view->rows,
                arrival.header.rows());
  return {};
}

namespace {

Status check_seal(const PieceHeader& header, const Identifiers& ids) {
  const std::uint32_t sum = seal(header, crc32c({ids.values, ids.rows * ids.value_bytes}));
  if (sum == header.crc32c) return {};
  return fail(Error::protocol, "piece {} of '{}' has checksum {:08x}, but its header says {:08x}", header.sequence,
              header.source.member, sum, header.crc32c);
}

}  // namespace

void Sift::arrived(std::uint64_t id, TimeNs now, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  if (arrival.put) return take(id, now, effects);
  if (const Status status = check_frame(arrival); !status) return refuse(id, status.error(), effects);
  const Identifiers ids = arrival.view->ids;
  if (ids.rows * ids.value_bytes < options_.check_in_job_bytes) {
    if (const Status status = check_seal(arrival.header, ids); !status) return refuse(id, status.error(), effects);
    return take(id, now, effects);
  }
  const std::uint64_t token = next_token_++;
  jobs_.emplace(token, Job{Work::check, arrival.header.element, id});
  add(effects,
      JobEffect{token, [header = arrival.header, frame = arrival.frame, ids] { return check_seal(header, ids); }});
}

void Sift::take(std::uint64_t id, TimeNs now, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  Element& to = element(arrival.header.element);
  StageCounters& counters = budgets_[to.id.stage];
  if (keeps() && !arrival.kept) return begin_keep(id, effects);
  if (!arrival.put) {
    auto life = to.sources[arrival.header.source.member].life(arrival.header.source);
    if (!life) return refuse(id, life.error(), effects);
    if ((*life)->has(arrival.header.sequence)) {  // another offer of it reported meanwhile that it was answered
      if (keeps()) add(effects, ForgetEffect{name_of(to.id, arrival.key)});
      release(to.id.stage, arrival.charge);
      for (const std::uint64_t token : arrival.tokens) add(effects, StoredEffect{token, Status{}});
      return forget(id);
    }
    (*life)->take(arrival.header.sequence);
  }
  ++counters.pieces_taken;
  counters.rows_taken += arrival.view->rows;
  for (const std::uint64_t token : arrival.tokens) add(effects, StoredEffect{token, Status{}});
  if (arrival.order == 0) arrival.order = ++to.taken;
  to.pieces.push_back({{std::move(arrival.frame), std::move(*arrival.view), std::move(arrival.header.runs)},
                       arrival.bytes,
                       arrival.charge,
                       now,
                       arrival.order,
                       arrival.key});
  to.bytes += arrival.bytes;
  forget(id);
  consider(to, now);
}

void Sift::refuse(std::uint64_t id, const Failure& why, Effects& effects) {
  Arrival& arrival = arrivals_.at(id);
  const std::uint32_t number = arrival.header.element.stage;
  ++budgets_[number].refused;
  if (arrival.admitted) release(number, arrival.charge);
  if (arrival.order != 0) element(arrival.header.element).gone.take(arrival.order);
  for (const std::uint64_t token : arrival.tokens) add(effects, StoredEffect{token, tl::unexpected(why)});
  forget(id);
}

void Sift::forget(std::uint64_t id) {
  const auto found = arrivals_.find(id);
  for (const std::uint64_t token : found->second.tokens) arrival_of_token_.erase(token);
  if (!found->second.put && !found->second.restored)
    element(found->second.header.element).arriving.erase({found->second.header.source, found->second.header.sequence});
  arrivals_.erase(found);
}

TrackSnapshot Sift::tracks() const {
  TrackSnapshot snapshot(form_.tracks, options_.settings.elements(options_.settings.track_stage()));
  const Elements::Map& all = elements_.all();
  for (auto at = all.lower_bound({options_.settings.track_stage(), 0}); at != all.end(); ++at)
    snapshot.add(at->first.index, at->second->tracks.runs());
  return snapshot;
}

TrackSnapshot Sift::tracks(std::span<const std::uint64_t> identifiers) const {
  TrackSnapshot snapshot(form_.tracks, options_.settings.elements(options_.settings.track_stage()));
  std::set<ElementId> wanted;
  for (const std::uint64_t identifier : identifiers) wanted.insert(geometry_.track_element(identifier));
  for (const ElementId id : wanted)
    if (const auto found = elements_.all().find(id); found != elements_.all().end())
      snapshot.add(id.index, found->second->tracks.runs());
  return snapshot;
}

bool Sift::idle() const noexcept {
  if (!restored_ || !arrivals_.empty() || !publications_.empty() || !jobs_.empty() || !keeping_.empty()) return false;
  return std::ranges::all_of(
      elements_.all(), [](const auto& each) { return each.second->pieces.empty() && each.second->batch == nullptr; });
}

}  // namespace offpath::sift
