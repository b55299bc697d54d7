#include "tcp/stack/active_open.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

bool ActiveOpen::is_steered_here(const FlowKey& key) const noexcept {
  return wire::core_of_flow(key.local.address, key.local.port, key.remote.address, key.remote.port,
                            context_.options.cores) == context_.options.core;
}

Result<FlowId> ActiveOpen::connect(std::uint16_t local_port, Endpoint remote, std::uint64_t tag,
                                   std::uint64_t receive_bytes, TimeNs now, const FlowOptions& options) {
  if (!is_unicast(remote.address) || remote.port == 0)
    return fail(Error::invalid, "cannot connect to {}: not a unicast address with a port", text_of(remote));
  if (context_.next_hop(remote.address).is_unspecified())
    return fail(Error::peer_lost, "no route to {}", text_of(remote.address));
  FlowKey key{{context_.options.own(remote.address.family()).address, local_port}, remote};
  if (local_port == 0) {
    // RFC 6056, algorithm 3: each destination has its own order of ports.
    constexpr std::uint32_t first = 32'768, count = 28'232;
    const auto start = static_cast<std::uint32_t>(keyed_hash(port_key_, key) >> 32) + next_port_;
    std::uint32_t tried = 0;
    do {
      if (tried == count) return fail(Error::no_space, "no port is free for {}", text_of(remote));
      key.local.port = static_cast<std::uint16_t>(first + (start + tried++) % count);
    } while (!is_steered_here(key) || flows_.index_of(key) != FlowTable::nobody || listeners_.find(key) != nullptr);
    next_port_ += tried;
  }
  if (flows_.index_of(key) != FlowTable::nobody)
    return fail(Error::exists, "a connection from port {} to {} exists already", local_port, text_of(remote));
  Flow* flow = flows_.new_flow(key, tag, receive_bytes, options, now);
  if (flow == nullptr) return fail(Error::no_space, "all {} flows are in use", context_.options.flows_max);
  flow->slow->share = owner_.share(tag);
  flows_.begin_opening(*flow, now);
  if (other_.slow != nullptr) {
    flow->elsewhere = true;
    flow->slow->attempt = ++attempts_ != 0 ? attempts_ : ++attempts_;
    other_.slow->connect(key, flow->slow->attempt, receive_bytes, options);
    return flows_.id_of(*flow);
  }
  flow->wants_syn = true;
  flows_.make_ready(*flow);
  return flows_.id_of(*flow);
}

}  // namespace offpath::tcp
