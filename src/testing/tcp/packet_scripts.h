// Shared by packet scripts of several tests: the check, and the beginning of a connection.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "testing/tcp/packet_script.h"

namespace offpath::tcp {

inline void expect_script(std::string_view script, const PacketScriptOptions& options = {}) {
  EXPECT_EQ(run_packet_script(script, options), "");
}

// The peer has a window of 65,535 bytes that is not scaled, and takes segments of 1,460.
inline constexpr std::string_view accepted = R"(
  listen 80
  in  S 0 win 65535 mss 1460 sack scale 0
  out SA 0 ack 1 mss 1460 sack scale 7
  in  A 1 ack 1
  none
)";

}  // namespace offpath::tcp
