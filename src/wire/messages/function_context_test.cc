#include "wire/messages/function_context.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <stdexcept>

namespace offpath::wire {
namespace {

// Outputs lie in memory of its own, and every message fails.
class Context final : public FunctionContext {
 public:
  Context() { outputs_ = FunctionOutputs({}, 1 << 20); }
  using FunctionContext::show_inputs;
  using FunctionContext::show_rooms;
  using FunctionContext::visible;
  std::string reason() {
    const std::lock_guard lock(mutex_);
    return error();
  }

  std::vector<std::string> lines;
  std::vector<std::pair<std::size_t, std::uint64_t>> shrunk_outputs;
  bool cancelled = false;

 private:
  Result<void*> make_output(std::string_view name, std::uint64_t bytes, std::uint32_t) override {
    OFP_ASSIGN(const auto room, outputs_.admit(name, bytes));
    memory_.emplace_back(bytes);
    outputs_.add(name, room, memory_.back().data(), bytes);
    return static_cast<void*>(memory_.back().data());
  }
  void shrunk(std::size_t at, std::uint64_t bytes) override { shrunk_outputs.emplace_back(at, bytes); }
  bool is_cancelled() const noexcept override { return cancelled; }
  Status send(std::uint32_t lane, std::uint32_t, Bytes message) override {
    return fail(Error::no_memory, "no room for {} bytes to lane {}", message.size(), lane);
  }
  Status receive(std::uint32_t, std::uint32_t, std::span<std::byte> into, std::uint64_t& bytes) override {
    bytes = into.size() + 1;
    return fail(Error::too_large, "it has {} bytes", bytes);
  }
  void log(ofp_log_level, std::string_view line) override { lines.emplace_back(line); }

  std::deque<std::vector<std::byte>> memory_;
};

TEST(FunctionContext, MakesAndShrinksOutputs) {
  Context context;
  ofp_context* const c = context.context();
  EXPECT_EQ(c->struct_bytes, sizeof(ofp_context));
  ASSERT_NE(c->output(c, nullptr, 8, 0), nullptr);
  void* const named = c->output(c, "named", 16, OFP_DATA_ARROW);
  ASSERT_NE(named, nullptr);
  EXPECT_EQ(c->shrink(c, named, 4), 0);
  EXPECT_EQ(c->shrink(c, named, 8), -1) << "it has fewer bytes";
  int other = 0;
  EXPECT_EQ(c->shrink(c, &other, 0), -1);
  EXPECT_EQ(context.shrunk_outputs, (std::vector<std::pair<std::size_t, std::uint64_t>>{{1, 4}}));
}

TEST(FunctionContext, RefusesUnknownFlagsAndKeepsTheFirstReason) {
  Context context;
  ofp_context* const c = context.context();
  EXPECT_EQ(c->output(c, "a", 8, 0x80), nullptr);
  EXPECT_EQ(context.reason(), "output 'a' has the flags 0x80, known are 0x3");
  EXPECT_EQ(c->output(c, "b", 2 << 20, 0), nullptr);
  EXPECT_EQ(context.reason(), "output 'a' has the flags 0x80, known are 0x3");
}

TEST(FunctionContext, TellsWhatWasSetBeforeWhatAMessageFailedWith) {
  Context context;
  ofp_context* const c = context.context();
  std::array<std::byte, 4> room{};
  EXPECT_EQ(c->send(c, 3, 0, room.data(), room.size()), OFP_MESSAGE_NO_MEMORY);
  EXPECT_EQ(context.reason(), "no room for 4 bytes to lane 3");
  std::uint64_t bytes = 0;
  EXPECT_EQ(c->receive(c, 3, 0, room.data(), room.size(), &bytes), OFP_MESSAGE_TOO_LARGE);
  EXPECT_EQ(bytes, 5u);
  EXPECT_EQ(c->receive(c, 3, 0, room.data(), room.size(), nullptr), OFP_MESSAGE_TOO_LARGE);
  EXPECT_EQ(context.reason(), "it has 5 bytes");
  c->set_error(c, std::string(2000, 'x').c_str());
  EXPECT_EQ(context.reason(), std::string(function_error_bytes_max, 'x'));
  c->set_error(c, nullptr);
  EXPECT_EQ(context.reason(), "it has 5 bytes");
}

TEST(FunctionContext, IsCancelledByTheCallerOrTheDeadline) {
  Context context;
  ofp_context* const c = context.context();
  context.visible().deadline_ns = never;
  EXPECT_EQ(c->cancelled(c), 0);
  EXPECT_EQ(c->time_left_ns(c), never);
  context.cancelled = true;
  EXPECT_EQ(c->cancelled(c), 1);
  context.cancelled = false;
  context.visible().deadline_ns = monotonic_ns() - 1;
  EXPECT_EQ(c->cancelled(c), 1);
  EXPECT_EQ(c->time_left_ns(c), 0);
}

TEST(FunctionContext, AnExceptionFailsTheCall) {
  Context context;
  EXPECT_EQ(context.call([](ofp_context*) -> std::int32_t { return 7; }), 7);
  EXPECT_EQ(context.reason(), "");
  EXPECT_EQ(context.call([](ofp_context*) -> std::int32_t { throw std::runtime_error("no"); }), -1);
  EXPECT_EQ(context.reason(), "threw: no");
}

TEST(FunctionContext, ShowsInputsAndRoomsAndLogsLines) {
  Context context;
  ofp_context* const c = context.context();
  int data = 0;
  context.show_inputs({{sizeof(ofp_input), 0, "row", "column", 3, 6, &data, sizeof data}});
  context.show_rooms({{sizeof(ofp_room), 0, "room", 64}, {sizeof(ofp_room), 0, "other", 8}});
  ASSERT_EQ(c->input_count, 1u);
  EXPECT_EQ(c->inputs[0]->data, &data);
  ASSERT_EQ(c->room_count, 2u);
  EXPECT_STREQ(c->rooms[1].name, "other");
  c->log(c, OFP_LOG_INFO, nullptr);
  c->log(c, OFP_LOG_INFO, "line");
  EXPECT_EQ(context.lines, std::vector<std::string>{"line"});
}

}  // namespace
}  // namespace offpath::wire
