// Scripts of packets, for tests: input for one stack, and the expected answers, in virtual time. Each runs twice: with
// an owner that has its payload at hand, and with a program whose words and bytes go through its rings. With
// OFFPATH_TEST_LINK=late it runs once, with a program on another machine, behind a late and shaped link, as ctest does
// besides (LINK in cmake/OffpathTargets.cmake). A line is
//
//   listen 80                         the stack's user listens, or
//   connect 80                        connects to the peer's port
//   in  S 0 win 1000 mss 1460 sack    a segment arrives; numbers are relative to the peer's and the stack's initial
//       ones
//   in  A 1:1001 ack 1 win 1000       with bytes 1 to 1000
//   out SA 0 ack 1                    the stack sends this next, and nothing before it: flags, numbers, and what else
//                                     is said
//   out A 1:1461 ack 1
//   none                              it sends nothing; so does every script when it ends
//   any                               what it has sent is not looked at
//   offer 3000 | finish | abort | release      its user does this; positions
//   class 184                         of its packets from now on, a traffic class; before `listen` or `connect`, of the
//                                     connections that begin so
//   choose dctcp                      likewise, congestion control by its Linux name
//   icmp 600 1                        a router says that the segment with this number was too large for 600 bytes (in
//                                     packets of the family that is tested)
//   received 1000 | acknowledged 3000 | finished | closed reset | gone      what its user was told by now
//   wait 200ms                        time passes
//
// Words after the flags: ack N, win N (scaled, in `out` as it stands), mss N, scale N, sack (permitted) or sack N:M,…
// (blocks), ts V:E, ce, ect0, ect1 (in: how it arrives), ect (out: a router may mark it), noect (out: none may), ace N
// (the three flags of accurate ECN, which are then no letters), bytes N,M,L (its option: bytes that arrived capable_0,
// congested and capable_1, or the first of these; order 1 if it begins with a comma; bytes none: out without it),
// merged N (in: a device has merged it from packets with N bytes each), class N (out: its
// traffic class without the bits of ECN). In `out` what is not mentioned is not compared.
// Flags: S F R A E W X P, in this order, E for ECE, W for CWR, X for AE, P never compared. # begins a comment.
#pragma once

#include <string>
#include <string_view>

#include "tcp/flow/stack_options.h"

namespace offpath::tcp {

struct PacketScriptOptions {
  std::string_view congestion = "new_reno";
  EcnUse ecn = EcnUse::as_congestion_control_wants;
  TimeNs rto_min_ns = RtoLimits{}.minimum_ns;
};

// Empty, or the error: line, expected and actual packet.
[[nodiscard]] std::string run_packet_script(std::string_view script, const PacketScriptOptions& options = {});

}  // namespace offpath::tcp
