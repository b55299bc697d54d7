// A connection, laid out for the fast path: the fields of every segment, 256 bytes with its timer. Fields for
// handshakes, losses and ends are behind one pointer.
//
// Read this first in src/tcp/flow, then owner.h (its payload), flows.h and flow_table.h (all flows), and a flow's
// state: positions.h, scoreboard.h (SACK), reassembly.h, repair.h, reorder_window.h, rtt.h, path_search.h,
// accurate_ecn.h, sent_packets.h, waiting.h. routes.h, neighbours.h, orphans.h and timer_wheel.h are shared.
#pragma once

#include <cstdint>
#include <memory>

#include "tcp/congestion/congestion.h"
#include "tcp/flow/accurate_ecn.h"
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

// Valid from connect or accept until the change `gone`.
struct FlowId {
  std::uint32_t index = ~0u, generation = 0;
  friend bool operator==(FlowId, FlowId) noexcept = default;
};

// RFC 9293, 3.3.2. LISTEN is not a flow (Listeners), and SYN_RECEIVED is one only after a simultaneous open.
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
  // the longest wait for an acknowledgement while there is data (RFC 5482); 0: the stack's default
  TimeNs user_timeout_ns = 0;
  // traffic classes for IPv4 and IPv6, with zeros in ECN's two bits
  std::uint8_t traffic_class4 = 0, traffic_class6 = 0;
  wire::TcpCongestion congestion = wire::TcpCongestion::agents;  // `agents`: the stack's

  [[nodiscard]] std::uint8_t traffic_class(IpFamily family) const noexcept {
    return family == IpFamily::v4 ? traffic_class4 : traffic_class6;
  }
};

// The owner of a flow, for bounds that flows of several programs share.
struct FlowShare {
  std::uint64_t program = 0;
  std::uint32_t user = 0;
  std::uint32_t orphans_max = ~0u;  // of this program
};

struct FlowSlow {
  std::unique_ptr<Scoreboard> scoreboard{};  // while something is to be repaired
  std::unique_ptr<Reassembly> reassembly{};  // while something is out of order
  std::unique_ptr<Repair> repair{};          // from the first loss on
  std::unique_ptr<AccurateEcn> accurate{};   // if the peer has agreed on it
  std::uint64_t tag = 0;                     // the owner's
  FlowShare share{};
  std::uint64_t orphan = 0;  // its number in Orphans after its release, or 0
  TimeNs orphan_since = 0;
  FlowOptions options{};
  Sequence iss{}, fin{};  // own initial number; the number of the peer's FIN, if fin_seen
  bool fin_seen = false;
  bool edge_shrank = false;  // once
  Sequence edge_told{};      // the last announced edge before the window shrank: segments up to there are legitimate
  std::uint64_t buffer_bytes = 0;      // the largest window the owner allowed
  std::uint32_t send_window_most = 0;  // the largest window of the peer
  std::uint8_t probes = 0;             // unanswered probes of a closed window or a silent peer
  TimeNs waits_since = 0;              // waiting for an acknowledgement since then; 0: no data to send
  std::uint64_t waited_at = 0;         // Flow::acknowledged then
  TimeNs probe_at = 0;                 // the next check of the peer's silence
  Sequence tail_end{};                 // the tail probe: the end of the data sent by then
  std::uint32_t tail_ms = 0;           // when it left, in the clock of timestamps
  std::uint32_t tail_flight = 0;       // bytes in flight then
  TimeNs judge_at = never;             // the time at which a late segment counts as lost
  ReorderWindow reordering{};
  SequenceRange duplicate{};  // data that arrived twice, to be reported; may be empty
  TimeNs idle_since = 0;      // idle since then, with everything acknowledged; 0: not idle
  Sequence recovery_point{};  // of a flow that is repairing
  std::uint32_t challenged_ms = 0;
  Sequence slowed_down_until{};   // the end of the data in flight when the window shrank last
  std::uint32_t flight_sent = 0;  // bytes in flight after the last transmission
  std::uint16_t mss_before = 0;   // a size too large for the path, or 0
  TimeNs mss_again_at = never;    // the next attempt with it
  PathSearch search{};
  FlowError error = FlowError::none;
  // with a slow path: distinguishes attempts of connections with these numbers; 0: begun by a peer
  std::uint32_t attempt = 0;
  std::uint64_t begun = 0;  // begun by a peer: as in HalfOpen; or the time of the hand-over
};

// Changes not reported to the owner yet.
namespace change {
inline constexpr std::uint8_t connected = 1, received = 2, finished = 4, acknowledged = 8, closed = 16, gone = 32;
}

struct Flow : wire::TcpPositionsOut, wire::TcpPositionsIn {
  FlowKey key;
  FlowState state = FlowState::closed;
  std::uint8_t send_scale = 0, receive_scale = 0;
  std::uint8_t retries = 0;     // timeouts in a row
  std::uint16_t mss = 536;      // payload of a segment with the usual options
  std::uint8_t duplicates = 0;  // duplicate ACKs in a row
  // ACKs that have to leave one by one: duplicates without SACK; otherwise up to two after a loss
  std::uint8_t acks_owed = 0;
  std::uint8_t changes = 0;
  std::uint8_t quick_acks = 16;  // segments still to be acknowledged at once: the peer is in slow start

  bool timestamps : 1 = false, sack : 1 = false, nagle : 1 = true;
  bool is_ready : 1 = false, is_changed : 1 = false;  // in these lists
  bool wants_ack : 1 = false, wants_syn : 1 = false, wants_probe : 1 = false;
  bool fin_wanted : 1 = false, fin_sent : 1 = false;
  bool repairing : 1 = false, timed_out : 1 = false;  // until FlowSlow::recovery_point is acknowledged; after a timeout
  bool resend_now : 1 = false;                        // regardless of the window
  bool tail_due : 1 = false, wants_tail : 1 = false,
                  tail_out : 1 = false;  // the timer is a tail probe's; send one; one is in flight
  bool timing : 1 = false;
  bool ecn : 1 = false, ecn_echo : 1 = false;         // agreed on; the last packet was marked
  bool accurate : 1 = false;                          // accurate feedback is agreed on (RFC 9768); in the handshake,
                                                      // requested
  bool slowed_down : 1 = false, cwr_due : 1 = false;  // shrunk for echoed marks; CWR is to be sent
  bool released : 1 = false, gone_told : 1 = false, accepted : 1 = false;
  // the slow path does its handshake; or it was handed over and is not confirmed (slow_path.h)
  bool elsewhere : 1 = false;
  wire::TcpCongestion algorithm : 3 = wire::TcpCongestion::agents;
  std::uint16_t neighbour = 0xffff;  // the last place of its next hop (neighbours.h)

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

  // Before its congestion control begins.
  void begin_with(const FlowOptions& options) noexcept {
    slow->options = options;
    nagle = options.nagle;
    algorithm = options.congestion;
  }
};
static_assert(sizeof(Flow) + TimerWheel::bytes_per_timer <= 256, "fast-path state of a flow");

[[nodiscard]] constexpr std::string_view state_name(FlowState state) noexcept {
  constexpr std::string_view names[] = {"CLOSED",     "SYN-SENT",   "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
                                        "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING",      "LAST-ACK",    "TIME-WAIT"};
  return names[static_cast<std::size_t>(state)];
}

}  // namespace offpath::tcp
