// Answers the calls of a supervised program. The kernel does the calls on everything but supervised sockets.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "sockets/left_to_kernel.h"
#include "sockets/policy.h"
#include "supervise/caller.h"
#include "supervise/notifications.h"
#include "supervise/relay.h"

namespace offpath::supervise {

class Calls {
 public:
  Calls(const sockets::Policy& policy, std::string name, Notifications calls);

  [[nodiscard]] Relay& relay() noexcept { return relay_; }
  [[nodiscard]] int descriptor() const noexcept { return calls_.descriptor(); }
  void take();  // after descriptor() became readable
  [[nodiscard]] TimeNs next_due() const noexcept;
  void expire(TimeNs now);
  [[nodiscard]] std::uint64_t rings() const noexcept { return rings_; }  // io_uring_setup

 private:
  void handle(const Call& call);
  void make_socket(const Call& call, const Caller& caller);
  void bind(const Call& call, const Caller& caller, Supervised& socket);
  void bind_at_agent(const Call& call, const Caller& caller, Supervised& socket, SocketArea::Endpoint at);
  void listen(const Call& call, const Caller& caller, Supervised& socket);
  void offload_listener(const Call& call, const Caller& caller, Supervised& socket, SocketArea::Endpoint at);
  void accept(const Call& call, const Caller& caller, Supervised& socket);
  void connect(const Call& call, const Caller& caller, Supervised& socket);
  void connect_anew(const Call& call, const Caller& caller, Supervised& socket);
  void begin_connection(const Call& call, const Caller& caller, Supervised& socket, SocketArea::Endpoint to);
  // Its connection is the kernel's; it cannot be if the socket has the agent's address.
  void leave_connection(const Call& call, const Caller& caller, Supervised& socket, sockets::Left why);
  void shutdown(const Call& call, Supervised& socket);
  void get_name(const Call& call, const Caller& caller, Supervised& socket, bool peer);
  void get_option(const Call& call, const Caller& caller, Supervised& socket);
  void set_option(const Call& call, const Caller& caller, Supervised& socket);

  void become_ipv4(const Call& call, Supervised& socket, Bytes value);
  void choose_congestion(const Call& call, Supervised& socket, std::string_view name, AgentWords::Rights rights);
  void tell_settings(Supervised& socket);
  [[nodiscard]] channel::FlowSettings settings_of(Supervised& socket);

  void changed(Supervised& socket);
  void decide_port(Supervised& socket);
  void decide_listener(Supervised& socket);
  void decide_connection(Supervised& socket);
  void serve(Supervised& listener);
  enum class Served { yes, none_waits, no_room };
  [[nodiscard]] Served give_connection(const Call& call, Supervised& listener);
  void give_back_options(Supervised& socket);

  void answer(Supervised& socket, const Call& call, std::int64_t value);
  void answer_all(Supervised& socket, std::int64_t value);
  void wait(Supervised& socket, const Call& call, TimeNs until);
  // The program's descriptor names the file of `fd` from now on. False: the call has ended, or ends with an error.
  [[nodiscard]] bool replace(const Call& call, Supervised& socket, int fd, bool close_on_exec);
  // Puts the kernel's socket in the place of the pair, and lets the kernel do the call. Only for sockets that the agent
  // has not had.
  void leave_to_kernel(const Call& call, const Caller& caller, Supervised& socket);
  [[nodiscard]] bool falls_back(const Supervised& socket) const noexcept;
  [[nodiscard]] int options_of(Supervised& socket);  // a socket of the kernel; -1: see errno
  [[nodiscard]] bool is_ipv6_only(Supervised& socket);
  void set_own(Supervised& socket, const SocketArea::Endpoint& at);
  [[nodiscard]] std::uint16_t port_flags_of(Supervised& socket, const wire::IpAddress& address);
  [[nodiscard]] std::optional<SocketArea::Endpoint> bound_to(const Supervised& socket) const;
  bool give_bytes(const Call& call, const Caller& caller, Supervised& socket, std::uint64_t to, std::uint64_t length_at,
                  Bytes bytes, bool whole_length);

  const sockets::Policy& policy_;
  Notifications calls_;
  Relay relay_;
  ino_t network_;
  std::uint64_t rings_ = 0;
  std::set<ino_t> limited_;  // sockets with calls that wait for a limited time
};

}  // namespace offpath::supervise
