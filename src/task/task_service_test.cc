// The service with pulls, pushes and calls that this test answers.
#include "task/task_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "plugin/output_memory.h"

namespace offpath::task {
namespace {

using wire::EntryKind;

constexpr mover::ChannelNumber program = 1, stranger = 2;
constexpr wire::RegionId segment = wire::segment_flag | 1;

class TaskServiceTest : public ::testing::Test {
 protected:
  TaskServiceTest() {
    service_.on_channel_open(program, 1000);
    service_.on_channel_open(stranger, 1001);
  }
  template <class Message>
  std::uint64_t post(EntryKind kind, const Message& message, mover::ChannelNumber channel = program) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    service_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
    return ticket_;
  }
  std::uint64_t open(std::uint32_t lane = wire::task_any_lane, std::uint32_t lanes = 0) {
    post(EntryKind::task_open, wire::TaskOpen{lane, lanes, {.region = segment, .generation = 0, .offset = 0, .length = 64 * 64}});
    const auto done = take<mover::ReplyEffect>();
    return done ? std::get<wire::Done>(done->message).value : 0;
  }
  static wire::TaskInput input(std::string_view name = "x", std::uint64_t bytes = 8, std::uint64_t version = 0) {
    return {{.region = 1, .generation = 1, .offset = 64, .length = bytes}, bytes, version, 0, 0, 0, name};
  }
  static wire::TaskOutput output(std::string_view name = "y", std::uint64_t bytes = 8) {
    return {{.region = segment, .generation = 0, .offset = 8192, .length = bytes}, bytes, 0, name};
  }
  static wire::TaskRun task(std::uint64_t session, std::vector<wire::TaskInput> inputs = {input()}, std::vector<wire::TaskOutput> outputs = {output()}) {
    return {session, 3, 0, "p", "f", {}, std::move(inputs), std::move(outputs), {}};
  }
  // The oldest effect of this kind, taken out.
  template <class Effect>
  std::optional<Effect> take() {
    const auto at = std::ranges::find_if(effects_, [](const mover::Effect& each) { return std::holds_alternative<Effect>(each); });
    if (at == effects_.end()) return std::nullopt;
    Effect taken = std::move(std::get<Effect>(*at));
    effects_.erase(at);
    return taken;
  }
  // The oldest pull is answered, with bytes of this value.
  bool pull(std::byte value = std::byte{7}, const Status& status = {}) {
    auto pull = take<mover::PullEffect>();
    if (!pull) return false;
    if (status)
      for (const link::ReadPiece& piece : pull->pieces) std::memset(piece.to, static_cast<int>(value), piece.length);
    pulled_ = pull->pieces;
    service_.on_transfer(pull->token, status, now_, effects_);
    return true;
  }
  // The word of the newest task that was told.
  std::optional<std::uint64_t> told() {
    auto push = take<mover::PushEffect>();
    if (!push || push->pieces.size() != 1 || push->pieces[0].length != 8) return std::nullopt;
    const auto word = load<std::uint64_t>(push->pieces[0].from);
    service_.on_transfer(push->token, {}, now_, effects_);
    return word;
  }
  struct Called {
    std::uint64_t token;
    std::shared_ptr<plugin::Call> call;
  };
  std::optional<Called> called() {
    auto call = take<mover::CallEffect>();
    if (!call) return std::nullopt;
    return Called{call->token, call->call};
  }
  static plugin::Output made(const std::string& name, const std::string& bytes) {
    auto memory = plugin::OutputMemory::make(bytes.size());
    EXPECT_TRUE(memory);
    std::memcpy(memory->data(), bytes.data(), bytes.size());
    return {name, false, bytes.size(), *memory->seal()};
  }
  void returns(const Called& call, plugin::Outputs outputs) { service_.on_called(call.token, std::move(outputs), now_, effects_); }
  std::optional<mover::FailEffect> failed() { return take<mover::FailEffect>(); }
  std::optional<wire::TaskDone> done() {
    auto reply = take<mover::ReplyEffect>();
    if (!reply || !std::holds_alternative<wire::TaskDone>(reply->message)) return std::nullopt;
    return std::get<wire::TaskDone>(reply->message);
  }

  std::shared_ptr<mover::BufferCache> cache_ = mover::BufferCache::make({.huge_pages = false});
  bool room_ = true;
  TaskService service_{{.ahead_max = 2, .resident_bytes_max = 64}, cache_, [this](std::uint64_t) { return room_; }};
  mover::Effects effects_;
  std::vector<link::ReadPiece> pulled_;
  TimeNs now_ = 1000;
  std::uint64_t ticket_ = 0;
};

TEST_F(TaskServiceTest, PullsRunsAndPushes) {
  const std::uint64_t session = open();
  const std::uint64_t ticket = post(EntryKind::task_run, task(session));
  now_ += 100;
  ASSERT_TRUE(pull());
  ASSERT_EQ(pulled_.size(), 1u);
  EXPECT_EQ(pulled_[0].region, 1u);
  EXPECT_EQ(pulled_[0].offset, 64u);
  EXPECT_EQ(told(), ticket);
  const auto call = called();
  ASSERT_TRUE(call);
  EXPECT_EQ(call->call->plugin, "p");
  EXPECT_EQ(call->call->function, "f");
  ASSERT_EQ(call->call->inputs.size(), 1u);
  EXPECT_EQ(call->call->inputs[0].column, "x");
  EXPECT_EQ(call->call->inputs[0].bytes, 8u);
  now_ += 1000;
  plugin::Outputs outputs;
  outputs.push_back(made("y", "12345"));
  returns(*call, std::move(outputs));
  auto push = take<mover::PushEffect>();
  ASSERT_TRUE(push);
  ASSERT_EQ(push->pieces.size(), 1u);
  EXPECT_EQ(push->pieces[0].segment, segment);
  EXPECT_EQ(push->pieces[0].offset, 8192u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(push->pieces[0].from), push->pieces[0].length), "12345");
  EXPECT_FALSE(done());
  now_ += 10;
  service_.on_transfer(push->token, {}, now_, effects_);
  const auto over = done();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->output_bytes, std::vector<std::uint64_t>{5});
  EXPECT_EQ(over->pulled_bytes, 8u);
  EXPECT_EQ(over->pulled_ns, 100);
  EXPECT_EQ(over->ran_ns, 1000);
  EXPECT_EQ(over->pushed_ns, 10);
  EXPECT_EQ(service_.counters().waiting + service_.counters().running, 0u);
}

}  // namespace
}  // namespace offpath::task
