#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
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

namespace {

std::atomic_ref<std::uint64_t> word(MutableBytes memory, std::uint64_t offset) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory.data() + offset));
}

SleepFlag flag(MutableBytes memory, std::uint64_t offset) noexcept { return SleepFlag(memory.data() + offset); }

}  // namespace

// ---- memory

namespace {
constexpr std::uint64_t cell_bytes = 128, line_bytes = 64;
// For a listener: its accept slots on each core.
constexpr std::uint64_t accept_slots_bytes = 12 * wire::tcp_cores_max;
[[nodiscard]] std::uint32_t words_of(const TcpAreaLayout& layout) noexcept { return (layout.flows + 63) / 64; }
// For a process: its entry, and two bits for each handle.
[[nodiscard]] std::uint64_t process_bytes(const TcpAreaLayout& layout) noexcept {
  return line_bytes + align_up(16ull * words_of(layout), line_bytes);
}
[[nodiscard]] std::uint64_t cells_at(const TcpAreaLayout& layout) noexcept { return layout.own() + page_bytes; }
[[nodiscard]] std::uint64_t accept_slots_at(const TcpAreaLayout& layout) noexcept {
  return cells_at(layout) + layout.flows * cell_bytes;
}
[[nodiscard]] std::uint64_t processes_at(const TcpAreaLayout& layout) noexcept {
  return align_up(accept_slots_at(layout) + layout.flows * accept_slots_bytes, page_bytes);
}
[[nodiscard]] std::uint64_t kept_at(const TcpAreaLayout& layout) noexcept {
  return align_up(processes_at(layout) + wire::tcp_processes_max * process_bytes(layout), page_bytes);
}
[[nodiscard]] std::uint64_t rings_at(const TcpAreaLayout& layout, std::uint64_t kept_bytes) noexcept {
  return kept_at(layout) + align_up(kept_bytes, page_bytes);
}
}  // namespace

TcpAreaLayout SocketArea::layout_of(const SocketOptions& options) noexcept {
  TcpAreaLayout layout;
  layout.flows = options.flows;
  layout.bytes = rings_at(layout, options.kept_bytes) +
                 std::uint64_t{options.flows} * (std::uint64_t{options.send_bytes} + options.receive_bytes);
  return layout;
}

SocketArea::SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake, std::uint32_t process)
    : memory_(memory),
      layout_(layout_of(options)),
      send_bytes_(options.send_bytes),
      receive_bytes_(options.receive_bytes),
      kept_bytes_(options.kept_bytes),
      wake_(std::move(wake)),
      process_(process) {
  static_assert(sizeof(Shared) <= page_bytes && sizeof(Cell) == cell_bytes && sizeof(Process) == line_bytes &&
                wire::tcp_cores_max * sizeof(AcceptSlots) == accept_slots_bytes);
  OFP_ASSERT(memory.size() >= layout_.bytes && std::has_single_bit(send_bytes_) &&
             std::has_single_bit(receive_bytes_) && process < wire::tcp_processes_max);
  shared_ = std::launder(reinterpret_cast<Shared*>(memory_.data() + layout_.own()));
  learn();
}

SocketArea::SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake)
    : SocketArea(memory, options, std::move(wake), 0) {
  shared_ = new (memory_.data() + layout_.own()) Shared{};
  shared_->lock.init();
  shared_->processes = 1;
  process(0).is = Process::Is::alive;
  spread();
}

void SocketArea::learn() noexcept {
  cores_ = cores_told();
  linked_ = word(memory_, wire::tcp_word::linked).load(std::memory_order_acquire) != 0;
}

void SocketArea::spread() {
  learn();
  shared_->first_free.fill(nobody);
  for (Handle handle = layout_.flows; handle-- > 0;) free_handle(handle);
}

// The number of cores that the agent announced, constant for the life of the area; 0 before it is opened.
std::uint32_t SocketArea::cores_told() const noexcept {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      word(memory_, wire::tcp_word::cores).load(std::memory_order_acquire), 1, wire::tcp_cores_max));
}

MutableBytes SocketArea::kept() const noexcept { return memory_.subspan(kept_at(layout_), kept_bytes_); }

SocketArea::Cell& SocketArea::cell(Handle handle) const noexcept {
  return *std::launder(reinterpret_cast<Cell*>(memory_.data() + cells_at(layout_) + handle * cell_bytes));
}

SocketArea::Process& SocketArea::process(std::uint32_t number) const noexcept {
  return *std::launder(
      reinterpret_cast<Process*>(memory_.data() + processes_at(layout_) + number * process_bytes(layout_)));
}

std::uint64_t& SocketArea::held_word(std::uint32_t number, Handle handle) const noexcept {
  return reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(&process(number)) + line_bytes)[handle / 64];
}

std::uint64_t& SocketArea::changed_word(std::uint32_t number, Handle handle) const noexcept {
  return held_word(number, handle + words_of(layout_) * 64);
}

std::uint32_t SocketArea::group_of_handles() const noexcept { return (words_of(layout_) + 63) / 64 * 64; }

SocketArea::AcceptSlots& SocketArea::accept_slots(Handle listener, std::uint32_t core) const noexcept {
  return reinterpret_cast<AcceptSlots*>(memory_.data() + accept_slots_at(layout_) +
                                        listener * accept_slots_bytes)[core];
}

// Among the first waiting connections of each core, the one that began first: cores report independently, and a program
// may identify a peer's connections by their order.
SocketArea::Handle SocketArea::oldest_waiting(Handle listener) const noexcept {
  Handle oldest = nobody;
  for (std::uint32_t core = 0; core < cores_; ++core) {
    const Handle first = accept_slots(listener, core).first_waiting;
    if (first != nobody && (oldest == nobody || cell(first).begun < cell(oldest).begun)) oldest = first;
  }
  return oldest;
}

// The core whose ring takes commands for the handle.
std::uint32_t SocketArea::ring_of(Handle handle) const noexcept { return cell(handle).listens ? 0 : core_of(handle); }

std::byte* SocketArea::ring(Handle handle, bool receives) const noexcept {
  return memory_.data() + rings_at(layout_, kept_bytes_) + handle * (std::uint64_t{send_bytes_} + receive_bytes_) +
         (receives ? send_bytes_ : 0);
}

Result<SocketArea::Cell*> SocketArea::find(Handle handle, bool listener) const {
  const Cell::Is wanted = listener ? Cell::Is::listener : Cell::Is::flow;
  if (handle >= layout_.flows || cell(handle).is != wanted)
    return fail(Error::invalid, "handle {} is not a {}", handle, listener ? "listener" : "connection");
  return &cell(handle);
}

// The next core in turn that has free handles.
std::uint32_t SocketArea::next_core() noexcept {
  for (std::uint32_t i = 0; i < cores_ - 1; ++i) {
    const std::uint32_t core = shared_->turn++ % cores_;
    if (shared_->first_free[core] != nobody) return core;
  }
  return cores_ == 1 ? 0 : shared_->turn++ % cores_;
}

std::optional<SocketArea::Handle> SocketArea::take_handle(std::uint32_t core) noexcept {
  const Handle handle = shared_->first_free[core];
  if (handle == nobody) return std::nullopt;
  shared_->first_free[core] = cell(handle).next;
  clear(handle);
  // Handles of a process that died before it released them.
  for (std::uint32_t each = 0; each < shared_->processes; ++each) held_word(each, handle) &= ~(1ull << handle % 64);
  cell(handle).allowed = receive_bytes_;
  set_read(handle, 0);
  cell(handle).next = nobody;
  return handle;
}

void SocketArea::set_read(Handle handle, std::uint64_t position) noexcept {
  cell(handle).read = position;
  word(memory_, layout_.reads() + handle * sizeof(std::uint64_t)).store(position, std::memory_order_release);
}

void SocketArea::free_handle(Handle handle) noexcept {
  clear(handle);
  cell(handle).next = std::exchange(shared_->first_free[core_of(handle)], handle);
}

void SocketArea::clear(Handle handle) noexcept {
  static_cast<void>(count_used(handle));
  set_shutting(handle, false);
  const std::uint32_t used = cell(handle).used;
  cell(handle) = Cell{};
  cell(handle).used = used;
  cell(handle).woken = every_process;
}

// ---- commands

bool SocketArea::has_room(std::uint32_t core, std::uint64_t entries) const noexcept {
  const std::uint64_t taken =
      word(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::commands_taken).load(std::memory_order_acquire);
  return shared_->commands[core] - taken + entries <=
         layout_.command_slots - (linked_ ? wire::tcp_sleep_slots + shared_->processes : 0);
}

bool SocketArea::room(std::uint32_t core) const noexcept {
  const bool there = has_room(core, 1);
  if (!there) shared_->waits_for_room |= 1u << core;
  return there;
}

bool SocketArea::room_anywhere() const noexcept {
  bool there = false;
  for (std::uint32_t core = 0; core < cores_; ++core) there = room(core) || there;
  return there;
}

void SocketArea::post(std::uint32_t core, TcpCommand command) noexcept {
  std::uint64_t& commands = shared_->commands[core];
  if (linked_) {
    if (wire::is_of_flow(command.kind)) command.send_at = cell(command.handle).read;
    command.stamp = wire::tcp_stamp(command, commands);
  }
  std::memcpy(memory_.data() + TcpAreaLayout::commands + layout_.of_core(core) +
                  commands % layout_.command_slots * TcpAreaLayout::slot_bytes,
              &command, sizeof command);
  word(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::commands).store(++commands, std::memory_order_release);
  ++shared_->posted;
}

// Over a link the bytes of a small send travel within its commands, which spares the agent a read of the ring.
void SocketArea::post_offer(Handle handle, Bytes sent) noexcept {
  const std::uint32_t core = core_of(handle);
  const std::uint64_t end = cell(handle).offered;
  wire::TcpOffer entry{};
  entry.handle = handle;
  entry.position = end;
  const std::uint64_t entries = (sent.size() + wire::tcp_entry_payload - 1) / wire::tcp_entry_payload;
  if (linked_ && sent.size() <= wire::tcp_small_send && has_room(core, entries)) {
    const auto fill = [&](std::size_t count) {
      entry.count = static_cast<std::uint8_t>(count);
      std::memcpy(entry.bytes.data(), sent.data(), count);
      sent = sent.subspan(count);
      entry.position = end - sent.size();
    };
    for (entry.kind = TcpCommandKind::payload; sent.size() > wire::tcp_entry_payload;) {
      fill(wire::tcp_entry_payload);
      post(core, std::bit_cast<TcpCommand>(entry));
    }
    fill(sent.size());
  }
  entry.kind = TcpCommandKind::offer;
  post(core, std::bit_cast<TcpCommand>(entry));
}

// Wakes every core with pending commands: a process that died before its wake may have posted to any of them.
void SocketArea::tell_agent() noexcept {
  fence_before_look();
  for (std::uint32_t core = 0; core < cores_; ++core) {
    const std::uint64_t lines = wire::tcp_word::of_core(core);
    if (flag(memory_, lines + wire::tcp_word::agent_asleep).value() == 0) continue;
    if (word(memory_, lines + wire::tcp_word::commands_taken).load(std::memory_order_relaxed) !=
        shared_->commands[core])
      tell_core(core);
  }
}

void SocketArea::tell_core(std::uint32_t core) noexcept {
  flag(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::agent_asleep).clear();
  wake_(core);
}

void SocketArea::name_rings(Handle handle, TcpCommand& command) const noexcept {
  command.handle = handle;
  command.send_at = static_cast<std::uint64_t>(ring(handle, false) - memory_.data());
  command.receive_at = static_cast<std::uint64_t>(ring(handle, true) - memory_.data());
  command.send_bytes = send_bytes_;
  command.receive_bytes = receive_bytes_;
}

void SocketArea::owe(Handle handle, std::uint8_t what) noexcept {
  Cell& owing = cell(handle);
  if (owing.owed == 0) ++shared_->owing;
  owing.owed |= what;
  if (settle(handle)) --shared_->owing;
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
    if (!room(core)) return false;
    TcpCommand command{};
    command.kind = each.kind;
    command.handle = handle;
    if (each.owed == owed_allow) {
      set_shutting(handle, false);  // first, so that pages are no longer given back
      command.position = owing.allowed = owing.read + receive_bytes_;
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
  return true;
}

void SocketArea::settle() noexcept {
  for (Handle handle = 0; shared_->owing > 0 && handle < layout_.flows && room_anywhere(); ++handle)
    if (cell(handle).owed != 0 && settle(handle)) --shared_->owing;
  for (Handle handle = 0; handle < layout_.flows && may_fill_accept_slots(); ++handle)
    if (cell(handle).is == Cell::Is::listener && cell(handle).lacks != 0) fill_accept_slots(handle);
}

// Whether a listener lacks accept slots on some core while handles and room are free: only then a look at all cells
// pays.
bool SocketArea::may_fill_accept_slots() const noexcept {
  for (std::uint32_t core = 0; core < cores_; ++core)
    if (shared_->lacking[core] > 0 && shared_->first_free[core] != nobody && room(core)) return true;
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
  return std::min(listener.backlog, (3 * listener.backlog + 2 * cores_ - 1) / (2 * cores_));
}

// Other cores have the listener once they have its command.
void SocketArea::fill_accept_slots(Handle handle) noexcept {
  Cell& listener = cell(handle);
  const std::uint32_t wanted = accept_slots_of_core(listener);
  const std::uint32_t listening = (listener.told & event::listening) != 0 ? cores_ : 1;
  for (std::uint32_t core = 0; core < listening && !listener.gone && !listener.stopped; ++core) {
    fill_accept_slots(handle, core);
    set_lacks(listener, core, accept_slots(handle, core).count < wanted);
  }
}

void SocketArea::fill_accept_slots(Handle handle, std::uint32_t core) noexcept {
  const Cell& listener = cell(handle);
  const std::uint32_t wanted = accept_slots_of_core(listener);
  while (accept_slots(handle, core).count < wanted && room(core)) {
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
  if (cell(handle).holders == 1) return set_changed(cell(handle).holder, handle);
  for (std::uint32_t each = 0; each < shared_->processes && cell(handle).holders > 0; ++each)
    if (is_held(each, handle)) set_changed(each, handle);
}

std::optional<SocketArea::Handle> SocketArea::take_changed() {
  const Lock lock(*this);
  Process& own = process(process_);
  const std::uint32_t group = group_of_handles();
  while (own.changed != 0) {
    const auto at = static_cast<std::uint32_t>(std::countr_zero(own.changed));
    for (Handle handle = at * group; handle < std::min((at + 1) * group, layout_.flows); handle += 64) {
      std::uint64_t& changed = changed_word(process_, handle);
      if (changed == 0) continue;
      const Handle found = handle + static_cast<std::uint32_t>(std::countr_zero(changed));
      changed &= changed - 1;
      return found;
    }
    std::atomic_ref<std::uint64_t>(own.changed).store(own.changed & (own.changed - 1), std::memory_order_relaxed);
  }
  return std::nullopt;
}

bool SocketArea::has_events() const noexcept {
  for (std::uint32_t core = 0; core < cores_; ++core)
    if (word(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::events).load(std::memory_order_acquire) !=
        std::atomic_ref<std::uint64_t>(shared_->events_taken[core]).load(std::memory_order_relaxed))
      return true;
  return std::atomic_ref<std::uint32_t>(process(process_).told).load(std::memory_order_relaxed) != 0;
}

bool SocketArea::has_changed() const noexcept {
  return std::atomic_ref<std::uint64_t>(process(process_).changed).load(std::memory_order_relaxed) != 0;
}

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
  if (told.handle == wire::tcp_no_handle && told.listener < shared_->processes) return let_go_of_all(told.listener);
  if (told.handle >= layout_.flows) return;
  Cell& about = cell(told.handle);
  if (about.is == Cell::Is::free) return;
  mark_changed(told.handle);
  about.told |= told.what;
  if (told.error != TcpError::none) about.error = told.error;
  if ((told.what & (event::connected | event::accepted | event::listening)) != 0) {
    about.port = told.port;
    about.local_address = told.local_address;
    about.remote_address = told.remote_address;
    about.remote_port = told.remote_port;
  }
  if ((told.what & event::listening) != 0 && cores_ > 1 && about.is == Cell::Is::listener)
    fill_accept_slots(told.handle);
  if ((told.what & event::accepted) != 0 && about.is == Cell::Is::accept_slot) {
    about.is = Cell::Is::flow;
    about.next = nobody;
    about.begun = told.begun;
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
  about.received = std::clamp(told.received, about.received, about.read + receive_bytes_);
  about.acknowledged = std::clamp(told.acknowledged, about.acknowledged, about.offered);
  if (told.shut != 0 && about.shutting && (told.what & event::gone) == 0) {
    if (told.shut == wire::tcp_shut::done && about.read == about.received) free_pages(told.handle);
    owe(told.handle, owed_allow);
  }
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

bool SocketArea::take_all(std::uint32_t core) noexcept {
  const std::uint64_t lines = wire::tcp_word::of_core(core);
  const std::uint64_t posted = word(memory_, lines + wire::tcp_word::events).load(std::memory_order_acquire);
  std::uint64_t& taken = shared_->events_taken[core];
  if (posted == taken) return false;
  while (taken != posted) {
    TcpEvent told;
    std::memcpy(&told,
                memory_.data() + layout_.events() + layout_.of_core(core) +
                    taken % layout_.event_slots * TcpAreaLayout::slot_bytes,
                sizeof told);
    take(told);
    ++taken;
  }
  word(memory_, lines + wire::tcp_word::events_taken).store(taken, std::memory_order_release);
  fence_before_look();
  if (flag(memory_, lines + wire::tcp_word::agent_asleep).value() == 2) tell_core(core);
  return true;
}

bool SocketArea::take_all() noexcept {
  const std::uint64_t before = shared_->posted;
  bool told = false;
  for (std::uint32_t core = 0; core < cores_; ++core) told = take_all(core) || told;
  if (shared_->posted != before) tell_agent();
  return told;
}

bool SocketArea::take_in() {
  const Lock lock(*this);
  bool told = take_all();
  if (process(process_).told) {
    std::atomic_ref<std::uint32_t>(process(process_).told).store(0, std::memory_order_relaxed);
    told = true;
  }
  const std::uint64_t before = shared_->posted;
  settle();
  if (shared_->posted != before) tell_agent();
  return told;
}

bool SocketArea::fall_asleep() {
  const Lock lock(*this);
  const auto look = [&] {
    bool something = process(process_).told != 0;
    const std::uint32_t waited = std::exchange(shared_->waits_for_room, 0);
    for (std::uint32_t core = 0; core < cores_; ++core) {
      if ((waited >> core & 1) != 0) something = room(core) || something;
      something =
          something ||
          word(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::events).load(std::memory_order_acquire) !=
              shared_->events_taken[core];
    }
    return something;
  };
  const bool for_room = shared_->waits_for_room != 0;
  const SleepFlag own = flag(memory_, wire::tcp_word::process_asleep(process_));
  if (!own.fall_asleep(look, for_room ? 2 : 1)) return false;
  if (!linked_ || post_sleep(for_room)) return true;
  own.clear();
  return false;
}

// Over a link the agent does not see the flag. False: the reserve of the ring is full, and the agent is about to take
// from it.
bool SocketArea::post_sleep(bool for_room) noexcept {
  Process& own = process(process_);
  const std::uint64_t flags = for_room ? 2 : 1,
                      woken = word(memory_, wire::tcp_word::process_woken(process_)).load(std::memory_order_acquire);
  if (own.slept_flags == flags && own.slept_position == shared_->events_taken[0] && own.slept_woken == woken)
    return true;
  if (shared_->commands[0] - word(memory_, wire::tcp_word::commands_taken).load(std::memory_order_acquire) >=
      layout_.command_slots)
    return false;
  TcpCommand command{};
  command.kind = TcpCommandKind::sleep;
  command.listener = process_;
  own.slept_position = command.position = shared_->events_taken[0];
  own.slept_woken = woken;
  own.slept_flags = command.flags = static_cast<std::uint16_t>(flags);
  post(0, command);
  tell_agent();
  return true;
}

void SocketArea::stay_awake() {
  const SleepFlag own = flag(memory_, wire::tcp_word::process_asleep(process_));
  if (own.value() != 0) own.clear();
}

}  // namespace offpath::channel
