#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <new>
#include <utility>

#include "base/sleep_flag.h"
#include "connections/socket_cells.h"

namespace offpath::channel {

using wire::TcpAreaLayout;
using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;
using wire::TcpEvent;
namespace event = wire::tcp_event;

// ---- memory

namespace {
constexpr std::uint64_t cell_bytes = 128;
// For a listener: its accept slots on each core.
constexpr std::uint64_t accept_slots_bytes = 12 * wire::tcp_cores_max;
[[nodiscard]] std::uint64_t cells_at(const TcpAreaLayout& layout) noexcept { return layout.own() + page_bytes; }
[[nodiscard]] std::uint64_t accept_slots_at(const TcpAreaLayout& layout) noexcept {
  return cells_at(layout) + layout.flows * cell_bytes;
}
constexpr std::uint64_t turn_bytes = 64;
[[nodiscard]] std::uint64_t turns_at(const TcpAreaLayout& layout) noexcept {
  return align_up(accept_slots_at(layout) + layout.flows * accept_slots_bytes, turn_bytes);
}
[[nodiscard]] std::uint64_t processes_at(const TcpAreaLayout& layout) noexcept {
  return align_up(turns_at(layout) + 2 * layout.flows * turn_bytes, page_bytes);
}
constexpr std::uint64_t steps_bytes = 64;
[[nodiscard]] std::uint64_t steps_at(const TcpAreaLayout& layout) noexcept {
  return align_up(processes_at(layout) + wire::tcp_processes_max * ProcessTable::process_bytes(layout.flows),
                  page_bytes);
}
// Apart from the cells, which calls on established connections look at.
[[nodiscard]] std::uint64_t remote_addresses_at(const TcpAreaLayout& layout) noexcept {
  return steps_at(layout) + layout.flows * steps_bytes;
}
constexpr std::uint64_t rest_bytes = 16;
[[nodiscard]] std::uint64_t rests_at(const TcpAreaLayout& layout) noexcept {
  return remote_addresses_at(layout) + layout.flows * sizeof(wire::IpAddress);
}
[[nodiscard]] std::uint64_t pool_words_at(const TcpAreaLayout& layout) noexcept {
  return rests_at(layout) + layout.flows * rest_bytes;
}
[[nodiscard]] std::uint64_t kept_at(const SocketOptions& options, const TcpAreaLayout& layout) noexcept {
  return align_up(pool_words_at(layout) + options.pool_bytes / RingPool::word_bytes * sizeof(std::uint64_t),
                  page_bytes);
}
[[nodiscard]] std::uint64_t rings_at(const SocketOptions& options, const TcpAreaLayout& layout) noexcept {
  return align_up(kept_at(options, layout) + options.kept_bytes, wire::tcp_ring_block_bytes);
}
[[nodiscard]] std::uint64_t pool_at(const SocketOptions& options, const TcpAreaLayout& layout) noexcept {
  const std::uint64_t of_flow = std::uint64_t{options.send_bytes} + options.receive_bytes;
  return align_up(rings_at(options, layout) + options.flows * of_flow, wire::tcp_ring_block_bytes);
}
}  // namespace

TcpAreaLayout SocketArea::layout_of(const SocketOptions& options) noexcept {
  TcpAreaLayout layout;
  layout.flows = options.flows;
  layout.bytes = pool_at(options, layout) + options.pool_bytes;
  return layout;
}

SocketArea::SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake, std::uint32_t process)
    : memory_(memory),
      layout_(layout_of(options)),
      send_bytes_(options.send_bytes),
      receive_bytes_(options.receive_bytes),
      kept_bytes_(options.kept_bytes),
      kept_at_(kept_at(options, layout_)),
      rings_at_(rings_at(options, layout_)),
      pool_at_(pool_at(options, layout_)),
      pool_({reinterpret_cast<std::uint64_t*>(memory_.data() + pool_words_at(layout_)),
             options.pool_bytes / RingPool::word_bytes}),
      process_(process),
      shared_(std::launder(reinterpret_cast<Shared*>(memory_.data() + layout_.own()))),
      rings_(memory_, layout_, shared_->rings, std::move(wake)),
      processes_(memory_.data() + processes_at(layout_), layout_.flows, shared_->rings.processes) {
  static_assert(sizeof(Shared) <= page_bytes && sizeof(Cell) == cell_bytes &&
                wire::tcp_cores_max * sizeof(AcceptSlots) == accept_slots_bytes && sizeof(TurnLock) == turn_bytes &&
                2 * sizeof(Step) == steps_bytes && sizeof(Rest) == rest_bytes);
  OFP_ASSERT(memory.size() >= layout_.bytes && std::has_single_bit(send_bytes_) &&
             std::has_single_bit(receive_bytes_) && process < wire::tcp_processes_max);
  rings_.learn();
}

SocketArea::SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake)
    : SocketArea(memory, options, std::move(wake), 0) {
  shared_ = new (memory_.data() + layout_.own()) Shared{};
  shared_->lock.init();
  shared_->options = options;
  static_cast<void>(processes_.add());  // number 0
  spread();
}

bool SocketArea::lies_in(MutableBytes memory, const SocketOptions& options) noexcept {
  return std::launder(reinterpret_cast<Shared*>(memory.data() + layout_of(options).own()))->options == options;
}

void SocketArea::spread() {
  rings_.learn();
  shared_->first_free.fill(nobody);
  for (Handle handle = layout_.flows; handle-- > 0;) free_handle(handle);
}

// Words that the agent writes once.
wire::IpAddress SocketArea::own_address(wire::IpFamily family) const noexcept {
  const auto read = [&]<class Word>(Word, std::size_t offset) {
    auto* const at = reinterpret_cast<Word*>(memory_.data() + wire::tcp_word::agent_line + offset);
    return std::atomic_ref<Word>(*at).load(std::memory_order_relaxed);
  };
  if (family == wire::IpFamily::v4) return wire::ipv4(read(std::uint32_t{}, offsetof(wire::TcpAgentLine, address4)));
  constexpr std::size_t first = offsetof(wire::TcpAgentLine, address6), half = sizeof(std::uint64_t);
  const std::array halves{read(std::uint64_t{}, first), read(std::uint64_t{}, first + half)};
  return {std::bit_cast<decltype(wire::IpAddress::bytes)>(halves)};
}

MutableBytes SocketArea::kept() const noexcept { return memory_.subspan(kept_at_, kept_bytes_); }

SocketArea::Cell& SocketArea::cell(Handle handle) const noexcept {
  return *std::launder(reinterpret_cast<Cell*>(memory_.data() + cells_at(layout_) + handle * cell_bytes));
}

SocketArea::TurnLock& SocketArea::turn_lock(Handle handle, Way way) const noexcept {
  return reinterpret_cast<TurnLock*>(memory_.data() + turns_at(layout_))[2 * handle + static_cast<Handle>(way)];
}

SocketArea::AcceptSlots& SocketArea::accept_slots(Handle listener, std::uint32_t core) const noexcept {
  return reinterpret_cast<AcceptSlots*>(memory_.data() + accept_slots_at(layout_) +
                                        listener * accept_slots_bytes)[core];
}

// Among the first waiting connections of each core, the one that began first: cores report independently, and a program
// may identify a peer's connections by their order.
SocketArea::Handle SocketArea::oldest_waiting(Handle listener) const noexcept {
  Handle oldest = nobody;
  for (std::uint32_t core = 0; core < cores(); ++core) {
    const Handle first = accept_slots(listener, core).first_waiting;
    if (first != nobody && (oldest == nobody || cell(first).begun < cell(oldest).begun)) oldest = first;
  }
  return oldest;
}

// The core whose ring takes commands for the handle.
std::uint32_t SocketArea::ring_of(Handle handle) const noexcept { return cell(handle).listens ? 0 : core_of(handle); }

std::array<SocketArea::Step, 2>& SocketArea::steps(Handle handle) const noexcept {
  return reinterpret_cast<std::array<Step, 2>*>(memory_.data() + steps_at(layout_))[handle];
}

Result<SocketArea::Cell*> SocketArea::find(Handle handle, bool listener) const {
  const Cell::Is wanted = listener ? Cell::Is::listener : Cell::Is::flow;
  // A thread that goes on after depart() sends no more: what it offered would keep its process from ending.
  if (handle >= layout_.flows || cell(handle).is != wanted || !processes_.is_held(process_, handle) ||
      processes_[process_].is == ProcessTable::Process::Is::leaving)
    return fail(Error::invalid, "handle {} is not a {}", handle, listener ? "listener" : "connection");
  return &cell(handle);
}

wire::IpAddress& SocketArea::remote_address(Handle handle) const noexcept {
  return reinterpret_cast<wire::IpAddress*>(memory_.data() + remote_addresses_at(layout_))[handle];
}

SocketArea::Rest& SocketArea::rest(Handle handle) const noexcept {
  return reinterpret_cast<Rest*>(memory_.data() + rests_at(layout_))[handle];
}

// The next core in turn that has free handles.
std::uint32_t SocketArea::next_core() noexcept {
  for (std::uint32_t i = 0; i < cores() - 1; ++i) {
    const std::uint32_t core = shared_->turn++ % cores();
    if (shared_->first_free[core] != nobody) return core;
  }
  return cores() == 1 ? 0 : shared_->turn++ % cores();
}

std::optional<SocketArea::Handle> SocketArea::take_handle(std::uint32_t core) noexcept {
  const Handle handle = shared_->first_free[core];
  if (handle == nobody) return std::nullopt;
  shared_->first_free[core] = cell(handle).next;
  clear(handle);
  processes_.let_all_go(handle);
  if (!cell(handle).has_turns)
    for (const Way way : {Way::out, Way::in}) (new (&turn_lock(handle, way)) TurnLock)->init();
  cell(handle).has_turns = true;
  cell(handle).allowed = receive_bytes_;
  set_read(handle, 0);
  cell(handle).next = nobody;
  return handle;
}

void SocketArea::set_read(Handle handle, std::uint64_t position) noexcept {
  cell(handle).read = position;
  auto& shown = *reinterpret_cast<std::uint64_t*>(memory_.data() + layout_.reads() + handle * sizeof(std::uint64_t));
  std::atomic_ref<std::uint64_t>(shown).store(position, std::memory_order_release);
}

void SocketArea::free_handle(Handle handle) noexcept {
  clear(handle);
  cell(handle).next = std::exchange(shared_->first_free[core_of(handle)], handle);
}

void SocketArea::clear(Handle handle) noexcept {
  static_cast<void>(count_used(handle));
  set_shutting(handle, false);
  const std::uint32_t used = cell(handle).used;
  const bool has_turns = cell(handle).has_turns;
  free_rings(handle);
  cell(handle) = Cell{};
  for (const Way way : {Way::out, Way::in})
    cell(handle).logs[static_cast<int>(way)] = static_cast<std::uint8_t>(std::countr_zero(first_bytes(way)));
  cell(handle).used = used;
  cell(handle).has_turns = has_turns;
  cell(handle).woken = every_process;
}

// ---- commands

void SocketArea::post(std::uint32_t core, const TcpCommand& command) noexcept {
  rings_.post(core, command, wire::concerns_flow(command.kind) ? cell(command.handle).read : 0);
}

void SocketArea::name_rings(Handle handle, TcpCommand& command) const noexcept {
  command.handle = handle;
  command.send_at = static_cast<std::uint64_t>(ring(handle, Way::out).data() - memory_.data());
  command.receive_at = static_cast<std::uint64_t>(ring(handle, Way::in).data() - memory_.data());
  command.send_bytes = send_bytes_;
  command.receive_bytes = receive_bytes_;
}

void SocketArea::owe(Handle handle, std::uint8_t what) noexcept {
  Cell& owing = cell(handle);
  if (owing.owed == 0) ++shared_->owing;
  owing.owed |= what;
  if (settle(handle)) --shared_->owing;
}

void SocketArea::forgive(Handle handle, std::uint8_t what) noexcept {
  Cell& owing = cell(handle);
  if (owing.owed == 0) return;
  owing.owed &= static_cast<std::uint8_t>(~what);
  if (owing.owed == 0) --shared_->owing;
}

// True: no commands are owed any more.
bool SocketArea::settle(Handle handle) noexcept {
  Cell& owing = cell(handle);
  constexpr struct {
    Owed owed;
    TcpCommandKind kind;
  } order[] = {{owed_allow, TcpCommandKind::allow},     {owed_finish, TcpCommandKind::finish},
               {owed_release, TcpCommandKind::release}, {owed_abort, TcpCommandKind::abort},
               {owed_holders, TcpCommandKind::holders}, {owed_options, TcpCommandKind::options}};
  for (const auto& each : order) {
    if ((owing.owed & each.owed) == 0) continue;
    const std::uint32_t core = ring_of(handle);
    if (!rings_.room(core)) return false;
    TcpCommand command{};
    command.kind = each.kind;
    command.handle = handle;
    if (each.owed == owed_allow) {
      set_shutting(handle, false);  // first, so that pages are no longer given back
      command.position = owing.allowed = owing.read + owing.bytes(Way::in);
    }
    if (each.owed == owed_holders) {
      owing.woken = owing.holders == 1 ? owing.holder : every_process;
      command.position = owing.woken == every_process ? ~0ull : wire::tcp_process_bit(owing.woken);
    }
    if (each.owed == owed_options) {
      command.flags = static_cast<std::uint16_t>((owing.settings.gathers ? 0 : wire::tcp_no_delay) |
                                                 (owing.settings.keepalive_idle_s != 0 ? wire::tcp_keepalive : 0));
      command.keepalive_idle_s = owing.settings.keepalive_idle_s;
      command.keepalive_interval_s = owing.settings.keepalive_interval_s;
      command.keepalive_probes = owing.settings.keepalive_probes;
      command.user_timeout_ms = owing.settings.user_timeout_ms;
    }
    post(core, command);
    owing.owed &= static_cast<std::uint8_t>(~each.owed);
  }
  return owing.owed == 0 || ask_for_rings(handle);
}

void SocketArea::settle() noexcept {
  for (Handle handle = 0; shared_->owing > 0 && handle < layout_.flows && rings_.room_anywhere(); ++handle)
    if (cell(handle).owed != 0 && settle(handle)) --shared_->owing;
  for (Handle handle = 0; handle < layout_.flows && may_fill_accept_slots(); ++handle)
    if (cell(handle).is == Cell::Is::listener && cell(handle).lacks != 0) fill_accept_slots(handle);
}

// Whether a listener lacks accept slots on some core while handles and room are free: only then a look at all cells
// pays.
bool SocketArea::may_fill_accept_slots() const noexcept {
  for (std::uint32_t core = 0; core < cores(); ++core)
    if (shared_->lacking[core] > 0 && shared_->first_free[core] != nobody && rings_.room(core)) return true;
  return false;
}

void SocketArea::set_lacks(Cell& listener, std::uint32_t core, bool lacks) noexcept {
  const auto bit = static_cast<std::uint16_t>(1u << core);
  if (((listener.lacks & bit) != 0) == lacks) return;
  listener.lacks ^= bit;
  if (lacks)
    ++shared_->lacking[core];
  else
    --shared_->lacking[core];
}

// Connections are spread unevenly, so each core gets one and a half times its share.
std::uint32_t SocketArea::accept_slots_of_core(const Cell& listener) const noexcept {
  return std::min(listener.backlog, (3 * listener.backlog + 2 * cores() - 1) / (2 * cores()));
}

// Other cores have the listener once they have its command.
void SocketArea::fill_accept_slots(Handle handle) noexcept {
  Cell& listener = cell(handle);
  const std::uint32_t wanted = accept_slots_of_core(listener);
  const std::uint32_t listening = (listener.told & event::listening) != 0 ? cores() : 1;
  for (std::uint32_t core = 0; core < listening && !listener.gone && !listener.stopped; ++core) {
    fill_accept_slots(handle, core);
    set_lacks(listener, core, accept_slots(handle, core).count < wanted);
  }
}

void SocketArea::fill_accept_slots(Handle handle, std::uint32_t core) noexcept {
  const Cell& listener = cell(handle);
  const std::uint32_t wanted = accept_slots_of_core(listener);
  while (accept_slots(handle, core).count < wanted && rings_.room(core)) {
    const auto slot = take_handle(core);
    if (!slot) break;
    cell(*slot).is = Cell::Is::accept_slot;
    cell(*slot).listener = handle;
    cell(*slot).serial = listener.serial;
    TcpCommand command{};
    command.kind = TcpCommandKind::accept_slot;
    command.listener = handle;
    name_rings(*slot, command);
    post(core, command);
    ++accept_slots(handle, core).count;
  }
}

// ---- events

void SocketArea::mark_changed(Handle handle) noexcept {
  if (cell(handle).holders == 1) return processes_.set_changed(cell(handle).holder, handle, process_);
  for (std::uint32_t each = 0; each < processes_.count() && cell(handle).holders > 0; ++each)
    if (processes_.is_held(each, handle)) processes_.set_changed(each, handle, process_);
}

std::optional<SocketArea::Handle> SocketArea::take_changed() {
  const Lock lock(*this);
  return processes_.take_changed(process_);
}

bool SocketArea::has_events() const noexcept { return rings_.has_events() || processes_.was_told(process_); }

bool SocketArea::has_changed() const noexcept { return processes_.has_changed(process_); }

bool SocketArea::undelivered() {
  const Lock lock(*this);
  take_all();
  for (Handle handle = 0; handle < layout_.flows; ++handle) {
    const Cell& each = cell(handle);
    const bool lives =
        (each.is == Cell::Is::flow || each.is == Cell::Is::ending) && !each.gone && (each.told & event::closed) == 0;
    if (lives && each.acknowledged < each.offered) return true;
  }
  return false;
}

bool SocketArea::is_accept_slot_of(const Cell& slot, const Cell& listener) noexcept {
  return listener.is == Cell::Is::listener && listener.serial == slot.serial;
}

void SocketArea::take(const TcpEvent& told) noexcept {
  if (told.handle == wire::tcp_no_handle && told.listener < processes_.count()) return let_go_of_all(told.listener);
  if (told.handle >= layout_.flows) return;
  Cell& about = cell(told.handle);
  if (about.is == Cell::Is::free) return;
  mark_changed(told.handle);
  about.told |= told.what;
  if (told.error != TcpError::none) about.error = told.error;
  if ((told.what & (event::connected | event::accepted | event::listening)) != 0) {
    about.port = told.port;
  }
  if ((told.what & event::listening) != 0 && cores() > 1 && about.is == Cell::Is::listener)
    fill_accept_slots(told.handle);
  if ((told.what & event::accepted) != 0 && about.is == Cell::Is::accept_slot) {
    about.is = Cell::Is::flow;
    about.next = nobody;
    about.begun = told.begun;
    remote_address(told.handle) = told.remote_address;
    about.remote_port = told.remote_port;
    if (!is_accept_slot_of(about, cell(about.listener))) {  // the listener was closed meanwhile
      end(told.handle, true);
    } else {
      mark_changed(about.listener);
      AcceptSlots& there = accept_slots(about.listener, core_of(told.handle));
      (there.first_waiting == nobody ? there.first_waiting : cell(there.last_waiting).next) = told.handle;
      there.last_waiting = told.handle;
    }
  }
  if (told.mss != 0) {
    about.mss = told.mss;
    about.round_trip_us = told.round_trip_us;
    about.window = told.window;
  }
  if (told.rings != 0) take_rings(told);
  about.received = std::clamp(told.received, about.received, about.read + about.bytes(Way::in));
  if ((told.what & event::accepted) == 0)
    about.acknowledged = std::clamp(told.acknowledged, about.acknowledged, about.offered);
  if (about.growth(Way::out) == Growth::taken && about.acknowledged >= steps(told.handle)[0].from)
    end_step(told.handle, Way::out);
  if (told.shut != 0 && (told.what & event::gone) == 0) on_shut(told);
  if ((told.what & event::gone) == 0) return;
  about.gone = true;
  set_shutting(told.handle, false);
  if (about.owed != 0) --shared_->owing;
  about.owed = 0;
  if (about.is == Cell::Is::accept_slot && is_accept_slot_of(about, cell(about.listener)) &&
      !cell(about.listener).gone) {
    --accept_slots(about.listener, core_of(told.handle)).count;
    set_lacks(cell(about.listener), core_of(told.handle), true);
  }
  if (about.is == Cell::Is::listener) dismiss(told.handle);
  if (about.is == Cell::Is::accept_slot || about.is == Cell::Is::ending) free_handle(told.handle);
}

bool SocketArea::take_all() noexcept {
  bool told = false;
  for (std::uint32_t core = 0; core < cores(); ++core)
    told = rings_.take_all(core, [this](const TcpEvent& event) { take(event); }) || told;
  return told;
}

bool SocketArea::take_in() {
  const Lock lock(*this);
  bool told = take_all();
  if (processes_.was_told(process_)) {
    processes_.forget_told(process_);
    told = true;
  }
  settle();
  return told;
}

bool SocketArea::fall_asleep() {
  const Lock lock(*this);
  const auto look = [&] {
    const bool told = processes_.was_told(process_);
    return rings_.look_before_sleep() || told;
  };
  const bool for_room = rings_.waits_for_room();
  const SleepFlag own(memory_.data() + wire::tcp_word::process_asleep(process_));
  if (!own.fall_asleep(look, for_room ? 2 : 1)) return false;
  if (!rings_.is_linked() || rings_.post_sleep(process_, for_room, processes_[process_].slept)) return true;
  own.clear();
  return false;
}

void SocketArea::stay_awake() {
  const SleepFlag own(memory_.data() + wire::tcp_word::process_asleep(process_));
  if (own.value() != 0) own.clear();
}

// ---- several processes

bool SocketArea::holds(Handle handle) {
  const Lock lock(*this);
  return handle < layout_.flows && processes_.is_held(process_, handle);
}

void SocketArea::hold(std::uint32_t number, Handle handle) noexcept {
  processes_.hold(number, handle);
  Cell& held = cell(handle);
  ++held.holders;
  held.holder = static_cast<std::uint16_t>(number);
}

// The bit is cleared last: if this process dies before, it is still a holder, and ending the handle is repeated.
void SocketArea::let_go(std::uint32_t number, Handle handle, bool abort) noexcept {
  Cell& held = cell(handle);
  if (held.holders <= 1) {
    held.holders = 0;
    end(handle, abort);
  } else if (--held.holders == 1) {
    for (std::uint32_t each = 0; each < processes_.count(); ++each)
      if (each != number && processes_.is_held(each, handle)) held.holder = static_cast<std::uint16_t>(each);
    name_holders(handle);
  }
  processes_.let_go(number, handle);
}

void SocketArea::let_go_of_all(std::uint32_t number) noexcept {
  processes_.for_each_held(number, [&](Handle handle) { let_go(number, handle, false); });
  processes_.remove(number);
}

// Sets the process that the agent wakes for it, or every process.
void SocketArea::name_holders(Handle handle) noexcept {
  const Cell& held = cell(handle);
  const std::uint16_t wanted = held.holders == 1 && processes_.count() > 1 ? held.holder : every_process;
  if (held.is == Cell::Is::flow && !held.gone && wanted != held.woken) owe(handle, owed_holders);
}

void SocketArea::count_holders() const noexcept {
  shared_->lacking.fill(0);
  for (Handle handle = 0; handle < layout_.flows; ++handle) {
    Cell& held = cell(handle);
    held.holders = 0;
    for (std::uint32_t each = 0; each < processes_.count(); ++each) {
      if (!processes_.is_held(each, handle)) continue;
      ++held.holders;
      held.holder = static_cast<std::uint16_t>(each);
    }
    for (std::uint32_t core = 0; core < cores(); ++core) shared_->lacking[core] += held.lacks >> core & 1u;
  }
}

Result<std::uint32_t> SocketArea::new_process() noexcept {
  OFP_ASSIGN(const std::uint32_t number, processes_.add());
  SleepFlag(memory_.data() + wire::tcp_word::process_asleep(number)).clear();
  return number;
}

void SocketArea::hold_with(std::uint32_t number, Handle handle) noexcept {
  hold(number, handle);
  processes_.set_changed(number, handle, process_);
  name_holders(handle);
}

Result<std::uint32_t> SocketArea::add_process() {
  const Lock lock(*this);
  OFP_ASSIGN(const std::uint32_t number, new_process());
  processes_.for_each_held(process_, [&](Handle handle) { hold_with(number, handle); });
  return number;
}

Result<std::uint32_t> SocketArea::add_process(std::span<const Handle> handles) {
  const Lock lock(*this);
  OFP_ASSIGN(const std::uint32_t number, new_process());
  for (const Handle handle : handles) {
    if (handle >= layout_.flows || !processes_.is_held(process_, handle) || processes_.is_held(number, handle))
      continue;
    hold_with(number, handle);
  }
  return number;
}

void SocketArea::drop_process(std::uint32_t number) {
  const Lock lock(*this);
  let_go_of_all(number);
}

bool SocketArea::depart() {
  const Lock lock(*this);
  processes_.for_each_held(process_, [&](Handle handle) {
    if (cell(handle).copying == 0) let_go(process_, handle, false);
  });
  processes_[process_].is = ProcessTable::Process::Is::leaving;
  return !processes_.is_any_alive();
}

}  // namespace offpath::channel
