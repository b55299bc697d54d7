#include "agent/acceptor.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/json.h"
#include "base/log.h"
#include "link/job_labels.h"

namespace offpath::agent {

namespace {

using Kind = link::Address::Kind;
using State = link::AgentHandshake::State;

constexpr unsigned connections_of_a_look = 16;                  // then other work gets its turn
constexpr TimeNs rest_after_failure_ns = 100 * millisecond_ns;  // out of descriptors, for instance
constexpr TimeNs standstill_ns = second_ns;                     // a timer so late means that the process was stopped
constexpr unsigned extensions_max = 3;

}  // namespace

Acceptor::Acceptor(loop::Loop& loop, std::shared_ptr<const link::AgentPolicy> policy, wire::Welcome welcome,
                   const Options& options, std::function<Status(uid_t)> may_welcome, std::function<void(Arrival, TimeNs)> on_arrival)
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
  return loop_.watch(listener.socket.get(), EPOLLIN,
                     [this, &listener](std::uint32_t, TimeNs now) { take_connections(listener, now); });
}

void Acceptor::close() {
  while (!handshakes_.empty()) forget(handshakes_.begin());
  if (rest_timer_ != 0) loop_.timers().cancel(rest_timer_);
  for (const Listener& listener : listeners_) loop_.unwatch(listener.socket.get());
  listeners_.clear();
}

AcceptorCounters Acceptor::counters() const noexcept {
  AcceptorCounters counters = counters_;
  counters.handshakes = handshakes_.size();
  return counters;
}

void Acceptor::take_connections(const Listener& listener, TimeNs now) {
  for (unsigned i = 0; i < connections_of_a_look && !resting_; ++i) {
    if (handshakes_.size() >= options_.handshakes_max) return rest(now, never);
    auto socket = link::accept_from(listener.socket.get());
    if (!socket) {
      log(LogLevel::warning, "no connection can be accepted: {}", socket.error().message);
      return rest(now, now + rest_after_failure_ns);
    }
    if (!*socket) return;
    ++counters_.connections;
    begin(std::move(*socket), listener.kind, now);
  }
}

void Acceptor::rest(TimeNs, TimeNs until) {
  resting_ = true;
  for (const Listener& listener : listeners_) (void)loop_.watch_for(listener.socket.get(), 0);
  if (until != never) {
    rest_timer_ = loop_.timers().start(until, [this](TimeNs, TimeNs) {
      rest_timer_ = 0;
      resume();
    });
  }
}

void Acceptor::resume() {
  if (!resting_ || rest_timer_ != 0) return;
  resting_ = false;
  for (const Listener& listener : listeners_) (void)loop_.watch_for(listener.socket.get(), EPOLLIN);
}

void Acceptor::begin(Fd socket, Kind kind, TimeNs now) {
  const int fd = socket.get();
  handshakes_.push_back({policy_, link::AgentHandshake(std::move(socket), kind, *policy_, now), kind});
  const HandshakeAt at = std::prev(handshakes_.end());
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

// The program's answer may lie in the socket, or be on its way, when this process was stopped for a while (SIGSTOP, a
// virtual machine that was paused): then it gets its time once more.
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
  // The deadline is the timer's to judge.
  switch (at->state.advance(std::min(now, at->state.deadline() - 1))) {
    case State::ready: return welcome(at, now);
    case State::failed:
      log(LogLevel::info, "a connection was refused: {}", at->state.failure().message);
      ++counters_.refused;
      return forget(at);
    case State::pending: break;
  }
  if (at->writing != at->state.wants_write()) {
    at->writing = at->state.wants_write();
    (void)loop_.watch_for(at->state.fd(), at->writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void Acceptor::welcome(HandshakeAt at, TimeNs now) {
  const bool local = at->kind == Kind::unix_socket;
  // Who comes by network has shown that it knows the key, which is the agent's user's.
  const uid_t user = local ? at->state.uid() : geteuid();
  if (Status admitted = may_welcome_(user); !admitted) {
    log(LogLevel::warning, "{} was refused: {}", printable(at->state.hello().name), admitted.error().message);
    at->state.refuse(admitted.error().code, admitted.error().message);
    ++counters_.refused;
    return forget(at);
  }
  const wire::Hello hello = at->state.hello();
  mover::Client client{printable(hello.name), user, local ? at->state.pid() : hello.pid, {}};
  if (local) client.group = at->state.gid();
  client.job_labels = link::job_labels_of(local ? at->state.pid() : 0, hello.job_labels);
  for (std::string* each : {&client.job_labels.job, &client.job_labels.step, &client.job_labels.cgroup}) *each = printable(*each);
  if (at->state.knows_an_old_key_only()) {
    log(LogLevel::warning, "{} (process {}) knows an old key only: give it the one in security.key_file", client.program,
        client.pid);
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
  forget(at);
  on_arrival_({std::move(*link), hello.layout, std::move(client)}, now);
}

void Acceptor::forget(HandshakeAt at) {
  if (at->state.fd() >= 0) loop_.unwatch(at->state.fd());
  if (at->timer != 0) loop_.timers().cancel(at->timer);
  handshakes_.erase(at);
  if (handshakes_.size() < options_.handshakes_max) resume();
}

}  // namespace offpath::agent
