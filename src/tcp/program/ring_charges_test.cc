#include "tcp/program/ring_charges.h"

#include <gtest/gtest.h>

#include "testing/tcp/service_parts.h"

namespace offpath::tcp {
namespace {

using wire::TcpWay;
constexpr std::uint64_t ring = ServiceParts::ring_bytes;

TEST(RingCharges, OnOneMachineOnlyTheAgentWritesIntoReceiveRings) {
  ServiceParts parts;
  Program &here = parts.add(), &there = parts.add({.linked = true});
  EXPECT_TRUE(parts.charges.charge(here, parts.handle(here, 0)));
  EXPECT_TRUE(parts.charges.charge(there, parts.handle(there, 0)));
  EXPECT_EQ(here.charged_bytes, ring);
  EXPECT_EQ(there.charged_bytes, 2 * ring) << "the send ring is the agent's copy";
}

TEST(RingCharges, ABlockIsChargedOnce) {
  ServiceParts parts;
  Program& program = parts.add();
  const Held& held = parts.handle(program, 0);
  EXPECT_EQ(RingCharges::cost_of(program, held), ring);
  EXPECT_TRUE(parts.charges.charge(program, held));
  EXPECT_EQ(RingCharges::cost_of(program, held), 0u);
  EXPECT_TRUE(parts.charges.charge(program, held));
  EXPECT_EQ(program.charged_bytes, ring);
}

TEST(RingCharges, AUserHasALimitOfAllItsPrograms) {
  ServiceParts parts({.receive_bytes_of_user_max = 2 * ring});
  Program &one = parts.add({.user = 1}), &two = parts.add({.user = 1}), &other = parts.add({.user = 2});
  EXPECT_TRUE(parts.charges.charge(one, parts.handle(one, 0)));
  EXPECT_TRUE(parts.charges.charge(two, parts.handle(two, 0)));
  EXPECT_FALSE(parts.charges.charge(two, parts.handle(two, 1)));
  EXPECT_EQ(two.charged_bytes, ring) << "nothing is charged by a refusal";
  EXPECT_TRUE(parts.charges.charge(other, parts.handle(other, 0)));
}

TEST(RingCharges, CoresHaveEqualPartsOfALimit) {
  ServiceParts parts({.receive_bytes_max = 4 * ring}, 0, 4);
  Program& program = parts.add();
  EXPECT_TRUE(parts.charges.charge(program, parts.handle(program, 0)));
  EXPECT_FALSE(parts.charges.charge(program, parts.handle(program, 4)));
}

TEST(RingCharges, OneLargerRingDoesNotTakeAllThatIsLeft) {
  // Seven eighths are for larger rings, and one gets at most a sixteenth of these.
  ServiceParts parts({.receive_bytes_max = (16 * 4 * ring) * 8 / 7 + 8});
  Program& program = parts.add();
  const std::uint64_t at = ServiceParts::first_ring(program, ServiceParts::flows);
  const Held::Ring first{at, 4 * ring, true}, second{at + 4 * ring, 4 * ring, true};
  EXPECT_TRUE(RingCharges::lend(program, 0, first));
  EXPECT_TRUE(parts.charges.charge_larger(program, TcpWay::in, first));
  EXPECT_EQ(program.lent_bytes, 4 * ring);
  EXPECT_TRUE(RingCharges::lend(program, 1, second));
  EXPECT_FALSE(parts.charges.charge_larger(program, TcpWay::in, second));
  EXPECT_EQ(program.lent_bytes, 4 * ring);
}

TEST(RingCharges, ALentRingIsOneFlowsUntilItIsReturned) {
  ServiceParts parts;
  Program& program = parts.add();
  Held::Ring larger{ServiceParts::first_ring(program, ServiceParts::flows), 4 * ring, true};
  EXPECT_TRUE(RingCharges::lend(program, 0, larger));
  EXPECT_TRUE(parts.charges.charge_larger(program, TcpWay::in, larger));
  EXPECT_EQ(RingCharges::lend(program, 1, larger).error().code, Error::protocol);
  EXPECT_EQ(RingCharges::keep_for_first(program, 1, larger).error().code, Error::protocol);
  RingCharges::return_ring(program, larger);
  RingCharges::return_ring(program, larger);
  EXPECT_EQ(program.lent_bytes, 0u);
  EXPECT_EQ(program.charged_bytes, 4 * ring) << "its pages are there until the program removes them";
}

}  // namespace
}  // namespace offpath::tcp
