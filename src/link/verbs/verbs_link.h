// RDMA: the part of verbs_link that the handshake uses. Read this first, then verbs_connection.h (how a queue pair is
// made), then verbs_agent_link.h and verbs_host_link.h.
//
// The control connection and its handshake are those of stream_link. After the welcome a reliable queue pair is made:
//
//   host                                             agent
//              <-- rendezvous: port ---------------   listens there by rdmacm, for this one program
//   connects by rdmacm, with the host's proof ---->   compares it, and rejects a wrong one
//   compares it <-- accepts, with its own proof ---   and its port's largest packet: both use the smaller one
//   segment: address and key of the channel's ---->   reads and writes may begin
//
// An agent that is the host announces only the rings of the channel segment then, so that an idle member pins no more.
// The rest follows as the segment wire::outside_part when a request is stored there: the agent's read waits for it. The
// host withdraws it when the channel has been idle for a while.
//
// The proofs are HMACs of both nonces of the control connection's handshake under the shared key: nobody can make them
// without the key, they are valid for one connection and once, and the control connection never carries them. So the
// queue pair belongs to the authenticated program, even if others can reach the port. rdmacm sends them in the clear
// and RDMA sends data in the clear: as with tcp, anyone on the wire can read and change the traffic.
//
// libibverbs and librdmacm are loaded only when the first address of this kind is used.
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "link/address.h"
#include "link/card/card_device.h"
#include "link/control/control_socket.h"
#include "link/link.h"
#include "link/local/local_agent_link.h"
#include "wire/control.h"

namespace offpath::link {

inline constexpr std::string_view verbs_reason =
    "RDMA: the agent's network card reads and writes memory that the program registered, and the program's processor "
    "does "
    "nothing";

struct VerbsProofs {
  wire::Proof host{}, agent{};
};

// Whether queue pairs can be made at an address of this machine; otherwise the error says what is missing and what to
// do.
[[nodiscard]] Status check_verbs(const Address& address);

// The queue pair is made later: operations that are posted before wait for it, until `deadline`. `devices`: the
// agent's; null: the link opens the device for itself.
[[nodiscard]] Result<std::unique_ptr<AgentLink>> accept_verbs(ControlSocket socket, const VerbsProofs& proofs,
                                                              const ChannelBytes& channel, const SegmentLimits& limits,
                                                              std::shared_ptr<CardDevices> devices, TimeNs deadline);
// Blocks until the queue pair is ready. `devices`: of an agent that is the host; null for a program. `rings_bytes`: of
// the rings at the beginning of the channel segment.
[[nodiscard]] Result<std::unique_ptr<HostLink>> connect_verbs(ControlSocket socket, const VerbsProofs& proofs,
                                                              SegmentMemory channel_segment, std::uint64_t rings_bytes,
                                                              wire::Welcome welcome,
                                                              std::shared_ptr<CardDevices> devices, TimeNs deadline);

}  // namespace offpath::link
