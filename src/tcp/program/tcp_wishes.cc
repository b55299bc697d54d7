// Programs' commands. A returned failure means that the command is invalid: it ends the program. A valid command that
// cannot be carried out is answered with an event.
#include "tcp/program/tcp_service.h"

#include <algorithm>

#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

using wire::TcpError;
using wire::TcpWish;
using wire::TcpWishKind;
namespace news = wire::tcp_news;

constexpr unsigned wishes_of_a_round = 256;  // then the next program has its turn
constexpr std::uint16_t privileged_ports = 1024;

FlowOptions options_of(const TcpWish& wish) noexcept {
  FlowOptions options;
  options.nagle = (wish.flags & wire::tcp_no_delay) == 0;
  options.user_timeout_ns = wish.user_timeout_ms * millisecond_ns;
  if ((wish.flags & wire::tcp_keepalive) != 0 && wish.keepalive_idle_s != 0) {
    options.keepalive_idle_ns = wish.keepalive_idle_s * second_ns;
    options.keepalive_interval_ns = std::max<TimeNs>(wish.keepalive_interval_s, 1) * second_ns;
    options.keepalive_probes = std::max<std::uint8_t>(wish.keepalive_probes, 1);
  }
  return options;
}

TcpError error_of(Error error) noexcept {
  switch (error) {
    case Error::exists:
      return TcpError::address_in_use;
    case Error::no_space:
      return TcpError::no_room;
    default:
      return TcpError::unreachable;
  }
}

}  // namespace

bool TcpService::take_wishes(Program& program, TimeNs now) {
  TcpWish wish;
  for (unsigned i = 0; i < wishes_of_a_round; ++i) {
    auto there = program.area.take(wish);
    Status taken;
    if (there && *there)
      taken = take(program, wish, now);
    else if (there)
      return i > 0;
    else
      taken = tl::unexpected<Failure>(std::move(there).error());
    if (!taken) {
      end(program, std::move(taken).error());
      return true;
    }
    ++counters_.wishes;
  }
  return true;
}

Status TcpService::take(Program& program, const TcpWish& wish, TimeNs now) {
  if (wish.kind == TcpWishKind::sleep) return {};  // concerns the link to the program alone (area_mirror.h)
  if (wish.handle >= program.area.layout().flows)
    return fail(Error::protocol, "a command for handle {}; there are {} handles", wish.handle,
                program.area.layout().flows);
  if (wish.handle >= program.held.size()) program.held.resize(wish.handle + 1);
  Held& held = program.held[wish.handle];
  const bool begins =
      wish.kind == TcpWishKind::listen || wish.kind == TcpWishKind::seat || wish.kind == TcpWishKind::connect;
  if (wish.kind == TcpWishKind::listen ? core_ != 0 : begins && wish.handle % cores_ != core_)
    return fail(Error::protocol, "command {} for handle {} was given to core {} of {}, which is not its core",
                static_cast<int>(wish.kind), wish.handle, core_, cores_);
  if (begins && (held.is != Held::Is::free || held.listed))
    return fail(Error::protocol, "a command that begins handle {}, which is in use", wish.handle);
  switch (wish.kind) {
    case TcpWishKind::listen:
      return listen(program, held, wish);
    case TcpWishKind::seat:
      return seat(program, held, wish);
    case TcpWishKind::connect:
      return connect(program, held, wish, now);
    case TcpWishKind::offer:
    case TcpWishKind::allow:
    case TcpWishKind::finish:
    case TcpWishKind::release:
    case TcpWishKind::abort:
    case TcpWishKind::options:
    case TcpWishKind::holders:
    case TcpWishKind::shut: {
      const bool ends = wish.kind == TcpWishKind::release || wish.kind == TcpWishKind::abort;
      if (held.is == Held::Is::free || held.is == Held::Is::stopping)
        return {};  // the connection is gone; the program may not have seen that event yet
      if (held.is == Held::Is::flow && wish.kind == TcpWishKind::shut) return shut(program, wish.handle), Status();
      if (held.is == Held::Is::flow) return for_flow(held, wish, now);
      if (held.is == Held::Is::claiming) return for_claiming(held, wish);
      if (!ends)
        return fail(Error::protocol, "command {} for handle {}, which is not a flow", static_cast<int>(wish.kind),
                    wish.handle);
      if (held.is == Held::Is::listener && core_ != 0)
        return fail(Error::protocol, "a command for listener {} was given to core {} instead of 0", wish.handle, core_);
      if (held.is == Held::Is::listener)
        stop(program, wish.handle);
      else
        give_back(program, wish.handle);
      return {};
    }
    case TcpWishKind::sleep:
      return {};
  }
  return fail(Error::protocol, "a command has the unknown kind {}", static_cast<int>(wish.kind));
}

Status TcpService::take_rings(Program& program, Held& held, const TcpWish& wish) const {
  const wire::TcpAreaLayout& layout = program.area.layout();
  OFP_TRY(wire::check_tcp_ring(layout, wish.handle, wish.send_at, wish.send_bytes));
  OFP_TRY(wire::check_tcp_ring(layout, wish.handle, wish.receive_at, wish.receive_bytes));
  held.send_at = wish.send_at;
  held.send_bytes = wish.send_bytes;
  held.receive_at = wish.receive_at;
  held.receive_bytes = wish.receive_bytes;
  return {};
}

bool TcpService::charge(Program& program, const Held& held) {
  constexpr std::uint64_t block_bytes = 64 << 10;
  struct Blocks {
    std::ptrdiff_t first, end;
  };
  const auto blocks_of = [](std::uint64_t at, std::uint64_t length) {
    return Blocks{static_cast<std::ptrdiff_t>(at / block_bytes),
                  static_cast<std::ptrdiff_t>((at + length + block_bytes - 1) / block_bytes)};
  };
  std::vector<Blocks> rings{blocks_of(held.receive_at, held.receive_bytes)};
  if (program.who.linked) rings.push_back(blocks_of(held.send_at, held.send_bytes));
  std::uint64_t bytes = 0;
  for (const auto& [first, end] : rings) {
    if (program.charged.size() < static_cast<std::size_t>(end)) program.charged.resize(static_cast<std::size_t>(end));
    bytes += static_cast<std::uint64_t>(
                 std::count(program.charged.begin() + first, program.charged.begin() + end, false)) *
             block_bytes;
  }
  if (bytes == 0) return true;
  std::uint64_t of_user = bytes, of_all = bytes;
  for (const auto& [number, each] : programs_) {
    of_all += each.charged_bytes;
    if (each.who.user == program.who.user) of_user += each.charged_bytes;
  }
  if (of_user > limits_.receive_bytes_of_user_max / cores_ || of_all > limits_.receive_bytes_max / cores_) return false;
  for (const auto& [first, end] : rings)
    std::fill(program.charged.begin() + first, program.charged.begin() + end, true);
  program.charged_bytes += bytes;
  return true;
}

Status TcpService::listen(Program& program, Held& held, const TcpWish& wish) {
  if (wish.receive_bytes < wire::tcp_ring_bytes_min || wish.receive_bytes > wire::tcp_ring_bytes_max)
    return fail(Error::protocol, "handle {}: a listener whose flows have rings of {} bytes", wish.handle,
                wish.receive_bytes);
  held.port = wish.port;
  const auto refuse = [&](TcpError error) -> Status {
    tell(program, wish.handle, news::closed | news::gone, error);
    return {};
  };
  if (wish.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
  if (is_claimed_by_others(program, wish.port)) return refuse(TcpError::address_in_use);
  if (const Status listens =
          stack_->listen(wish.port, tag_of(program, wish.handle), wish.receive_bytes, options_of(wish));
      !listens)
    return refuse(error_of(listens.error().code));
  held.is = Held::Is::listener;
  held.receive_bytes = wish.receive_bytes;
  listens(program, wish.handle, options_of(wish));
  return {};
}

Status TcpService::seat(Program& program, Held& held, const TcpWish& wish) {
  if (wish.listener >= program.area.layout().flows)
    return fail(Error::protocol, "an accept slot for listener {}; there are {} handles", wish.listener,
                program.area.layout().flows);
  OFP_TRY(take_rings(program, held, wish));
  held.listener = wish.listener;
  // The listener may have been refused, and the program may not have seen that event yet.
  if (wish.listener >= program.held.size() || program.held[wish.listener].is != Held::Is::listener) {
    tell(program, wish.handle, news::closed | news::gone, TcpError::refused);
    return {};
  }
  Held& listener = program.held[wish.listener];
  if (held.receive_bytes < listener.receive_bytes)
    return fail(Error::protocol, "an accept slot of {} bytes for a listener that allows {}", held.receive_bytes,
                listener.receive_bytes);
  held.is = Held::Is::seat;
  listener.seats.insert(wish.handle);
  return {};
}

Status TcpService::connect(Program& program, Held& held, const TcpWish& wish, TimeNs now) {
  OFP_TRY(take_rings(program, held, wish));
  const Ipv4Address own = stack_->options().address;
  if (wish.port != 0 &&
      wire::core_of_flow(own.value, wish.port, wish.remote_address, wish.remote_port, cores_) != core_)
    return fail(Error::protocol, "a connection from port {} to {} was given to core {} of {}, which is not its core",
                wish.port, text_of(Endpoint{{wish.remote_address}, wish.remote_port}), core_, cores_);
  const auto refuse = [&](TcpError error) -> Status {
    tell(program, wish.handle, news::closed | news::gone, error);
    return {};
  };
  held.key = {{own, wish.port}, {{wish.remote_address}, wish.remote_port}};
  held.options = options_of(wish);
  if (!charge(program, held)) {
    ++counters_.without_memory;
    return refuse(TcpError::no_room);
  }
  if (wish.port != 0) {
    if (wish.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
    if (core_ != 0) {
      held.is = Held::Is::claiming;
      messages_.push_back(
          {.kind = CoreMessage::Kind::claim, .program = program.number, .handle = wish.handle, .port = wish.port});
      return {};
    }
    if (!claim_here(program, wish.port)) return refuse(TcpError::address_in_use);
    held.claims = true;
  }
  connect_now(program, wish.handle, now);
  return {};
}

void TcpService::connect_now(Program& program, std::uint32_t handle, TimeNs now) {
  Held& held = program.held[handle];
  const auto connected = stack_->connect(held.key.local.port, held.key.remote, tag_of(program, handle),
                                         held.receive_bytes, now, held.options);
  if (!connected) {
    unclaim(program, held);
    held.is = Held::Is::free;
    return tell(program, handle, news::closed | news::gone, error_of(connected.error().code));
  }
  held.is = Held::Is::flow;
  held.id = *connected;
  held.key = stack_->flow(*connected)->key;
}

// Commands for a connection before core 0 has decided about its port.
Status TcpService::for_claiming(Held& held, const TcpWish& wish) const {
  OFP_TRY(check_position(held, wish));
  switch (wish.kind) {
    case TcpWishKind::offer:
      held.offered = std::max(held.offered, wish.position);
      break;
    case TcpWishKind::finish:
      held.finishes = true;
      break;
    case TcpWishKind::holders:
      held.holders = wish.position;
      break;
    case TcpWishKind::options:
      held.options = options_of(wish);
      break;
    case TcpWishKind::release:
    case TcpWishKind::abort:
      held.is = Held::Is::stopping;
      break;
    default:
      break;  // no more is allowed than the initial window
  }
  return {};
}

Status TcpService::check_position(const Held& held, const TcpWish& wish) {
  if (wish.kind == TcpWishKind::offer && !held.may_offer(wish.position, held.send_bytes))
    return fail(Error::protocol, "handle {}: offers bytes up to {}, but from {} on its ring has {} bytes", wish.handle,
                wish.position, held.acknowledged, held.send_bytes);
  if (wish.kind == TcpWishKind::allow && !held.may_allow(wish.position, held.receive_bytes))
    return fail(Error::protocol, "handle {}: allows bytes up to {}, but from {} on its ring has {} bytes", wish.handle,
                wish.position, held.received, held.receive_bytes);
  return {};
}

Status TcpService::for_flow(Held& held, const TcpWish& wish, TimeNs now) {
  OFP_TRY(check_position(held, wish));
  switch (wish.kind) {
    case TcpWishKind::offer:
      held.offered = std::max(held.offered, wish.position);
      stack_->offer(held.id, wish.position, now);
      return {};
    case TcpWishKind::allow:
      if (held.shut != 0) held.shut = wire::tcp_shut::refused;
      stack_->allow(held.id, wish.position, now);
      return {};
    case TcpWishKind::finish:
      stack_->finish(held.id);
      return {};
    case TcpWishKind::release:
      stack_->release(held.id, now);
      return {};
    case TcpWishKind::abort:
      stack_->abort(held.id, now);
      return {};
    case TcpWishKind::holders:
      held.holders = wish.position;
      return {};
    default:
      stack_->set_options(held.id, options_of(wish), now);
      return {};
  }
}

void TcpService::shut(Program& program, std::uint32_t handle) {
  Held& held = program.held[handle];
  held.shut = stack_->shut(held.id) ? wire::tcp_shut::done : wire::tcp_shut::refused;
  tell(program, handle, news::received);
}

void TcpService::give_back(Program& program, std::uint32_t handle) {
  Held& seat = program.held[handle];
  program.held[seat.listener].seats.erase(handle);
  seat.is = Held::Is::free;
  tell(program, handle, news::gone);
}

}  // namespace offpath::tcp
