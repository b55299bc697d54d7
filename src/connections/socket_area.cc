#include "connections/socket_area.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/ring_bytes.h"
#include "base/sleep_flag.h"
#include "wire/areas/flow_steering.h"

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;
using wire::TcpEvent;
namespace event = wire::tcp_event;

namespace {

tl::unexpected<Failure> failure_of(TcpError error) {
  switch (error) {
    case TcpError::refused:
      return fail(Error::peer_lost, "the connection was refused");
    case TcpError::reset:
      return fail(Error::peer_lost, "the connection was reset by its peer");
    case TcpError::timed_out:
      return fail(Error::timeout, "the connection timed out");
    case TcpError::unreachable:
      return fail(Error::peer_lost, "the peer cannot be reached");
    case TcpError::address_in_use:
      return fail(Error::exists, "the address is in use");
    case TcpError::no_room:
      return fail(Error::no_space, "the agent has no room for a connection");
    case TcpError::denied:
      return fail(Error::denied, "ports below 1024 are for root and the agent's own user");
    case TcpError::none:
      break;
  }
  return fail(Error::closed, "the connection is closed");
}

}  // namespace

// A lock for all processes. A process that dies with it leaves unpublished positions, which count as not written, and
// counts that its successor takes anew. The agent is told of the commands after the unlock.
class SocketArea::Lock {
 public:
  explicit Lock(SocketArea& area) noexcept : area_(area) { lock(); }
  ~Lock() { unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void lock() noexcept {
    if (!area_.records_.shared().lock.take()) area_.recount();
    posted_ = area_.rings_.posted();
  }
  void unlock() noexcept {
    const bool tells = area_.rings_.posted() != posted_;
    area_.records_.shared().lock.unlock();
    if (tells) area_.rings_.tell_agent();
  }

 private:
  SocketArea& area_;
  std::uint64_t posted_ = 0;
};

// ---- the area

SocketArea::SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake, std::uint32_t process)
    : records_(memory, options),
      process_(process),
      agent_(memory),
      rings_(memory, records_.layout(), records_.shared().rings, std::move(wake)),
      processes_(records_.processes(), records_.flows(), records_.shared().rings.processes),
      memory_holders_(records_),
      flow_rings_(records_, rings_, memory_holders_),
      idle_memory_(records_, rings_, memory_holders_, flow_rings_),
      owed_(records_, rings_, flow_rings_, idle_memory_),
      handles_(records_, rings_, processes_, memory_holders_, flow_rings_, idle_memory_),
      backlogs_(records_, rings_, flow_rings_, handles_),
      holders_(records_, processes_) {
  OFP_ASSERT(process < wire::tcp_processes_max);
  rings_.learn();
}

SocketArea::SocketArea(MutableBytes memory, const SocketOptions& options, Wake wake)
    : SocketArea(memory, options, std::move(wake), 0) {
  records_.make(options);
  static_cast<void>(processes_.add());  // number 0
  spread();
}

bool SocketArea::lies_in(MutableBytes memory, const SocketOptions& options) noexcept {
  return SocketRecords(memory, options).shared().options == options;
}

void SocketArea::spread() {
  rings_.learn();
  handles_.spread();
}

Result<SocketCell*> SocketArea::find(Handle handle, SocketCell::Is wanted) const {
  // A thread that goes on after depart() sends no more: bytes that it offered would keep its process from ending.
  if (handle >= records_.flows() || cell(handle).is != wanted || !processes_.is_held(process_, handle) ||
      processes_[process_].is == ProcessTable::Process::Is::leaving)
    return fail(Error::invalid, "handle {} is not a {}", handle,
                wanted == SocketCell::Is::listener ? "listener" : "connection");
  return &cell(handle);
}

// After the death of a process under the lock: recomputes all that it may have left half done.
void SocketArea::recount() noexcept {
  backlogs_.begin_recount();
  for (Handle handle = 0; handle < records_.flows(); ++handle) {
    holders_.recount(handle);
    backlogs_.recount(handle);
    owed_.recount(handle);
  }
  flow_rings_.recount();
}

// ---- ports and connections

Result<SocketArea::Handle> SocketArea::bind(std::uint16_t port, std::uint16_t flags) {
  const Lock lock(*this);
  TcpCommand command{};
  command.kind = TcpCommandKind::bind;
  command.port = port;
  command.flags = flags;
  return take_port(command, 0);
}

Result<SocketArea::Handle> SocketArea::listen(std::uint16_t port, std::uint32_t backlog, std::uint16_t flags,
                                              Handle bound, const FlowSettings* settings) {
  const Lock lock(*this);
  if (port == 0) return fail(Error::invalid, "a listener needs a port");
  TcpCommand command{};
  command.kind = TcpCommandKind::listen;
  command.port = port;
  command.flags = flags;
  if (settings != nullptr) settings->put(command);
  command.listener = bound;
  command.receive_bytes = records_.first_bytes(Way::in);
  auto handle = take_port(command, std::clamp(backlog, 1u, records_.flows()));
  if (handle && settings != nullptr) cell(*handle).settings = *settings;
  return handle;
}

// A port that is only bound is a listener without accept slots.
Result<SocketArea::Handle> SocketArea::take_port(const TcpCommand& asked, std::uint32_t backlog) {
  if ((asked.flags & wire::tcp_families) == 0) return fail(Error::invalid, "a port of no family");
  if (!rings_.room(0)) return fail(Error::would_block, "the agent has not taken earlier commands");
  const auto handle = handles_.take(handles_.next_core());
  if (!handle) return fail(Error::no_space, "all {} connections are in use", records_.flows());
  cell(*handle).port = asked.port;
  backlogs_.begin(*handle, backlog);
  holders_.hold(process_, *handle);
  TcpCommand command = asked;
  command.handle = *handle;
  records_.post(rings_, 0, command);
  backlogs_.fill(*handle);
  return *handle;
}

Result<SocketArea::Handle> SocketArea::connect(Endpoint remote, std::uint16_t local_port, std::uint16_t flags,
                                               const FlowSettings* settings) {
  const Lock lock(*this);
  if (const std::uint16_t families = agent_.families();
      families != 0 && (families & wire::tcp_for(remote.address.family())) == 0)
    return fail(Error::unsupported, "the agent has no address of this family");
  // If the program chose the port, the connection belongs to the core to which the device steers its frames; otherwise
  // the core finds a port.
  const std::uint32_t core = local_port == 0 ? handles_.next_core()
                                             : wire::core_of_flow(agent_.own_address(remote.address.family()),
                                                                  local_port, remote.address, remote.port, cores());
  if (!rings_.room(core)) return fail(Error::would_block, "the agent has not taken earlier commands");
  const auto handle = handles_.take(core);
  if (!handle) return fail(Error::no_space, "all {} connections are in use", records_.flows());
  SocketCell& flow = cell(*handle);
  flow.is = SocketCell::Is::flow;
  records_.remote_address(*handle) = remote.address;
  flow.remote_port = remote.port;
  holders_.hold(process_, *handle);
  wire::TcpConnect command{};
  command.kind = TcpCommandKind::connect;
  command.handle = *handle;
  command.port = local_port;
  command.remote_address = remote.address;
  command.remote_port = remote.port;
  command.flags = flags;
  auto entry = std::bit_cast<TcpCommand>(command);
  if (settings != nullptr) {
    flow.settings = *settings;
    settings->put(entry, remote.address.family());
  }
  flow_rings_.name(*handle, entry);
  records_.post(rings_, core, entry);
  name_holders(*handle);
  return *handle;
}

Result<SocketArea::Handle> SocketArea::accept(Handle handle) {
  const Lock lock(*this);
  take_all();
  OFP_ASSIGN(SocketCell* const listener, find(handle, SocketCell::Is::listener));
  const Handle flow = backlogs_.oldest(handle);
  if (flow == no_handle) {
    if ((listener->told & event::closed) != 0) return failure_of(listener->error);
    return fail(Error::would_block, "no connection is waiting");
  }
  backlogs_.accept(handle, flow);
  holders_.hold(process_, flow);
  name_holders(flow);
  // Its connection may have begun with those of another listener that shares the port.
  if (const FlowSettings& settings = listener->settings; settings != FlowSettings{}) {
    cell(flow).settings = settings;
    owed_.owe(flow, owed_options);
  }
  backlogs_.fill(handle);
  return flow;
}

// ---- payload

// How many of the bytes fit; an error if none do.
Result<std::size_t> SocketArea::room_to_send(Handle handle, std::size_t bytes) {
  OFP_ASSIGN(SocketCell* const flow, find(handle));
  if (flow->room_to_send() == 0 || (flow->told & (event::connected | event::accepted)) == 0) take_all();
  if ((flow->told & event::closed) != 0) return failure_of(flow->error);
  if (flow->finishing) return fail(Error::closed, "the end of this stream has already been sent");
  if ((flow->told & (event::connected | event::accepted)) == 0)
    return fail(Error::would_block, "the connection is not established yet");
  const std::size_t room = std::min<std::uint64_t>(bytes, flow->room_to_send());
  if (bytes > 0 && (room == 0 || !rings_.room(core_of(handle))))
    return fail(Error::would_block, "{} bytes wait to be acknowledged", flow->unacknowledged());
  return room;
}

Result<std::size_t> SocketArea::send(Handle handle, Bytes bytes) {
  CopyTurn turn(records_, handle, Way::out);
  Lock lock(*this);
  auto room = room_to_send(handle, bytes.size());
  if (room && turn.wait(lock, *room)) room = room_to_send(handle, bytes.size());
  if (!room || *room == 0) return room;
  const Bytes taken = bytes.first(*room);
  SocketCell& flow = cell(handle);
  const std::uint64_t at = flow.offered;
  // Meanwhile the flow may end, and the commands may fill their ring: then nothing was sent.
  if (turn.copy(lock, [&, into = flow_rings_.present(handle, Way::out)] { copy_into_ring(into, at, taken); }))
    OFP_TRY(room_to_send(handle, taken.size()));
  flow.offered += taken.size();
  memory_holders_.note(handle);
  rings_.post_offer(core_of(handle), handle, flow.offered, taken, flow.read);
  if ((flow.growths & SocketCell::postponed) != 0) owed_.owe(handle, owed_larger_out);
  return taken.size();
}

Result<std::size_t> SocketArea::receive(Handle handle, MutableBytes bytes, const Reading& reading) {
  CopyTurn turn(records_, handle, Way::in);
  Lock lock(*this);
  std::uint64_t at = 0;
  std::size_t taken = 0;
  do {
    OFP_ASSIGN(SocketCell* const flow, find(handle));
    if (flow->read + reading.skip >= flow->received) take_all();
    at = std::min(flow->read + reading.skip, flow->received);  // another process may have read meanwhile
    taken = std::min<std::uint64_t>(bytes.size(), flow->received - at);
    if (taken == 0 && !bytes.empty()) {
      if ((flow->told & event::finished) != 0) return 0;
      if ((flow->told & event::closed) != 0) return failure_of(flow->error);
      return fail(Error::would_block, "no data has arrived");
    }
  } while (turn.wait(lock, taken));
  const std::uint64_t before = flow_rings_.bytes_before(handle, at, taken);
  const bool unlocked = !reading.discards && turn.copy(lock, [&, from = flow_rings_.present(handle, Way::in)] {
    if (before > 0) copy_out_of_ring(flow_rings_.before(handle, Way::in), at, bytes.first(before));
    copy_out_of_ring(from, at + before, bytes.subspan(before, taken - before));
  });
  // This process may have let go of the flow meanwhile: its position is nobody's any more.
  if (reading.peeks || (unlocked && !find(handle))) return taken;
  SocketCell& flow = cell(handle);
  records_.set_read(handle, flow.read + taken);
  memory_holders_.note(handle);
  // The agent need not hear of every read: the peer has the rest of the window. But a ring that was left is its.
  const std::uint32_t size = flow.bytes(Way::in);
  if (!flow.shutting && (flow.read + size - flow.allowed >= size / 4 || flow_rings_.has_left_ring(handle)))
    owed_.owe(handle, owed_allow);
  return taken;
}

// ---- ends

Status SocketArea::finish(Handle handle) {
  const Lock lock(*this);
  OFP_ASSIGN(SocketCell* const flow, find(handle));
  if (flow->finishing || flow->gone) return {};
  flow->finishing = true;
  owed_.owe(handle, owed_finish);
  return {};
}

// The last holder waits for its own threads' copies: the handle may be another flow's afterwards.
void SocketArea::let_go(Handle handle, bool abort) {
  std::optional<CopyTurn> out, in;
  Lock lock(*this);
  if (holders_.is_held(process_, handle) && cell(handle).holders <= 1 && cell(handle).copying != 0) {
    static_cast<void>(out.emplace(records_, handle, Way::out).wait(lock, ~std::size_t{0}));
    static_cast<void>(in.emplace(records_, handle, Way::in).wait(lock, ~std::size_t{0}));
  }
  if (holders_.is_held(process_, handle)) let_go(process_, handle, abort);
}

bool SocketArea::stop(Handle handle) {
  const Lock lock(*this);
  take_all();
  if (!holders_.is_held(process_, handle)) return false;
  SocketCell& at = cell(handle);
  const bool listens = at.is == SocketCell::Is::listener;
  const std::uint8_t decided = listens ? event::closed : event::closed | event::connected | event::accepted;
  if ((!listens && at.is != SocketCell::Is::flow) || (at.told & decided) != 0) return false;
  if (listens)
    dismiss(handle);
  else
    at.error = TcpError::reset;
  at.told |= event::closed;
  holders_.mark_changed(handle, process_);
  owed_.owe(handle, listens ? owed_release : owed_abort);
  at.stopped = true;  // last: if this process dies before it, another one repeats the command, which is harmless
  return true;
}

void SocketArea::dismiss(Handle listener) noexcept {
  backlogs_.dismiss(listener, [this](Handle flow) { end(flow, true); });
}

void SocketArea::end(Handle handle, bool abort) noexcept {
  SocketCell& ends = cell(handle);
  if (!ends.is_named()) return;
  if (ends.is == SocketCell::Is::listener) dismiss(handle);
  ends.is = SocketCell::Is::ending;
  if (ends.gone) {
    handles_.give(handle);
    if (backlogs_.may_fill()) settle();  // no event will come of it
    return;
  }
  if (ends.stopped) return;
  // Data that arrived and was not read is lost, and the peer has to know it (RFC 1122, 4.2.2.13).
  owed_.owe(handle, abort || ends.read < ends.received ? owed_abort : owed_release);
}

void SocketArea::set_flow_settings(Handle handle, const FlowSettings& settings) {
  const Lock lock(*this);
  const auto flow = find(handle);
  if (!flow || (*flow)->gone || (*flow)->settings == settings) return;
  (*flow)->settings = settings;
  owed_.owe(handle, owed_options);
}

// ---- looks

Result<SocketArea::Look> SocketArea::look(Handle handle) {
  const Lock lock(*this);
  take_all();
  return known_locked(handle);
}

Result<SocketArea::Look> SocketArea::known(Handle handle) {
  const Lock lock(*this);
  return known_locked(handle);
}

Result<SocketArea::Look> SocketArea::known_locked(Handle handle) const {
  if (handle >= records_.flows() || !cell(handle).is_named())
    return fail(Error::invalid, "handle {} is neither a connection nor a listener", handle);
  const SocketCell& at = cell(handle);
  const bool closed = (at.told & event::closed) != 0;
  Look look{};
  look.connected = (at.told & (event::connected | event::accepted | event::listening)) != 0 && !closed;
  look.closed = closed;
  look.finished = (at.told & event::finished) != 0;
  look.unread = at.received - at.read;
  look.received = at.received;
  look.unacknowledged = at.unacknowledged();
  look.send_ring = at.bytes(Way::out);
  look.receive_ring = at.bytes(Way::in);
  look.room = at.room_to_send();
  look.readable = closed || look.finished || look.unread > 0 ||
                  (at.is == SocketCell::Is::listener && backlogs_.oldest(handle) != no_handle);
  look.writable =
      closed || at.finishing ||
      (at.is == SocketCell::Is::flow && look.connected && !at.is_between_rings() && at.is_writable(at.bytes(Way::out)));
  look.error = at.error;
  look.acknowledged = at.acknowledged;
  look.round_trip_us = at.round_trip_us;
  look.window = at.window;
  look.mss = at.mss;
  look.local.port = at.port;
  if (at.is == SocketCell::Is::listener) return look;
  look.remote = {records_.remote_address(handle), at.remote_port};
  look.local.address = agent_.own_address(look.remote.address.family());
  return look;
}

std::optional<SocketArea::Handle> SocketArea::take_changed() {
  const Lock lock(*this);
  return processes_.take_changed(process_);
}

bool SocketArea::undelivered() {
  const Lock lock(*this);
  take_all();
  Handle& handle = records_.shared().next_undelivered;
  for (Handle looked = 0; looked < records_.flows(); ++looked, handle = (handle + 1) % records_.flows()) {
    const SocketCell& each = cell(handle);
    const bool lives = (each.is == SocketCell::Is::flow || each.is == SocketCell::Is::ending) && !each.gone &&
                       (each.told & event::closed) == 0;
    if (lives && each.acknowledged < each.offered) return true;
  }
  return false;
}

// ---- events

void SocketArea::take(const TcpEvent& told) noexcept {
  if (told.handle == wire::tcp_no_handle && told.listener < processes_.count()) return let_go_of_all(told.listener);
  if (told.handle >= records_.flows()) return;
  SocketCell& about = cell(told.handle);
  if (about.is == SocketCell::Is::free) return;
  holders_.mark_changed(told.handle, process_);
  about.told |= told.what;
  if (told.error != TcpError::none) about.error = told.error;
  if ((told.what & (event::connected | event::accepted | event::listening)) != 0) about.port = told.port;
  if ((told.what & event::listening) != 0 && cores() > 1 && about.is == SocketCell::Is::listener)
    backlogs_.fill(told.handle);
  if ((told.what & event::accepted) != 0 && about.is == SocketCell::Is::accept_slot) take_accepted(told);
  if (told.mss != 0) {
    about.mss = told.mss;
    about.round_trip_us = told.round_trip_us;
    about.window = told.window;
  }
  if (told.rings != 0) {
    flow_rings_.take(told);
    if (about.owed != 0) owed_.owe(told.handle, 0);
  }
  about.received = std::clamp(told.received, about.received, about.read + about.bytes(Way::in));
  if ((told.what & event::accepted) == 0)
    about.acknowledged = std::clamp(told.acknowledged, about.acknowledged, about.offered);
  flow_rings_.note_acknowledged(told.handle);
  if (told.shut != 0 && (told.what & event::gone) == 0) {
    idle_memory_.on_shut(told);
    if (about.owed != 0) owed_.owe(told.handle, 0);
  }
  if ((told.what & event::gone) == 0) return;
  about.gone = true;
  idle_memory_.open_window(told.handle);
  about.owed = 0;
  if (about.is == SocketCell::Is::accept_slot) backlogs_.returned(told.handle);
  if (about.is == SocketCell::Is::listener) dismiss(told.handle);
  if (about.is == SocketCell::Is::accept_slot || about.is == SocketCell::Is::ending) handles_.give(told.handle);
}

// An accept slot has become a connection.
void SocketArea::take_accepted(const TcpEvent& told) noexcept {
  SocketCell& about = cell(told.handle);
  const bool is_expected = backlogs_.is_expected(told.handle);
  about.is = SocketCell::Is::flow;
  about.next = no_handle;
  about.begun = told.begun;
  records_.remote_address(told.handle) = told.remote_address;
  about.remote_port = told.remote_port;
  if (!is_expected) return end(told.handle, true);  // the listener was closed meanwhile
  holders_.mark_changed(about.listener, process_);
  backlogs_.arrived(told.handle);
}

bool SocketArea::take_all() noexcept {
  bool told = false;
  for (std::uint32_t core = 0; core < cores(); ++core)
    told = rings_.take_all(core, [this](const TcpEvent& event) { take(event); }) || told;
  // A handle that has become free is a slot for a connection that waits, whichever process takes that event in.
  if (told && backlogs_.may_fill()) settle();
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

void SocketArea::settle() noexcept {
  owed_.settle_some();
  backlogs_.fill_some();
  if (backlogs_.all_full() && owed_.empty()) records_.shared().set_unsettled(false);
}

bool SocketArea::give_back(TimeNs now) {
  std::optional<IdleMemory::Look> look;
  {
    const Lock lock(*this);
    look = idle_memory_.begin(now);
    if (!look) return true;
    take_all();
  }
  for (bool more = true; more;) {
    const Lock lock(*this);
    more = idle_memory_.look(*look, now);
  }
  const Lock lock(*this);
  return memory_holders_.find_any();
}

// ---- sleep

SleepWord SocketArea::sleep_word(Handle handle) const noexcept {
  return SleepWord(records_.memory().data() + records_.layout().sleep_word(handle));
}

void SocketArea::wake_sleepers(Handle handle) const noexcept {
  fence_before_look();
  if (const auto taken = sleep_word(handle).take()) sleep_word(handle).wake(*taken);
}

bool SocketArea::fall_asleep(Sleep sleep) {
  const Lock lock(*this);
  const auto look = [&] {
    const bool told = processes_.was_told(process_);
    return rings_.look_before_sleep() || told;
  };
  const bool for_room = rings_.waits_for_room();
  const SleepFlag own(records_.memory().data() + wire::tcp_word::process_asleep(process_));
  if (!own.fall_asleep(look, for_room ? 2 : sleep == Sleep::until_full ? 3 : 1)) return false;
  if (!rings_.is_linked() || rings_.post_sleep(process_, for_room, processes_[process_].slept)) return true;
  own.clear();
  return false;
}

void SocketArea::stay_awake() {
  const SleepFlag own(records_.memory().data() + wire::tcp_word::process_asleep(process_));
  if (own.value() != 0) own.clear();
}

// ---- several processes

bool SocketArea::holds(Handle handle) {
  const Lock lock(*this);
  return holders_.is_held(process_, handle);
}

void SocketArea::let_go(std::uint32_t number, Handle handle, bool abort) noexcept {
  const std::uint32_t left = holders_.begin_release(number, handle);
  if (left == 0) end(handle, abort);
  if (left == 1) name_holders(handle);
  holders_.end_release(number, handle);
}

void SocketArea::let_go_of_all(std::uint32_t number) noexcept {
  processes_.for_each_held(number, [&](Handle handle) { let_go(number, handle, false); });
  processes_.remove(number);
}

void SocketArea::name_holders(Handle handle) noexcept {
  if (holders_.has_changed(handle)) owed_.owe(handle, owed_holders);
}

Result<std::uint32_t> SocketArea::new_process() noexcept {
  OFP_ASSIGN(const std::uint32_t number, processes_.add());
  SleepFlag(records_.memory().data() + wire::tcp_word::process_asleep(number)).clear();
  return number;
}

void SocketArea::hold_with(std::uint32_t number, Handle handle) noexcept {
  holders_.hold(number, handle);
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
    if (holders_.is_held(process_, handle) && !processes_.is_held(number, handle)) hold_with(number, handle);
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
