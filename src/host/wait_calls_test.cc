// Minutes of waiting through the C interface, in slices as interpreters wait: the agent is asked once, and the wait
// ends when it is over.
#include "base/log.h"
#include "testing/host/fake_agent.h"

namespace offpath::host {
namespace {

constexpr int slices = 5000;

class WaitCalls : public HostCalls {
 protected:
  // Calls that say `not_yet` so often; fewer than `requests_max` requests come of them all.
  template <class Call>
  void not_for_minutes(int not_yet, std::uint64_t requests_max, const Call& call) {
    const std::uint64_t before = posted();
    for (int i = 0; i < slices; ++i) ASSERT_EQ(call(millisecond_ns), not_yet) << i << ": " << said();
    EXPECT_LE(posted() - before, requests_max);
  }
  std::uint64_t posted() {
    ofp_channel_info info{};
    info.struct_bytes = sizeof info;
    EXPECT_EQ(ofp_channel_info_get(channel, &info, &error), OFP_OK) << said();
    return info.posted;
  }
  ofp_tasks* open_tasks() {
    ofp_tasks* tasks = nullptr;
    EXPECT_EQ(ofp_tasks_open(channel, nullptr, &tasks, &error), OFP_OK) << said();
    return tasks;
  }
  ofp_task* submit(ofp_tasks* tasks, const ofp_task_input* input) {
    ofp_task_request request{};
    request.struct_bytes = sizeof request;
    request.function = "p/f";
    request.inputs = input;
    request.inputs_count = input != nullptr ? 1 : 0;
    ofp_task* task = nullptr;
    EXPECT_EQ(ofp_task_submit(tasks, &request, &task, &error), OFP_OK) << said();
    return task;
  }
};

TEST_F(WaitCalls, ForTicketsAndCredit) {
  std::vector<double> x(16, 1);
  agent->credit_bytes = FakeAgent::charge_base + 4096;
  agent->pulls = false;
  ofp_stream* stream = open({{"x", "g", 0}});
  const void* data[] = {x.data()};
  std::uint64_t ticket = 0;
  const auto send = [&] { return ofp_send_columns(stream, data, 16, "a", "", OFP_SEND_ANNOUNCE, &ticket, &error); };
  ASSERT_EQ(send(), OFP_OK) << said();
  not_for_minutes(OFP_TIMEOUT, 1,
                  [&](std::int64_t wait_ns) { return ofp_wait_pulled(stream, ticket, wait_ns, &error); });
  not_for_minutes(OFP_TIMEOUT, 1,
                  [&](std::int64_t wait_ns) { return ofp_wait_stored(stream, ticket, wait_ns, &error); });
  not_for_minutes(OFP_OK, 0, [&](std::int64_t) { return ofp_arm(stream, ticket, 1, &error); });
  not_for_minutes(OFP_WOULD_BLOCK, 1, [&](std::int64_t) { return send(); });
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(WaitCalls, AWaitOfMoreThanASecondToBeStoredSaysForWhat) {
  static std::vector<std::string> lines;
  lines.clear();
  set_log(LogLevel::warning, [](LogLevel, std::string_view line, void*) { lines.emplace_back(line); }, nullptr);
  std::vector<double> x(16, 1);
  agent->pulls = false;
  agent->why_waits = "pool \"hash:/p?members=b\": it waits for members b";
  ofp_stream* stream = open({{"x", "g", 0}});
  const void* data[] = {x.data()};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 16, "a", "", OFP_SEND_ANNOUNCE, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_wait_stored(stream, ticket, second_ns / 2, &error), OFP_TIMEOUT);
  EXPECT_TRUE(lines.empty());
  EXPECT_EQ(ofp_wait_stored(stream, ticket, 5 * second_ns, &error), OFP_TIMEOUT);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("has waited 1 s to be stored and still waits: " + agent->why_waits), std::string::npos)
      << lines[0];
  agent->why_waits.clear();  // the agent is at work on it
  EXPECT_EQ(ofp_wait_stored(stream, ticket, 5 * second_ns, &error), OFP_TIMEOUT);
  EXPECT_EQ(lines.size(), 1u);
  set_log(LogLevel::warning, nullptr, nullptr);
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(WaitCalls, ASendWaitsAsLongAsItsThreadSaidAndThenGivesUpTheCredit) {
  std::vector<double> x(16, 1);
  agent->credit_bytes = 0;
  ofp_stream* stream = open({{"x", "g", 0}});
  const void* data[] = {x.data()};
  const auto send = [&] {
    return ofp_send_columns(stream, data, 16, "a", "", OFP_SEND_WAIT | OFP_SEND_ANNOUNCE, nullptr, &error);
  };
  for (const TimeNs wait : {100 * millisecond_ns, 3 * second_ns}) {  // less than a warning takes, and more
    agent->credit_wanted.clear();
    ofp_send_wait(wait);
    const TimeNs began = fabric->now();
    EXPECT_EQ(send(), OFP_TIMEOUT);
    EXPECT_NE(std::string_view(said()).find("no credit"), std::string_view::npos) << said();
    EXPECT_EQ(fabric->now() - began, wait);
    fabric->run_until(fabric->now() + second_ns, [] { return false; });
    ASSERT_EQ(agent->credit_wanted.size(), 2u);
    EXPECT_GT(agent->credit_wanted[0], 0u);
    EXPECT_EQ(agent->credit_wanted[1], 0u);
  }
  ofp_send_wait(OFP_FOREVER);
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(WaitCalls, ForRequests) {
  agent->objects["a"] = {std::vector<std::byte>(5000, std::byte{9})};
  agent->holds_requests = true;
  ofp_request *request = nullptr, *next = nullptr;
  ASSERT_EQ(ofp_pool_want(channel, "local:/p", "a", "", OFP_FOREVER, &request, &error), OFP_OK) << said();
  not_for_minutes(OFP_WOULD_BLOCK, 1, [&](std::int64_t wait_ns) { return ofp_request_wait(request, wait_ns, &error); });
  not_for_minutes(OFP_WOULD_BLOCK, 1,
                  [&](std::int64_t wait_ns) { return ofp_request_next(channel, wait_ns, &next, &error); });
  agent->answer_held();
  EXPECT_EQ(ofp_request_wait(request, second_ns, &error), OFP_OK) << said();
  ofp_request_free(request);
}

TEST_F(WaitCalls, ForTasksAndTheirInputs) {
  std::vector<double> x(10, 1);
  agent->holds_tasks = true;
  agent->tells_pulled_at = fabric->now() + 1000 * second_ns;
  ofp_tasks* tasks = open_tasks();
  const ofp_task_input input{"x", x.data(), 80, 0, 0, 0, 0};
  ofp_task* task = submit(tasks, &input);
  ofp_task* over = nullptr;
  not_for_minutes(OFP_WOULD_BLOCK, 1, [&](std::int64_t wait_ns) { return ofp_task_wait(task, wait_ns, &error); });
  not_for_minutes(OFP_WOULD_BLOCK, 2,
                  [&](std::int64_t wait_ns) { return ofp_task_wait_pulled(task, wait_ns, &error); });
  not_for_minutes(OFP_WOULD_BLOCK, 1,
                  [&](std::int64_t wait_ns) { return ofp_tasks_next(tasks, wait_ns, &over, &error); });
  agent->tells_pulled_at = fabric->now() + millisecond_ns;
  EXPECT_EQ(ofp_task_wait_pulled(task, second_ns, &error), OFP_OK) << said();
  agent->answer_tasks();
  EXPECT_EQ(ofp_task_wait(task, second_ns, &error), OFP_OK) << said();
  ofp_task_free(task);
  ofp_tasks_close(tasks);
}

}  // namespace
}  // namespace offpath::host
