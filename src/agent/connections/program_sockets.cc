#include "agent/connections/program_sockets.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace offpath::agent {

namespace {

struct Datagram {
  ssize_t length;
  wire::TcpJoin join;
  std::array<Fd, 2> sockets;
};

// Takes the descriptors that came with it, but no more than a joining process sends.
Datagram receive_from(int fd, const std::shared_ptr<ReceivedFds::User>& user) {
  Datagram got{};
  const iovec part{&got.join, sizeof got.join};
  std::vector<Fd> descriptors;
  int said = 0;
  got.length = receive_with_descriptors(fd, {&part, 1}, MSG_DONTWAIT, user, descriptors, said);
  for (std::size_t i = 0; i < std::min(descriptors.size(), got.sockets.size()); ++i)
    got.sockets[i] = std::move(descriptors[i]);
  return got;
}

// Other descriptors might block the agent, or raise unexpected signals.
[[nodiscard]] bool is_socket_of_datagrams(const Fd& fd) {
  int domain = 0, type = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX &&
         getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

void send_byte(int fd) { static_cast<void>(::send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL)); }

}  // namespace

ProgramSockets::~ProgramSockets() {
  for (const auto& [number, program] : programs_)
    for (const auto& [process, sockets] : program.processes) loop_.unwatch(sockets.wake->get());
}

Status ProgramSockets::open(std::uint64_t program, channel::AgentEnd& channel, std::uint64_t ticket,
                            std::shared_ptr<ReceivedFds::User> user) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  Fd own = user->own(ends[0]);  // the program accounts for the data in the socket
  const Fd theirs(ends[1]);
  OFP_TRY(channel.hand_over(ticket, theirs.get()));
  programs_[program].user = std::move(user);
  return watch(program, 0, {std::make_shared<const Fd>(std::move(own)), {}});
}

void ProgramSockets::close(std::uint64_t program) {
  const auto gone = programs_.extract(program);
  if (!gone) return;
  for (const auto& [process, sockets] : gone.mapped().processes) loop_.unwatch(sockets.wake->get());
}

void ProgramSockets::wake(std::uint64_t program, std::uint32_t process) const {
  const auto at = programs_.find(program);
  if (at == programs_.end()) return;
  const auto of = at->second.processes.find(process);
  if (of != at->second.processes.end()) return send_byte(of->second.wake->get());
  for (const auto& [other, sockets] : at->second.processes)
    if (sockets.notices) send_byte(sockets.notices.get());
}

Status ProgramSockets::watch(std::uint64_t program, std::uint32_t process, Process sockets) {
  OFP_TRY(loop_.watch(sockets.wake->get(), EPOLLIN,
                      [this, program, process](std::uint32_t, TimeNs now) { on_readable(program, process, now); }));
  owner_.on_socket(program, process, sockets.wake);
  programs_.at(program).processes.insert_or_assign(process, std::move(sockets));
  return {};
}

// The datagram only wakes: the rings hold the work.
void ProgramSockets::on_readable(std::uint64_t program, std::uint32_t process, TimeNs now) {
  constexpr int datagrams_of_a_look = 16;
  for (int i = 0; i < datagrams_of_a_look; ++i) {
    const auto at = programs_.find(program);
    if (at == programs_.end() || !at->second.processes.contains(process)) return;
    Datagram got = receive_from(at->second.processes.at(process).wake->get(), at->second.user);
    if (got.length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // ECONNRESET: the other end closed with a wake unread. The kernel reports it once, before the datagrams that were
    // sent earlier, which may include a process's join.
    if (got.length < 0 && errno == ECONNRESET) continue;
    if (got.length <= 0) return on_ended(program, process, now);
    owner_.on_woken(program);
    if (got.length != sizeof got.join || got.join.kind != wire::TcpJoin::join) continue;
    if (Status joined = join(program, process, got.join, std::move(got.sockets)); !joined)
      return owner_.refuse(program, std::move(joined).error(), now);
  }
}

Status ProgramSockets::join(std::uint64_t program, std::uint32_t from, const wire::TcpJoin& join,
                            std::array<Fd, 2> sockets) {
  if (!sockets[0] || !sockets[1])
    return fail(Error::protocol, "process {} joins without its two sockets, or there were no free descriptors for them",
                join.process);
  if (!is_socket_of_datagrams(sockets[0]) || !is_socket_of_datagrams(sockets[1]))
    return fail(Error::protocol, "process {} joins with descriptors that are not datagram sockets", join.process);
  OFP_TRY(programs_.at(program).user->may_take());
  if (join.process != from)
    OFP_TRY(owner_.on_joined(program, join.process));
  else
    loop_.unwatch(programs_.at(program).processes.at(from).wake->get());
  // Has the process look once: a wake may have gone to its previous socket, or been lost.
  send_byte(sockets[0].get());
  return watch(program, join.process, {std::make_shared<const Fd>(std::move(sockets[0])), std::move(sockets[1])});
}

// The program itself decides who takes over the ended process's connections: its remaining processes release them.
void ProgramSockets::on_ended(std::uint64_t program, std::uint32_t process, TimeNs now) {
  Program& its = programs_.at(program);
  loop_.unwatch(its.processes.at(process).wake->get());
  its.processes.erase(process);
  if (!owner_.on_process_ended(program, process) || its.processes.empty())
    owner_.refuse(program,
                  {Error::closed,
                   "every process of the program has closed the descriptor by which its connections wake the agent"},
                  now);
}

}  // namespace offpath::agent
