// How a host program and an agent set up a link: connection, authentication, limits, and the test of direct reads. Read
// this first in link/handshake.
//
//   host                                             agent
//   connect()  -- Hello, channel segment ---------->  AgentHandshake (Unix: peer credentials)
//              <-- Challenge: nonce ---------------   network only
//              -- Proof --------------------------->
//              <-- Welcome, with the agent's proof-   accept()
//              or Refusal: code and message           refuse()
//
// The host's side blocks until its deadline. The agent's side is an object of its event loop: a slow client, or one
// that sends garbage, costs it only that object, until the deadline.
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

class StreamThreads;

struct HostOptions {
  std::string name{};  // the agent's name for this program; at most 255 bytes
  wire::ChannelLayout layout{};
  bool force_staging = false;
  std::string key_file{};                           // shared key; needed for tcp, tls, verbs and doca
  std::string tls_ca_file{};                        // needed for tls
  std::shared_ptr<StreamThreads> stream_threads{};  // of all tcp and tls links that get these; null: each has its own
  std::shared_ptr<CardDevices> devices{};           // of an agent that is the host; null: each link has its own
};

// Connects and performs the handshake; blocks at most until the deadline.
[[nodiscard]] Result<std::unique_ptr<HostLink>> connect(const Address& address, const HostOptions& options,
                                                        TimeNs deadline);

// ---- the agent's end

// Access rules for new connections; outlives the handshakes that use it. When keys change, new handshakes get a new
// policy.
struct AgentPolicy {
  std::vector<uid_t> uids;            // users admitted on a Unix socket, besides root and the agent's own user
  std::optional<SharedKey> key;       // without it every network connection is refused
  std::vector<SharedKey> old_keys{};  // also accepted, while programs change over to `key`
  std::unique_ptr<TlsContext> tls;    // for listeners at tls: addresses
  SegmentLimits segments;
  std::shared_ptr<CardDevices> devices;  // for listeners at verbs: and doca: addresses; null: each link has its own
  bool force_staging = false;            // as if direct reads were not permitted
  std::shared_ptr<ReceivedFds> received = std::make_shared<ReceivedFds>();  // over Unix sockets
  std::shared_ptr<UserReaders> readers = std::make_shared<UserReaders>();   // of programs on Unix sockets
  TimeNs silence_ns = silence_default_ns;  // of another machine, until its channel ends; both sides use it
};

inline constexpr TimeNs handshake_wait_ns = 5 * second_ns;

// Call advance() when fd() is readable (writable, if wants_write()) and at the deadline, as long as it is `pending`.
// Then, if `ready`, call accept() or refuse(). If `failed`, drop the object: the client has been informed.
class AgentHandshake {
 public:
  enum class State { pending, ready, failed };

  // `transport` is the listener's kind of address, `socket` comes from accept_from(). On a Unix socket the state is
  // `failed` at once for a user who is not admitted, and the client has been informed.
  AgentHandshake(Fd socket, Address::Kind transport, const AgentPolicy& policy, TimeNs now);
  AgentHandshake(AgentHandshake&&) = default;
  AgentHandshake& operator=(AgentHandshake&&) = default;

  State advance(TimeNs now);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] TimeNs deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool wants_write() const noexcept { return socket_.wants_write(); }
  [[nodiscard]] const Failure& failure() const noexcept { return failure_; }  // if `failed`
  // If `ready`. Over the network uid and pid are 0, because they are unknown.
  [[nodiscard]] const wire::Hello& hello() const noexcept { return hello_; }
  [[nodiscard]] uid_t uid() const noexcept { return peer_.uid; }
  [[nodiscard]] gid_t gid() const noexcept { return peer_.gid; }
  [[nodiscard]] pid_t pid() const noexcept { return peer_.pid; }
  [[nodiscard]] bool knows_an_old_key_only() const noexcept { return key_ != nullptr && key_ != &*policy_->key; }

  // Welcomes the host and returns the link. The caller sets incarnation, memory_bytes_max, pid, agent_name and
  // agent_version in `welcome`; the rest is set here.
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
  const SharedKey* key_ = nullptr;  // the key that the program has proved; the agent proves the same one
  Failure failure_{Error::closed, "the handshake is not complete"};
};

// ---- both ends

// The value to which authentication.h binds its proofs: of the TLS session, or empty.
[[nodiscard]] Result<std::vector<std::byte>> session_binding(const ControlSocket& socket);
[[nodiscard]] std::string network_reason(Address::Kind transport);
// Proofs that only the two ends of this control connection can make, for the connection of its queue pair.
[[nodiscard]] Result<VerbsProofs> verbs_proofs(const SharedKey& key, const wire::Nonce& host_nonce,
                                               const wire::Nonce& agent_nonce, Bytes binding);

}  // namespace offpath::link
