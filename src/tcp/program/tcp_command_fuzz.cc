// Any bytes in a program's area: commands and the rings' positions, with a peer that answers, and a second program that
// must never be disturbed.
#include <cstring>

#include "testing/tcp/programs.h"

using namespace offpath;
using namespace offpath::tcp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TestNetworkOptions options;
  options.stack.time_wait_ns = options.stack.fin_wait_ns = second_ns;
  TestPrograms world(options, {4, 16, 4 << 20});
  TestProgram &server = world.add(1, {16, 4096, 4096}), &other = world.add(0, {16, 4096, 4096}),
              &hostile = world.add(0, {16, 4096, 4096});
  const auto listener = server.area->listen(7000, 2).value();
  const auto kept = other.area->connect(TestPrograms::endpoint(1, 7000)).value();
  world.run(10 * millisecond_ns);
  OFP_ASSERT(server.area->accept(listener));

  constexpr std::size_t step_bytes = 1 + sizeof(wire::TcpCommand);
  for (; size >= step_bytes; data += step_bytes, size -= step_bytes) {
    wire::TcpCommand command;
    std::memcpy(&command, data + 1, sizeof command);
    switch (data[0] % 8) {
      case 0:
        std::memcpy(hostile.memory.data(), &command, 16);
        break;  // its line: how many commands, and how many events it took
      case 1:
        world.run(second_ns);
        break;
      case 2:
        std::memcpy(hostile.memory.data() + 8, hostile.memory.data() + wire::tcp_word::events, 8);
        break;   // takes all events
      case 3: {  // processes come and go
        tcp::TcpService& service = world.ends[0].service;
        if (data[1] & 1)
          static_cast<void>(service.add_process(hostile.number, command.handle));
        else if (command.handle != 0)
          service.remove_process(hostile.number, command.handle);
        break;
      }
      default:
        command.handle %= 20;
        if (data[0] & 8) command.send_at = command.receive_at = hostile.layout.own();
        if (data[0] & 16) command.send_bytes = command.receive_bytes = 4096;
        if (data[0] & 32) {
          auto connects = std::bit_cast<wire::TcpConnect>(command);
          connects.remote_address = data[1] & 1 ? TestNetwork::address(1) : solicited_node(connects.remote_address);
          connects.remote_port = 7000;
          command = std::bit_cast<wire::TcpCommand>(connects);
        }
        hostile.write_command(command);
    }
  }
  world.run(second_ns);
  OFP_ASSERT(other.area->look(kept)->connected);
  return 0;
}
