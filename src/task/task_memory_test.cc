// The memory of tasks: inputs and outputs that stay on the agent, pieces and parts, and room to wait for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "task/task_service.h"
#include "testing/task/task_service_fixture.h"

namespace offpath::task {
namespace {

TEST_F(TaskServiceTest, WhatIsHereIsNotPulledAgainAndAPartAlone) {
  const std::uint64_t session = open();
  const auto run = [&](wire::TaskInput input) {
    post(EntryKind::task_run, task(session, {input}, {}));
    const bool pulled = pull(std::byte{1});
    (void)told();
    auto call = called();
    if (call) returns(*call, {});
    return std::pair(pulled, done().has_value());
  };
  const std::pair pulled{true, true}, here{false, true};
  EXPECT_EQ(run(input("x", 16, 5)), pulled);
  EXPECT_TRUE(pulled_[0].unshared);
  EXPECT_EQ(run(input("x", 16, 5)), here);
  wire::TaskInput part = input("x", 16, 6);
  part.changed_from = 5;
  part.changed_at = 8;
  part.changed_bytes = 4;
  EXPECT_EQ(run(part), pulled);
  ASSERT_EQ(pulled_.size(), 1u);
  EXPECT_EQ(pulled_[0].length, 4u);
  EXPECT_EQ(pulled_[0].offset, 64u + 8);
  EXPECT_FALSE(pulled_[0].unshared) << "a worker has it mapped";
  EXPECT_EQ(run(input("x", 16, 6)), here);
  // From an unknown version: the whole input.
  part.version = 7;
  EXPECT_EQ(run(part), pulled);
  EXPECT_EQ(pulled_[0].length, 16u);
  EXPECT_EQ(service_.counters().resident_hits, 2u);
  EXPECT_EQ(service_.counters().resident_parts, 1u);
  EXPECT_EQ(service_.counters().resident_bytes, 16u);
  // Without memory it has to be on the agent.
  wire::TaskInput named = input("x", 16, 8);
  named.source = {};
  EXPECT_EQ(run(named), std::pair(false, false));
  const auto missing = failed();
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->failure.code, Error::not_found);
  // More than a session may keep.
  EXPECT_EQ(run(input("y", 60, 1)), std::pair(false, false));
  EXPECT_EQ(failed()->failure.code, Error::too_large);
  post(EntryKind::task_close, wire::TaskClose{session});
  EXPECT_EQ(service_.counters().resident_bytes, 0u);
}

TEST_F(TaskServiceTest, PiecesOfAnInputArePulledOneBehindTheOther) {
  const std::uint64_t session = open();
  const auto piece = [](std::uint64_t offset, std::uint64_t bytes, std::uint64_t version = 0) {
    wire::TaskInput made = input("x", bytes, version);
    made.source.offset = offset;
    return made;
  };
  post(EntryKind::task_run, task(session, {input("a", 4), piece(640, 8), piece(64, 0), piece(128, 24)}, {}));
  ASSERT_TRUE(pull());
  ASSERT_EQ(pulled_.size(), 3u);
  EXPECT_EQ(pulled_[1].offset, 640u);
  EXPECT_EQ(pulled_[2].offset, 128u);
  EXPECT_EQ(pulled_[2].to, pulled_[1].to + 8);
  EXPECT_TRUE(told());
  auto call = called();
  ASSERT_TRUE(call);
  ASSERT_EQ(call->call->inputs.size(), 2u);
  EXPECT_EQ(call->call->inputs[1].column, "x");
  EXPECT_EQ(call->call->inputs[1].bytes, 32u);
  // They stay as one, and may differ in number from the next time on.
  post(EntryKind::task_run, task(session, {piece(0, 8, 1), piece(64, 8, 1)}, {}));
  ASSERT_TRUE(pull());
  EXPECT_EQ(service_.counters().resident_bytes, 16u);
  post(EntryKind::task_run, task(session, {piece(0, 16, 1)}, {}));
  EXPECT_FALSE(pull());
  // The same name again, but not at once; a piece without memory; pieces of several versions, or that have changed.
  const auto refused = [&](std::vector<wire::TaskInput> inputs) -> std::optional<Error> {
    post(EntryKind::task_run, task(session, std::move(inputs), {}));
    const auto why = failed();
    return why ? std::optional(why->failure.code) : std::nullopt;
  };
  EXPECT_EQ(refused({piece(0, 8), input("a"), piece(64, 8)}), Error::exists);
  wire::TaskInput missing = piece(0, 8, 2);
  missing.source = {};
  EXPECT_EQ(refused({piece(0, 8, 2), missing}), Error::not_found);
  EXPECT_EQ(refused({piece(0, 8, 2), piece(64, 8, 3)}), Error::invalid);
  wire::TaskInput changed = piece(0, 8, 2);
  changed.changed_from = 1;
  EXPECT_EQ(refused({changed, piece(64, 8, 2)}), Error::invalid);
  EXPECT_EQ(refused({piece(0, 8, 2), changed}), Error::invalid);
  EXPECT_EQ(refused({piece(0, wire::region_bytes_max), piece(0, wire::region_bytes_max)}), Error::too_large);
  EXPECT_EQ(refused(std::vector(wire::task_pieces_max + 1, piece(0, 8))), Error::too_large);
  post(EntryKind::task_run, task(session, std::vector(wire::task_pieces_max, piece(0, 8)), {}));
  EXPECT_FALSE(failed());
}

TEST_F(TaskServiceTest, APartIsNotPulledOntoWhatAnotherTaskUses) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {input("x", 16, 1)}, {}));
  ASSERT_TRUE(pull());
  (void)told();
  const auto first = called();
  wire::TaskInput part = input("x", 16, 2);
  part.changed_from = 1;
  part.changed_bytes = 8;
  post(EntryKind::task_run, task(session, {part}, {}));
  EXPECT_FALSE(pull());
  // has memory of its own
  const std::uint64_t whole = post(EntryKind::task_run, task(session, {input("x", 16, 3)}, {}));
  EXPECT_TRUE(pull());
  EXPECT_EQ(told(), whole);
  ASSERT_TRUE(first);
  returns(*first, {});
  EXPECT_TRUE(done());
}

TEST_F(TaskServiceTest, AnOutputThatStaysIsAnInputOfTheNext) {
  const std::uint64_t session = open();
  wire::TaskOutput kept = output("list", 32);
  kept.target = {};
  kept.version = 9;
  post(EntryKind::task_run, task(session, {}, {kept}));
  auto call = called();
  ASSERT_TRUE(call);
  ASSERT_EQ(call->call->rooms.size(), 1u);
  EXPECT_EQ(call->call->rooms[0].kept, 0u);
  plugin::Outputs outputs;
  outputs.push_back(made("list", "0123456789"));
  returns(*call, std::move(outputs));
  EXPECT_EQ(done()->output_bytes, std::vector<std::uint64_t>{10});
  wire::TaskInput again = input("list", 10, 9);
  again.source = {};
  post(EntryKind::task_run, task(session, {again}, {}));
  EXPECT_FALSE(pull());
  call = called();
  ASSERT_TRUE(call);
  EXPECT_EQ(call->call->inputs[0].bytes, 10u);
  EXPECT_GE(call->call->inputs[0].fd, 0);
}

TEST_F(TaskServiceTest, WhatIsBeingPushedIsThereUntilItIsPushedWhateverEnds) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {}));
  const auto call = called();
  ASSERT_TRUE(call);
  ASSERT_EQ(call->call->rooms.size(), 1u);
  ASSERT_EQ(pwrite(call->call->rooms[0].fd, "12345678", 8, 0), 8);
  plugin::Output output;
  output.name = "y";
  output.bytes = 8;
  output.in_room = true;
  plugin::Outputs outputs;
  outputs.push_back(std::move(output));
  returns(*call, std::move(outputs));
  call->call->rooms.clear();  // the worker has finished with it
  const auto push = take<service::PushEffect>();
  ASSERT_TRUE(push);
  post(EntryKind::task_close, wire::TaskClose{session});
  EXPECT_EQ(failed()->failure.code, Error::cancelled);
  EXPECT_GT(service_.counters().target_bytes, 0u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(push->pieces[0].from), 8), "12345678");
  service_.on_transfer(push->token, {}, now_, effects_);
  EXPECT_EQ(service_.counters().target_bytes, 0u);
}

TEST_F(TaskServiceTest, MemoryThatCannotBeReadFailsAllWhoWaitForIt) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {input("x", 8, 1)}, {}));
  post(EntryKind::task_run, task(session, {input("x", 8, 1)}, {}));
  ASSERT_TRUE(pull(std::byte{}, fail(Error::unreadable, "it is gone")));
  const auto why = failed();
  ASSERT_TRUE(why);
  EXPECT_EQ(why->failure.code, Error::unreadable);
  EXPECT_NE(why->failure.message.find("\"x\""), std::string::npos) << why->failure.message;
  EXPECT_EQ(failed()->failure.code, Error::unreadable);
  EXPECT_EQ(service_.counters().resident_bytes, 0u);
  post(EntryKind::task_run, task(session, {input("x", 8, 1)}, {}));
  EXPECT_TRUE(pull()) << "it is no version of anything";
}

TEST_F(TaskServiceTest, WhatAFunctionMakesHasToFit) {
  const std::uint64_t session = open();
  const auto made_of = [&](const std::string& name, const std::string& bytes) {
    post(EntryKind::task_run, task(session, {}));
    const auto call = called();
    plugin::Outputs outputs;
    outputs.push_back(made(name, bytes));
    returns(*call, std::move(outputs));
    return failed()->failure.code;
  };
  EXPECT_EQ(made_of("z", "1"), Error::invalid);
  EXPECT_EQ(made_of("y", "123456789"), Error::too_large);
  EXPECT_FALSE(take<service::PushEffect>());
}

TEST_F(TaskServiceTest, WaitingForInputsIsAnsweredWhenTheyArePulledOrTheTaskHasEnded) {
  const std::uint64_t session = open();
  const std::uint64_t first = post(EntryKind::task_run, task(session));
  const std::uint64_t question = post(EntryKind::task_wait, wire::TaskWait{first});
  EXPECT_FALSE(take<service::ReplyEffect>());
  ASSERT_TRUE(pull());
  const auto answer = take<service::ReplyEffect>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->ticket, question);
  const std::uint64_t second = post(EntryKind::task_run, task(session));
  const std::uint64_t again = post(EntryKind::task_wait, wire::TaskWait{second});
  post(EntryKind::task_cancel, wire::TaskCancel{second});
  EXPECT_EQ(take<service::ReplyEffect>()->ticket, again);
}

TEST_F(TaskServiceTest, WaitsForOneTasksInputsAreBounded) {
  const std::uint64_t first = post(EntryKind::task_run, task(open()));
  for (int i = 0; i < 64; ++i) {
    post(EntryKind::task_wait, wire::TaskWait{first});
    ASSERT_FALSE(failed()) << i;
  }
  const std::uint64_t last = post(EntryKind::task_wait, wire::TaskWait{first});
  const auto refused = failed();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->ticket, last);
  EXPECT_EQ(refused->failure.code, Error::too_large);
}

TEST_F(TaskServiceTest, WithoutRoomATaskWaitsForIt) {
  const std::uint64_t session = open();
  room_ = false;
  const std::uint64_t first = post(EntryKind::task_run, task(session));
  wire::TaskRun hasty = task(session, {});
  hasty.wait_ns = 500;
  post(EntryKind::task_run, hasty);
  post(EntryKind::task_run, task(session, {}, {}));
  EXPECT_TRUE(called()) << "it needs none";
  EXPECT_TRUE(service_.waits_for_memory());
  EXPECT_EQ(service_.memory_wanted(), 16u);
  now_ += 500;
  service_.on_time(now_, effects_);
  const auto over = failed();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->failure.code, Error::timeout);
  EXPECT_NE(over->failure.message.find("room for 8 bytes"), std::string::npos) << over->failure.message;
  EXPECT_FALSE(pull());
  room_ = true;
  service_.on_memory_freed(now_, effects_);
  EXPECT_FALSE(service_.waits_for_memory());
  EXPECT_TRUE(pull());
  EXPECT_EQ(told(), first);
  EXPECT_TRUE(called());
}

TEST_F(TaskServiceTest, RoomComesWholeAndToTheOldestFirst) {
  std::uint64_t free_bytes = 20;
  TaskService service({}, cache_, [&](std::uint64_t bytes) { return bytes <= free_bytes; });
  service.set_memory_max([] { return 100; });
  open_channel(service, program, 1000);
  const auto ask = [&](EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    send_request(service, program, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
  };
  ask(EntryKind::task_open,
      wire::TaskOpen{wire::task_any_lane, 0, {.region = segment, .generation = 0, .offset = 0, .length = 64 * 64}});
  ask(EntryKind::task_run, task(1, {input("x", 16)}, {output("y", 24)}));
  ask(EntryKind::task_run, task(1, {input("x", 8)}, {}));
  EXPECT_FALSE(pull()) << "room for one of the first one's is not enough, and the second one comes later";
  ask(EntryKind::task_run, task(1, {input("x", 60)}, {output("y", 41)}));
  const auto never_fits = failed();
  ASSERT_TRUE(never_fits);
  EXPECT_EQ(never_fits->failure.code, Error::too_large);
  free_bytes = 8192;  // outputs take whole pages
  service.on_memory_freed(now_, effects_);
  EXPECT_EQ(
      std::ranges::count_if(
          effects_, [](const service::Effect& each) { return std::holds_alternative<service::PullEffect>(each); }),
      2);
  service.on_closed(program, true, now_, effects_);
  EXPECT_EQ(cache_->used_bytes(), 0u);
}

TEST_F(TaskServiceTest, RoomThatATaskGivesBackIsTheNextOnes) {
  const std::uint64_t session = open(), other = open();
  post(EntryKind::task_run, task(session));
  ASSERT_TRUE(pull());
  (void)told();
  const auto call = called();
  ASSERT_TRUE(call);
  room_ = false;
  post(EntryKind::task_run, task(other));
  EXPECT_FALSE(pull());
  room_ = true;
  returns(*call, {});
  EXPECT_TRUE(pull()) << "what ended gives room, and nobody else says so";
}

}  // namespace
}  // namespace offpath::task
