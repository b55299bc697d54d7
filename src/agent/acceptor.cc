#include "agent/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "agent/cores/hand_over.h"
#include "base/log.h"
#include "base/text.h"
#include "link/handshake/job_labels.h"

namespace offpath::agent {

using Kind = link::Address::Kind;

namespace {

using State = link::AgentHandshake::State;

constexpr unsigned connections_of_a_look = 16;                  // then other work gets its turn
constexpr TimeNs rest_after_failure_ns = 100 * millisecond_ns;  // out of descriptors, for instance
constexpr TimeNs introduction_ns = 200 * millisecond_ns;        // a connection's minimum time before it may be given up
                                                                // for others
constexpr TimeNs standstill_ns = second_ns;                     // a timer this late means that the process was stopped
constexpr unsigned extensions_max = 3;

std::string source_of(const link::AgentHandshake& handshake, Kind kind) {
  if (kind == Kind::unix_socket) return std::to_string(handshake.uid());
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  return getpeername(handshake.fd(), reinterpret_cast<sockaddr*>(&name), &length) == 0 ? network_source(name) : "";
}

std::string own_host() {
  char name[256] = "";
  (void)gethostname(name, sizeof name - 1);
  return printable(name);
}

}  // namespace

std::string network_source(const sockaddr_storage& name) {
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(name).sin_addr, text, sizeof text);
  } else if (name.ss_family == AF_INET6) {
    in6_addr address = reinterpret_cast<const sockaddr_in6&>(name).sin6_addr;
    const bool is_mapped = IN6_IS_ADDR_V4MAPPED(&address);
    if (!is_mapped) std::fill(address.s6_addr + 8, address.s6_addr + 16, std::uint8_t{0});
    inet_ntop(is_mapped ? AF_INET : AF_INET6, address.s6_addr + (is_mapped ? 12 : 0), text, sizeof text);
  }
  return text;
}

Acceptor::Acceptor(loop::Loop& loop, std::shared_ptr<const link::AgentPolicy> policy, wire::Welcome welcome,
                   const Options& options, std::function<Status(uid_t)> may_welcome,
                   std::function<void(Arrival, TimeNs)> on_arrival)
    : loop_(loop),
      policy_(std::move(policy)),
      welcome_(std::move(welcome)),
      options_(options),
      may_welcome_(std::move(may_welcome)),
      on_arrival_(std::move(on_arrival)) {}

Acceptor::~Acceptor() { close(); }

Status Acceptor::listen(link::Address& address) {
  const bool local = address.kind == Kind::unix_socket;
  if (local) OFP_TRY(prepare_directory_of(address.path, options_.everyone));
  OFP_ASSIGN(Fd socket, link::listen_at(address, options_.everyone));
  Listener& listener = listeners_.emplace_back(Listener{std::move(socket), address.kind, nullptr});
  if (local) listener.file = std::make_unique<SocketFile>(address.path);
  return watch(listener);
}

Status Acceptor::adopt(Fd socket, Kind kind, bool handed) {
  Listener& listener = listeners_.emplace_back(Listener{std::move(socket), kind, nullptr});
  listener.handed = handed;
  return watch(listener);
}

Status Acceptor::watch(Listener& listener) {
  return loop_.watch(listener.socket.get(), EPOLLIN,
                     [this, &listener](std::uint32_t, TimeNs now) { take_connections(listener, now); });
}

void Acceptor::close() {
  while (!handshakes_.empty()) forget(handshakes_.begin());
  for (const Listener& listener : listeners_) {
    if (listener.rest_timer != 0) loop_.timers().cancel(listener.rest_timer);
    loop_.unwatch(listener.socket.get());
  }
  listeners_.clear();
}

AcceptorCounters Acceptor::counters() const noexcept {
  AcceptorCounters counters = counters_;
  counters.handshakes = handshakes_.size();
  return counters;
}

void Acceptor::take_connections(Listener& listener, TimeNs now) {
  for (unsigned i = 0; i < connections_of_a_look && !listener.resting; ++i) {
    // A new connection may be refused, which adds one more pending close: rest while too many are pending.
    if (listener.kind == Kind::unix_socket && policy_->received->overrun())
      return rest(listener, now + rest_after_failure_ns);
    if (listener.handshakes >= options_.handshakes_max) {
      pollfd waiting{listener.socket.get(), POLLIN, 0};
      if (poll(&waiting, 1, 0) != 1) return;
      if (const TimeNs until = make_room(listener, now); until > now) return rest(listener, until);
    }
    auto socket = listener.handed ? take_over(listener.socket.get()) : link::accept_from(listener.socket.get());
    if (!socket && listener.handed && socket.error().code == Error::peer_lost) {  // this process is about to end
      listener.resting = true;
      return loop_.unwatch(listener.socket.get());
    }
    if (!socket) {
      log(LogLevel::warning, "no connection can be accepted: {}", socket.error().message);
      return rest(listener, now + rest_after_failure_ns);
    }
    if (!*socket) return;
    ++counters_.connections;
    if (listener.handed && counted_.took) counted_.took();
    begin(std::move(*socket), listener, now);
  }
}

// Gives up the oldest connection of the source with the most connections, so that a flood costs only its own source.
// Returns `now` if there is room, else when that connection may be given up.
TimeNs Acceptor::make_room(Listener& listener, TimeNs now) {
  std::map<std::string_view, std::size_t> counts;
  for (const Handshake& each : handshakes_)
    if (each.listener == &listener) ++counts[each.source];
  const auto most = std::ranges::max_element(counts, {}, &std::pair<const std::string_view, std::size_t>::second);
  const auto oldest = std::ranges::find_if(
      handshakes_, [&](const Handshake& each) { return each.listener == &listener && each.source == most->first; });
  const TimeNs until = oldest->began + introduction_ns;
  advance(oldest, now);  // its introduction may have arrived
  if (listener.handshakes < options_.handshakes_max) return now;
  if (now < until) return until;
  give_up(oldest, "the handshake was not complete in time, and other connections wait");
  return now;
}

// False: this source is at its limit, and none of its connections may be given up yet.
bool Acceptor::make_room_of_source(const Listener& listener, const std::string& source, TimeNs now) {
  const auto is_its = [&](const Handshake& each) { return each.listener == &listener && each.source == source; };
  const auto has_room = [&] {
    return static_cast<std::size_t>(std::ranges::count_if(handshakes_, is_its)) < options_.handshakes_of_source_max;
  };
  if (has_room()) return true;
  const auto oldest = std::ranges::find_if(handshakes_, is_its);
  const TimeNs until = oldest->began + introduction_ns;
  advance(oldest, now);  // its introduction may have arrived
  if (has_room()) return true;
  if (now < until) return false;
  give_up(oldest, "the handshake was not complete in time, and other connections of the same source wait");
  return true;
}

void Acceptor::give_up(HandshakeAt at, std::string why) {
  at->state.refuse(Error::would_block, std::move(why));
  log(LogLevel::info, "a connection was given up: {}", at->state.failure().message);
  ++counters_.refused;
  forget(at);
}

void Acceptor::rest(Listener& listener, TimeNs until) {
  listener.resting = true;
  (void)loop_.watch_for(listener.socket.get(), 0);
  listener.rest_timer = loop_.timers().start(until, [this, &listener](TimeNs, TimeNs) {
    listener.rest_timer = 0;
    resume(listener);
  });
}

void Acceptor::resume(Listener& listener) {
  if (!listener.resting) return;
  if (listener.rest_timer != 0) loop_.timers().cancel(std::exchange(listener.rest_timer, 0));
  listener.resting = false;
  (void)loop_.watch_for(listener.socket.get(), EPOLLIN);
}

void Acceptor::begin(Fd socket, Listener& listener, TimeNs now) {
  const int fd = socket.get();
  link::AgentHandshake state(std::move(socket), listener.kind, *policy_, now);
  std::string source;
  if (state.state() == State::pending) {
    source = source_of(state, listener.kind);
    if (!make_room_of_source(listener, source, now))
      state.refuse(Error::would_block,
                   fmt::format("{} handshakes of the same source are not complete, which is the limit: try again",
                               options_.handshakes_of_source_max));
  }
  handshakes_.push_back({policy_, std::move(state), &listener, std::move(source), now});
  const HandshakeAt at = std::prev(handshakes_.end());
  ++listener.handshakes;
  if (at->state.state() == State::pending) {
    if (Status watched = loop_.watch(fd, EPOLLIN, [this, at](std::uint32_t, TimeNs later) { advance(at, later); });
        !watched) {
      at->state.refuse(Error::io, watched.error().message);
    }
  }
  start_timer(at, at->state.deadline());
  advance(at, now);
}

void Acceptor::start_timer(HandshakeAt at, TimeNs due) {
  at->timer = loop_.timers().start(due, [this, at](TimeNs now, TimeNs asked) { on_deadline(at, now, asked); });
}

// If this process was stopped for a while (SIGSTOP, or a paused virtual machine), the program's answer may still be in
// the socket or on its way. The connection then gets its time once more.
void Acceptor::on_deadline(HandshakeAt at, TimeNs now, TimeNs due) {
  at->timer = 0;
  if (now - due > standstill_ns && at->extensions++ < extensions_max)
    return start_timer(at, now + link::handshake_wait_ns);
  if (at->state.advance(std::max(now, at->state.deadline())) == State::ready) return welcome(at, now);
  log(LogLevel::info, "a connection was given up: {}", at->state.failure().message);
  ++counters_.refused;
  forget(at);
}

void Acceptor::advance(HandshakeAt at, TimeNs now) {
  // Only the timer decides about the deadline.
  switch (at->state.advance(std::min(now, at->state.deadline() - 1))) {
    case State::ready:
      return welcome(at, now);
    case State::failed:
      log(LogLevel::info, "a connection was refused: {}", at->state.failure().message);
      ++counters_.refused;
      return forget(at);
    case State::pending:
      break;
  }
  if (at->writing != at->state.wants_write()) {
    at->writing = at->state.wants_write();
    (void)loop_.watch_for(at->state.fd(), at->writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void Acceptor::welcome(HandshakeAt at, TimeNs now) {
  const bool local = at->listener->kind == Kind::unix_socket;
  // A program that connects over the network has proved that it knows the agent's user's key.
  const uid_t user = local ? at->state.uid() : geteuid();
  if (Status admitted = may_welcome_(user); !admitted) {
    log(LogLevel::warning, "{} was refused: {}", printable(at->state.hello().name), admitted.error().message);
    at->state.refuse(admitted.error().code, admitted.error().message);
    ++counters_.refused;
    return forget(at);
  }
  const wire::Hello hello = at->state.hello();
  service::Client client{printable(hello.name), user, local ? at->state.pid() : hello.pid, {}};
  if (local) client.group = at->state.gid();
  client.host = local ? own_host() : at->source;
  client.job_labels = link::job_labels_of(local ? at->state.pid() : 0, hello.job_labels);
  for (std::string* each : {&client.job_labels.job, &client.job_labels.step, &client.job_labels.cgroup})
    *each = printable(*each);
  if (at->state.knows_an_old_key_only()) {
    log(LogLevel::warning, "{} (process {}) knows an old key only: give it the one in security.key_file",
        client.program, client.pid);
    ++counters_.welcomed_by_old_key;
  }
  loop_.unwatch(at->state.fd());  // the link watches it from now on
  auto link = at->state.accept(welcome_);
  if (!link) {
    log(LogLevel::warning, "{} was not welcomed: {}", client.program, link.error().message);
    ++counters_.refused;
    return forget(at);
  }
  ++counters_.welcomed;
  const bool handed = at->listener->handed;
  forget(at, true);
  on_arrival_({std::move(*link), hello.layout, std::move(client), handed}, now);
}

void Acceptor::forget(HandshakeAt at, bool welcomed) {
  if (at->state.fd() >= 0) loop_.unwatch(at->state.fd());
  if (at->timer != 0) loop_.timers().cancel(at->timer);
  Listener& listener = *at->listener;
  if (listener.handed && !welcomed && counted_.ended) counted_.ended();
  handshakes_.erase(at);
  --listener.handshakes;
  resume(listener);
}

}  // namespace offpath::agent
