// Any bytes to a sampler, and any bytes to the agent that samples it; also with right tags, so that later checks are
// reached. No answer is longer than the request allows, and neither side ends.
//
// The input is a list of datagrams, {to u8, length u8, bytes}: to the host or the agent, sealed or plain.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/hash/siphash.h"
#include "telemetry/sampling.h"
#include "testing/telemetry/host.h"

using namespace offpath;
using namespace offpath::exchange;

namespace {

void seal(std::vector<std::byte>& datagram) {
  const std::size_t length = datagram.size();
  datagram.resize(length + OFS_TAG_BYTES);
  const SamplerKey key = TestHost::key();
  ofp_siphash128(key.data(), datagram.data(), length, reinterpret_cast<std::uint8_t*>(datagram.data()) + length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static TestHost host;  // its directory is made once
  host.start();
  Sampling agent({.producer = "fuzzed", .key = TestHost::key(), .session = 1}, 0);
  SamplingEffects effects;
  TimeNs now = 0;
  agent.on_time(now, effects);
  while (size >= 2) {
    const std::uint8_t to = data[0];
    const std::size_t length = std::min<std::size_t>(data[1], size - 2);
    std::vector<std::byte> datagram(length);
    std::copy_n(reinterpret_cast<const std::byte*>(data + 2), length, datagram.begin());
    data += 2 + length;
    size -= 2 + length;
    now += to * millisecond_ns;
    // Sets magic, session and number as the agent's, because otherwise few states are reached.
    if ((to & 4) != 0 && length >= OFS_HEADER_BYTES) {
      store(datagram.data(), std::uint32_t{OFS_MAGIC});
      store(datagram.data() + 8, std::uint64_t{1});
      store(datagram.data() + 16, agent.counters().requests);
    }
    if ((to & 2) != 0) seal(datagram);
    if ((to & 1) != 0) {
      agent.on_datagram(datagram, now, now, effects);
    } else {
      const auto answer = host.answer(datagram, now);
      const std::size_t allowed =
          datagram.size() < OFS_HEADER_BYTES
              ? 0
              : std::max<std::size_t>(load<std::uint32_t>(datagram.data() + 44), sizeof(SamplerRequest));
      OFP_ASSERT(answer.size() <= allowed);
    }
    // Sometimes the host answers the agent's requests, so that later states are reached.
    for (const SamplerRequest& each : std::exchange(effects.requests, {}))
      if ((to & 8) != 0) {
        if (const auto answer = host.answer(each, now); !answer.empty()) agent.on_datagram(answer, now, now, effects);
      }
    agent.on_time(now, effects);
    OFP_ASSERT(agent.next_deadline() > now &&
               (agent.newest_at() == never || agent.newest().values.size() == agent.schema().fields.size()));
  }
  return 0;
}
