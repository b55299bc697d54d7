// Scripts of packets, for tests: what is put in front of one stack, and what it must answer, in virtual time. Each runs
// twice: with an owner that has its payload at hand, and with a program whose words and bytes go through its rings. A
// line is
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
//   icmp 600 1                        a router says that the segment with this number was too large for 600 bytes (in
//                                     packets of the family that is tested)
//   received 1000 | acknowledged 3000 | finished | closed reset | gone      what its user was told by now
//   wait 200ms                        time passes
//
// Words after the flags: ack N, win N (scaled, in `out` as it stands), mss N, scale N, sack (permitted) or sack N:M,…
// (blocks), ts V:E, ce (in: a router has marked it), ect (out: one might). In `out` what is not mentioned is not
// compared. Flags: S F R A E W P, in this order, E for ECE and W for CWR, P never compared. # begins a comment.
#pragma once

#include <string>
#include <string_view>

namespace offpath::tcp {

// Empty, or what is wrong: line, what was expected, what was there.
[[nodiscard]] std::string run_packet_script(std::string_view script);

}  // namespace offpath::tcp
