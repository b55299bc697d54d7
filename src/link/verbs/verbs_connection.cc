#include "link/verbs/verbs_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/constant_time.h"
#include "link/control/authentication.h"

namespace offpath::link {

namespace {

constexpr int backlog = 8;
constexpr unsigned reads_outstanding_max = 64;  // upper bound; the device grants what it supports
constexpr unsigned send_requests_wanted = 1024;
constexpr unsigned inline_bytes_wanted = 64;  // one slot of a ring
constexpr int host_rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr int agent_rights = 0;
constexpr std::uint8_t retries = 7;  // the largest value of the field
constexpr TimeNs bind_wait_ns = 100 * millisecond_ns;

constexpr std::string_view next_step =
    "`rdma link` lists the RDMA devices and the network interfaces they belong to; without RDMA hardware: "
    "rdma link add rxe0 type rxe netdev INTERFACE";

struct SocketAddress {
  sockaddr_storage storage{};
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  void set_port(std::uint16_t port) noexcept {
    if (storage.ss_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
    else
      reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  }
};

Result<SocketAddress> address_of(const ControlSocket& socket, bool of_peer) {
  SocketAddress address;
  socklen_t length = sizeof address.storage;
  const int code =
      of_peer ? getpeername(socket.fd(), address.get(), &length) : getsockname(socket.fd(), address.get(), &length);
  if (code != 0) return fail_errno(errno, of_peer ? "getpeername" : "getsockname");
  return address;
}

std::string text_of(SocketAddress& address) {
  char host[NI_MAXHOST] = "?";
  (void)getnameinfo(address.get(), sizeof address.storage, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

Result<VerbsConnection> open_connection() {
  VerbsConnection connection;
  OFP_ASSIGN(connection.calls, load_verbs());
  const VerbsCalls& calls = *connection.calls;
  connection.events = EventChannel(calls.rdma_create_event_channel(), {calls.rdma_destroy_event_channel});
  if (!connection.events)
    return fail(Error::unsupported, "RDMA: the connection manager of the kernel is not there ({}): modprobe rdma_ucm",
                fail_errno(errno, "rdma_create_event_channel").value().message);
  const int flags = fcntl(connection.events->fd, F_GETFL);
  if (fcntl(connection.events->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(connection.events->fd, F_SETFD, FD_CLOEXEC) != 0)
    return fail_errno(errno, "fcntl");
  return connection;
}

Result<ConnectionId> new_id(VerbsConnection& connection) {
  rdma_cm_id* id = nullptr;
  if (connection.calls->rdma_create_id(connection.events.get(), &id, nullptr, RDMA_PS_TCP) != 0)
    return fail_errno(errno, "rdma_create_id");
  return ConnectionId(id, {connection.calls->rdma_destroy_id});
}

// A device waits 4.096 us * 2^timeout for an acknowledgement, again after each retry. Returns the longest timeout with
// which the first attempt and all retries end within this time.
std::uint8_t timeout_within(TimeNs silence_ns) noexcept {
  std::uint8_t timeout = 1;
  while (timeout < 31 && (TimeNs{4096} << (timeout + 1)) * (retries + 1) <= silence_ns) ++timeout;
  return timeout;
}

// `reads_out`: reads that this side may have outstanding; `reads_in`: reads that it serves.
Status move_queue_pair(VerbsConnection& connection, ibv_qp_state state, int rights, unsigned reads_out,
                       unsigned reads_in) {
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = state;
  if (connection.calls->rdma_init_qp_attr(connection.id.get(), &attributes, &mask) != 0)
    return fail_errno(errno, "rdma_init_qp_attr");
  if ((mask & IBV_QP_PATH_MTU) != 0) attributes.path_mtu = std::min(attributes.path_mtu, connection.packet_max);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) attributes.qp_access_flags = static_cast<unsigned>(rights);
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) attributes.max_rd_atomic = static_cast<std::uint8_t>(reads_out);
  if ((mask & IBV_QP_TIMEOUT) != 0) attributes.timeout = timeout_within(connection.silence_ns);
  if ((mask & IBV_QP_RETRY_CNT) != 0) attributes.retry_cnt = retries;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(reads_in);
  if (const int code = connection.calls->ibv_modify_qp(connection.pair.get(), &attributes, mask); code != 0)
    return fail_errno(code, fmt::format("moving the queue pair to state {}", static_cast<int>(state)));
  return {};
}

unsigned reads_of_device(const VerbsConnection& connection, bool out) {
  const ibv_device_attr& limits = connection.device->limits();
  const int most = out ? limits.max_qp_init_rd_atom : limits.max_qp_rd_atom;
  return std::clamp<unsigned>(static_cast<unsigned>(std::max(most, 1)), 1, reads_outstanding_max);
}

// The largest packet that both ports support. The connecting side names its own port's; a packet larger than the other
// port supports would be lost silently.
Result<ibv_mtu> packet_of_port(const VerbsConnection& connection) {
  ibv_port_attr port{};
  const int code = connection.calls->ibv_query_port(connection.device->context(), connection.id->port_num,
                                                    reinterpret_cast<_compat_ibv_port_attr*>(&port));
  if (code != 0) return fail_errno(code, "ibv_query_port");
  return port.active_mtu;
}

// The packet size in an agent's private data, beside its proof.
ibv_mtu packet_of_agent(const ConnectionEvent& event) noexcept {
  const std::size_t at = sizeof(wire::Proof);
  const auto given = event.said.size() > at ? std::to_integer<int>(event.said[at]) : 0;
  return given >= IBV_MTU_256 && given <= IBV_MTU_4096 ? static_cast<ibv_mtu>(given) : IBV_MTU_4096;
}

bool says(const ConnectionEvent& event, const wire::Proof& wanted) {
  wire::Proof given;
  if (event.said.size() < given.size()) return false;  // rdmacm pads private data
  std::copy_n(event.said.begin(), given.size(), given.begin());
  return equal_in_constant_time(wanted, given);
}

Status accept_program(VerbsConnection& connection, const ConnectionEvent& request, const VerbsProofs& proofs) {
  OFP_TRY(open_queue_pair(connection, connection.id->verbs->device, true));
  const unsigned own = reads_of_device(connection, true);
  const unsigned reads = std::clamp(request.reads_granted, 1u, own);
  OFP_ASSIGN(connection.packet_max, packet_of_port(connection));
  OFP_TRY(move_queue_pair(connection, IBV_QPS_INIT, agent_rights, reads, 0));
  OFP_TRY(move_queue_pair(connection, IBV_QPS_RTR, agent_rights, reads, 0));
  OFP_TRY(move_queue_pair(connection, IBV_QPS_RTS, agent_rights, reads, 0));
  rdma_conn_param answer{};
  std::array<std::byte, sizeof(wire::Proof) + 1> said;
  std::copy(proofs.agent.begin(), proofs.agent.end(), said.begin());
  said.back() = static_cast<std::byte>(connection.packet_max);
  answer.private_data = said.data();
  answer.private_data_len = static_cast<std::uint8_t>(said.size());
  answer.initiator_depth = static_cast<std::uint8_t>(reads);
  answer.responder_resources = 0;
  answer.rnr_retry_count = retries;
  answer.qp_num = connection.pair->qp_num;
  if (connection.calls->rdma_accept(connection.id.get(), &answer) != 0) return fail_errno(errno, "rdma_accept");
  return {};
}

// The host waits for each step of the connection.
Result<ConnectionEvent> await_event(VerbsConnection& connection, rdma_cm_event_type wanted, SocketAddress& to,
                                    TimeNs deadline) {
  for (;;) {
    OFP_ASSIGN(std::optional<ConnectionEvent> event, connection.next_event());
    if (event && event->type == wanted) return std::move(*event);
    if (event && event->type == RDMA_CM_EVENT_ADDR_ERROR)
      return fail(Error::unsupported, "no RDMA device of this machine reaches {}: {}", text_of(to), next_step);
    if (event && event->type == RDMA_CM_EVENT_REJECTED)
      return fail(Error::denied, "the agent at {} rejected the queue pair (reason {})", text_of(to), event->status);
    if (event)
      return fail(Error::peer_lost, "connecting a queue pair with {}: {} ({})", text_of(to),
                  connection.calls->rdma_event_str(event->type), event->status);
    const TimeNs left = deadline == never ? second_ns : deadline - monotonic_ns();
    if (left <= 0)
      return fail(
          Error::timeout,
          "no queue pair with {} was connected in time: RDMA packets (RoCE: UDP port 4791) do not get through, or {}",
          text_of(to), next_step);
    pollfd look{connection.events->fd, POLLIN, 0};
    (void)poll(&look, 1, static_cast<int>(std::min<TimeNs>(left / millisecond_ns + 1, 1000)));
  }
}

int milliseconds_until(TimeNs deadline) noexcept {
  if (deadline == never) return 10'000;
  return static_cast<int>(std::clamp<TimeNs>((deadline - monotonic_ns()) / millisecond_ns, 1, 10'000));
}

}  // namespace

Status open_queue_pair(VerbsConnection& connection, ibv_device* device, bool posts) {
  const VerbsCalls& calls = *connection.calls;
  OFP_ASSIGN(connection.device, open_verbs_device(connection.devices.get(), connection.calls, device));
  // Regions with remote rights are never in a domain that other queue pairs use.
  connection.has_windows = !posts && connection.devices && connection.device->has_windows();
  if (!posts && connection.devices && !connection.has_windows) {
    OFP_ASSIGN(connection.own_domain, connection.device->new_domain());
  }
  ibv_context* const context = connection.device->context();
  const auto most = static_cast<unsigned>(connection.device->limits().max_qp_wr);
  const unsigned requests = posts ? std::min(send_requests_wanted, most) : 1;
  if (posts) {
    connection.completions =
        CompletionChannel(calls.ibv_create_comp_channel(context), {calls.ibv_destroy_comp_channel});
    if (!connection.completions) return fail_errno(errno, "ibv_create_comp_channel");
    const int flags = fcntl(connection.completions->fd, F_GETFL);
    if (fcntl(connection.completions->fd, F_SETFL, flags | O_NONBLOCK) != 0) return fail_errno(errno, "fcntl");
  }
  // Every request of a failed queue pair completes, signalled or not: the queue has room for all of them.
  connection.queue = CompletionQueue(
      calls.ibv_create_cq(context, static_cast<int>(requests) + 1, nullptr, connection.completions.get(), 0),
      {calls.ibv_destroy_cq});
  if (!connection.queue) return fail_errno(errno, "ibv_create_cq");
  for (const unsigned inline_bytes : {posts ? inline_bytes_wanted : 0u, 0u}) {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = connection.queue.get();
    attributes.cap = {requests, 1, 1, 1, inline_bytes};
    connection.pair = QueuePair(calls.ibv_create_qp(connection.domain(), &attributes), {calls.ibv_destroy_qp});
    connection.inline_bytes_max = std::min(inline_bytes, attributes.cap.max_inline_data);
    if (connection.pair) break;
  }
  if (!connection.pair) return fail_errno(errno, "ibv_create_qp");
  connection.send_requests_max = requests;
  return {};
}

namespace {

// The completion of work request `number`, which the device carries out without the other side. Earlier ones are those
// of requests that were given up.
Status await_bound(VerbsConnection& connection, std::uint64_t number) {
  ibv_wc completion{};
  for (const TimeNs deadline = monotonic_ns() + bind_wait_ns;;) {
    const int count = ibv_poll_cq(connection.queue.get(), 1, &completion);
    if (count < 0) return fail(Error::io, "the completion queue cannot be polled ({})", count);
    if (count == 1 && completion.wr_id == number) break;
    if (monotonic_ns() >= deadline)
      return fail(Error::io, "the RDMA device has not bound a memory window within {} ms",
                  bind_wait_ns / millisecond_ns);
  }
  if (completion.status != IBV_WC_SUCCESS)
    return fail(Error::io, "a memory window cannot be bound: {}",
                connection.calls->ibv_wc_status_str(completion.status));
  return {};
}

}  // namespace

Result<RemoteMemory> VerbsConnection::expose(MutableBytes memory, bool written) {
  const int rights = IBV_ACCESS_REMOTE_READ | (written ? IBV_ACCESS_REMOTE_WRITE : 0);
  const int local = written ? IBV_ACCESS_LOCAL_WRITE : 0;  // which remote writes need
  if (!has_windows) {
    OFP_ASSIGN(std::shared_ptr<VerbsRegion> region, device->register_in(domain(), memory, local | rights));
    return RemoteMemory(std::move(region), {});
  }
  // A segment may be unmapped while its region lives, so it has a region of its own.
  auto registered = written ? device->register_in(domain(), memory, local | IBV_ACCESS_MW_BIND)
                            : device->register_for_reading(memory);
  // The kernel registers memory for windows only if this process may write to it.
  if (!registered && !written && registered.error().code == Error::unreadable) {
    OFP_ASSIGN(std::shared_ptr<VerbsRegion> region, device->register_in(domain(), memory, rights));
    return RemoteMemory(std::move(region), {});
  }
  OFP_ASSIGN(std::shared_ptr<VerbsRegion> region, std::move(registered));
  OFP_ASSIGN(MemoryWindow window, device->new_window());
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = ++binds;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw.mw = window.get();
  request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  request.bind_mw.bind_info = {region->get(), reinterpret_cast<std::uint64_t>(memory.data()), memory.size(),
                               static_cast<unsigned>(rights)};
  if (const int code = ibv_post_send(pair.get(), &request, &bad); code != 0)
    return fail_errno(code, "binding a memory window");
  OFP_TRY(await_bound(*this, request.wr_id));
  window->rkey = request.bind_mw.rkey;
  return RemoteMemory(std::move(region), std::move(window));
}

Result<std::optional<ConnectionEvent>> VerbsConnection::next_event() {
  rdma_cm_event* event = nullptr;
  if (calls->rdma_get_cm_event(events.get(), &event) != 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::optional<ConnectionEvent>{};
    return fail_errno(errno, "rdma_get_cm_event");
  }
  ConnectionEvent copy{event->event, event->status, event->id, {}, event->param.conn.initiator_depth};
  if (event->param.conn.private_data != nullptr && event->param.conn.private_data_len > 0) {
    const auto* said = static_cast<const std::byte*>(event->param.conn.private_data);
    copy.said.assign(said, said + event->param.conn.private_data_len);
  }
  (void)calls->rdma_ack_cm_event(event);
  return std::optional(std::move(copy));
}

void VerbsConnection::break_off() noexcept {
  pair.reset();
  if (id) (void)calls->rdma_disconnect(id.get());
}

void VerbsConnection::close() noexcept {
  pair.reset();
  queue.reset();
  completions.reset();
  own_domain.reset();
  device.reset();
  id.reset();
  listener.reset();
  events.reset();
}

void VerbsConnection::abandon() noexcept {
  if (completions) ::close(completions->fd);
  if (device) device->abandon();
  if (events) ::close(events->fd);
  (void)pair.release();
  (void)queue.release();
  (void)completions.release();
  (void)own_domain.release();
  (void)id.release();
  (void)listener.release();
  (void)events.release();
}

Result<VerbsConnection> listen_for_queue_pair(const ControlSocket& socket, std::shared_ptr<CardDevices> devices) {
  OFP_ASSIGN(VerbsConnection connection, open_connection());
  connection.devices = std::move(devices);
  connection.silence_ns = socket.silence_ns();
  OFP_ASSIGN(connection.listener, new_id(connection));
  OFP_ASSIGN(SocketAddress at, address_of(socket, false));
  at.set_port(0);
  if (connection.calls->rdma_bind_addr(connection.listener.get(), at.get()) != 0)
    return fail(Error::unsupported, "no RDMA device has the address {}: {}", text_of(at), next_step);
  if (connection.calls->rdma_listen(connection.listener.get(), backlog) != 0) return fail_errno(errno, "rdma_listen");
  return connection;
}

std::uint16_t port_of(const VerbsConnection& connection) noexcept {
  return ntohs(connection.calls->rdma_get_src_port(connection.listener.get()));
}

Result<bool> advance_accept(VerbsConnection& connection, const VerbsProofs& proofs) {
  for (;;) {
    OFP_ASSIGN(std::optional<ConnectionEvent> event, connection.next_event());
    if (!event) return static_cast<bool>(connection.pair);
    switch (event->type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: {
        ConnectionId id(event->id, {connection.calls->rdma_destroy_id});
        if (connection.id || !says(*event, proofs.host)) {
          (void)connection.calls->rdma_reject(id.get(), nullptr, 0);
          break;
        }
        connection.id = std::move(id);
        OFP_TRY(accept_program(connection, *event, proofs));
        break;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        connection.listener.reset();
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED:
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        if (event->id == connection.id.get())
          return fail(Error::peer_lost, "the program's queue pair ended ({})",
                      connection.calls->rdma_event_str(event->type));
        break;
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return fail(Error::io, "the RDMA device was removed");
      default:
        break;  // events of addresses and multicast, which do not matter
    }
  }
}

Result<VerbsConnection> connect_queue_pair(const ControlSocket& socket, std::uint16_t port, const VerbsProofs& proofs,
                                           std::shared_ptr<CardDevices> devices, TimeNs deadline, unsigned reads_out) {
  OFP_ASSIGN(VerbsConnection connection, open_connection());
  connection.devices = std::move(devices);
  const VerbsCalls& calls = *connection.calls;
  connection.silence_ns = socket.silence_ns();
  OFP_ASSIGN(connection.id, new_id(connection));
  OFP_ASSIGN(SocketAddress to, address_of(socket, true));
  OFP_ASSIGN(SocketAddress from, address_of(socket, false));
  to.set_port(port);
  from.set_port(0);
  if (calls.rdma_resolve_addr(connection.id.get(), from.get(), to.get(), milliseconds_until(deadline)) != 0)
    return fail(Error::unsupported, "no RDMA device of this machine reaches {}: {}", text_of(to), next_step);
  OFP_TRY(await_event(connection, RDMA_CM_EVENT_ADDR_RESOLVED, to, deadline));
  if (calls.rdma_resolve_route(connection.id.get(), milliseconds_until(deadline)) != 0)
    return fail_errno(errno, "rdma_resolve_route");
  OFP_TRY(await_event(connection, RDMA_CM_EVENT_ROUTE_RESOLVED, to, deadline));

  OFP_TRY(open_queue_pair(connection, connection.id->verbs->device, false));
  const unsigned reads = reads_of_device(connection, false);
  OFP_TRY(move_queue_pair(connection, IBV_QPS_INIT, host_rights, reads_out, reads));
  rdma_conn_param request{};
  request.private_data = proofs.host.data();
  request.private_data_len = static_cast<std::uint8_t>(proofs.host.size());
  request.responder_resources = static_cast<std::uint8_t>(reads);
  request.initiator_depth = static_cast<std::uint8_t>(reads_out);
  request.retry_count = request.rnr_retry_count = retries;
  request.qp_num = connection.pair->qp_num;
  if (calls.rdma_connect(connection.id.get(), &request) != 0) return fail_errno(errno, "rdma_connect");
  OFP_ASSIGN(const ConnectionEvent answer, await_event(connection, RDMA_CM_EVENT_CONNECT_RESPONSE, to, deadline));
  if (!says(answer, proofs.agent))
    return fail(Error::denied, "the process that answered at {} is not the agent of the control connection",
                text_of(to));
  connection.packet_max = packet_of_agent(answer);
  OFP_TRY(move_queue_pair(connection, IBV_QPS_RTR, host_rights, reads_out, reads));
  OFP_TRY(move_queue_pair(connection, IBV_QPS_RTS, host_rights, reads_out, reads));
  if (calls.rdma_establish(connection.id.get()) != 0) return fail_errno(errno, "rdma_establish");
  return connection;
}

Status check_verbs(const Address& address) {
  OFP_ASSIGN(const VerbsCallsPtr calls, load_verbs());
  int count = 0;
  ibv_device** devices = calls->ibv_get_device_list(&count);
  if (devices != nullptr) calls->ibv_free_device_list(devices);
  if (count == 0) return fail(Error::unsupported, "{}: this machine has no RDMA device: {}", address.text(), next_step);
  OFP_ASSIGN(VerbsConnection connection, open_connection());
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(address.host.c_str(), nullptr, &wanted, &found); code != 0)
    return fail(Error::not_found, "address {}: {}", address.text(), gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  OFP_ASSIGN(connection.id, new_id(connection));
  if (connection.calls->rdma_bind_addr(connection.id.get(), found->ai_addr) != 0)
    return fail(Error::unsupported, "{}: no RDMA device has this address: {}", address.text(), next_step);
  return {};
}

}  // namespace offpath::link
