// The messages of one core to the others, and how it takes their answers. tests/sim/tcp_cores_sim_test.cc has whole
// agents.
#include "tcp/program/core_agreement.h"

#include <gtest/gtest.h>

#include "testing/tcp/service_parts.h"

namespace offpath::tcp {
namespace {

namespace event = wire::tcp_event;
using Kind = CoreMessage::Kind;
constexpr std::uint16_t port = 4000;
constexpr std::uint32_t cores = 3;

// The events that wait for the program.
std::uint8_t told(const Program& program, std::uint32_t handle) { return program.held[handle].events; }

TEST(CoreAgreement, AListenerListensWhenAllCoresHaveIt) {
  ServiceParts zero({}, 0, cores), one({}, 1, cores);
  Program &there = zero.add(), &here = one.add();
  ASSERT_TRUE(zero.listen(there, 5, port));
  zero.agreement.listen(there, 5, {});
  const auto asked = zero.agreement.take_messages();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(one.agreement.on_message(asked[0], here, 0));
  EXPECT_EQ(one.stack->listener(test_family(), port), ProgramTable::tag_of(here, 5));
  const auto answer = one.agreement.take_messages();
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].kind, Kind::done);
  EXPECT_TRUE(zero.agreement.on_message(answer[0], there, 0));
  EXPECT_EQ(told(there, 5), 0) << "the third core has not answered";
  EXPECT_TRUE(zero.agreement.on_message(answer[0], there, 0));
  EXPECT_EQ(told(there, 5), event::listening);
}

TEST(CoreAgreement, AListenerIsGoneWhenNoCoreHasIt) {
  ServiceParts zero({}, 0, cores), one({}, 1, cores);
  Program &there = zero.add(), &here = one.add();
  ASSERT_TRUE(zero.listen(there, 5, port));
  ASSERT_TRUE(one.listen(here, 5, port));
  one.slot(here, 5, 1);
  zero.agreement.stop(there, 5);
  EXPECT_FALSE(zero.stack->listener(test_family(), port));
  EXPECT_EQ(there.held[5].is, Held::Is::stopping);
  EXPECT_TRUE(one.agreement.on_message(zero.agreement.take_messages().at(0), here, 0));
  EXPECT_EQ(told(here, 1), event::gone) << "its accept slots go back";
  EXPECT_FALSE(one.stack->listener(test_family(), port));
  const auto answer = one.agreement.take_messages();
  for (std::uint32_t i = 1; i < cores; ++i) EXPECT_TRUE(zero.agreement.on_message(answer.at(0), there, 0));
  EXPECT_EQ(told(there, 5), event::gone);
  EXPECT_EQ(there.held[5].is, Held::Is::free);
}

TEST(CoreAgreement, AHandleInUseOnAnotherCoreIsInvalid) {
  ServiceParts one({}, 1, cores);
  Program& program = one.add();
  program.set(program.held.use(5), Held::Is::flow);
  const CoreMessage message{.kind = Kind::listen, .program = program.number, .handle = 5, .port = port};
  const Status taken = one.agreement.on_message(message, program, 0);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Error::protocol);
}

class Claims : public testing::Test {
 protected:
  // A connection from a port that its program names, on core 1.
  CoreMessage claim(std::uint32_t handle) {
    Held& held = one.handle(here, handle);
    held.key = {{test_address(0x0a000001), port}, {test_address(0x0a000002), 80}};
    one.agreement.connect(here, handle, 0);
    EXPECT_EQ(held.is, Held::Is::claiming);
    const auto asked = one.agreement.take_messages();
    EXPECT_EQ(asked.at(0).kind, Kind::claim);
    return asked.at(0);
  }
  CoreMessage answer_to(const CoreMessage& claim) {
    EXPECT_TRUE(zero.agreement.on_message(claim, there, 0));
    return zero.agreement.take_messages().at(0);
  }

  ServiceParts zero{{}, 0, cores}, one{{}, 1, cores};
  Program &there = zero.add(), &strange = zero.add({.user = 7}), &here = one.add();
};

TEST_F(Claims, OfAFreePortBeginTheConnection) {
  const CoreMessage answer = answer_to(claim(4));
  EXPECT_EQ(answer.kind, Kind::granted);
  EXPECT_TRUE(one.agreement.on_message(answer, here, 0));
  EXPECT_EQ(here.held[4].is, Held::Is::flow);
  EXPECT_FALSE(zero.listen(strange, 0, port)) << "core 0 keeps the port";
  one.agreement.unclaim(here, here.held[4]);
  one.agreement.unclaim(here, here.held[4]);
  const auto returned = one.agreement.take_messages();
  ASSERT_EQ(returned.size(), 1u);
  EXPECT_TRUE(zero.agreement.on_message(returned[0], there, 0));
  EXPECT_TRUE(zero.listen(strange, 1, port));
}

TEST_F(Claims, OfAnotherProgramsPortAreDenied) {
  ASSERT_TRUE(zero.listen(strange, 0, port));
  const CoreMessage answer = answer_to(claim(4));
  EXPECT_EQ(answer.kind, Kind::denied);
  EXPECT_TRUE(one.agreement.on_message(answer, here, 0));
  EXPECT_EQ(told(here, 4), event::closed | event::gone);
  EXPECT_EQ(here.held[4].error, wire::TcpError::address_in_use);
}

TEST_F(Claims, ThatAreGivenUpReturnThePort) {
  const CoreMessage answer = answer_to(claim(4));
  here.set(here.held[4], Held::Is::stopping);  // the program has released the connection meanwhile
  EXPECT_TRUE(one.agreement.on_message(answer, here, 0));
  EXPECT_EQ(told(here, 4), event::gone);
  EXPECT_EQ(one.agreement.take_messages().at(0).kind, Kind::unclaim);
}

}  // namespace
}  // namespace offpath::tcp
