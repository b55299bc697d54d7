// Two programs of two agents, and a connection between them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "testing/tcp/programs.h"

namespace offpath::tcp {

// A server at end 1, a client at end 0, and a connection between them.
class TwoPrograms : public testing::Test {
 public:
  static constexpr std::uint16_t port = 8000;

 protected:
  void connect() {
    listener = server.area->listen(port, 4).value();
    near = client.area->connect(TestPrograms::endpoint(1, port)).value();
    ASSERT_TRUE(world.run_until([&] { return accept(); }, second_ns));
    ASSERT_TRUE(client.area->look(near)->connected);
  }
  bool accept() {
    const auto accepted = server.area->accept(listener);
    if (accepted) far = *accepted;
    return accepted.has_value();
  }
  static Bytes text(std::string_view of) { return std::as_bytes(std::span(of)); }
  std::string hear(TestProgram& program, SocketArea::Handle handle, std::size_t bytes) {
    std::string heard(bytes, '\0');
    std::size_t got = 0;
    world.run_until(
        [&] {
          const auto taken = program.area->receive(handle, std::as_writable_bytes(std::span(heard)).subspan(got));
          if (taken) got += *taken;
          return got == bytes || (taken && *taken == 0);
        },
        second_ns);
    return heard.substr(0, got);
  }

  TestPrograms world{TestNetworkOptions{}};
  TestProgram &client = world.add(0), &server = world.add(1);
  SocketArea::Handle listener = 0, near = 0, far = 0;
};

}  // namespace offpath::tcp
