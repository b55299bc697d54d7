// The options of a stack, and its counters.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "tcp/flow/flow.h"
#include "tcp/flow/neighbours.h"
#include "tcp/segment/drop.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/keyed_hash.h"

namespace offpath::tcp {

// A stack's addresses in one family.
struct IpInterface {
  IpAddress address{};  // unspecified: not at all
  std::uint8_t prefix_length = 24;
  IpAddress gateway{};  // unspecified: none; for IPv6 routers may advertise themselves
};

// The numbers of messages, by kind, that a stack with an IPv6 address sends at its start.
struct Ipv6Start {
  std::uint8_t address_checks = 1;   // one a second: another node that has the address answers (RFC 4862, 5.1)
  std::uint8_t router_requests = 3;  // one in four seconds, where no gateway is configured (RFC 4861, 6.3.7)
  std::uint8_t group_reports = 2;    // one a second, for switches (RFC 3810, 6.1)
};

// The kind of ECN that a stack asks for; it grants a peer's request up to this.
enum class EcnUse : std::uint8_t {
  as_congestion_control_wants,  // RFC 3168
  accurate                      // RFC 9768, and RFC 3168 with peers that know only that
};

struct StackOptions {
  IpInterface v4{}, v6{};
  HashKey secret{};  // random, of this stack alone; in a simulation, of its seed

  std::uint32_t core = 0,
                // its number among the stacks with these addresses; wire/areas/flow_steering.h selects its flows
      cores = 1;
  Ipv6Start start{};
  bool hears_routers = true;  // of IPv6, where no gateway is configured
  // The number of connections that peers have begun. All stacks with these addresses share it through copies of these
  // options, so the order of a peer's connections is known across stacks.
  std::shared_ptr<std::atomic<std::uint64_t>> peers_begun = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint32_t flows_max = 65'536;
  std::uint32_t half_open_max = 1024;
  std::uint32_t time_wait_max = 16'384;  // beyond it the oldest end early
  bool syn_cookies = true;               // when half_open_max is reached; otherwise such SYNs are dropped
  std::uint64_t window_max = 8'000'000;  // decides the window scale, here 7: windows are multiples of 128 bytes
  RtoLimits rto{};
  TimeNs time_wait_ns = 60 * second_ns;
  std::uint32_t orphans_max = 8192;  // released flows whose peers are not done; beyond it the oldest are reset
  // an orphan's wait for its peer to acknowledge another segment (RFC 1122, 4.2.2.20), and its longest life
  TimeNs orphan_ns = 60 * second_ns, orphan_lifetime_ns = 600 * second_ns;
  TimeNs fin_wait_ns = 60 * second_ns;  // for the peer's FIN, after the owner's release
  std::uint8_t syn_retries = 6, syn_ack_retries = 5, retries = 15;
  TimeNs challenge_every_ns = 500 * millisecond_ns;  // of one flow: answers to impossible segments (RFC 5961)
  std::uint16_t mss_least = 216;                     // regardless of peers' values
  // of IPv4, regardless of routers' messages: smaller MTUs are rarer than forged messages (RFC 5927, 7.2)
  std::uint16_t path_mtu_least = 576;
  TimeNs path_mtu_ns = 600 * second_ns;  // and for so long (RFC 1191, 6.3)
  EcnUse ecn = EcnUse::as_congestion_control_wants;
  NeighbourLimits neighbours{};

  [[nodiscard]] const IpInterface& own(IpFamily family) const noexcept { return family == IpFamily::v4 ? v4 : v6; }
};

struct StackCounters {
  std::uint64_t segments_in = 0, segments_out = 0, payload_in = 0, payload_out = 0;
  std::uint64_t retransmitted = 0;          // bytes
  std::uint64_t timeouts = 0, repairs = 0;  // retransmission timeouts; losses found by acknowledgements
  std::uint64_t tail_probes = 0;
  std::uint64_t undone = 0;                    // timeouts and repairs that were needless
  std::uint64_t duplicates_reported = 0;       // by the peer (RFC 2883)
  std::uint64_t paths_suspected = 0;           // paths that seem to drop large segments (RFC 4821)
  std::uint64_t marked_in = 0, echoes_in = 0;  // segments with a router's mark; acknowledgements that echo such marks
  std::uint64_t accurate_ecn = 0;              // connections whose peers have agreed on that
  std::uint64_t out_of_order = 0, duplicates = 0;  // segments
  std::uint64_t connected = 0, accepted = 0, closed = 0, failed = 0;
  // refused connections: SYNs without a listener, and answers without a connection
  std::uint64_t refused = 0;
  std::uint64_t orphans_reset = 0;  // resets of orphans, whose last data may be lost
  std::uint64_t resets_in = 0, resets_out = 0, challenges = 0;
  std::uint64_t cookies_out = 0, cookies_in = 0, syns_dropped = 0;
  std::array<std::uint64_t, drop_reasons> drops{};
};

}  // namespace offpath::tcp
