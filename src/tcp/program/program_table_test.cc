#include "tcp/program/program_table.h"

#include <gtest/gtest.h>

#include "testing/tcp/service_parts.h"

namespace offpath::tcp {
namespace {

TEST(ProgramTable, ATagNamesItsProgramAlone) {
  ServiceParts parts;
  Program& one = parts.add();
  Program& two = parts.add();
  const std::uint64_t tag = ProgramTable::tag_of(one, 7), other = ProgramTable::tag_of(two, 7);
  EXPECT_EQ(parts.programs.of_tag(tag), &one);
  EXPECT_EQ(parts.programs.of_tag(other), &two);
  EXPECT_EQ(ProgramTable::handle_of(tag), 7u);
  parts.programs.remove(one, *parts.stack, 0);
  EXPECT_EQ(parts.programs.of_tag(tag), nullptr);
  Program& next = parts.add();
  EXPECT_EQ(next.place, 0u) << "the place is used again";
  EXPECT_EQ(parts.programs.of_tag(tag), nullptr) << "by another program";
  EXPECT_EQ(parts.programs.of_tag(ProgramTable::tag_of(next, 7)), &next);
}

TEST(ProgramTable, AHandleThatAnotherFlowHasIsNotThatOfTheTag) {
  ServiceParts parts;
  Program& program = parts.add();
  Held& held = program.held.use(3);
  const std::uint64_t tag = ProgramTable::tag_of(program, 3);
  const FlowId first{1, 1}, second{1, 2};
  EXPECT_EQ(ProgramTable::held_of(&program, tag, first), nullptr);
  program.set(held, Held::Is::flow);
  held.id = first;
  EXPECT_EQ(ProgramTable::held_of(&program, tag, first), &held);
  held.id = second;
  EXPECT_EQ(ProgramTable::held_of(&program, tag, first), nullptr);
  EXPECT_EQ(ProgramTable::held_of(nullptr, tag, second), nullptr);
}

TEST(ProgramTable, ManyFlowsOfAProgramEndInSeveralRounds) {
  ServiceParts parts;
  Program& program = parts.add();
  constexpr std::uint32_t many = 3 * ProgramTable::ends_of_a_round;
  for (std::uint32_t handle = 0; handle < many; ++handle)
    program.set(program.held.use(handle), Held::Is::flow);  // of flows that the stack does not have
  const std::uint64_t tag = ProgramTable::tag_of(program, 0), number = program.number;
  parts.programs.remove(program, *parts.stack, 0);
  EXPECT_EQ(parts.programs.find(number), nullptr);
  EXPECT_TRUE(parts.programs.has_leaving());
  EXPECT_EQ(parts.programs.size(), 1u) << "it counts until it has ended";
  EXPECT_NE(parts.programs.of_tag(tag), nullptr);
  int rounds = 1;
  while (parts.programs.end_flows(*parts.stack, 0)) ++rounds;
  EXPECT_GE(rounds, 2);
  EXPECT_EQ(parts.programs.of_tag(tag), nullptr);
  EXPECT_EQ(parts.programs.size(), 0u);
}

}  // namespace
}  // namespace offpath::tcp
