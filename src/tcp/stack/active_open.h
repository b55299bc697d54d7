// Active open: a local port for a new connection, and its SYN, sent here or by the slow path.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/listeners.h"

namespace offpath::tcp {

class ActiveOpen {
 public:
  ActiveOpen(StackContext& context, const OtherStack& other, Flows& flows, const Listeners& listeners,
             const Owner& owner) noexcept
      : context_(context),
        other_(other),
        flows_(flows),
        listeners_(listeners),
        owner_(owner),
        port_key_(derived_key(context.options.secret, 3)) {}

  [[nodiscard]] Result<FlowId> connect(std::uint16_t local_port, Endpoint remote, std::uint64_t tag,
                                       std::uint64_t receive_bytes, TimeNs now, const FlowOptions& options);

 private:
  [[nodiscard]] bool is_steered_here(const FlowKey& key) const noexcept;

  StackContext& context_;
  const OtherStack& other_;
  Flows& flows_;
  const Listeners& listeners_;
  const Owner& owner_;
  HashKey port_key_;
  std::uint32_t attempts_ = 0;
  std::uint32_t next_port_ = 0;
};

}  // namespace offpath::tcp
