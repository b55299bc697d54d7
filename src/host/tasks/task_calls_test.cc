// Tasks through the C interface: errors name the mistake, and invalid requests do not reach the agent.
#include "testing/host/fake_agent.h"
#include "wire/limits.h"
#include "wire/messages/task_messages.h"

namespace offpath::host {
namespace {

class TaskCalls : public HostCalls {
 protected:
  ~TaskCalls() override {
    ofp_tasks_close(tasks);
    ofp_free(segment);
  }
  void open() { ASSERT_EQ(ofp_tasks_open(channel, &options, &tasks, &error), OFP_OK) << said(); }
  int submit(ofp_task** task) { return ofp_task_submit(tasks, &request, task, &error); }
  // That it is refused with this code, and a message with that in it.
  void refused(int code, const char* words) {
    ofp_task* task = nullptr;
    EXPECT_EQ(submit(&task), code) << said();
    EXPECT_NE(said().find(words), std::string::npos) << said();
    EXPECT_EQ(task, nullptr);
    EXPECT_EQ(ofp_task_run(tasks, &request, nullptr, &error), code) << said();
    EXPECT_TRUE(agent->tasks.empty());
  }

  ofp_tasks_options options{.struct_bytes = sizeof options,
                            .lane = 0,
                            .lanes = 0,
                            .tasks_max = 2,
                            .plugins = nullptr,
                            .plugins_count = 0,
                            .zero = 0,
                            .team = nullptr};
  ofp_task_request request{.struct_bytes = sizeof request,
                           .flags = 0,
                           .function = "md/force",
                           .arguments = nullptr,
                           .arguments_bytes = 0,
                           .inputs = nullptr,
                           .outputs = nullptr,
                           .inputs_count = 0,
                           .outputs_count = 0,
                           .after = nullptr,
                           .after_count = 0,
                           .zero = 0,
                           .wait_ns = 0};
  ofp_tasks* tasks = nullptr;
  ofp_segment* segment = nullptr;
};

TEST_F(TaskCalls, WrongOpeningsAreNamed) {
  EXPECT_EQ(ofp_tasks_open(channel, &options, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "tasks is NULL");
  const auto refused = [&](int code, const char* words) {
    EXPECT_EQ(ofp_tasks_open(channel, &options, &tasks, &error), code);
    EXPECT_NE(said().find(words), std::string::npos) << said();
    EXPECT_EQ(tasks, nullptr);
  };
  options.struct_bytes = 4;
  refused(OFP_INVALID, "ofp_tasks_options.struct_bytes is 4");
  options.struct_bytes = sizeof options;
  options.lane = options.lanes = 2;
  refused(OFP_INVALID, "lane 2 of 2");
  options.lane = options.lanes = 0;
  options.plugins_count = 1;
  refused(OFP_INVALID, "plugins is NULL");
  options.plugins_count = 0;
  options.tasks_max = wire::task_lines_max + 1;
  refused(OFP_TOO_LARGE, "tasks_max is 4097, at most 4096");
  EXPECT_EQ(agent->sessions_of_tasks, 0);
}

TEST_F(TaskCalls, HandlesThatAreNoneAreNamed) {
  ofp_task* task = nullptr;
  ofp_task_info info{.struct_bytes = sizeof info,
                     .here = 0,
                     .worker = 0,
                     .pulled_ns = 0,
                     .queued_ns = 0,
                     .ran_ns = 0,
                     .pushed_ns = 0,
                     .pulled_bytes = 0,
                     .pushed_bytes = 0};
  std::uint64_t bytes = 0;
  EXPECT_EQ(ofp_task_submit(nullptr, &request, &task, &error), OFP_INVALID);
  EXPECT_EQ(said(), "tasks is NULL");
  EXPECT_EQ(ofp_task_run(nullptr, &request, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_task_wait(nullptr, 0, &error), OFP_INVALID);
  EXPECT_EQ(said(), "task is NULL");
  EXPECT_EQ(ofp_task_wait_pulled(nullptr, 0, &error), OFP_INVALID);
  EXPECT_EQ(ofp_task_cancel(nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_task_info_get(nullptr, &info, &error), OFP_INVALID);
  EXPECT_EQ(ofp_task_output_bytes(nullptr, 0, &bytes, &error), OFP_INVALID);
  ofp_task_free(nullptr);
  ofp_tasks_close(nullptr);
  open();
  EXPECT_EQ(submit(nullptr), OFP_INVALID);
  EXPECT_EQ(said(), "task is NULL");
  EXPECT_EQ(ofp_task_submit(tasks, nullptr, &task, &error), OFP_INVALID);
  EXPECT_EQ(said(), "request is NULL");
  info.struct_bytes = 9;
  EXPECT_EQ(ofp_task_run(tasks, &request, &info, &error), OFP_INVALID);
  EXPECT_NE(said().find("ofp_task_info.struct_bytes is 9"), std::string::npos) << said();
}

TEST_F(TaskCalls, WrongRequestsAreNamedAndNotSent) {
  agent->holds_tasks = true;
  open();
  request.struct_bytes = 20;
  refused(OFP_INVALID, "ofp_task_request.struct_bytes is 20");
  request.struct_bytes = sizeof request;
  request.function = nullptr;
  refused(OFP_INVALID, "function is NULL");
  request.function = "force";
  refused(OFP_INVALID, "expected \"plug-in/function\"");
  request.function = "md/force";
  request.arguments_bytes = 8;
  refused(OFP_INVALID, "arguments is NULL");
  const std::vector<std::byte> arguments(wire::arguments_bytes_max + 1);
  request.arguments = arguments.data();
  request.arguments_bytes = arguments.size();
  refused(OFP_TOO_LARGE, "arguments of 32769 bytes");
  request.arguments_bytes = 0;
  request.after_count = 1;
  refused(OFP_INVALID, "after is NULL");
  ofp_task* nobody = nullptr;
  request.after = &nobody;
  refused(OFP_INVALID, "a task of `after` is NULL");
  request.after_count = UINT32_MAX;
  refused(OFP_TOO_LARGE, "after: 4294967295 tasks, at most 64");
}

TEST_F(TaskCalls, WrongInputsAndOutputsAreNamedAndNotSent) {
  agent->holds_tasks = true;
  open();
  std::vector<double> x(8);
  request.inputs_count = 1;
  refused(OFP_INVALID, "inputs is NULL");
  ofp_task_input input{.name = nullptr,
                       .data = x.data(),
                       .bytes = 64,
                       .version = 0,
                       .changed_from = 0,
                       .changed_at = 0,
                       .changed_bytes = 0};
  request.inputs = &input;
  refused(OFP_INVALID, "an input's name is NULL");
  input.name = "x";
  input.data = nullptr;
  refused(OFP_INVALID, "x");  // neither memory nor a version
  std::vector<ofp_task_input> many(129, input);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < many.size(); ++i) names.push_back("x" + std::to_string(i));
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i].name = names[i].c_str();
    many[i].data = x.data();
  }
  request.inputs = many.data();
  request.inputs_count = 129;
  refused(OFP_TOO_LARGE, "129 inputs, at most 128");
  many[2].name = "x0";  // and no piece of it
  request.inputs_count = 3;
  refused(OFP_EXISTS, "two inputs are called \"x0\"");
  request.inputs = &input;
  request.inputs_count = UINT32_MAX;
  refused(OFP_TOO_LARGE, "inputs in 4294967295 pieces, at most 1024");
  request.inputs_count = 0;
  request.outputs_count = 1;
  refused(OFP_INVALID, "outputs is NULL");
  ofp_task_output output{.name = nullptr, .data = x.data(), .bytes = 64, .version = 0};
  request.outputs = &output;
  refused(OFP_INVALID, "an output's name is NULL");
  output.name = "f";
  refused(OFP_DENIED, "output \"f\": 64 bytes");
  ASSERT_EQ(ofp_alloc(channel, 64, &segment, &error), OFP_OK) << said();
  output.data = ofp_segment_data(segment);
  output.bytes = ofp_segment_bytes(segment) + (1 << 20);  // beyond its end
  refused(OFP_DENIED, "not memory of ofp_alloc");
  request.outputs_count = 129;
  refused(OFP_TOO_LARGE, "129 outputs, at most 128");
}

TEST_F(TaskCalls, NothingIsKnownOfATaskBeforeItsEnd) {
  agent->holds_tasks = true;
  open();
  ASSERT_EQ(ofp_alloc(channel, 64, &segment, &error), OFP_OK) << said();
  const ofp_task_output output{.name = "f", .data = ofp_segment_data(segment), .bytes = 64, .version = 0};
  request.outputs = &output;
  request.outputs_count = 1;
  ofp_task *first = nullptr, *second = nullptr, *third = nullptr;
  ofp_task_info info{};
  std::uint64_t bytes = 0;
  ASSERT_EQ(submit(&first), OFP_OK) << said();
  EXPECT_EQ(ofp_task_wait(first, 0, &error), OFP_WOULD_BLOCK);
  EXPECT_EQ(ofp_task_wait(first, millisecond_ns, &error), OFP_WOULD_BLOCK);
  EXPECT_EQ(ofp_task_output_bytes(first, 0, &bytes, &error), OFP_WOULD_BLOCK);
  EXPECT_EQ(ofp_task_info_get(first, &info, &error), OFP_INVALID);
  EXPECT_NE(said().find("ofp_task_info.struct_bytes is 0"), std::string::npos) << said();
  info.struct_bytes = sizeof info;
  EXPECT_EQ(ofp_task_info_get(first, &info, &error), OFP_WOULD_BLOCK);
  request.after = &first;
  request.after_count = 1;
  ASSERT_EQ(submit(&second), OFP_OK) << said();
  ASSERT_EQ(ofp_task_wait(second, millisecond_ns, &error), OFP_WOULD_BLOCK);
  ASSERT_EQ(agent->tasks.size(), 2u);
  EXPECT_EQ(agent->tasks[1].after, std::vector<std::uint64_t>{agent->tasks[0].ticket});
  EXPECT_EQ(submit(&third), OFP_WOULD_BLOCK);  // tasks_max
  EXPECT_NE(said().find("as many tasks"), std::string::npos) << said();
  EXPECT_EQ(third, nullptr);
  agent->answer_tasks();
  EXPECT_EQ(ofp_task_wait(first, second_ns, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_task_output_bytes(first, 0, &bytes, &error), OFP_OK) << said();
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(ofp_task_output_bytes(first, 1, &bytes, &error), OFP_NOT_FOUND);
  EXPECT_EQ(said(), "the task has 1 outputs, not 2");
  EXPECT_EQ(ofp_task_output_bytes(first, 0, nullptr, &error), OFP_INVALID);
  ofp_task_free(first);
  ofp_task_free(second);
}

TEST_F(TaskCalls, TheNextThatIsOverIsGivenOnceAndInTheOrderOfTheirEnds) {
  agent->holds_tasks = true;
  options.tasks_max = 8;
  open();
  ofp_task* over = nullptr;
  EXPECT_EQ(ofp_tasks_next(nullptr, 0, &over, &error), OFP_INVALID);
  EXPECT_EQ(ofp_tasks_next(tasks, 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "task is NULL");
  EXPECT_EQ(ofp_tasks_next(tasks, OFP_FOREVER, &over, &error), OFP_NOT_FOUND)
      << "none was submitted, so none is waited for";
  std::vector<ofp_task*> all(5);
  for (ofp_task*& task : all) ASSERT_EQ(submit(&task), OFP_OK) << said();
  EXPECT_EQ(ofp_tasks_next(tasks, 0, &over, &error), OFP_WOULD_BLOCK) << said();
  EXPECT_EQ(ofp_tasks_next(tasks, millisecond_ns, &over, &error), OFP_WOULD_BLOCK) << said();
  EXPECT_EQ(over, nullptr);
  ASSERT_EQ(agent->tasks.size(), 5u);
  agent->answer_task(3);
  ASSERT_EQ(ofp_tasks_next(tasks, second_ns, &over, &error), OFP_OK) << said();
  EXPECT_EQ(over, all[3]);
  EXPECT_EQ(ofp_task_wait(over, 0, &error), OFP_OK) << said();
  agent->answer_task(0);
  EXPECT_EQ(ofp_task_wait(all[0], second_ns, &error), OFP_OK) << "who was waited for is given as well";
  ofp_task_free(all[1]);  // and who was freed is not
  ASSERT_EQ(ofp_task_cancel(all[4], &error), OFP_OK) << said();
  ASSERT_EQ(ofp_tasks_next(tasks, second_ns, &over, &error), OFP_OK) << said();
  EXPECT_EQ(over, all[0]);
  ASSERT_EQ(ofp_tasks_next(tasks, second_ns, &over, &error), OFP_OK) << said();
  EXPECT_EQ(over, all[4]);
  EXPECT_EQ(ofp_task_wait(over, 0, &error), OFP_CANCELLED) << "it is over, not well";
  EXPECT_EQ(ofp_tasks_next(tasks, 0, &over, &error), OFP_WOULD_BLOCK) << said();
  agent->answer_tasks();
  ASSERT_EQ(ofp_task_wait(all[2], second_ns, &error), OFP_OK) << said();
  ofp_task_free(all[2]);  // before it was given
  EXPECT_EQ(ofp_tasks_next(tasks, OFP_FOREVER, &over, &error), OFP_NOT_FOUND) << said();
  EXPECT_EQ(over, nullptr);
  agent->holds_tasks = false;
  ofp_task_info info{};
  info.struct_bytes = sizeof info;
  EXPECT_EQ(ofp_task_run(tasks, &request, &info, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_tasks_next(tasks, 0, &over, &error), OFP_NOT_FOUND) << "a task of ofp_task_run has no handle";
  for (const std::size_t i : {0, 3, 4}) ofp_task_free(all[i]);
}

TEST_F(TaskCalls, WithoutAnAgentTheNextThatIsOverIsRun) {
  ofp_tasks* here = nullptr;
  ASSERT_EQ(ofp_tasks_open(nullptr, &options, &here, &error), OFP_OK) << said();
  std::vector<ofp_task*> all(4);
  for (ofp_task*& task : all) ASSERT_EQ(ofp_task_submit(here, &request, &task, &error), OFP_OK) << said();
  ofp_task* over = nullptr;
  ASSERT_EQ(ofp_task_cancel(all[2], &error), OFP_OK);
  ofp_task_free(all[1]);
  for (ofp_task* const expected : {all[2], all[0], all[3]}) {
    ASSERT_EQ(ofp_tasks_next(here, 0, &over, &error), OFP_OK) << said();
    EXPECT_EQ(over, expected);
  }
  EXPECT_EQ(ofp_task_wait(all[0], 0, &error), OFP_NOT_FOUND) << "there is no such plug-in";
  EXPECT_EQ(ofp_tasks_next(here, 0, &over, &error), OFP_NOT_FOUND) << said();
  EXPECT_EQ(over, nullptr);
  for (const std::size_t i : {0, 2, 3}) ofp_task_free(all[i]);
  ofp_tasks_close(here);
}

TEST_F(TaskCalls, ATaskOutlivesItsSession) {
  agent->holds_tasks = true;
  open();
  ofp_task *task = nullptr, *later = nullptr;
  ASSERT_EQ(submit(&task), OFP_OK) << said();
  ofp_tasks_close(tasks);
  EXPECT_EQ(agent->sessions_of_tasks, 0);
  EXPECT_EQ(ofp_task_wait(task, second_ns, &error), OFP_CANCELLED) << said();
  open();
  request.after = &task;  // of the same channel: the agent reports the cancellation
  request.after_count = 1;
  EXPECT_EQ(submit(&later), OFP_OK) << said();
  ofp_task_free(later);
  ofp_task_free(task);
}

TEST_F(TaskCalls, TasksOfAnotherChannelAreNotWaitedFor) {
  ofp_tasks* here = nullptr;
  ofp_task *without_agent = nullptr, *with_agent = nullptr;
  ASSERT_EQ(ofp_tasks_open(nullptr, &options, &here, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_task_submit(here, &request, &without_agent, &error), OFP_OK) << said();
  open();
  ASSERT_EQ(submit(&with_agent), OFP_OK) << said();
  ofp_task* none = nullptr;
  request.after_count = 1;
  request.after = &without_agent;
  EXPECT_EQ(submit(&none), OFP_INVALID);
  EXPECT_EQ(said(), "after[0] is a task of another channel");
  request.after = &with_agent;
  EXPECT_EQ(ofp_task_submit(here, &request, &none, &error), OFP_INVALID);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(ofp_task_wait(without_agent, 0, &error), OFP_NOT_FOUND);
  EXPECT_NE(said().find("no plug-in \"md\""), std::string::npos) << said();
  ofp_task_free(with_agent);
  ofp_task_free(without_agent);
  ofp_tasks_close(here);
}

TEST_F(TaskCalls, AfterItsChannelASessionTakesNothing) {
  open();
  auto* other = new ofp_channel{channel->connection};
  ofp_close(other);
  ofp_task* task = nullptr;
  EXPECT_EQ(submit(&task), OFP_CLOSED) << said();
  EXPECT_EQ(task, nullptr);
}

}  // namespace
}  // namespace offpath::host
