// Arbitrary records in the rings between an agent and its slow path, to either side, with a peer that answers: no
// assertion fails, no payload is stored beyond the allowed position, and the agent continues alone after invalid
// records. The peer has a correct slow path, which it always keeps. Each step is a byte for the action, and its
// arguments.
#include <cstring>

#include "tcp/segment/frame_writer.h"
#include "tcp/segment/segmentation.h"
#include "testing/tcp/slow_path.h"

using namespace offpath;
using namespace offpath::tcp;

namespace {

constexpr std::uint32_t ring_bytes = wire::TcpSlowLayout::ring_bytes_min;

struct Input {
  const std::uint8_t* data;
  std::size_t left;
  std::uint8_t byte() { return left == 0 ? 0 : (--left, *data++); }
  template <class Message>
  Message message() {
    Message made{};
    const std::size_t bytes = std::min(left, sizeof made);
    std::memcpy(&made, data, bytes);
    data += bytes, left -= bytes;
    return made;
  }
};

// Mostly of the connections that there may be.
template <class Message>
void make_likely(Message& message, std::uint8_t how) {
  if constexpr (requires { message.key; }) {
    make_likely(message.key, how);
    if constexpr (requires { message.mss; }) {  // a whole connection
      if ((how & 2) == 0) return;
      message.mss = 1000, message.send_scale %= 15, message.receive_scale = 0, message.flags &= 7;
      message.round_trip_us %= 1'000'000, message.send_window %= 65'536, message.next_hop_mac[0] &= 0xfe;
    }
  } else if constexpr (requires { message.attempt; }) {
    if ((how & 1) == 0) return;
    message.local_address = TestNetwork::address(0);
    message.remote_address = TestNetwork::address(1);
    message.local_port = static_cast<std::uint16_t>(80 + message.local_port % 3);
    message.remote_port = static_cast<std::uint16_t>(80 + message.remote_port % 3);
    message.attempt %= 4;
  }
}

void write_to(SlowPathArea& area, Input& input) {
  using enum wire::TcpSlowKind;
  constexpr wire::TcpSlowKind kinds[] = {setup,   frame,     listen,   stop_listening, connect,
                                         abandon, confirmed, declined, time_wait,      resolve,
                                         adopt,   failed,    returned, neighbour,      send};
  const auto kind = kinds[input.byte() % std::size(kinds)];
  const std::uint8_t how = input.byte();
  const auto post = [&](auto message) {
    make_likely(message, how);
    const std::size_t bytes = std::min<std::size_t>(input.left, how & 0x3c);
    area.post(kind, message, Bytes(reinterpret_cast<const std::byte*>(input.data), bytes));
    input.data += bytes, input.left -= bytes;
  };
  switch (kind) {
    case setup:
      return post(input.message<wire::TcpSlowSetup>());
    case listen:
    case stop_listening:
      return post(input.message<wire::TcpSlowListen>());
    case connect:
      return post(input.message<wire::TcpSlowConnect>());
    case adopt:
    case time_wait:
      return post(input.message<wire::TcpHandedFlow>());
    case neighbour:
    case resolve:
      return post(input.message<wire::TcpSlowNeighbour>());
    case send:
      return post(input.message<wire::TcpSlowSend>());
    case frame:
    case returned:
      return post(input.message<wire::TcpSlowFrame>());
    default:
      return post(input.message<wire::TcpSlowKey>());
  }
}

// Mostly about addresses that there may be.
void say_neighbour(Stack& to, Input& input, TimeNs now) {
  const std::uint8_t how = input.byte();
  NeighbourMessage message{how % 2 != 0,
                           input.message<MacAddress>(),
                           TestNetwork::address(how >> 1 & 1),
                           {},
                           TestNetwork::address(how >> 2 & 1)};
  if ((how & 8) != 0) message.sender.bytes[15] += input.byte();
  if ((how & 16) != 0) message.sender = input.message<IpAddress>();
  FrameToSend frame;
  write_neighbour_frame(message, {2, 0, 0, 0, 0, 9}, group_mac(message.target), frame);
  to.receive({whole_frame(frame), false}, now);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{data, size};
  TestNetworkOptions options;
  options.stack.time_wait_ns = options.stack.fin_wait_ns = second_ns;
  options.stack.flows_max = 16;
  SlowPathNetwork network(options, true, true);
  for (auto& end : network.ends) end.owner.plan = {100, 4096};
  for (auto& end : network.ends) OFP_ASSERT(end.stack->listen(test_family(), 80, 1, 4096));
  network.connect(0, 80, {100, 4096}, 81);
  network.run(millisecond_ns);
  TestSlowPath& slow = *network.slow[0];
  // A hostile process takes the place of the other, or a hostile agent that of the agent.
  const bool as_process = input.byte() % 2 == 0;
  if (as_process)
    slow.process.reset();
  else
    slow.agent.reset();
  const auto side = as_process ? SlowPathArea::Side::process : SlowPathArea::Side::agent;
  std::vector<std::uint64_t> memory(wire::TcpSlowLayout{ring_bytes}.bytes() / 8);
  const MutableBytes bytes(reinterpret_cast<std::byte*>(memory.data()), memory.size() * 8);
  SlowPathCounters counters;
  std::optional<AgentSlowPath> agent;
  std::optional<HostSlowPath> process;
  SlowPathArea hostile(side, bytes, {ring_bytes});
  if (as_process) {
    slow.agent.reset();
    agent.emplace(*network.ends[0].stack, bytes, wire::TcpSlowLayout{ring_bytes}, counters, network.now);
  } else {
    process.emplace(bytes, wire::TcpSlowLayout{ring_bytes});
    wire::TcpSlowSetup setup{};
    setup.version = wire::tcp_slow_version;
    setup.families[static_cast<std::size_t>(test_family())] = {
        TestNetwork::address(0), {}, tests_ipv6() ? std::uint8_t{120} : std::uint8_t{24}, {}};
    setup.mtu = test_mtu(1500);
    setup.flows_max = setup.half_open_max = setup.time_wait_max = 8;
    setup.window_max = 65'536;
    if (input.byte() % 8 != 0) hostile.post(wire::TcpSlowKind::setup, setup);
  }
  while (input.left > 0 && (agent || process)) {
    switch (input.byte() % 9) {
      case 0:
        std::memcpy(bytes.data() + (as_process ? 0 : 64), input.data, std::min<std::size_t>(input.left, 16));
        break;  // positions
      case 1:
        network.run(second_ns);
        break;
      case 2:
        if (network.ends[0].stack->flows() < options.stack.flows_max) network.connect(0, 80, {100, 4096});
        break;
      case 3: {
        SlowPathArea::Record record;
        while (hostile.take(record).value_or(false)) {
        }
        break;
      }
      case 4:
        say_neighbour(*network.ends[input.byte() % 2].stack, input, network.now);
        break;
      default:
        write_to(hostile, input);
    }
    static_cast<void>(hostile.flush());
    if (agent && !agent->poll(network.now)) agent.reset();
    if (process && !process->poll(network.now)) process.reset();
    network.run(millisecond_ns);
    OFP_ASSERT(!network.slow[1]->why);
  }
  agent.reset();
  process.reset();
  network.run(second_ns);
  return 0;
}
