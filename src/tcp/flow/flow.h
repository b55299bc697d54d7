// A connection, as the fast path wants it: what every segment needs, 256 bytes with its timer. What only handshakes,
// losses and ends need is behind one pointer.
//
// Read this first in src/tcp/flow, then owner.h (who has its payload), flows.h and flow_table.h (all of them), and what
// a flow keeps: positions.h, scoreboard.h (SACK), reassembly.h, repair.h, reorder_window.h, rtt.h,
// path_search.h, waiting.h. routes.h, neighbours.h, orphans.h and timer_wheel.h are shared.
#pragma once

#include <cstdint>
#include <memory>

#include "tcp/congestion/congestion.h"
#include "tcp/flow/path_search.h"
#include "tcp/flow/reassembly.h"
#include "tcp/flow/reorder_window.h"
#include "tcp/flow/repair.h"
#include "tcp/flow/rtt.h"
#include "tcp/flow/scoreboard.h"
#include "tcp/flow/timer_wheel.h"
#include "tcp/segment/address.h"
#include "wire/areas/tcp_positions.h"

namespace offpath::tcp {

// Valid from connect or accept until the change that says `gone`.
struct FlowId {
  std::uint32_t index = ~0u, generation = 0;
  friend bool operator==(FlowId, FlowId) noexcept = default;
};

// RFC 9293, 3.3.2. LISTEN is no flow (Listeners), SYN_RECEIVED one only after a simultaneous open.
enum class FlowState : std::uint8_t {
  closed,
  syn_sent,
  syn_received,
  established,
  fin_wait_1,
  fin_wait_2,
  close_wait,
  closing,
  last_ack,
  time_wait
};

enum class FlowError : std::uint8_t {
  none,
  refused,
  reset,
  timed_out,
  unreachable,
  in_use
};  // in_use: of the same four numbers

struct FlowOptions {
  bool nagle = true;                            // RFC 9293, 3.7.4
  TimeNs delayed_ack_ns = 40 * millisecond_ns;  // 0: every segment is acknowledged at once
  TimeNs keepalive_idle_ns = 0;                 // 0: no keepalive
  TimeNs keepalive_interval_ns = 75 * second_ns;
  std::uint8_t keepalive_probes = 9;
  // without an acknowledgement of anything that is or was to be sent (RFC 5482); 0: as the stack has it
  TimeNs user_timeout_ns = 0;
};

// Whose a flow is: bounds that flows of several programs share are kept by this.
struct FlowShare {
  std::uint64_t program = 0;
  std::uint32_t user = 0;
  std::uint32_t orphans_max = ~0u;  // of this program
};

struct FlowSlow {
  std::unique_ptr<Scoreboard> scoreboard{};  // while something is to be repaired
  std::unique_ptr<Reassembly> reassembly{};  // while something is out of order
  std::unique_ptr<Repair> repair{};          // from the first loss on
  std::uint64_t tag = 0;                     // the owner's
  FlowShare share{};
  std::uint64_t orphan = 0;  // released, and its number in Orphans; 0: it is none
  TimeNs orphan_since = 0;
  FlowOptions options{};
  Sequence iss{}, fin{};  // own initial number; where the peer's FIN is, if fin_seen
  bool fin_seen = false;
  bool edge_shrank = false;  // once
  Sequence edge_told{};      // the last edge that the peer was told before it shrank: what begins there is the peer's
  std::uint64_t buffer_bytes = 0;      // the largest window the owner allowed
  std::uint32_t send_window_most = 0;  // the largest one that the peer told
  std::uint8_t probes = 0;             // of a closed window or of a silent peer, not answered
  TimeNs waits_since = 0;              // for an acknowledgement of what is or was to be sent; 0: there is nothing
  std::uint64_t waited_at = 0;         // Flow::acknowledged then
  TimeNs probe_at = 0;                 // when to see whether the peer has been silent for too long
  Sequence tail_end{};                 // of the tail probe: what was sent until then
  std::uint32_t tail_ms = 0;           // when it left, in the clock of timestamps
  std::uint32_t tail_flight = 0;       // bytes in flight then
  TimeNs judge_at = never;             // when a segment will have been late for too long
  ReorderWindow reordering{};
  SequenceRange duplicate{};  // arrived twice: to be reported; empty: nothing is
  TimeNs idle_since = 0;      // all that was sent was acknowledged then, and nothing was sent since; 0: not yet
  Sequence recovery_point{};  // of a flow that is repairing
  std::uint32_t challenged_ms = 0;
  Sequence slowed_down_until{};   // the end of the data in flight when the window shrank last
  std::uint32_t flight_sent = 0;  // bytes in flight when all that may leave had left
  std::uint16_t mss_before = 0;   // it was too much for the path; 0: it never was
  TimeNs mss_again_at = never;    // when to try it again
  PathSearch search{};
  FlowError error = FlowError::none;
  // of a slow path elsewhere, or for another stack: which connection of these numbers; 0: a peer's
  std::uint32_t attempt = 0;
  std::uint64_t begun = 0;  // of a peer's: as in HalfOpen; or when it was handed over
};

// Changes that the owner has not been told.
namespace change {
inline constexpr std::uint8_t connected = 1, received = 2, finished = 4, acknowledged = 8, closed = 16, gone = 32;
}

struct Flow : wire::TcpPositionsOut, wire::TcpPositionsIn {
  FlowKey key;
  FlowState state = FlowState::closed;
  std::uint8_t send_scale = 0, receive_scale = 0;
  std::uint8_t retries = 0;     // timeouts in a row
  std::uint16_t mss = 536;      // payload of a segment beside the usual options
  std::uint8_t duplicates = 0;  // duplicate ACKs in a row
  std::uint8_t acks_owed = 0;   // duplicate ACKs that have to go out one by one, where there is no SACK
  std::uint8_t changes = 0;
  std::uint8_t quick_acks = 16;  // segments still to be acknowledged at once: the peer is in slow start

  bool timestamps : 1 = false, sack : 1 = false, nagle : 1 = true;
  bool is_ready : 1 = false, is_changed : 1 = false;  // in these lists
  bool wants_ack : 1 = false, wants_syn : 1 = false, wants_probe : 1 = false;
  bool fin_wanted : 1 = false, fin_sent : 1 = false;
  bool repairing : 1 = false, timed_out : 1 = false;  // until FlowSlow::recovery_point is acknowledged; after a timeout
  bool resend_now : 1 = false;                        // whatever the window says
  bool tail_due : 1 = false, wants_tail : 1 = false,
                  tail_out : 1 = false;  // the timer is a tail probe's; send one; one is on its way
  bool timing : 1 = false;
  bool ecn : 1 = false, ecn_echo : 1 = false;         // agreed on; what arrived was marked
  bool slowed_down : 1 = false, cwr_due : 1 = false;  // for echoed marks; and the peer is to be told
  bool released : 1 = false, gone_told : 1 = false, accepted : 1 = false;
  // its handshake is the slow path's; or it was handed over, and is not confirmed (slow_path.h)
  bool elsewhere : 1 = false;
  std::uint16_t neighbour = 0xffff;  // where its next hop was found last (neighbours.h)

  // Send.
  Sequence una, next, window_sequence, window_ack, timed;
  std::uint32_t send_window = 0;
  // Receive.
  Sequence receive_next, receive_edge, ack_sent;
  std::uint32_t heard_ms = 0;
  std::uint32_t recent_timestamp = 0, timestamp_offset = 0;

  RttEstimator rtt;
  std::uint32_t index = 0, generation = 1;
  Congestion congestion;
  TimeNs timed_at = 0, paced_until = 0;
  TimeNs retransmit_due = never, ack_due = never;
  std::unique_ptr<FlowSlow> slow;
};
static_assert(sizeof(Flow) + TimerWheel::bytes_per_timer <= 256, "fast-path state of a flow");

[[nodiscard]] constexpr std::string_view state_name(FlowState state) noexcept {
  constexpr std::string_view names[] = {"CLOSED",     "SYN-SENT",   "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
                                        "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING",      "LAST-ACK",    "TIME-WAIT"};
  return names[static_cast<std::size_t>(state)];
}

}  // namespace offpath::tcp
