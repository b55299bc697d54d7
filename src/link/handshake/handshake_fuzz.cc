// Bytes of an unauthenticated client, first to the agent's side of a handshake and then, as if it had succeeded, to an
// open link. The first byte chooses a Unix socket or network, and how the bytes are cut.
#include <sys/socket.h>

#include "link/handshake/handshake.h"
#include "link/local/sealed_memory.h"
#include "link/stream/stream_agent_link.h"
#include "wire/region.h"

using namespace offpath;
using namespace offpath::link;

namespace {

struct Pair {
  Fd ours, theirs;
};

Pair connected() {
  int fds[2];
  OFP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

template <class Step>
void feed(const Fd& to, Bytes bytes, std::size_t cut, Step step) {
  while (!bytes.empty()) {
    const ssize_t sent = send(to.get(), bytes.data(), std::min(bytes.size(), cut), MSG_NOSIGNAL | MSG_DONTWAIT);
    step();
    if (sent <= 0) return;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

void shake_hands(Address::Kind kind, Bytes bytes, std::size_t cut) {
  static const AgentPolicy policy = [] {
    AgentPolicy made;
    made.key = std::move(*SharedKey::from_bytes(bytes_of("a key for the fuzzer")));
    return made;
  }();
  Pair pair = connected();
  AgentHandshake handshake(std::move(pair.theirs), kind, policy, 0);
  feed(pair.ours, bytes, cut, [&] { handshake.advance(1); });
  OFP_ASSERT(handshake.state() != AgentHandshake::State::ready || kind == Address::Kind::unix_socket);
  handshake.advance(handshake.deadline());
}

void use_link(Address::Kind kind, Bytes bytes, std::size_t cut) {
  Pair pair = connected();
  std::unique_ptr<AgentLink> link;
  if (kind == Address::Kind::unix_socket) {
    link = std::make_unique<LocalAgentLink>(ControlSocket(std::move(pair.theirs), ControlSocket::Kind::unix_socket),
                                            Fd(), Peer{}, DirectReads{false, "fuzzed"},
                                            std::move(*allocate_sealed(65536)), 0, SegmentLimits{});
  } else {
    link = std::move(*StreamAgentLink::create(ControlSocket(std::move(pair.theirs), ControlSocket::Kind::network),
                                              65536, SegmentLimits{}, "fuzzed"));
    OFP_ASSERT(link->attach_range(1, 1, 0, 65536, 0));
  }
  // Transfers 1 to 4 are under way, so that answers to them can arrive.
  static std::byte memory[4][256];
  const ReadPiece reads[] = {{wire::channel_segment, 0, 0, memory[0], 100},
                             {wire::channel_segment, 0, 64, memory[1], 256}};
  const WritePiece write{wire::channel_segment, 128, memory[2], 8};
  link->read(1, reads);
  link->write(2, {&write, 1});
  link->read(3, {reads, 1});
  std::size_t reads_done = 0;
  bool closed = false;
  TimeNs now = 0;
  feed(pair.ours, bytes, cut, [&] {
    LinkEvent events[4];
    const std::size_t count = link->poll(now += second_ns, events);
    OFP_ASSERT(!closed || count == 0);
    for (std::size_t i = 0; i < count; ++i) {
      closed = closed || events[i].kind == LinkEvent::Kind::closed;
      reads_done += events[i].kind == LinkEvent::Kind::read_done;
    }
  });
  OFP_ASSERT(reads_done <= 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const auto kind = (data[0] & 1) != 0 ? Address::Kind::tcp : Address::Kind::unix_socket;
  const std::size_t cut = (data[0] & 4) != 0 ? 1 + (data[0] >> 3) : size;
  if ((data[0] & 2) != 0) {
    use_link(kind, bytes, cut);
  } else {
    shake_hands(kind, bytes, cut);
  }
  return 0;
}
