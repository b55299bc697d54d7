#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "base/constant_time.h"
#include "link/handshake/handshake.h"
#include "link/handshake/job_labels.h"
#include "link/local/local_host_link.h"
#include "link/local/sealed_memory.h"
#include "link/stream/stream_host_link.h"

namespace offpath::link {

using wire::ControlType;

namespace {

tl::unexpected<Failure> handshake_failure(const Address& address, Failure failure) {
  if (failure.code == Error::timeout)
    return fail(Error::timeout, "the agent at {} did not answer in time: it is busy or stopped", address.text());
  if (failure.code == Error::peer_lost)
    return fail(Error::peer_lost, "the agent at {} closed the connection during the handshake: is it an Offpath agent?",
                address.text());
  return fail(failure.code, "agent at {}: {}", address.text(), failure.message);
}

Result<ControlSocket::Frame> await(ControlSocket& socket, ControlType wanted, const Address& address, TimeNs deadline) {
  auto frame = await_frame(socket, deadline);
  if (!frame) return handshake_failure(address, std::move(frame).error());
  if (frame->type == ControlType::refusal)
    return refused(frame->payload, fmt::format("the agent at {} refuses", address.text()));
  if (frame->type != wanted) return unexpected_frame(frame->type, "in the handshake");
  return *frame;
}

wire::Hello hello_of(const HostOptions& options) {
  wire::Hello hello;
  hello.layout = options.layout;
  hello.force_staging = options.force_staging;
  hello.pid = getpid();
  hello.name = options.name;
  hello.job_labels = own_job_labels();
  return hello;
}

Result<std::unique_ptr<HostLink>> connect_local(Fd connected, const Address& address, const HostOptions& options,
                                                TimeNs deadline) {
  ControlSocket socket(std::move(connected), ControlSocket::Kind::unix_socket);
  OFP_ASSIGN(Peer agent, peer_of(socket.fd()));
  permit_reads_by(agent.pid);
  OFP_ASSIGN(SegmentMemory channel_segment, allocate_sealed(options.layout.total_bytes()));

  wire::Hello hello = hello_of(options);
  hello.channel_address = reinterpret_cast<std::uint64_t>(channel_segment.data());
  std::vector<std::byte> payload;
  wire::encode(hello, payload);
  if (auto sent = socket.send(ControlType::hello, payload, channel_segment.fd());
      !sent && sent.error().code != Error::peer_lost)
    return handshake_failure(address, std::move(sent).error());
  OFP_ASSIGN(const ControlSocket::Frame frame, await(socket, ControlType::welcome, address, deadline));
  OFP_ASSIGN(wire::Welcome welcome, wire::decode_welcome(frame.payload));
  Fd wakes = socket.take_descriptor();
  return LocalHostLink::create(std::move(socket), std::move(wakes), std::move(agent), std::move(channel_segment),
                               std::move(welcome));
}

Result<std::unique_ptr<HostLink>> connect_network(const Address& address, const HostOptions& options, TimeNs deadline) {
  if (options.key_file.empty())
    return fail(Error::denied,
                "the agent at {} is reached over the network: name the key file that both sides share (key_file)",
                address.text());
  OFP_ASSIGN(const SharedKey key, SharedKey::load(options.key_file));
  std::unique_ptr<TlsContext> tls;
  if (address.kind == Address::Kind::tls) {
    if (options.tls_ca_file.empty())
      return fail(Error::denied,
                  "the agent at {} is reached over TLS: name the file with its certificate authority (tls_ca_file)",
                  address.text());
    OFP_ASSIGN(tls, TlsContext::for_host(options.tls_ca_file));
  }
  OFP_ASSIGN(Fd connected, dial(address, deadline));
  std::unique_ptr<TlsSession> session;
  if (tls) {
    OFP_ASSIGN(session, tls->connect(connected.get(), address.host));
  }
  ControlSocket socket(std::move(connected), ControlSocket::Kind::network, std::move(session));

  wire::Hello hello = hello_of(options);
  hello.nonce = random_nonce();
  std::vector<std::byte> said;
  wire::encode(hello, said);
  if (auto sent = socket.send(ControlType::hello, said); !sent && sent.error().code != Error::peer_lost)
    return handshake_failure(address, std::move(sent).error());
  OFP_ASSIGN(const ControlSocket::Frame challenge, await(socket, ControlType::challenge, address, deadline));
  wire::Nonce agent_nonce;
  if (challenge.payload.size() != agent_nonce.size())
    return fail(Error::protocol, "challenge: {} bytes, expected {}", challenge.payload.size(), agent_nonce.size());
  std::ranges::copy(challenge.payload, agent_nonce.begin());
  OFP_ASSIGN(const std::vector<std::byte> binding, session_binding(socket));
  OFP_ASSIGN(const wire::Proof proof, key.prove(SharedKey::Side::host, hello.nonce, agent_nonce, binding, said));
  if (auto sent = socket.send(ControlType::proof, proof); !sent && sent.error().code != Error::peer_lost)
    return handshake_failure(address, std::move(sent).error());

  OFP_ASSIGN(const ControlSocket::Frame frame, await(socket, ControlType::welcome, address, deadline));
  OFP_ASSIGN(wire::Welcome welcome, wire::decode_welcome(frame.payload));
  const wire::Proof given = std::exchange(welcome.proof, {});
  wire::encode(welcome, said);
  OFP_ASSIGN(const wire::Proof wanted, key.prove(SharedKey::Side::agent, hello.nonce, agent_nonce, binding, said));
  if (!equal_in_constant_time(wanted, given))
    return fail(Error::denied, "the agent at {} does not know the key in {}", address.text(), options.key_file);
  socket.end_when_silent(TimeNs{welcome.silence_ms} * millisecond_ns);
  OFP_ASSIGN(SegmentMemory channel_segment, allocate_shared(options.layout.total_bytes()));
  if (address.kind == Address::Kind::verbs) {
    OFP_ASSIGN(const VerbsProofs proofs, verbs_proofs(key, hello.nonce, agent_nonce, binding));
    return connect_verbs(std::move(socket), proofs, std::move(channel_segment), options.layout.outside(),
                         std::move(welcome), options.devices, deadline);
  }
  if (address.kind == Address::Kind::doca)
    return connect_doca(std::move(socket), std::move(channel_segment), std::move(welcome), deadline);
  return StreamHostLink::create(std::move(socket), std::move(channel_segment), std::move(welcome),
                                options.stream_threads);
}

Result<std::unique_ptr<HostLink>> connect_once(const Address& address, const HostOptions& options, TimeNs deadline) {
  if (address.kind != Address::Kind::unix_socket) return connect_network(address, options, deadline);
  OFP_ASSIGN(Fd connected, dial(address, deadline));
  return connect_local(std::move(connected), address, options, deadline);
}

// The agent accepts a limited number of connections from one source at a time. Connections beyond it try again at
// random times. Before a TLS session exists the agent cannot send this reason and just closes; so may an unrelated
// service, which is tried less often.
class Turns {
 public:
  explicit Turns(const Address& address) : is_tls_(address.kind == Address::Kind::tls) {}
  // Waits before another attempt; true: try again.
  bool wait(Error why, TimeNs deadline) {
    const bool is_closed = why == Error::peer_lost && is_tls_ && closed_++ < closed_max;
    const TimeNs pause = backoff_ns(pause_min_ns, waits_++, pause_max_ns);
    if ((why != Error::would_block && !is_closed) || monotonic_ns() + pause >= deadline) return false;
    const timespec sleep{0, pause + monotonic_ns() % pause};
    nanosleep(&sleep, nullptr);
    return true;
  }

 private:
  static constexpr TimeNs pause_min_ns = 2 * millisecond_ns, pause_max_ns = 100 * millisecond_ns;
  static constexpr unsigned closed_max = 8;
  bool is_tls_;
  unsigned closed_ = 0, waits_ = 0;
};

}  // namespace

Result<std::unique_ptr<HostLink>> connect(const Address& address, const HostOptions& options, TimeNs deadline) {
  if (options.name.size() > 255)
    return fail(Error::invalid, "the program's name has {} bytes, at most 255 are allowed", options.name.size());
  OFP_TRY(wire::check_layout(options.layout));
  for (Turns turns(address);;) {
    auto link = connect_once(address, options, deadline);
    if (link || !turns.wait(link.error().code, deadline)) return link;
  }
}

}  // namespace offpath::link
