#include "link_members.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "link/handshake/handshake.h"

namespace offpath::bench {
namespace {

constexpr TimeNs start_wait_ns = 60 * second_ns;  // an emulated machine is slow
constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

struct Report {
  std::uint64_t range_base = 0, segment_base = 0;
  std::uint32_t range_key = 0;
  std::uint16_t server_port = 0;
  char failure[200] = {};  // empty: none
};

// A directory with the key for both sides of a network link; removed with this object.
class KeyDirectory {
 public:
  [[nodiscard]] static Result<KeyDirectory> make() {
    char path[] = "/tmp/offpath-bench-XXXXXX";
    if (mkdtemp(path) == nullptr) return fail_errno(errno, "mkdtemp");
    KeyDirectory made;
    made.path_ = path;
    const Fd key(open(made.key().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    const std::string text = fmt::format("{:016x}{:016x}", link::random_number(), link::random_number());
    if (!key || write(key.get(), text.data(), text.size()) != ssize_t(text.size()))
      return fail_errno(errno, made.key());
    return made;
  }
  KeyDirectory(KeyDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  KeyDirectory& operator=(KeyDirectory&&) = delete;
  ~KeyDirectory() {
    if (path_.empty()) return;
    unlink(key().c_str());
    unlink(socket().c_str());
    rmdir(path_.c_str());
  }
  [[nodiscard]] std::string key() const { return path_ + "/key"; }
  [[nodiscard]] std::string socket() const { return path_ + "/socket"; }

 private:
  KeyDirectory() = default;
  std::string path_;
};

// ---- in the programs

bool receive_all(int socket, std::byte* to, std::size_t length) {
  while (length > 0) {
    const ssize_t got = recv(socket, to, length, 0);
    if (got <= 0) return false;
    to += got;
    length -= std::size_t(got);
  }
  return true;
}

bool send_all(int socket, const std::byte* from, std::size_t length) {
  while (length > 0) {
    const ssize_t sent = send(socket, from, length, MSG_NOSIGNAL);
    if (sent < 0) return false;
    from += sent;
    length -= std::size_t(sent);
  }
  return true;
}

// Serves one connection, then exits.
[[noreturn]] void serve(int listener, const std::byte* memory, std::uint64_t bytes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  if (!socket || setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) _exit(1);
  std::vector<std::byte> pushed(bytes);
  ServerRequest request;
  while (receive_all(socket.get(), reinterpret_cast<std::byte*>(&request), sizeof request)) {
    if (request.pushed > bytes || request.wanted > bytes) break;
    if (!receive_all(socket.get(), pushed.data(), request.pushed)) break;
    if (!send_all(socket.get(), memory, request.wanted)) break;
  }
  _exit(0);
}

Result<std::uint16_t> start_server(const std::byte* memory, std::uint64_t bytes) {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  if (!listener || bind(listener.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
      listen(listener.get(), 1) != 0 || getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &length) != 0)
    return fail_errno(errno, "a server's socket");
  const pid_t child = fork();
  if (child < 0) return fail_errno(errno, "fork");
  if (child == 0) serve(listener.get(), memory, bytes);
  return ntohs(at.sin_port);
}

Status hold_memory(const MembersPlan& plan, const link::Address& address, const std::string& key_file,
                   int report_socket) {
  if (!plan.group.empty()) OFP_TRY(join_group(plan.group));
  OFP_TRY(pin_to_core(plan.core));
  OFP_ASSIGN(const Pages memory, Pages::map(plan.range_bytes));
  Report report;
  if (plan.servers) {
    OFP_ASSIGN(report.server_port, start_server(memory.data(), std::max(plan.range_bytes, plan.segment_bytes)));
  }
  char go = 0;
  if (recv(report_socket, &go, 1, 0) != 1) return fail(Error::peer_lost, "the bench ended");
  link::HostOptions options{.name = "bench", .layout = layout};
  if (address.kind != link::Address::Kind::unix_socket) options.key_file = key_file;
  OFP_ASSIGN(const auto host, link::connect(address, options, monotonic_ns() + start_wait_ns));
  if (host->traits().staged) return fail(Error::unsupported, "{}", host->traits().reason);
  OFP_ASSIGN(const link::SegmentMemory segment, host->allocate(plan.segment_bytes));
  OFP_TRY(host->announce_segment(Member::segment, segment, monotonic_ns() + start_wait_ns));
  OFP_ASSIGN(report.range_key,
             host->announce_range(Member::range, Member::generation, memory.data(), plan.range_bytes));
  report.range_base = reinterpret_cast<std::uint64_t>(memory.data());
  report.segment_base = reinterpret_cast<std::uint64_t>(segment.data());
  if (send(report_socket, &report, sizeof report, MSG_NOSIGNAL) < 0) return fail_errno(errno, "send");
  while (host->look()) host->wait(never);
  return {};
}

[[noreturn]] void run_member(const MembersPlan& plan, const link::Address& address, const std::string& key_file,
                             Fd report_socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const Status held = hold_memory(plan, address, key_file, report_socket.get()); !held) {
    Report report;
    const std::string& why = held.error().message;
    std::memcpy(report.failure, why.data(), std::min(why.size(), sizeof report.failure - 1));
    (void)send(report_socket.get(), &report, sizeof report, MSG_NOSIGNAL);
  }
  _exit(0);
}

// ---- in the bench

Result<std::unique_ptr<link::AgentLink>> accept_link(int listener, link::Address::Kind kind,
                                                     const link::AgentPolicy& policy) {
  pollfd look{listener, POLLIN, 0};
  if (poll(&look, 1, int(start_wait_ns / millisecond_ns)) != 1)
    return fail(Error::timeout, "a program did not connect");
  OFP_ASSIGN(Fd socket, link::accept_from(listener));
  link::AgentHandshake handshake(std::move(socket), kind, policy, monotonic_ns());
  while (handshake.advance(monotonic_ns()) == link::AgentHandshake::State::pending) {
    look = {handshake.fd(), short(handshake.wants_write() ? POLLIN | POLLOUT : POLLIN), 0};
    (void)poll(&look, 1, 100);
  }
  if (handshake.state() == link::AgentHandshake::State::failed) return tl::unexpected<Failure>(handshake.failure());
  wire::Welcome welcome;
  welcome.agent_name = "bench";
  return handshake.accept(welcome);
}

// Serves the links while a program announces its memory.
Result<Report> await_report(Member& member) {
  for (const TimeNs deadline = monotonic_ns() + start_wait_ns; monotonic_ns() < deadline;) {
    Report report;
    const ssize_t got = recv(member.report.get(), &report, sizeof report, MSG_DONTWAIT);
    if (got == ssize_t(sizeof report) && report.failure[0] != '\0')
      return fail(Error::io, "a program: {}", report.failure);
    if (got == ssize_t(sizeof report)) return report;
    if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return fail(Error::peer_lost, "a program ended");
    std::array<link::LinkEvent, 4> events;
    if (member.link) member.link->poll(monotonic_ns(), events);
  }
  return fail(Error::timeout, "a program did not announce its memory");
}

Result<Fd> connect_server(std::uint16_t port) {
  Fd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  const int on = 1;
  if (!made || connect(made.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 ||
      setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    return fail_errno(errno, "connecting to a server");
  return made;
}

Status open_member(Member& member, const MembersPlan& plan, int listener, link::Address::Kind kind,
                   const link::AgentPolicy& policy) {
  if (send(member.report.get(), "g", 1, MSG_NOSIGNAL) != 1) return await_report(member).map([](const Report&) {});
  auto accepted = accept_link(listener, kind, policy);
  if (accepted) member.link = std::move(*accepted);
  auto reported = await_report(member);  // knows the reason if it did not connect
  if (!reported) return tl::unexpected<Failure>(std::move(reported).error());
  if (!accepted) return tl::unexpected<Failure>(std::move(accepted).error());
  member.range_base = reported->range_base;
  member.segment_base = reported->segment_base;
  OFP_TRY(member.link->attach_range(Member::range, Member::generation, member.range_base, plan.range_bytes,
                                    reported->range_key));
  if (plan.servers) {
    OFP_ASSIGN(member.server, connect_server(reported->server_port));
  }
  return {};
}

}  // namespace

Member::~Member() {
  if (pid < 0) return;
  if (link) link->close();
  shutdown(report.get(), SHUT_RDWR);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

Status join_group(const std::string& procs_file) {
  const Fd file(open(procs_file.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string own = fmt::format("{}", getpid());
  if (!file || write(file.get(), own.data(), own.size()) != ssize_t(own.size())) return fail_errno(errno, procs_file);
  return {};
}

Result<std::vector<Member>> start_members(const MembersPlan& plan) {
  OFP_ASSIGN(const KeyDirectory directory, KeyDirectory::make());
  OFP_ASSIGN(link::Address address,
             link::Address::parse(plan.address.empty() ? "unix:" + directory.socket() : plan.address));
  OFP_ASSIGN(const Fd listener, link::listen_at(address, false));
  std::vector<Member> members(plan.count);
  for (Member& member : members) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
    member.report = Fd(ends[0]);
    Fd theirs(ends[1]);
    member.pid = fork();
    if (member.pid < 0) return fail_errno(errno, "fork");
    if (member.pid == 0) run_member(plan, address, directory.key(), std::move(theirs));
  }
  link::AgentPolicy policy;
  if (address.kind != link::Address::Kind::unix_socket) {
    OFP_ASSIGN(policy.key, link::SharedKey::load(directory.key()));
  }
  for (Member& member : members) OFP_TRY(open_member(member, plan, listener.get(), address.kind, policy));
  return members;
}

}  // namespace offpath::bench
