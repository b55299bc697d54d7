#include "tcp/area/area_mirror.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/ring_bytes.h"

namespace offpath::tcp {

namespace {

using wire::TcpAreaLayout;
using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;
using wire::TcpWay;
namespace tcp_ring = wire::tcp_ring;
namespace area_word = wire::tcp_word;

constexpr std::size_t out = 0, in = 1;                  // directions: TcpWay
constexpr std::uint64_t kept_touched_bytes = 16 << 10;  // less than this is not worth a system call

}  // namespace

AreaMirror::AreaMirror(const TcpAreaLayout& layout, MutableBytes memory)
    : layout_(layout), memory_(memory), flows_(layout.flows) {
  OFP_ASSERT(memory.size() >= layout.bytes);
  looked_.resize(sizeof(wire::TcpProgramLine) + look_slots_max * TcpAreaLayout::slot_bytes);
}

std::uint64_t AreaMirror::word(std::uint64_t offset) const noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_.data() + offset))
      .load(std::memory_order_acquire);
}

void AreaMirror::set_word(std::uint64_t offset, std::uint64_t value) noexcept {
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_.data() + offset))
      .store(value, std::memory_order_release);
}

std::uint64_t AreaMirror::begin(bool writes, std::vector<Piece> pieces) {
  const std::uint64_t token = next_token_++;
  for (const Piece& piece : pieces) (writes ? counters_.written_bytes : counters_.read_bytes) += piece.length;
  transfers_.push_back({token, writes, std::move(pieces)});
  ++outstanding_;
  return token;
}

void AreaMirror::look(TimeNs now) {
  timing_.woken(now);
  flag_ = 0;  // the program has cleared it
  if (watch_ == Watch::armed || watch_ == Watch::arming) watch_ = Watch::watching;
  look_again_ = true;
}

void AreaMirror::wake(std::uint32_t process) {
  if (std::ranges::find(to_wake_, process) == to_wake_.end()) to_wake_.push_back(process);
}

bool AreaMirror::poll(TimeNs now) {
  const std::size_t before = transfers_.size();
  publish();
  while (has_to_write() && chains_.size() < chains_max) begin_chain(now);
  if (finishing_) {
    begin_last(now);
  } else if (may_look()) {
    if (look_again_ || is_streaming() || timing_.next() <= now) {
      begin_look(now);
    } else if (timing_.rests_at() <= now && batches_.empty()) {
      watch_ = Watch::arming;
      begin_chain(now, true);
    }
  }
  return transfers_.size() > before;
}

TimeNs AreaMirror::next_deadline() const noexcept {
  if (finishing_ || !may_look()) return never;
  return look_again_ || is_streaming() ? 0 : std::min(timing_.next(), batches_.empty() ? timing_.rests_at() : never);
}

Status AreaMirror::done(std::uint64_t token, TimeNs now) {
  --outstanding_;
  if (looking_ && token == look_token_) return on_look(now);
  if (auto chain = chains_.extract(token)) {
    on_written(std::move(chain.mapped()), token == arming_token_, now);
    return {};
  }
  if (token == positions_token_) {
    last_ = Last::read;
    return {};
  }
  end_fetch(token);
  begin_fetches();
  publish();
  return {};
}

// Positions come after commands, which tell of earlier ones.
void AreaMirror::begin_last(TimeNs now) {
  if (looking_ || batches_.size() >= batches_max) return;
  if (last_ == Last::looking) {
    begin_look(now);
    looks_last_ = true;
  } else if (last_ == Last::to_read) {
    last_ = Last::reading;
    positions_token_ =
        begin(false, {{layout_.reads(), memory_.data() + layout_.reads(), layout_.flows * sizeof(std::uint64_t)}});
  }
}

// ---- commands

void AreaMirror::begin_look(TimeNs now) {
  timing_.began(now);
  look_began_ = now;
  look_is_alone_ = outstanding_ == 0;
  look_again_ = false;
  looking_ = true;
  look_count_ = std::clamp<std::uint64_t>(tail_ - fetched_, look_slots, look_slots_max);
  look_count_ = std::min<std::uint64_t>(look_count_, layout_.command_slots);
  constexpr std::uint64_t slot = TcpAreaLayout::slot_bytes;
  const auto [at, first, second] = ring_runs(layout_.command_slots, fetched_, look_count_);
  std::byte* const slots = looked_.data() + sizeof(wire::TcpProgramLine);
  std::vector<Piece> pieces{{area_word::program_line, looked_.data(), sizeof(wire::TcpProgramLine)}};
  pieces.push_back({TcpAreaLayout::commands + at * slot, slots, first * slot});
  if (second > 0) pieces.push_back({TcpAreaLayout::commands, slots + first * slot, second * slot});
  look_token_ = begin(false, std::move(pieces));
  ++counters_.looks;
}

Status AreaMirror::on_look(TimeNs now) {
  looking_ = false;
  measure_look(now - look_began_, now);
  wire::TcpProgramLine line;
  std::memcpy(&line, looked_.data(), sizeof line);
  const std::uint64_t sure = std::exchange(tail_, std::max(tail_, line.commands));
  if (line.commands < sure || line.commands - word(area_word::commands_taken) > layout_.command_slots)
    return fail(Error::protocol, "commands: position {} in a ring of {} entries, of which {} were taken", line.commands,
                layout_.command_slots, word(area_word::commands_taken));
  // TcpService would write further events over those that are still to be written to the program.
  if (line.events_taken > events_pushed_)
    return fail(Error::protocol, "events: {} were taken, but only {} were written to the program", line.events_taken,
                events_pushed_);
  set_word(area_word::events_taken, line.events_taken);
  // Commands with the payload that is read for them: the first bytes of a long one are sent while the rest is read.
  std::vector<Batch> parts(1);
  std::uint64_t part_bytes = 0;
  LookTiming::Found found{};
  for (std::uint64_t i = 0; i < look_count_ && fetched_ < tail_; ++i) {
    TcpCommand command;
    std::memcpy(&command, looked_.data() + sizeof line + i * TcpAreaLayout::slot_bytes, sizeof command);
    if (command.stamp != wire::tcp_stamp(command, fetched_)) {
      // Read before the program had written it? Then it was not yet known to be there when the look began.
      if (fetched_ < sure) return fail(Error::protocol, "command {} has a wrong stamp", fetched_);
      break;
    }
    ++fetched_;
    if (part_bytes >= fetch_bytes) {
      parts.emplace_back();
      part_bytes = 0;
    }
    Batch& part = parts.back();
    const std::size_t before = part.payload.size();
    OFP_TRY(take(command, part.payload));
    for (std::size_t piece = before; piece < part.payload.size(); ++piece) {
      part_bytes += part.payload[piece].length;
      unfetched_bytes_ += part.payload[piece].length;
    }
    part.commands.push_back(command);
    found.sleeps = command.kind == TcpCommandKind::sleep;
    found.payload = command.kind == TcpCommandKind::payload;
    found.commands += !found.sleeps && !found.payload;
  }
  const bool got = !parts.front().commands.empty();
  if (got)
    timing_.found(found, now);
  else
    timing_.missed(now);
  if (got) std::ranges::move(parts, std::back_inserter(batches_));
  if (is_streaming() && may_look() && !finishing_) begin_look(now);  // before the payload, which it would wait for
  begin_fetches();
  look_again_ |= fetched_ < tail_ || found.payload;
  if (looks_last_ && fetched_ == tail_) last_ = Last::to_read;
  if (watch_ == Watch::confirming && std::exchange(confirms_later_, false)) {
    begin_look(now);
  } else if (watch_ == Watch::confirming) {
    watch_ = look_again_ ? Watch::watching : Watch::armed;  // the program has seen the flag with any later command
    if (watch_ == Watch::armed) timing_.rest();
  }
  publish();
  return {};
}

Status AreaMirror::take(const TcpCommand& command, std::deque<Piece>& payload) {
  if (command.kind == TcpCommandKind::sleep) {
    if (command.listener >= wire::tcp_processes_max)
      return fail(Error::protocol, "process {} sleeps; there are at most {}", command.listener,
                  wire::tcp_processes_max);
    take_sleep(command);
    return {};
  }
  if (command.kind == TcpCommandKind::payload) return keep(std::bit_cast<wire::TcpOffer>(command));
  if (command.handle >= flows_.size()) return {};  // TcpService refuses it
  Flow& flow = flows_[command.handle];
  if (command.kind == TcpCommandKind::accept_slot || command.kind == TcpCommandKind::connect) {
    OFP_TRY(wire::check_tcp_ring(layout_, command.handle, command.send_at, command.send_bytes));
    OFP_TRY(wire::check_tcp_ring(layout_, command.handle, command.receive_at, command.receive_bytes));
    // Events of the former connection may still wait here. TcpService, which sees the command later, cannot tell.
    if (flow.rings[in].size != 0 && !flow.leaving)
      return fail(Error::protocol, "a command that begins handle {}, whose end was not written to the program",
                  command.handle);
    if (flow.leaving) give_back(flow);
    if (carried_.handle == command.handle) carried_ = {};
    set_word(layout_.reads() + command.handle * sizeof(std::uint64_t), 0);
    flow = {};
    flow.rings = {Ring{command.send_at, command.send_bytes}, Ring{command.receive_at, command.receive_bytes}};
    for (const Ring& ring : flow.rings) drop_left(ring);
    return {};
  }
  if (command.kind == TcpCommandKind::replace) return take_ring(command);
  // TcpService asks for the read position when the connection ends.
  if (flow.rings[in].size != 0 && wire::concerns_flow(command.kind))
    set_word(layout_.reads() + command.handle * sizeof(std::uint64_t), command.send_at);
  if (command.kind != TcpCommandKind::offer) return {};
  OFP_TRY(keep(std::bit_cast<wire::TcpOffer>(command)));
  fetch(flow, command.position, payload);
  carried_ = {};
  return {};
}

// A wake that is due for an event which was on its way when the process looked is not lost: its position shows it.
void AreaMirror::take_sleep(const TcpCommand& command) {
  const bool waits_for_room = command.flags == 2;
  if (command.position != word(area_word::events)) return wake(command.listener);
  if (waits_for_room && word(area_word::commands_taken) != taken_pushed_) {
    tells_room_ = true;
    return wake(command.listener);
  }
  set_word(area_word::process_asleep(command.listener), waits_for_room ? 2 : 1);
}

// Keeps the bytes within a command, behind those that end where they begin.
Status AreaMirror::keep(const wire::TcpOffer& entry) {
  if (entry.count > entry.bytes.size())
    return fail(Error::protocol, "handle {}: {} bytes in a command, which has room for {}", entry.handle, entry.count,
                entry.bytes.size());
  const std::uint64_t begin = entry.position - entry.count;
  if (carried_.handle != entry.handle || carried_.end != begin || carried_.count + entry.count > carried_.bytes.size())
    carried_ = {.handle = entry.handle};
  std::memcpy(carried_.bytes.data() + carried_.count, entry.bytes.data(), entry.count);
  carried_.count += entry.count;
  carried_.end = entry.position;
  return {};
}

// A look that waits for payload shows how much of that waits for the link: one to three times a read's time of it keeps
// the link busy, also while the agent does something else.
void AreaMirror::measure_look(TimeNs took, TimeNs now) noexcept {
  const bool waited = std::exchange(fetches_waited_, false);
  read_time_.add(took, look_is_alone_, now);
  if (look_is_alone_) return;
  if (took > 4 * read_time_.ns()) {
    fetching_most_ = std::max(fetching_most_ - fetching_most_ / 4, fetching_bytes_min);
  } else if (waited && took < 2 * read_time_.ns()) {
    fetching_most_ = std::min(fetching_most_ + fetch_bytes, fetching_bytes_max);
  }
}

// Reads payload in the order of its commands.
void AreaMirror::begin_fetches() {
  for (Batch& batch : batches_)
    while (!batch.payload.empty()) {
      if (fetching_bytes_ >= fetching_most_) {
        fetches_waited_ = true;
        return;
      }
      begin_fetch(batch);
    }
}

void AreaMirror::begin_fetch(Batch& batch) {
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;
  while (!batch.payload.empty() && bytes < fetch_bytes) {
    Piece& next = batch.payload.front();
    const std::uint64_t length = std::min(next.length, fetch_bytes - bytes);
    pieces.push_back({next.offset, next.memory, length});
    bytes += length;
    next = {next.offset + length, next.memory + length, next.length - length};
    if (next.length == 0) batch.payload.pop_front();
  }
  counters_.fetched_bytes += bytes;
  ++counters_.fetches;
  fetching_bytes_ += bytes;
  const std::uint64_t token = begin(false, std::move(pieces));
  fetches_.emplace(token, bytes);
  batch.fetches.push_back(token);
}

void AreaMirror::end_fetch(std::uint64_t token) {
  const auto fetch = fetches_.extract(token);
  if (!fetch) return;
  fetching_bytes_ -= fetch.mapped();
  unfetched_bytes_ -= fetch.mapped();
  for (Batch& batch : batches_)
    if (std::erase(batch.fetches, token) > 0) return;
}

void AreaMirror::fetch(Flow& flow, std::uint64_t position, std::deque<Piece>& payload) {
  // An invalid position is refused by TcpService, which sees the command afterwards. A correct program sends only once
  // it knows of the connection.
  if (!flow.open || position <= flow.fetched || position - flow.fetched > flow.rings[out].size) return;
  if (carried_.count == position - flow.fetched) {
    copy_into_ring(memory_.subspan(flow.rings[out].at, flow.rings[out].size), flow.fetched,
                   Bytes(carried_.bytes).first(carried_.count));
    counters_.fetched_bytes += carried_.count;
    flow.fetched = position;
    return;
  }
  add_ring(payload, flow.rings[out], flow.fetched, position);
  flow.fetched = position;
}

void AreaMirror::add_ring(auto& pieces, Ring ring, std::uint64_t from, std::uint64_t to) {
  const auto [at, first, second] = ring_runs(ring.size, from, to - from);
  const std::uint64_t begin = ring.at + at * ring.unit_bytes;
  pieces.push_back({begin, memory_.data() + begin, first * ring.unit_bytes});
  if (second > 0) pieces.push_back({ring.at, memory_.data() + ring.at, second * ring.unit_bytes});
}

void AreaMirror::publish() {
  while (!batches_.empty() && batches_.front().is_there()) {
    for (const TcpCommand& command : batches_.front().commands)
      std::memcpy(
          memory_.data() + TcpAreaLayout::commands + published_++ % layout_.command_slots * TcpAreaLayout::slot_bytes,
          &command, sizeof command);
    set_word(area_word::commands, published_);
    batches_.pop_front();
  }
}

// ---- events

bool AreaMirror::has_to_write() const noexcept {
  return word(area_word::events) != events_pushed_ || !to_wake_.empty() || tells_room_ ||
         word(area_word::commands_taken) - taken_pushed_ >= layout_.command_slots / 4;
}

void AreaMirror::begin_chain(TimeNs now, bool arms) {
  Chain chain;
  std::vector<Piece> pieces;
  if (!std::exchange(introduced_, true))
    pieces.push_back({area_word::addresses, memory_.data() + area_word::addresses, area_word::addresses_bytes});
  constexpr std::uint64_t slot = TcpAreaLayout::slot_bytes;
  const std::uint64_t posted = word(area_word::events), first = events_pushed_;
  std::uint64_t bytes = 0;
  bool acknowledges = true;  // nothing else
  while (events_pushed_ != posted && bytes < chain_bytes_max) {
    TcpEvent event{};
    std::memcpy(&event, memory_.data() + layout_.events() + events_pushed_ % layout_.event_slots * slot, sizeof event);
    bytes += add_event(event, chain, pieces);
    acknowledges &= event.what == wire::tcp_event::acknowledged;
    ++events_pushed_;
  }
  counters_.pushed_bytes += bytes;
  if (events_pushed_ != first) {
    add_ring(pieces, {layout_.events(), layout_.event_slots, slot}, first, events_pushed_);
    arms |= note_events(acknowledges, now);
  }
  // Without room for events the program has to say when it has taken some, although it may give no command for a while.
  const bool is_full = posted - word(area_word::events_taken) >= layout_.event_slots;
  if (is_full && flag_ != 2 && watch_ != Watch::watching && !finishing_) {
    watch_ = Watch::arming;
    arms = true;
  }
  // With the first part of much payload, which the process reads while the others cross. If it sleeps before it has
  // seen all events, the position in that command causes another wake.
  for (const std::uint32_t process : to_wake_) chain.woken.push_back(++woken_[process]);
  auto& kept = chains_.emplace(next_token_, std::move(chain)).first->second;  // where its words stay
  const auto add_word = [&](std::uint64_t offset, std::uint64_t& word, std::uint64_t value) {
    word = value;
    pieces.push_back({offset, reinterpret_cast<std::byte*>(&word), sizeof word});
  };
  if (const std::uint64_t taken = word(area_word::commands_taken); taken != taken_pushed_)
    add_word(area_word::commands_taken, kept.words[1], taken_pushed_ = taken);
  tells_room_ = false;
  if (events_pushed_ != first) add_word(area_word::events, kept.words[0], events_pushed_);
  if (const bool sleeps = arms || (flag_ != 0 && watch_ != Watch::watching); sleeps != (flag_ != 0) || arms)
    add_word(area_word::agent_asleep, kept.words[2], flag_ = !sleeps ? 0 : is_full ? 2 : 1);
  for (std::size_t i = 0; i < kept.woken.size(); ++i)
    pieces.push_back({area_word::process_woken(to_wake_[i]), reinterpret_cast<std::byte*>(&kept.woken[i]), 8});
  to_wake_.clear();
  counters_.wakes += kept.woken.size();
  const std::uint64_t token = begin(true, std::move(pieces));
  if (arms) arming_token_ = token;
  ++counters_.chains;
}

// The program may answer: either soon, or it wakes the agent. True: the flag for that is to be written with the events.
bool AreaMirror::note_events(bool acknowledgements, TimeNs now) {
  timing_.wrote(acknowledgements, now);
  if (timing_.expects() || is_streaming()) {
    watch_ = Watch::watching;
    return false;
  }
  if (watch_ != Watch::watching || look_again_ || finishing_) return false;
  watch_ = Watch::arming;
  return true;
}

// Adds the payload that the event reports. Returns its bytes.
std::uint64_t AreaMirror::add_event(const TcpEvent& event, Chain& chain, std::vector<Piece>& pieces) {
  if (event.handle >= flows_.size()) return 0;
  Flow& flow = flows_[event.handle];
  std::uint64_t bytes = 0;
  if (flow.grown) take_rings(flow, event);
  if (flow.rings[in].size != 0 && event.received > flow.pushed) {
    bytes = add_received(flow, event.received, pieces);
    flow.pushed = event.received;
  }
  if ((event.what & (wire::tcp_event::connected | wire::tcp_event::accepted)) != 0) flow.open = true;
  if ((event.what & wire::tcp_event::gone) != 0 && flow.rings[in].size != 0) {
    flow.leaving = true;
    chain.gone.push_back(event.handle);
    if (flow.grown)
      for (const std::size_t way : {out, in}) {
        chain.left.push_back(flow.rings[way]);
        if (flow.steps[way].before.size != 0) chain.left.push_back(flow.steps[way].before);
        flow.rings[way] = {};
      }
  }
  return bytes;
}

// Another ring that the program has named. TcpService decides about it, and its answer comes with the flow's events.
Status AreaMirror::take_ring(const TcpCommand& command) {
  Flow& flow = flows_[command.handle];
  if (command.flags > static_cast<std::uint16_t>(TcpWay::in) || flow.leaving || flow.rings[in].size == 0) return {};
  OFP_TRY(wire::check_tcp_ring(layout_, command.handle, command.receive_at, command.receive_bytes));
  const Ring next{command.receive_at, command.receive_bytes};
  flow.grown = true;
  Step& step = flow.steps[command.flags];
  step.next = next;
  if (step.before.size == 0) step.from = command.position;
  drop_left(next);
  return {};
}

// The program uses this memory again, so all that was written from there has arrived.
void AreaMirror::drop_left(const Ring& next) noexcept {
  for (auto& [token, chain] : chains_)
    std::erase_if(chain.left, [&](const Ring& left) {
      if (left.at >= next.at + next.size || next.at >= left.at + left.size) return false;
      drop(left, left.size);
      return true;
    });
}

// An event reports the fate of the rings that were named, and the bytes that are left in a ring before.
void AreaMirror::take_rings(Flow& flow, const TcpEvent& event) {
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) {
    Step& step = flow.steps[static_cast<std::size_t>(way)];
    if (step.next.size != 0 && tcp_ring::says(event.rings, way, tcp_ring::taken)) {
      if (step.before.size != 0) drop(step.before, step.before.size);  // a first ring, and both others are empty
      step.before = std::exchange(flow.rings[static_cast<std::size_t>(way)], std::exchange(step.next, {}));
    } else if (tcp_ring::says(event.rings, way, tcp_ring::refused)) {
      step.next = {};
    }
    const bool acknowledges = (event.what & wire::tcp_event::accepted) == 0;
    const bool is_over = way == TcpWay::out ? acknowledges && event.acknowledged >= step.from
                                            : tcp_ring::says(event.rings, way, tcp_ring::returned);
    if (step.before.size == 0 || !is_over) continue;
    drop(step.before, step.before.size);
    step.before = {};
  }
}

// Bytes that were received up to `to`. A program that allows more than it has room for loses the earlier ones.
std::uint64_t AreaMirror::add_received(const Flow& flow, std::uint64_t to, std::vector<Piece>& pieces) {
  const Step& step = flow.steps[in];
  std::uint64_t bytes = 0, from = flow.pushed;
  const auto add = [&](const Ring& ring, std::uint64_t end) {
    const std::uint64_t count = std::min(end - from, ring.size);
    add_ring(pieces, ring, end - count, end);
    bytes += count;
    from = end;
  };
  if (step.before.size != 0 && from < step.from) add(step.before, std::min(to, step.from));
  if (from < to) add(flow.rings[in], to);
  return bytes;
}

void AreaMirror::on_written(Chain chain, bool arms, TimeNs now) {
  if (!chain.woken.empty()) wake_due_ = true;
  for (const std::uint32_t handle : chain.gone)
    if (flows_[handle].leaving) give_back(flows_[handle]);
  for (const Ring& ring : chain.left) drop(ring, ring.size);
  if (!arms) return;
  // The flag is visible: commands that the program posted without seeing it are found by one more look.
  if (watch_ == Watch::arming && !finishing_) {
    watch_ = Watch::confirming;
    confirms_later_ = looking_;  // a look that began before
    if (!looking_) begin_look(now);
  }
}

// The pages of both rings, as far as they were used: the connection is over.
void AreaMirror::give_back(Flow& flow) {
  drop(flow.rings[out], flow.fetched);
  drop(flow.rings[in], flow.pushed);
  flow = {};
}

void AreaMirror::drop(const Ring& ring, std::uint64_t touched) noexcept {
  touched = std::min(touched, ring.size);
  const std::uint64_t begin = align_up(ring.at, page_bytes), end = (ring.at + touched) & ~(page_bytes - 1);
  if (touched >= kept_touched_bytes && begin < end)
    static_cast<void>(madvise(memory_.data() + begin, end - begin, MADV_DONTNEED));
}

}  // namespace offpath::tcp
