#include "tcp/program/tcp_service.h"

#include <algorithm>
#include <cstring>

#include "base/ring_bytes.h"

namespace offpath::tcp {

namespace {

using wire::TcpError;
using wire::TcpWay;
namespace event = wire::tcp_event;

static_assert(event::connected == change::connected && event::received == change::received &&
              event::finished == change::finished);
static_assert(event::acknowledged == change::acknowledged && event::closed == change::closed &&
              event::gone == change::gone);

TcpError error_of(FlowError error) noexcept {
  switch (error) {
    case FlowError::none:
      return TcpError::none;
    case FlowError::refused:
      return TcpError::refused;
    case FlowError::reset:
      return TcpError::reset;
    case FlowError::timed_out:
      return TcpError::timed_out;
    case FlowError::unreachable:
      return TcpError::unreachable;
    case FlowError::in_use:
      return TcpError::address_in_use;
  }
  return TcpError::reset;
}

}  // namespace

// ---- programs

Status TcpService::open(std::uint64_t number, const wire::TcpAreaLayout& layout, const Who& who, Memory memory,
                        std::shared_ptr<RingBlocks> blocks) {
  OFP_ASSERT(number < 1ull << 48 && (core_ == 0 || blocks != nullptr));
  const auto admit = [&]() -> Status {
    OFP_TRY(wire::check_tcp_area(layout));
    if (programs_.contains(number)) return fail(Error::exists, "this program already has an area for its connections");
    if (programs_.size() >= limits_.programs_max)
      return fail(Error::too_large, "{} programs have connections, which is the limit (tcp.programs_max)",
                  programs_.size());
    if (layout.flows > limits_.flows_of_program_max)
      return fail(Error::too_large, "the area has {} flows; a program may have {} (tcp.flows_of_program)", layout.flows,
                  limits_.flows_of_program_max);
    if (layout.bytes > limits_.bytes_of_program_max)
      return fail(Error::too_large, "the area has {} bytes; a program may have {} (tcp.memory_of_program)",
                  layout.bytes, limits_.bytes_of_program_max);
    const MutableBytes mapped = memory();
    if (mapped.empty())
      return fail(Error::unsupported,
                  "the agent cannot map this program's memory: programs with connections must run on its machine");
    if (mapped.size() < layout.bytes)
      return fail(Error::invalid, "the area has {} bytes, its memory only {}", layout.bytes, mapped.size());
    return {};
  };
  if (Status admitted = admit(); !admitted) {
    ++counters_.programs_refused;
    return admitted;
  }
  if (blocks == nullptr) blocks = std::make_shared<RingBlocks>(layout.bytes);
  Program& program =
      programs_.try_emplace(number, number, layout, core_, who, std::move(memory), std::move(blocks)).first->second;
  program.place = take_place(program);
  OFP_ASSERT(program.area.attach(program.memory()));
  if (core_ == 0) program.area.introduce(cores_, stack_->options().v4.address, stack_->options().v6.address);
  return {};
}

TcpService::Program* TcpService::find(std::uint64_t number) noexcept {
  const auto found = programs_.find(number);
  return found == programs_.end() ? nullptr : &found->second;
}

std::uint32_t TcpService::take_place(Program& program) {
  auto free = std::ranges::find(places_, nullptr);
  if (free == places_.end()) free = places_.insert(free, nullptr);
  *free = &program;
  return static_cast<std::uint32_t>(free - places_.begin());
}

TcpService::Program* TcpService::program_of(std::uint64_t tag) const noexcept {
  const std::uint64_t place = tag >> 48, number = tag >> 16 & 0xffff'ffff;
  Program* const program = place < places_.size() ? places_[place] : nullptr;
  return program != nullptr && (program->number & 0xffff'ffff) == number ? program : nullptr;
}

TcpService::Held* TcpService::held_of(Program* program, std::uint64_t tag, FlowId flow) noexcept {
  const std::uint64_t handle = tag & 0xffff;
  if (program == nullptr || handle >= program->held.size()) return nullptr;
  Held& held = program->held[handle];
  return held.is == Held::Is::flow && held.id == flow ? &held : nullptr;
}

void TcpService::leave(Program& program, TimeNs now) {
  for (std::uint32_t handle = 0; handle < program.held.size(); ++handle) {
    const Held& held = program.held[handle];
    if (held.is == Held::Is::listener || held.is == Held::Is::bound) leave_port(program, handle);
    if (held.is != Held::Is::flow) continue;
    const Flow* flow = stack_->flow(held.id);
    // The memory is gone that a retransmission would need: only a flow whose bytes were all acknowledged ends with FIN.
    if (flow != nullptr && flow->acknowledged == held.offered && is_read(program, handle))
      stack_->release(held.id, now, false);
    else
      stack_->abort(held.id, now);
  }
}

bool TcpService::is_read(const Program& program, std::uint32_t handle) const noexcept {
  const Flow* const flow = stack_->flow(program.held[handle].id);
  if (flow == nullptr || program.area.memory().empty()) return true;
  return program.area.read_position(handle) >= flow->received;
}

// A program that is killed leaves commands behind that it gave before: bytes offered there are sent or reset.
void TcpService::close(std::uint64_t number, TimeNs now) {
  Program* program = find(number);
  if (program == nullptr) return;
  const std::uint32_t rounds = program->area.layout().command_slots / commands_of_a_round + 1;
  for (std::uint32_t i = 0; i < rounds && !program->area.memory().empty() && take_commands(*program, now); ++i) {
  }
  remove(*program, now);
}

void TcpService::remove(Program& program, TimeNs now) {
  leave(program, now);
  places_[program.place] = nullptr;
  programs_.erase(program.number);
}

Status TcpService::add_process(std::uint64_t number, std::uint32_t process) {
  Program* program = find(number);
  if (program == nullptr) return fail(Error::closed, "the program no longer has connections");
  if (process >= wire::tcp_processes_max)
    return fail(Error::protocol, "process {} joins, but only {} processes may", process, wire::tcp_processes_max);
  const auto is_there = [&](const auto& list) { return std::ranges::find(list, process) != list.end(); };
  if (is_there(program->processes) || is_there(program->departed))
    return fail(Error::protocol, "process {} joins, but has joined already", process);
  program->processes.push_back(process);
  // Over a link the first commands of a process, its sleep among them, may arrive before the message that it joins.
  if (program->who.linked) wakes_.push_back({number, process});
  return {};
}

bool TcpService::remove_process(std::uint64_t number, std::uint32_t process) {
  Program* program = find(number);
  if (program == nullptr || std::erase(program->processes, process) == 0) return true;
  if (core_ != 0) return true;  // core 0 tells the other processes
  program->departed.push_back(process);
  return !program->processes.empty();
}

void TcpService::end(Program& program, Failure why) {
  ++counters_.programs_ended;
  to_end_.push_back(program.number);
  ended_.push_back({program.number, std::move(why)});
}

void TcpService::finish_ended(TimeNs now) {
  for (const std::uint64_t number : std::exchange(to_end_, {}))
    if (Program* const program = find(number)) remove(*program, now);
}

void TcpService::attach(TimeNs now) {
  for (auto& [number, program] : programs_) {
    if (program.area.attach(program.memory()))
      program.area.wake_up();
    else
      end(program, {Error::protocol, "the area of its connections was withdrawn while they were open"});
  }
  finish_ended(now);
}

bool TcpService::react(TimeNs now) {
  bool worked = false;
  for (auto& [number, program] : programs_) worked |= take_commands(program, now);
  finish_ended(now);
  while (const auto what = stack_->next_change()) {
    take_change(*what, now);
    worked = true;
  }
  for (auto& [number, program] : programs_) {
    worked |= write_events(program);
    program.events_full.note(!program.listed.empty() || !program.departed.empty(), now);
    program.area.take_sleepers(program.processes,
                               [&, of = number](std::uint32_t process) { wakes_.push_back({of, process}); });
  }
  finish_ended(now);
  return worked;
}

bool TcpService::fall_asleep() {
  bool all = ended_.empty() && wakes_.empty() && messages_.empty();
  for (auto& [number, program] : programs_)
    all &= program.area.fall_asleep(!program.listed.empty() || !program.departed.empty());
  if (all) return true;
  for (auto& [number, program] : programs_) program.area.wake_up();
  return false;
}

std::vector<TcpService::ProgramStatus> TcpService::programs() const {
  std::vector<ProgramStatus> all;
  for (const auto& [number, program] : programs_) {
    ProgramStatus& status = all.emplace_back();
    status = {number,
              program.area.layout().bytes,
              0,
              0,
              0,
              program.charged_bytes,
              program.lent_bytes,
              program.commands_full,
              program.events_full};
    for (const Held& held : program.held) {
      status.flows += held.is == Held::Is::flow;
      status.listeners += held.is == Held::Is::listener && core_ == 0;
      status.accept_slots += held.is == Held::Is::accept_slot;
    }
  }
  return all;
}

std::vector<TcpService::ConnectionStatus> TcpService::connections(std::size_t most) const {
  std::vector<ConnectionStatus> all;
  for (const auto& [number, program] : programs_) {
    for (const Held& held : program.held) {
      if (all.size() == most) return all;
      if (held.is == Held::Is::listener) {
        if (core_ == 0)
          all.push_back({.program = number,
                         .core = 0,
                         .listens = true,
                         .state = FlowState::closed,
                         .key = {{held.families == wire::tcp_for_ipv4 ? ipv4(0) : IpAddress{}, held.port}, {}},
                         .received = 0,
                         .offered = 0,
                         .acknowledged = 0,
                         .round_trip_ns = 0});
      } else if (const Flow* const flow = held.is == Held::Is::flow ? stack_->flow(held.id) : nullptr;
                 flow != nullptr) {
        all.push_back({.program = number,
                       .core = core_,
                       .listens = false,
                       .state = flow->state,
                       .key = flow->key,
                       .received = flow->received,
                       .offered = flow->offered,
                       .acknowledged = flow->acknowledged,
                       .round_trip_ns = flow->rtt.smoothed_ns()});
      }
    }
  }
  return all;
}

// ---- what the stack asks

std::optional<std::uint64_t> TcpService::accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) {
  const Program* const listens = program_of(listener_tag);
  if (listens == nullptr) return std::nullopt;
  const auto slot = slot_of(key.family(), listens->held[listener_tag & 0xffff].port);
  if (!slot) return std::nullopt;
  Held& held = slot->held();
  held.is = Held::Is::flow;
  held.id = flow;
  held.key = key;
  tell(*slot->program, slot->handle, event::accepted);
  return tag_of(*slot->program, slot->handle);
}

// Peers of closed connections may keep three quarters of a program's handles; a quarter is left to open connections.
FlowShare TcpService::share(std::uint64_t tag) const {
  const Program* const program = program_of(tag);
  if (program == nullptr) return {};
  const std::uint32_t handles = program->area.layout().flows / cores_;
  return {.program = program->number, .user = program->who.user, .orphans_max = std::max(handles - handles / 4, 1u)};
}

Payload TcpService::payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) {
  Program* const program = program_of(tag);
  const Held* const its = held_of(program, tag, flow);
  if (its == nullptr || program->area.memory().empty()) return {};
  const Held::Ring* from = &its->ring(TcpWay::out);
  if (its->moving != 0 && its->is_moving(TcpWay::out)) {
    const Held::Move& move = its->moves[static_cast<std::size_t>(TcpWay::out)];
    if (position < move.from) {
      bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, move.from - position));
      from = &move.before;
    }
  }
  OFP_ASSERT(bytes <= from->bytes);
  const auto [first, second] =
      ring_pieces(Bytes(program->area.memory()).subspan(from->at, from->bytes), position, bytes);
  return {first, second};
}

void TcpService::store(FlowId flow, std::uint64_t tag, std::uint64_t position, Bytes bytes) {
  Program* const program = program_of(tag);
  const Held* const its = held_of(program, tag, flow);
  if (its == nullptr || program->area.memory().empty()) return;
  counters_.stored_bytes += bytes.size();
  const auto copy = [&](const Held::Ring& ring, Bytes part) {
    OFP_ASSERT(part.size() <= ring.bytes);
    copy_into_ring(program->area.memory().subspan(ring.at, ring.bytes), position, part);
  };
  if (its->moving != 0 && its->is_moving(TcpWay::in)) {
    const Held::Move& move = its->moves[static_cast<std::size_t>(TcpWay::in)];
    if (position < move.from) {
      const Bytes part = bytes.first(std::min<std::uint64_t>(bytes.size(), move.from - position));
      copy(move.before, part);
      position += part.size();
      bytes = bytes.subspan(part.size());
    }
  }
  copy(its->ring(TcpWay::in), bytes);
}

// ---- what the programs are told

void TcpService::take_change(const FlowChange& change, TimeNs now) {
  Program* const program = program_of(change.tag);
  Held* const held = held_of(program, change.tag, change.flow);
  if (held == nullptr) return;  // its program has ended, and the flow is ending
  held->received = change.received;
  held->acknowledged = change.acknowledged;
  if (held->passes(TcpWay::out, held->acknowledged)) measure(*held, TcpWay::out, now);
  if ((change.what & change::gone) != 0) unclaim(*program, *held);
  tell(*program, static_cast<std::uint32_t>(change.tag & 0xffff), change.what, error_of(change.error));
}

void TcpService::tell(Program& program, std::uint32_t handle, std::uint8_t what, TcpError error) {
  Held& held = program.held[handle];
  held.events |= what;
  if (error != TcpError::none) held.error = error;
  if (!held.listed) program.listed.push_back(handle);
  held.listed = true;
}

// Departures come before other events: after the event, the process's number is used again.
Result<bool> TcpService::write_departures(Program& program) {
  while (!program.departed.empty()) {
    wire::TcpEvent told{};
    told.handle = wire::tcp_no_handle;
    told.listener = program.departed.front();
    OFP_ASSIGN(const bool posted, program.area.post(told, ~0ull));
    if (!posted) return false;
    wakes_.push_back({program.number, program.departed.front()});
    program.departed.pop_front();
  }
  return true;
}

bool TcpService::write_events(Program& program) {
  bool worked = !program.departed.empty();
  if (const auto told = write_departures(program); !told) {
    end(program, told.error());
    return true;
  } else if (!*told) {
    return false;
  }
  while (!program.listed.empty()) {
    const std::uint32_t handle = program.listed.front();
    Held& held = program.held[handle];
    if (held.is_moving(TcpWay::out) && held.acknowledged >= held.moves[0].from) end_move(program, held, TcpWay::out);
    if ((held.events & event::gone) != 0) return_rings(program, held);
    wire::TcpEvent told{};
    told.what = held.events;
    told.error = held.error;
    told.port = held.key.local.port != 0 ? held.key.local.port : held.port;
    told.handle = handle;
    told.received = held.received;
    const bool accepted = (told.what & event::accepted) != 0;
    if (accepted) {
      told.remote_address = held.key.remote.address;
      told.remote_port = held.key.remote.port;
    } else {
      told.acknowledged = held.acknowledged;
    }
    told.listener = held.listener;
    told.shut = held.shut;
    told.rings = held.ring_events;
    if (const Flow* const flow = held.is == Held::Is::flow ? stack_->flow(held.id) : nullptr; flow != nullptr) {
      told.mss = flow->mss;
      told.round_trip_us = static_cast<std::uint32_t>(std::min<TimeNs>(flow->rtt.smoothed_ns() / microsecond_ns, ~0u));
      told.window = flow->congestion.window;
      if (accepted) told.begun = flow->slow->begun;
    }
    // No process waits for an acknowledgement that leaves too little room to be called writable.
    const bool wakes = told.what != event::acknowledged || held.is_writable(held.ring(TcpWay::out).bytes);
    const auto posted = program.area.post(told, wakes ? held.holders : 0);
    if (!posted) {
      end(program, posted.error());
      return true;
    }
    if (!*posted) return worked;
    ++counters_.events;
    worked = true;
    program.listed.pop_front();
    held.listed = false;
    held.events = held.shut = 0;
    held.ring_events = 0;
    if ((told.what & event::gone) != 0)
      held = Held();
    else if (accepted && held.acknowledged > 0)
      tell(program, handle, event::acknowledged);  // of a program that sends before it knows of the connection
  }
  return worked;
}

}  // namespace offpath::tcp
