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

Status TcpService::admit(std::uint64_t number, const wire::TcpAreaLayout& layout, const Memory& memory) {
  const TcpServiceLimits& limits = core_.limits;
  OFP_TRY(wire::check_tcp_area(layout));
  if (has(number)) return fail(Error::exists, "this program already has an area for its connections");
  if (programs_.size() >= limits.programs_max)
    return fail(Error::too_large, "{} programs have connections, which is the limit (tcp.programs_max)",
                programs_.size());
  if (layout.flows > limits.flows_of_program_max)
    return fail(Error::too_large, "the area has {} flows; a program may have {} (tcp.flows_of_program)", layout.flows,
                limits.flows_of_program_max);
  if (layout.bytes > limits.bytes_of_program_max)
    return fail(Error::too_large, "the area has {} bytes; a program may have {} (tcp.memory_of_program)", layout.bytes,
                limits.bytes_of_program_max);
  const MutableBytes mapped = memory();
  if (mapped.empty())
    return fail(Error::unsupported,
                "the agent cannot map this program's memory: programs with connections must run on its machine");
  if (mapped.size() < layout.bytes)
    return fail(Error::invalid, "the area has {} bytes, its memory only {}", layout.bytes, mapped.size());
  return {};
}

Status TcpService::open(std::uint64_t number, const wire::TcpAreaLayout& layout, const Who& who, Memory memory,
                        std::shared_ptr<RingBlocks> blocks) {
  OFP_ASSERT(number < 1ull << 48 && (core_.number == 0 || blocks != nullptr));
  if (Status admitted = admit(number, layout, memory); !admitted) {
    ++core_.counters.programs_refused;
    return admitted;
  }
  if (blocks == nullptr) blocks = std::make_shared<RingBlocks>(layout.bytes);
  Program& program = programs_.add(number, layout, core_.number, who, std::move(memory), std::move(blocks));
  OFP_ASSERT(program.area.attach(program.memory()));
  const Stack& stack = *core_.stack;
  const wire::TcpCongestion congestion = stack.control(wire::TcpCongestion::agents).kind();
  const auto of_all = static_cast<std::uint8_t>(core_.limits.congestions | tcp_congestion_bit(congestion));
  program.congestions = who.privileged ? wire::tcp_congestions_all : of_all;
  if (core_.number == 0)
    program.area.introduce(core_.cores, stack.options().v4.address, stack.options().v6.address, congestion,
                           program.congestions, of_all);
  return {};
}

// A program that is killed leaves commands behind that it gave before: bytes offered there are sent or reset.
void TcpService::close(std::uint64_t number, TimeNs now) {
  Program* program = programs_.find(number);
  if (program == nullptr) return;
  const std::uint32_t rounds = program->area.layout().command_slots / ProgramCommands::commands_of_a_round + 1;
  for (std::uint32_t i = 0; i < rounds && !program->area.memory().empty() && take_commands(*program, now); ++i) {
  }
  remove(*program, now);
}

void TcpService::remove(Program& program, TimeNs now) {
  ports_.leave_all(program);
  programs_.remove(program, *core_.stack, now);
}

Status TcpService::add_process(std::uint64_t number, std::uint32_t process) {
  Program* program = programs_.find(number);
  if (program == nullptr) return fail(Error::closed, "the program no longer has connections");
  if (process >= wire::tcp_processes_max)
    return fail(Error::protocol, "process {} joins, but only {} processes may", process, wire::tcp_processes_max);
  const auto is_there = [&](const auto& list) { return std::ranges::find(list, process) != list.end(); };
  if (is_there(program->processes) || is_there(program->departed))
    return fail(Error::protocol, "process {} joins, but has joined already", process);
  program->processes.push_back(process);
  // Over a link the first commands of a process, its sleep among them, may arrive before the message that it joins.
  if (program->who.linked) wakes_.add({number, process});
  return {};
}

bool TcpService::remove_process(std::uint64_t number, std::uint32_t process) {
  Program* program = programs_.find(number);
  if (program == nullptr || std::erase(program->processes, process) == 0) return true;
  if (!program->who.linked) ProgramWakes::look_for_unfinished(*program);
  if (core_.number != 0) return true;  // core 0 tells the other processes
  program->departed.push_back(process);
  return !program->processes.empty();
}

void TcpService::end(Program& program, Failure why) {
  ++core_.counters.programs_ended;
  to_end_.push_back(program.number);
  ended_.push_back({program.number, std::move(why)});
}

void TcpService::finish_ended(TimeNs now) {
  for (const std::uint64_t number : std::exchange(to_end_, {}))
    if (Program* const program = programs_.find(number)) remove(*program, now);
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
  bool worked = programs_.end_flows(*core_.stack, now);
  for (auto& [number, program] : programs_) worked |= take_commands(program, now);
  finish_ended(now);
  while (const auto what = core_.stack->next_change()) {
    take_change(*what, now);
    worked = true;
  }
  for (auto& [number, program] : programs_) {
    worked |= write_events(program);
    program.events_full.note(program.has_events(), now);
    wakes_.look(program);
  }
  finish_ended(now);
  return worked;
}

bool TcpService::take_commands(Program& program, TimeNs now) {
  auto took = commands_.take(program, now);
  if (!took) end(program, std::move(took).error());
  return !took || *took;
}

bool TcpService::write_events(Program& program) {
  auto wrote = events_.write(program);
  if (!wrote) end(program, std::move(wrote).error());
  return !wrote || *wrote;
}

void TcpService::on_message(const CoreMessage& message, TimeNs now) {
  Program* const program = programs_.find(message.program);
  if (program == nullptr) return;  // the program has ended on this core; core 0 knows or will learn it
  if (Status taken = agreement_.on_message(message, *program, now); !taken) {
    end(*program, std::move(taken).error());
    finish_ended(now);
  }
}

bool TcpService::fall_asleep() {
  bool all = ended_.empty() && wakes_.empty() && !agreement_.has_messages() && !programs_.has_leaving();
  for (auto& [number, program] : programs_)
    all &= !program.wakes_left_at && program.area.fall_asleep(program.has_events());
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
              program.count_of(Held::Is::flow),
              core_.number == 0 ? program.count_of(Held::Is::listener) : 0,
              program.count_of(Held::Is::accept_slot),
              program.charged_bytes,
              program.lent_bytes,
              program.commands_full,
              program.events_full};
  }
  return all;
}

std::vector<TcpService::ConnectionStatus> TcpService::connections(std::size_t most) const {
  std::vector<ConnectionStatus> all;
  for (const auto& [number, program] : programs_) {
    for (std::uint32_t handle = 0; handle < program.held.end(); ++handle) {
      if (all.size() == most) return all;
      const Held* const at = program.held.find(handle);
      if (at == nullptr) continue;
      const Held& held = *at;
      if (held.is == Held::Is::listener) {
        if (core_.number == 0)
          all.push_back({.program = number,
                         .core = 0,
                         .listens = true,
                         .state = FlowState::closed,
                         .key = {{held.families == wire::tcp_for_ipv4 ? ipv4(0) : IpAddress{}, held.port}, {}},
                         .received = 0,
                         .offered = 0,
                         .acknowledged = 0,
                         .round_trip_ns = 0});
      } else if (const Flow* const flow = held.is == Held::Is::flow ? core_.stack->flow(held.id) : nullptr;
                 flow != nullptr) {
        all.push_back({.program = number,
                       .core = core_.number,
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

// ---- questions of the stack

std::optional<std::uint64_t> TcpService::accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) {
  const Program* const listens = programs_.of_tag(listener_tag);
  const Held* const listener = listens != nullptr ? listens->held.find(ProgramTable::handle_of(listener_tag)) : nullptr;
  if (listener == nullptr) return std::nullopt;
  const auto slot = ports_.take_slot(key.family(), listener->port);
  if (!slot) return std::nullopt;
  Held& held = slot->held();
  slot->program->set(held, Held::Is::flow);
  held.id = flow;
  held.key = key;
  slot->program->tell(slot->handle, event::accepted);
  return ProgramTable::tag_of(*slot->program, slot->handle);
}

// Listeners that share a port differ in their options; the stack knows those of one.
const FlowOptions* TcpService::options(std::uint64_t tag) const {
  const Program* const program = programs_.of_tag(tag);
  const Held* const held = program != nullptr ? program->held.find(ProgramTable::handle_of(tag)) : nullptr;
  const Held* const listener = held != nullptr ? program->held.find(held->listener) : nullptr;
  return listener != nullptr && listener->is == Held::Is::listener ? &listener->options : nullptr;
}

// Peers of closed connections may keep three quarters of a program's handles; a quarter is left to open connections.
FlowShare TcpService::share(std::uint64_t tag) const {
  const Program* const program = programs_.of_tag(tag);
  if (program == nullptr) return {};
  const std::uint32_t handles = program->area.layout().flows / core_.cores;
  return {.program = program->number, .user = program->who.user, .orphans_max = std::max(handles - handles / 4, 1u)};
}

Payload TcpService::payload(FlowId flow, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) {
  Program* const program = programs_.of_tag(tag);
  const Held* const its = ProgramTable::held_of(program, tag, flow);
  if (its == nullptr || program->area.memory().empty()) return {};
  const Held::Ring* from = &its->ring(TcpWay::out);
  if (its->moving != 0 && its->is_moving(TcpWay::out)) {
    const Held::Move& move = its->move(TcpWay::out);
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
  Program* const program = programs_.of_tag(tag);
  const Held* const its = ProgramTable::held_of(program, tag, flow);
  if (its == nullptr || program->area.memory().empty()) return;
  core_.counters.stored_bytes += bytes.size();
  const auto copy = [&](const Held::Ring& ring, Bytes part) {
    OFP_ASSERT(part.size() <= ring.bytes);
    copy_into_ring(program->area.memory().subspan(ring.at, ring.bytes), position, part);
  };
  if (its->moving != 0 && its->is_moving(TcpWay::in)) {
    const Held::Move& move = its->move(TcpWay::in);
    if (position < move.from) {
      const Bytes part = bytes.first(std::min<std::uint64_t>(bytes.size(), move.from - position));
      copy(move.before, part);
      position += part.size();
      bytes = bytes.subspan(part.size());
    }
  }
  copy(its->ring(TcpWay::in), bytes);
}

// ---- changes that the stack reports

void TcpService::take_change(const FlowChange& change, TimeNs now) {
  Program* const program = programs_.of_tag(change.tag);
  Held* const held = ProgramTable::held_of(program, change.tag, change.flow);
  if (held == nullptr) return;  // its program has ended, and the flow is ending
  held->received = change.received;
  held->acknowledged = change.acknowledged;
  rings_.note_acknowledged(*program, *held, now);
  if ((change.what & change::gone) != 0) agreement_.unclaim(*program, *held);
  program->tell(ProgramTable::handle_of(change.tag), change.what, error_of(change.error));
}

}  // namespace offpath::tcp
