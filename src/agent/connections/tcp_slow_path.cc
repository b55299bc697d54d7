#include "agent/connections/tcp_slow_path.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "wire/messages/tcp_messages.h"
#include "wire/region.h"

namespace offpath::agent {

TcpSlowPath::~TcpSlowPath() { leave(); }

Status TcpSlowPath::open(channel::AgentEnd& channel, const channel::Entry& request, bool privileged, tcp::Stack& stack,
                         TimeNs now) {
  wire::TcpSlowPathOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (!wanted_)
    return fail(Error::unsupported, "this agent does the slow path of its TCP itself (tcp.slow_path = \"agent\")");
  if (!privileged) return fail(Error::denied, "the slow path is for root and the agent's own user");
  if (there_) return fail(Error::exists, "another process does the slow path of this agent already");
  if (asked.version != wire::tcp_slow_version)
    return fail(Error::version, "slow path: its memory has version {}, this agent needs {}", asked.version,
                wire::tcp_slow_version);
  const wire::RegionId region = asked.memory.region;
  if (!wire::is_segment(region) || region == wire::channel_segment || asked.memory.offset != 0)
    return fail(Error::invalid,
                "a slow path needs a segment of its own, from offset 0; the request names region {:#x} at {}", region,
                asked.memory.offset);
  const MutableBytes mapped = channel.link().mapped(region);
  if (mapped.empty())
    return fail(Error::unsupported,
                "the agent cannot map the memory of this process: a slow path needs an agent on its own machine");
  const wire::TcpSlowLayout layout{asked.ring_bytes};
  OFP_TRY(wire::check_tcp_slow_layout(layout, mapped.size()));
  OFP_ASSIGN(MappedAgain memory, MappedAgain::of(mapped));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  Fd own(ends[0]);
  const Fd theirs(ends[1]);
  OFP_TRY(channel.hand_over(request.ticket, theirs.get()));
  OFP_TRY(loop_.watch(own.get(), EPOLLIN, [this](std::uint32_t, TimeNs) { on_woken(); }));
  there_ = std::make_unique<There>(channel.number(), std::move(own), std::move(memory), stack, layout, counters_, now);
  return {};
}

// The datagram only wakes: the rings hold the work.
void TcpSlowPath::on_woken() {
  constexpr int datagrams_of_a_look = 16;
  char bytes[16];
  for (int i = 0; there_ && i < datagrams_of_a_look; ++i) {
    const ssize_t got = recv(there_->wake.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0)
      return lose(
          {Error::closed, "the process of the slow path has closed the descriptor by which it wakes the agent"});
  }
}

void TcpSlowPath::leave() {
  if (there_) loop_.unwatch(there_->wake.get());
  there_.reset();
}

void TcpSlowPath::lose(Failure why) {
  ended_ = Ended{there_->channel, std::move(why)};
  leave();
}

void TcpSlowPath::on_channel_closed(std::uint64_t channel) {
  if (there_ && there_->channel == channel) leave();
  if (ended_ && ended_->channel == channel) ended_.reset();
}

bool TcpSlowPath::poll(TimeNs now) {
  if (!there_) return false;
  auto polled = there_->end.poll(now);
  if (polled) return *polled;
  lose(std::move(polled).error());
  return true;
}

std::optional<TcpSlowPath::Ended> TcpSlowPath::finish_round() {
  if (there_ && there_->end.wants_wake())
    static_cast<void>(send(there_->wake.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  return std::exchange(ended_, std::nullopt);
}

}  // namespace offpath::agent
