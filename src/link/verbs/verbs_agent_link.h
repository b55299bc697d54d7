// The agent's end over RDMA: reads and writes are work requests that the two cards carry out, without the host's
// processor. Read verbs_link.h, verbs_connection.h and card_agent_link.h first.
//
// A chain of requests is a list of linked work requests, handed to the card by one call; only the last one of a chain
// is signalled. The queue pair completes requests in order, so a completion always belongs to the oldest chain. Writes
// of up to 64 bytes, which most writes to rings and lines are, travel inside their work request.
//
// A failed request puts the whole queue pair into its error state, and later requests are flushed: the link ends with
// the reason. Since everything is checked before it is posted, the remaining causes are a host that lies about its
// memory, and a failing card.
#pragma once

#include <memory>
#include <vector>

#include "link/card/card_agent_link.h"
#include "link/verbs/verbs_connection.h"
#include "link/verbs/verbs_link.h"

namespace offpath::link {

class VerbsAgentLink final : public CardAgentLink {
 public:
  [[nodiscard]] static Result<std::unique_ptr<VerbsAgentLink>> create(ControlSocket socket, const VerbsProofs& proofs,
                                                                      const ChannelBytes& channel,
                                                                      const SegmentLimits& limits,
                                                                      std::shared_ptr<CardDevices> devices,
                                                                      TimeNs deadline);
  ~VerbsAgentLink() override;

 private:
  VerbsAgentLink(ControlSocket socket, const VerbsProofs& proofs, VerbsConnection connection,
                 const ChannelBytes& channel, const SegmentLimits& limits, TimeNs deadline);

  Status post(bool is_read, Chain& chain, std::span<const Request> requests) override;
  Status take_completions() override;
  Status look_at(int fd) override;
  Status take_announcement(const ControlSocket::Frame& frame) override;
  Failure why_not_open() const override;
  void break_off() noexcept override { connection_.break_off(); }
  void end_card() noexcept override { connection_.close(); }

  [[nodiscard]] Result<bool> take_some_completions();
  void fail_oldest(const ibv_wc& completion);
  void drain_completion_events();
  [[nodiscard]] Status advance_connection();

  VerbsProofs proofs_;
  VerbsConnection connection_;
  bool armed_ = false;
  std::vector<ibv_send_wr> work_requests_;  // of the chain being posted
  std::vector<ibv_sge> local_;
};

}  // namespace offpath::link
