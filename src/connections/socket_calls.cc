// The program's calls on its connections.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/ring_bytes.h"
#include "connections/socket_cells.h"
#include "wire/areas/flow_steering.h"

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;
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

Result<SocketArea::Handle> SocketArea::bind(std::uint16_t port, std::uint16_t flags) {
  const Lock lock(*this);
  TcpCommand command{};
  command.kind = TcpCommandKind::bind;
  command.port = port;
  command.flags = flags;
  return take_port(command, 0);
}

Result<SocketArea::Handle> SocketArea::listen(std::uint16_t port, std::uint32_t backlog, std::uint16_t flags,
                                              Handle bound) {
  const Lock lock(*this);
  if (port == 0) return fail(Error::invalid, "a listener needs a port");
  TcpCommand command{};
  command.kind = TcpCommandKind::listen;
  command.port = port;
  command.flags = flags;
  command.listener = bound;
  command.receive_bytes = receive_bytes_;
  return take_port(command, std::clamp(backlog, 1u, layout_.flows));
}

// A port that is only bound is a listener without accept slots.
Result<SocketArea::Handle> SocketArea::take_port(const TcpCommand& asked, std::uint32_t backlog) {
  if ((asked.flags & wire::tcp_families) == 0) return fail(Error::invalid, "a port of no family");
  if (!rings_.room(0)) return fail(Error::would_block, "the agent has not taken earlier commands");
  const auto handle = take_handle(next_core());
  if (!handle) return fail(Error::no_space, "all {} connections are in use", layout_.flows);
  Cell& listener = cell(*handle);
  listener.is = Cell::Is::listener;
  listener.listens = true;
  listener.port = asked.port;
  listener.serial = ++shared_->listeners;
  listener.backlog = backlog;
  for (std::uint32_t core = 0; core < cores(); ++core) accept_slots(*handle, core) = {0, nobody, nobody};
  hold(process_, *handle);
  TcpCommand command = asked;
  command.handle = *handle;
  post(0, command);
  fill_accept_slots(*handle);
  return *handle;
}

Result<SocketArea::Handle> SocketArea::connect(Endpoint remote, std::uint16_t local_port, std::uint16_t flags) {
  const Lock lock(*this);
  if (families() != 0 && (families() & wire::tcp_for(remote.address.family())) == 0)
    return fail(Error::unsupported, "the agent has no address of this family");
  // If the program chose the port, the connection belongs to the core to which the device steers its frames; otherwise
  // the core finds a port.
  const std::uint32_t core = local_port == 0 ? next_core()
                                             : wire::core_of_flow(own_address(remote.address.family()), local_port,
                                                                  remote.address, remote.port, cores());
  if (!rings_.room(core)) return fail(Error::would_block, "the agent has not taken earlier commands");
  const auto handle = take_handle(core);
  if (!handle) return fail(Error::no_space, "all {} connections are in use", layout_.flows);
  Cell& flow = cell(*handle);
  flow.is = Cell::Is::flow;
  remote_address(*handle) = remote.address;
  flow.remote_port = remote.port;
  hold(process_, *handle);
  wire::TcpConnect command{};
  command.kind = TcpCommandKind::connect;
  command.handle = *handle;
  command.port = local_port;
  command.remote_address = remote.address;
  command.remote_port = remote.port;
  command.flags = flags;
  auto entry = std::bit_cast<TcpCommand>(command);
  name_rings(*handle, entry);
  post(core, entry);
  name_holders(*handle);
  return *handle;
}

Result<SocketArea::Handle> SocketArea::accept(Handle handle) {
  const Lock lock(*this);
  take_all();
  OFP_ASSIGN(Cell* const listener, find(handle, true));
  const Handle flow = oldest_waiting(handle);
  if (flow == nobody) {
    if ((listener->told & event::closed) != 0) return failure_of(listener->error);
    return fail(Error::would_block, "no connection is waiting");
  }
  AcceptSlots& there = accept_slots(handle, core_of(flow));
  there.first_waiting = std::exchange(cell(flow).next, nobody);
  --there.count;
  hold(process_, flow);
  name_holders(flow);
  fill_accept_slots(handle);
  return flow;
}

// How many of the bytes fit; an error if none do.
Result<std::size_t> SocketArea::room_to_send(Handle handle, std::size_t bytes) {
  OFP_ASSIGN(Cell* const flow, find(handle));
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
  Turn turn(*this, handle, Way::out);
  Lock lock(*this);
  auto room = room_to_send(handle, bytes.size());
  if (room && turn.wait(lock, *room)) room = room_to_send(handle, bytes.size());
  if (!room || *room == 0) return room;
  const Bytes taken = bytes.first(*room);
  Cell& flow = cell(handle);
  const std::uint64_t at = flow.offered;
  // Meanwhile the flow may end, and the commands may fill their ring: then nothing was sent.
  if (turn.copy(lock, [&, into = ring(handle, Way::out)] { copy_into_ring(into, at, taken); }))
    OFP_TRY(room_to_send(handle, taken.size()));
  flow.offered += taken.size();
  rings_.post_offer(core_of(handle), handle, flow.offered, taken, flow.read);
  if ((flow.growths & Cell::postponed) != 0) owe(handle, owed_larger_out);
  return taken.size();
}

Result<std::size_t> SocketArea::receive(Handle handle, MutableBytes bytes, const Reading& reading) {
  Turn turn(*this, handle, Way::in);
  Lock lock(*this);
  std::uint64_t at = 0;
  std::size_t taken = 0;
  do {
    OFP_ASSIGN(Cell* const flow, find(handle));
    if (flow->read + reading.skip >= flow->received) take_all();
    at = std::min(flow->read + reading.skip, flow->received);  // another process may have read meanwhile
    taken = std::min<std::uint64_t>(bytes.size(), flow->received - at);
    if (taken == 0 && !bytes.empty()) {
      if ((flow->told & event::finished) != 0) return 0;
      if ((flow->told & event::closed) != 0) return failure_of(flow->error);
      return fail(Error::would_block, "no data has arrived");
    }
  } while (turn.wait(lock, taken));
  const std::uint64_t before = bytes_before(handle, at, taken);
  const bool unlocked = !reading.discards && turn.copy(lock, [&, from = ring(handle, Way::in)] {
    if (before > 0) copy_out_of_ring(ring_before(handle, Way::in), at, bytes.first(before));
    copy_out_of_ring(from, at + before, bytes.subspan(before, taken - before));
  });
  // This process may have let go of the flow meanwhile: its position is nobody's any more.
  if (reading.peeks || (unlocked && !find(handle))) return taken;
  Cell& flow = cell(handle);
  set_read(handle, flow.read + taken);
  // The agent need not hear of every read: the peer has the rest of the window. But a ring that was left is its.
  const std::uint32_t size = flow.bytes(Way::in);
  const bool leaves_ring = flow.growth(Way::in) == Growth::taken && bytes_before(handle, flow.read, 1) == 0 &&
                           flow.allowed < steps(handle)[static_cast<std::size_t>(Way::in)].from + size;
  if (!flow.shutting && (flow.read + size - flow.allowed >= size / 4 || leaves_ring)) owe(handle, owed_allow);
  return taken;
}

Status SocketArea::finish(Handle handle) {
  const Lock lock(*this);
  OFP_ASSIGN(Cell* const flow, find(handle));
  if (flow->finishing || flow->gone) return {};
  flow->finishing = true;
  owe(handle, owed_finish);
  return {};
}

// The last holder waits for its own threads' copies: the handle may be another flow's afterwards.
void SocketArea::let_go(Handle handle, bool abort) {
  std::optional<Turn> out, in;
  Lock lock(*this);
  const auto holds = [&] { return handle < layout_.flows && processes_.is_held(process_, handle); };
  if (holds() && cell(handle).holders <= 1 && cell(handle).copying != 0) {
    static_cast<void>(out.emplace(*this, handle, Way::out).wait(lock, ~std::size_t{0}));
    static_cast<void>(in.emplace(*this, handle, Way::in).wait(lock, ~std::size_t{0}));
  }
  if (holds()) let_go(process_, handle, abort);
}

bool SocketArea::stop(Handle handle) {
  const Lock lock(*this);
  take_all();
  if (handle >= layout_.flows || !processes_.is_held(process_, handle)) return false;
  Cell& at = cell(handle);
  const bool listens = at.is == Cell::Is::listener;
  const std::uint8_t decided = listens ? event::closed : event::closed | event::connected | event::accepted;
  if ((!listens && at.is != Cell::Is::flow) || (at.told & decided) != 0) return false;
  if (listens)
    dismiss(handle);
  else
    at.error = TcpError::reset;
  at.told |= event::closed;
  mark_changed(handle);
  owe(handle, listens ? owed_release : owed_abort);
  at.stopped = true;  // last: if this process dies before it, another one repeats the command, which is harmless
  return true;
}

// Ends its backlog, and asks for no more accept slots.
void SocketArea::dismiss(Handle handle) noexcept {
  Cell& listener = cell(handle);
  listener.serial = ++shared_->listeners;  // connections under way to the old listener are dropped
  for (std::uint32_t core = 0; core < cores(); ++core) {
    set_lacks(listener, core, false);
    for (Handle flow = std::exchange(accept_slots(handle, core).first_waiting, nobody);
         flow != nobody;) {  // nobody will accept them: resets them
      const Handle next = cell(flow).next;
      end(flow, true);
      flow = next;
    }
  }
}

void SocketArea::end(Handle handle, bool abort) noexcept {
  if (handle >= layout_.flows) return;
  Cell& ends = cell(handle);
  if (ends.is != Cell::Is::flow && ends.is != Cell::Is::listener) return;
  if (ends.is == Cell::Is::listener) dismiss(handle);
  ends.is = Cell::Is::ending;
  if (ends.gone) return free_handle(handle);
  if (ends.stopped) return;
  // Data that arrived and was not read is lost, and the peer has to know it (RFC 1122, 4.2.2.13).
  owe(handle, abort || ends.read < ends.received ? owed_abort : owed_release);
}

void SocketArea::set_flow_settings(Handle handle, const FlowSettings& settings) {
  const Lock lock(*this);
  const auto flow = find(handle);
  if (!flow || (*flow)->gone || (*flow)->settings == settings) return;
  (*flow)->settings = settings;
  owe(handle, owed_options);
}

Result<SocketArea::Look> SocketArea::look(Handle handle) {
  const Lock lock(*this);
  take_all();
  return known_locked(handle);
}

Result<SocketArea::Look> SocketArea::known(Handle handle) const {
  const Lock lock(*this);
  return known_locked(handle);
}

Result<SocketArea::Look> SocketArea::known_locked(Handle handle) const {
  if (handle >= layout_.flows || (cell(handle).is != Cell::Is::flow && cell(handle).is != Cell::Is::listener))
    return fail(Error::invalid, "handle {} is neither a connection nor a listener", handle);
  const Cell& at = cell(handle);
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
  look.readable =
      closed || look.finished || look.unread > 0 || (at.is == Cell::Is::listener && oldest_waiting(handle) != nobody);
  look.writable =
      closed || at.finishing ||
      (at.is == Cell::Is::flow && look.connected && !at.is_between_rings() && at.is_writable(at.bytes(Way::out)));
  look.error = at.error;
  look.acknowledged = at.acknowledged;
  look.round_trip_us = at.round_trip_us;
  look.window = at.window;
  look.mss = at.mss;
  look.local.port = at.port;
  if (at.is == Cell::Is::listener) return look;
  look.remote = {remote_address(handle), at.remote_port};
  look.local.address = own_address(look.remote.address.family());
  return look;
}

}  // namespace offpath::channel
