// Words of the area by which programs know the agent: its addresses and its congestion control. The agent writes each
// of them once, when it opens the area. Until then they are zero.
#pragma once

#include "base/bytes.h"
#include "wire/areas/tcp_area.h"

namespace offpath::channel {

class AgentWords {
 public:
  explicit AgentWords(MutableBytes memory) noexcept
      : line_(reinterpret_cast<wire::TcpAgentLine*>(memory.data() + wire::tcp_word::agent_line)) {}

  // The agent's own address; unspecified: it has none of this family.
  [[nodiscard]] wire::IpAddress own_address(wire::IpFamily family) const noexcept;
  // The families of which it has an address, as flags (wire::tcp_families).
  [[nodiscard]] std::uint16_t families() const noexcept;
  // The congestion control of connections that choose none (agents: the word names no known algorithm).
  [[nodiscard]] wire::TcpCongestion congestion() const noexcept;
  // Whether a connection may choose this congestion control. of_everybody: this program asks on behalf of another one,
  // which may have fewer rights.
  enum class Rights : std::uint8_t { of_program, of_everybody };
  [[nodiscard]] bool may_choose(wire::TcpCongestion congestion, Rights rights = Rights::of_program) const noexcept;

 private:
  wire::TcpAgentLine* line_;
};

}  // namespace offpath::channel
