#include "link/verbs/verbs_agent_link.h"

#include <array>
#include <cerrno>

#include "wire/region.h"

namespace offpath::link {

using wire::ControlType;

namespace {

constexpr std::uint64_t request_bytes_max = 1 << 20;  // of one work request; every device supports this size

}  // namespace

// ---- life

Result<std::unique_ptr<AgentLink>> accept_verbs(ControlSocket socket, const VerbsProofs& proofs,
                                                const ChannelBytes& channel, const SegmentLimits& limits,
                                                std::shared_ptr<CardDevices> devices, TimeNs deadline) {
  return VerbsAgentLink::create(std::move(socket), proofs, channel, limits, std::move(devices), deadline);
}

Result<std::unique_ptr<VerbsAgentLink>> VerbsAgentLink::create(ControlSocket socket, const VerbsProofs& proofs,
                                                               const ChannelBytes& channel, const SegmentLimits& limits,
                                                               std::shared_ptr<CardDevices> devices, TimeNs deadline) {
  auto listening = listen_for_queue_pair(socket, std::move(devices));
  if (!listening) {  // the program waits for the port
    send_refusal(socket, listening.error());
    return tl::unexpected<Failure>(std::move(listening).error());
  }
  const std::uint64_t port = port_of(*listening);
  std::unique_ptr<VerbsAgentLink> link(
      new VerbsAgentLink(std::move(socket), proofs, std::move(*listening), channel, limits, deadline));
  OFP_TRY(link->watch_descriptors());
  OFP_TRY(link->watch_descriptor(link->connection_.events->fd));
  OFP_TRY(link->socket().send(ControlType::rendezvous, std::as_bytes(std::span(&port, 1))));
  return link;
}

VerbsAgentLink::VerbsAgentLink(ControlSocket socket, const VerbsProofs& proofs, VerbsConnection connection,
                               const ChannelBytes& channel, const SegmentLimits& limits, TimeNs deadline)
    : CardAgentLink(std::move(socket), {"verbs", true, false, 0, std::string(verbs_reason)}, WriteOrder::of_posting,
                    channel, limits, deadline),
      proofs_(proofs),
      connection_(std::move(connection)) {}

VerbsAgentLink::~VerbsAgentLink() { close(); }

Failure VerbsAgentLink::why_not_open() const {
  return {Error::timeout,
          "the program did not connect its queue pair in time: RDMA packets (RoCE: UDP port 4791) do not get through"};
}

Status VerbsAgentLink::advance_connection() {
  const bool before = static_cast<bool>(connection_.pair);
  auto ready = advance_accept(connection_, proofs_);
  if (!ready) {
    // The program may have sent the reason for its end.
    if (ready.error().code == Error::peer_lost) OFP_TRY(take_frames());
    return tl::unexpected<Failure>(std::move(ready).error());
  }
  if (before || !*ready) return {};
  OFP_TRY(begin_posting({connection_.send_requests_max, request_bytes_max, connection_.inline_bytes_max},
                        connection_.device));
  return watch_descriptor(connection_.completions->fd);
}

Status VerbsAgentLink::take_announcement(const ControlSocket::Frame& frame) {
  if (frame.type != ControlType::segment) return unexpected_frame(frame.type, "on an open channel");
  OFP_ASSIGN(const wire::SegmentNotice notice, wire::decode_segment_notice(frame.payload));
  if (notice.region == wire::outside_part) return attach_outside(notice.address, notice.length, notice.key);
  OFP_TRY(check_segment(notice.region, notice.length));
  if (!can_post()) OFP_TRY(advance_connection());
  if (!can_post()) return fail(Error::protocol, "segment 0: announced before the queue pair was connected");
  OFP_TRY(attach_segment(notice.region, notice.address, notice.length, notice.key));
  if (notice.region == wire::channel_segment) OFP_TRY(take_completions());  // arms the completion queue
  return socket().send(ControlType::segment_ok, std::as_bytes(std::span(&notice.region, 1)));
}

// ---- posting

Status VerbsAgentLink::post(bool is_read, Chain&, std::span<const Request> requests) {
  work_requests_.assign(requests.size(), {});
  local_.resize(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    local_[i] = {reinterpret_cast<std::uint64_t>(request.local), static_cast<std::uint32_t>(request.length),
                 static_cast<std::uint32_t>(request.local_key)};
    ibv_send_wr& posted = work_requests_[i];
    posted.opcode = is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    posted.send_flags = request.inside ? IBV_SEND_INLINE : 0;
    posted.wr.rdma.remote_addr = request.address;
    posted.wr.rdma.rkey = request.key;
    posted.sg_list = &local_[i];
    posted.num_sge = 1;
    posted.next = i + 1 < requests.size() ? &work_requests_[i + 1] : nullptr;
  }
  work_requests_.back().send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int code = ibv_post_send(connection_.pair.get(), work_requests_.data(), &bad); code != 0)
    return fail_errno(code, fmt::format("posting {} work requests", requests.size()));
  return {};
}

// ---- completions

// True if there may be more.
Result<bool> VerbsAgentLink::take_some_completions() {
  std::array<ibv_wc, 32> completions;
  const int count = ibv_poll_cq(connection_.queue.get(), static_cast<int>(completions.size()), completions.data());
  if (count < 0) return fail(Error::io, "the completion queue cannot be polled ({})", count);
  for (int i = 0; i < count; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) {
      fail_oldest(completions[i]);
      return false;
    }
    OFP_ASSERT(under_way());
    moved(oldest(), oldest().left);
    settle();
  }
  return static_cast<std::size_t>(count) == completions.size();
}

Status VerbsAgentLink::take_completions() {
  while (!lost()) {
    OFP_ASSIGN(const bool more, take_some_completions());
    if (more) continue;
    if (armed_ || lost()) break;
    // Completions before this call raise no event: look once more after it.
    if (const int code = ibv_req_notify_cq(connection_.queue.get(), 0); code != 0)
      return fail_errno(code, "ibv_req_notify_cq");
    armed_ = true;
  }
  return {};
}

// The first failure names the operation; later requests of the queue pair were flushed.
void VerbsAgentLink::fail_oldest(const ibv_wc& completion) {
  const char* text = connection_.calls->ibv_wc_status_str(completion.status);
  Failure why{Error::io, fmt::format("the queue pair failed: {}", text)};
  if (completion.status == IBV_WC_RETRY_EXC_ERR || completion.status == IBV_WC_RNR_RETRY_EXC_ERR ||
      completion.status == IBV_WC_WR_FLUSH_ERR || completion.status == IBV_WC_RESP_TIMEOUT_ERR)
    why = {Error::peer_lost, fmt::format("the program's RDMA device does not answer ({})", text)};
  else if (completion.status == IBV_WC_REM_ACCESS_ERR || completion.status == IBV_WC_REM_INV_REQ_ERR ||
           completion.status == IBV_WC_REM_OP_ERR)
    why = {
        Error::unreadable,
        fmt::format("the program's RDMA device refused a piece of it ({}): the memory does not match its announcement",
                    text)};
  // This error also occurs when the program has ended: its socket shows whether it has.
  if (auto taken = take_frames(); !taken && taken.error().code == Error::peer_lost) why = std::move(taken).error();
  if (lost()) return;
  if (under_way()) fail_operation(oldest(), why);
  lose(std::move(why));
}

void VerbsAgentLink::drain_completion_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (connection_.calls->ibv_get_cq_event(connection_.completions.get(), &queue, &context) == 0) {
    connection_.calls->ibv_ack_cq_events(queue, 1);
    armed_ = false;
  }
}

Status VerbsAgentLink::look_at(int fd) {
  if (fd == connection_.events->fd) return advance_connection();
  if (!connection_.completions || fd != connection_.completions->fd) return {};
  drain_completion_events();
  return take_completions();
}

}  // namespace offpath::link
