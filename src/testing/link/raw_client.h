// A client that sends what a test specifies, in place of a program's library.
#pragma once

#include <gtest/gtest.h>

#include "link/handshake/handshake.h"
#include "testing/link/connected_pair.h"

namespace offpath::link {

class RawClient {
 public:
  explicit RawClient(TestAgent& agent) : agent_(agent) {
    auto dialled = dial(agent.address, soon());
    OFP_ASSERT(dialled);
    const auto kind = agent.address.kind == Address::Kind::unix_socket ? ControlSocket::Kind::unix_socket
                                                                       : ControlSocket::Kind::network;
    socket = ControlSocket(std::move(*dialled), kind);
  }
  void say(const wire::Hello& hello, int descriptor) {
    std::vector<std::byte> payload;
    wire::encode(hello, payload);
    ASSERT_TRUE(socket.send(wire::ControlType::hello, payload, descriptor));
  }
  // The outcome at the agent; checks that the client got the same.
  Failure refused() {
    const auto arrival = agent_.serve();
    EXPECT_FALSE(arrival.link);
    auto frame = await_frame(socket, soon());
    EXPECT_TRUE(frame) << frame.error().message;
    if (frame) {
      EXPECT_EQ(frame->type, wire::ControlType::refusal);
      auto refusal = wire::decode_refusal(frame->payload);
      EXPECT_TRUE(refusal);
      EXPECT_EQ(refusal->message, arrival.failure.message);
      EXPECT_EQ(refusal->code, arrival.failure.code);
    }
    EXPECT_EQ(await_frame(socket, soon()).error().code, Error::peer_lost);
    return arrival.failure;
  }

  ControlSocket socket;

 private:
  TestAgent& agent_;
};

inline wire::Hello good_hello() {
  wire::Hello hello;
  hello.name = "raw";
  return hello;
}

}  // namespace offpath::link
