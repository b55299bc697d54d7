// How a host program and an agent come to a link: connection, authentication, limits, proof of direct reads.
//
//   host                                             agent
//   connect()  -- Hello, channel segment ---------->  AgentHandshake (Unix: peer credentials)
//              <-- Challenge: nonce ---------------   network only
//              -- Proof --------------------------->
//              <-- Welcome, with the agent's proof-   accept()
//              or Refusal: code and message           refuse()
//
// The host's side blocks until its deadline. The agent's side is an object of its event loop: a client that is slow
// or sends garbage costs it nothing but the object, until the deadline.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "link/address.h"
#include "link/control/authentication.h"
#include "link/control/control_socket.h"
#include "link/control/peer.h"
#include "link/control/tls.h"
#include "link/doca/doca_link.h"
#include "link/link.h"
#include "link/local/local_agent_link.h"
#include "link/verbs/verbs_link.h"
#include "wire/control.h"

namespace offpath::link {

// ---- the host's end

struct HostOptions {
  std::string name{};  // what the agent calls this program; at most 255 bytes
  wire::ChannelLayout layout{};
  bool force_staging = false;
  std::string key_file{};     // shared key; needed for tcp, tls, verbs and doca
  std::string tls_ca_file{};  // needed for tls
};

// Connects and shakes hands; blocks until the deadline at most.
[[nodiscard]] Result<std::unique_ptr<HostLink>> connect(const Address& address, const HostOptions& options,
                                                        TimeNs deadline);

// ---- the agent's end

// Who may connect and with what; outlives the handshakes that use it. When keys change, new handshakes get a new one.
struct AgentPolicy {
  std::vector<uid_t> uids;            // on a Unix socket, besides root and the agent's own user
  std::optional<SharedKey> key;       // without one every network connection is refused
  std::vector<SharedKey> old_keys{};  // good enough besides `key`, while programs change over to that one
  std::unique_ptr<TlsContext> tls;    // for listeners at tls: addresses
  SegmentLimits segments;
  std::shared_ptr<LastingMemory>
      lasting;                 // the agent's frames, for listeners at verbs: and doca: addresses; may be null
  bool force_staging = false;  // as if direct reads were not permitted
  std::shared_ptr<ReceivedFds> received = std::make_shared<ReceivedFds>();  // over Unix sockets
  std::shared_ptr<UserReaders> readers = std::make_shared<UserReaders>();   // of programs on Unix sockets
  TimeNs silence_ns = silence_default_ns;  // of another machine, until its channel ends; both sides keep to it
};

inline constexpr TimeNs handshake_wait_ns = 5 * second_ns;

// Call advance() when fd() is readable (writable, if wants_write()) and at the deadline, until it is not `pending`
// any more. Then, if `ready`: accept() or refuse(). If `failed`: throw it away, the client has been told.
class AgentHandshake {
 public:
  enum class State { pending, ready, failed };

  // `transport` is the kind of address the listener has, `socket` what accept_from() gave. On a Unix socket a user who
  // is not on the list has `failed` at once, and been told.
  AgentHandshake(Fd socket, Address::Kind transport, const AgentPolicy& policy, TimeNs now);
  AgentHandshake(AgentHandshake&&) = default;
  AgentHandshake& operator=(AgentHandshake&&) = default;

  State advance(TimeNs now);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] TimeNs deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool wants_write() const noexcept { return socket_.wants_write(); }
  [[nodiscard]] const Failure& failure() const noexcept { return failure_; }  // of `failed`
  // Of `ready`. On the network the uid and pid are 0: not known.
  [[nodiscard]] const wire::Hello& hello() const noexcept { return hello_; }
  [[nodiscard]] uid_t uid() const noexcept { return peer_.uid; }
  [[nodiscard]] gid_t gid() const noexcept { return peer_.gid; }
  [[nodiscard]] pid_t pid() const noexcept { return peer_.pid; }
  [[nodiscard]] bool knows_an_old_key_only() const noexcept { return key_ != nullptr && key_ != &*policy_->key; }

  // Welcomes the host and yields the link. Of `welcome` the caller sets incarnation, memory_bytes_max, pid,
  // agent_name and agent_version; the rest is filled in.
  [[nodiscard]] Result<std::unique_ptr<AgentLink>> accept(wire::Welcome welcome);
  void refuse(Error code, std::string message);

 private:
  enum class Step { hello, proof };

  [[nodiscard]] Result<State> step();
  [[nodiscard]] Result<State> take_hello(const ControlSocket::Frame& frame);
  [[nodiscard]] Result<State> take_local();
  [[nodiscard]] Result<State> take_proof(const ControlSocket::Frame& frame);
  [[nodiscard]] Status admit() const;

  Address::Kind transport_;
  const AgentPolicy* policy_;
  TimeNs deadline_;
  ControlSocket socket_;
  State state_ = State::pending;
  Step step_ = Step::hello;
  Peer peer_;
  DirectReads direct_;
  std::shared_ptr<UserReaders::User> reader_;
  SegmentMemory channel_segment_;
  wire::Hello hello_;
  std::vector<std::byte> hello_bytes_;
  wire::Nonce nonce_{};
  const SharedKey* key_ = nullptr;  // that the program has shown to know; the agent shows that it knows the same
  Failure failure_{Error::closed, "the handshake is not over"};
};

// ---- both ends

// What authentication.h binds its proofs to: the TLS session, or nothing.
[[nodiscard]] Result<std::vector<std::byte>> session_binding(const ControlSocket& socket);
[[nodiscard]] std::string network_reason(Address::Kind transport);
// What the two ends of this control connection, and nobody else, can say when its queue pair is connected.
[[nodiscard]] Result<VerbsProofs> verbs_proofs(const SharedKey& key, const wire::Nonce& host_nonce,
                                               const wire::Nonce& agent_nonce, Bytes binding);

}  // namespace offpath::link
