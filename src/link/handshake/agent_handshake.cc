#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/constant_time.h"
#include "link/handshake/handshake.h"
#include "link/local/sealed_memory.h"
#include "link/stream/stream_agent_link.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr auto stranger = static_cast<uid_t>(-1);  // stands for all users who are not on the list

}  // namespace

AgentHandshake::AgentHandshake(Fd socket, Address::Kind transport, const AgentPolicy& policy, TimeNs now)
    : transport_(transport), policy_(&policy), deadline_(deadline_after(now, handshake_wait_ns)) {
  if (transport == Address::Kind::unix_socket) {
    auto peer = peer_of(socket.get());
    if (peer) peer_ = std::move(*peer);
    Status admitted = peer ? admit() : tl::unexpected(std::move(peer).error());
    const auto user = policy.received->of(admitted ? peer_.uid : stranger);
    if (admitted) admitted = user->may_take();
    socket_ = ControlSocket(std::move(socket), ControlSocket::Kind::unix_socket, nullptr, user);
    if (!admitted) refuse(admitted.error().code, std::move(admitted).error().message);
    return;
  }
  tune_network_socket(socket.get());
  if (transport != Address::Kind::tls) {
    socket_ = ControlSocket(std::move(socket), ControlSocket::Kind::network);
    return;
  }
  OFP_ASSERT(policy.tls);  // without TLS the owner does not listen at tls: addresses
  auto session = policy.tls->accept(socket.get());
  socket_ = ControlSocket(std::move(socket), ControlSocket::Kind::network, session ? std::move(*session) : nullptr);
  if (!session) {
    failure_ = std::move(session).error();
    state_ = State::failed;
    socket_.close();
  }
}

AgentHandshake::State AgentHandshake::advance(TimeNs now) {
  if (state_ != State::pending) return state_;
  auto stepped = step();  // received bytes count even after the deadline
  if (!stepped)
    refuse(stepped.error().code, std::move(stepped.error().message));
  else if (*stepped != State::pending)
    state_ = *stepped;
  else if (now >= deadline_)
    refuse(Error::timeout,
           fmt::format("the handshake was not complete after {} ms", handshake_wait_ns / millisecond_ns));
  return state_;
}

Result<AgentHandshake::State> AgentHandshake::step() {
  OFP_TRY(socket_.flush());
  ControlSocket::Frame frame;
  OFP_ASSIGN(const bool there, socket_.next(frame));
  if (!there) return State::pending;
  switch (step_) {
    case Step::hello:
      return take_hello(frame);
    case Step::proof:
      return take_proof(frame);
  }
  return State::pending;
}

Result<AgentHandshake::State> AgentHandshake::take_hello(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::hello) return unexpected_frame(frame.type, "before hello");
  if (transport_ != Address::Kind::unix_socket) OFP_TRY(admit());
  OFP_ASSIGN(hello_, wire::decode_hello(frame.payload));
  if (transport_ == Address::Kind::unix_socket) return take_local();

  hello_bytes_.assign(frame.payload.begin(), frame.payload.end());
  nonce_ = random_nonce();
  OFP_TRY(socket_.send(ControlType::challenge, nonce_));
  step_ = Step::proof;
  return step();
}

Status AgentHandshake::admit() const {
  if (transport_ != Address::Kind::unix_socket) {
    if (!policy_->key)
      return fail(Error::denied,
                  "this agent accepts no network connections: it was started without a key file (security.key_file)");
    return {};
  }
  if (peer_.uid == 0 || peer_.uid == geteuid() || std::ranges::find(policy_->uids, peer_.uid) != policy_->uids.end())
    return {};
  return fail(Error::denied, "uid {} may not use this agent; allowed uids are 0, {}{}{}", peer_.uid, geteuid(),
              policy_->uids.empty() ? "" : ", ", fmt::join(policy_->uids, ", "));
}

Result<AgentHandshake::State> AgentHandshake::take_local() {
  const Fd memory = socket_.take_descriptor();
  OFP_ASSIGN(channel_segment_,
             map_sealed(memory.get(), hello_.layout.total_bytes(), "channel segment", socket_.user()));
  if (hello_.force_staging != 0) {
    direct_ = {false, "the program asked for staging"};
  } else if (policy_->force_staging) {
    direct_ = {false, "the agent is configured for staging"};
  } else {
    reader_ = policy_->readers->of(peer_.uid);
    if (reader_) {
      direct_ = ask_for_direct_reads(peer_);
    } else {
      Witness witness(channel_segment_.bytes(), hello_.channel_address);
      direct_ = try_direct_reads(peer_, witness);
    }
  }
  return State::ready;
}

Result<AgentHandshake::State> AgentHandshake::take_proof(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::proof) return unexpected_frame(frame.type, "before the proof");
  if (frame.payload.size() != wire::proof_bytes)
    return fail(Error::protocol, "proof: {} bytes, expected {}", frame.payload.size(), wire::proof_bytes);
  wire::Proof given;
  std::ranges::copy(frame.payload, given.begin());
  OFP_ASSIGN(const std::vector<std::byte> binding, session_binding(socket_));
  const auto look_at = [&](const SharedKey& key) -> Status {
    OFP_ASSIGN(const wire::Proof own, key.prove(SharedKey::Side::host, hello_.nonce, nonce_, binding, hello_bytes_));
    if (key_ == nullptr && equal_in_constant_time(own, given)) key_ = &key;
    return {};
  };
  OFP_TRY(look_at(*policy_->key));
  for (const SharedKey& key : policy_->old_keys) OFP_TRY(look_at(key));
  if (key_ == nullptr)
    return fail(Error::denied, "the program does not know the agent's key: both need the same key file");
  return State::ready;
}

Result<std::unique_ptr<AgentLink>> AgentHandshake::accept(wire::Welcome welcome) {
  OFP_ASSERT(state_ == State::ready);
  const bool local = transport_ == Address::Kind::unix_socket;
  welcome.version = wire::protocol_version;
  welcome.direct = local && direct_.permitted;
  welcome.reason = local ? direct_.reason : network_reason(transport_);
  welcome.silence_ms = static_cast<std::uint32_t>(policy_->silence_ns / millisecond_ns);
  welcome.proof = {};
  std::vector<std::byte> payload;
  wire::encode(welcome, payload);
  if (!local) {
    std::vector<std::byte> said = hello_bytes_;
    said.insert(said.end(), payload.begin(), payload.end());
    OFP_ASSIGN(const std::vector<std::byte> binding, session_binding(socket_));
    OFP_ASSIGN(welcome.proof, key_->prove(SharedKey::Side::agent, hello_.nonce, nonce_, binding, said));
    payload.clear();
    wire::encode(welcome, payload);
  }
  state_ = State::failed;  // this object is used up in any case
  Fd wakes(local ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1);
  if (local && !wakes) return fail_errno(errno, "eventfd");
  OFP_TRY(socket_.send(ControlType::welcome, payload, wakes.get()));
  if (local)
    return std::make_unique<LocalAgentLink>(std::move(socket_), std::move(wakes), std::move(peer_), std::move(direct_),
                                            std::move(channel_segment_), hello_.channel_address, policy_->segments,
                                            std::move(reader_));
  socket_.end_when_silent(policy_->silence_ns);
  if (transport_ == Address::Kind::verbs) {
    OFP_ASSIGN(const std::vector<std::byte> binding, session_binding(socket_));
    OFP_ASSIGN(const VerbsProofs proofs, verbs_proofs(*key_, hello_.nonce, nonce_, binding));
    const ChannelBytes channel{hello_.layout.total_bytes(), hello_.layout.outside()};
    return accept_verbs(std::move(socket_), proofs, channel, policy_->segments, policy_->devices,
                        deadline_after(monotonic_ns(), handshake_wait_ns));
  }
  if (transport_ == Address::Kind::doca)
    return accept_doca(std::move(socket_), hello_.layout.total_bytes(), policy_->segments, policy_->devices,
                       deadline_after(monotonic_ns(), handshake_wait_ns));
  return StreamAgentLink::create(std::move(socket_), hello_.layout.total_bytes(), policy_->segments,
                                 std::move(welcome.reason));
}

void AgentHandshake::refuse(Error code, std::string message) {
  state_ = State::failed;
  failure_ = {code, std::move(message)};
  send_refusal(socket_, failure_);
  // With unread bytes the kernel would reset the connection, and the refusal would be lost.
  (void)shutdown(socket_.fd(), SHUT_WR);
  socket_.empty(16);
}

}  // namespace offpath::link
