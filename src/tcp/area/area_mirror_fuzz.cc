// Any bytes in the area of a program behind a link: commands with and without their stamp, positions, bytes within the
// commands of a connection, and the moment at which the agent looks. A second program must never be disturbed.
#include <bit>
#include <cstring>

#include "testing/tcp/linked_program.h"

using namespace offpath;
using namespace offpath::tcp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TestNetworkOptions options;
  options.stack.time_wait_ns = options.stack.fin_wait_ns = second_ns;
  LinkedPrograms world(options);
  TestProgram &server = world.add(1, {16, 4096, 4096}), &other = world.add(0, {16, 4096, 4096});
  LinkedProgram& hostile = world.add_linked(0, microsecond_ns, 1, {16, 4096, 4096});
  const auto listener = server.area->listen(7000, 2).value();
  const auto kept = other.area->connect(TestPrograms::endpoint(1, 7000)).value();
  world.run(10 * millisecond_ns);
  OFP_ASSERT(server.area->accept(listener));
  const auto own = hostile.program().area->connect(TestPrograms::endpoint(1, 7000)).value();
  world.run(10 * millisecond_ns);
  std::uint64_t offered = 0;

  constexpr std::size_t step_bytes = 1 + sizeof(wire::TcpCommand);
  for (; size >= step_bytes && hostile.status(); data += step_bytes, size -= step_bytes) {
    wire::TcpCommand command;
    std::memcpy(&command, data + 1, sizeof command);
    switch (data[0] % 8) {
      case 0:
        std::memcpy(hostile.program().memory.data(), &command, 16);
        break;  // its line: how many commands, and how many events it took
      case 1:
        world.run(second_ns);
        break;
      case 2:
        hostile.program().write_command(command);  // mostly with a wrong stamp
        break;
      case 3: {  // on its connection: mostly as a correct program gives them
        auto entry = std::bit_cast<wire::TcpOffer>(command);
        entry.kind = data[1] & 1 ? wire::TcpCommandKind::offer : wire::TcpCommandKind::payload;
        entry.count = data[1] & 2 ? entry.count : entry.count % (entry.bytes.size() + 1);
        entry.handle = own;
        entry.position = data[1]& 4 ? entry.position % 16'384 : offered += entry.count;
        command = std::bit_cast<wire::TcpCommand>(entry);
        command.stamp = wire::tcp_stamp(command, hostile.word(wire::tcp_word::commands));
        hostile.program().write_command(command);
        break;
      }
      default:
        command.stamp = wire::tcp_stamp(command, hostile.word(wire::tcp_word::commands));
        hostile.program().write_command(command);
        break;
    }
    hostile.mirror().look(world.now);
    if (data[0] == 0xff) hostile.mirror().finish();
    world.run((data[0] >> 4) * microsecond_ns);
  }
  world.run(second_ns);
  const auto look = other.area->look(kept);
  OFP_ASSERT(look && look->connected && look->error == wire::TcpError::none);
  return 0;
}
