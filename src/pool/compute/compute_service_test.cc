// The service beside real pools, with calls that this test answers.
#include "pool/compute/compute_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "plugin/output_memory.h"
#include "testing/cpu_time.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber asker = 1, stranger = 2, member = 3;

class ComputeServiceTest : public ::testing::Test {
 protected:
  ComputeServiceTest() {
    pools_.set_self("a", 7);
    pools_.on_channel_open(asker, 1000);
    pools_.on_channel_open(stranger, 1001);
    pools_.on_channel_open(member, 0);
  }
  static ComputeService::Limits limits() {
    ComputeService::Limits made;
    made.waiting_max = 2;
    TriggerOptions trigger;
    trigger.pool = "local:/t";
    trigger.plugin = "plugin";
    trigger.function = "f";
    trigger.result_column = "out";
    made.triggers = {trigger};
    return made;
  }
  void put(const std::string& row, const std::string& column, const std::string& bytes,
           const std::string& pool = "local:/p", bool updatable = false) {
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = *cache_->take(bytes.size(), 1000);
    frame->bytes = bytes.size();
    frame->updatable = updatable;
    std::memcpy(frame->buffer.data(), bytes.data(), bytes.size());
    ASSERT_TRUE(pools_.admit(pool, 1000, effects_));
    ASSERT_TRUE(pools_.put({pool, row, column, 1000, 0, false}, std::move(frame), 0, now_, effects_));
  }
  static wire::PoolCompute request(std::string_view row = "r", std::string_view column = "c",
                                   std::int64_t wait_ns = 0) {
    wire::PoolCompute made{};
    made.pool = "local:/p";
    made.row_key = row;
    made.column_key = column;
    made.wait_ns = wait_ns;
    made.plugin = "plugin";
    made.function = "f";
    return made;
  }
  void ask(const wire::PoolCompute& asked, service::ChannelNumber channel = asker) {
    std::vector<std::byte> payload;
    wire::encode(asked, payload);
    pools_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(EntryKind::pool_compute), payload}, now_,
                      effects_);
  }
  void pass_time(TimeNs now) {
    now_ = now;
    service_.on_time(now, effects_);
  }
  template <class Effect>
  Effect* only() {
    return effects_.size() == 1 ? std::get_if<Effect>(&effects_.front()) : nullptr;
  }
  // The one call that is to be made.
  std::shared_ptr<plugin::Call> call() {
    auto* const effect = only<service::CallEffect>();
    if (effect == nullptr) return nullptr;
    token_ = effect->token;
    auto taken = std::move(effect->call);
    effects_.clear();
    return taken;
  }
  static plugin::Output output(const std::string& name, const std::string& bytes, bool arrow = false) {
    auto memory = plugin::OutputMemory::make(bytes.size());
    if (!bytes.empty()) std::memcpy(memory->data(), bytes.data(), bytes.size());
    return {name, arrow, bytes.size(), *memory->seal()};
  }
  void answer(Result<plugin::Outputs> outcome) { service_.on_called(token_, std::move(outcome), now_, effects_); }
  template <class... Output>
  void answer_with(Output... output) {
    plugin::Outputs outputs;
    (outputs.push_back(std::move(output)), ...);
    answer(std::move(outputs));
  }
  std::string failure() {
    const auto* const failed = only<service::FailEffect>();
    const std::string message = failed != nullptr ? failed->failure.message : "no failure";
    code_ = failed != nullptr ? failed->failure.code : Error{};
    effects_.clear();
    return message;
  }
  std::uint64_t done() {
    const auto* const reply = only<service::ReplyEffect>();
    const auto* const said = reply != nullptr ? std::get_if<wire::Done>(&reply->message) : nullptr;
    const std::uint64_t value = said != nullptr ? said->value : UINT64_MAX;
    effects_.clear();
    return value;
  }
  std::string held(const std::string& row, const std::string& column, const std::string& pool = "local:/p") {
    const auto frame = pools_.find(pool, row, column, 1000);
    return frame ? std::string(reinterpret_cast<const char*>((*frame)->buffer.data()), (*frame)->bytes) : "nothing";
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  bool room_ = true;
  Pools pools_{{}, cache_, [](std::uint64_t) { return true; }};
  ComputeService service_{limits(), cache_, pools_, [this](std::uint64_t) { return room_; }};
  service::Effects effects_;
  TimeNs now_ = 0;
  std::uint64_t ticket_ = 0, token_ = 0;
  Error code_{};
};

TEST_F(ComputeServiceTest, InputsAreTheObjectsOwnMemoryAndTheOutputIsHandedOver) {
  put("r", "c", std::string(6000, 'c'));
  put("r", "d", "de");
  ask(request("r", ""));
  auto made = call();
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(made->inputs.size(), 2u);
  EXPECT_EQ(made->inputs[0].column + made->inputs[1].column, "cd");
  EXPECT_GE(made->inputs[0].fd, 0);
  EXPECT_EQ(made->inputs[0].fd, (*pools_.find("local:/p", "r", "c", 1000))->buffer.share());
  EXPECT_LT(made->inputs[1].fd, 0) << "a small one has no descriptor: the call takes its bytes along";
  EXPECT_EQ(text_of(made->inputs[1].data), "de");
  EXPECT_EQ(made->deadline_ns, never);
  answer_with(output("o", std::string(6000, 'r')));
  const auto* const over = only<service::HandOverEffect>();
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(over->got.length, 6000u);
  EXPECT_FALSE(over->got.arrow);
  // The output could not be handed over, so it is pushed; the function is not called again.
  const std::uint64_t lease = over->got.lease;
  effects_.clear();
  const auto push = [&](service::ChannelNumber channel) {
    std::vector<std::byte> payload;
    wire::encode(wire::PushLease{lease, wire::segment_flag | 3}, payload);
    pools_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(EntryKind::push_lease), payload}, now_, effects_);
  };
  push(stranger);
  EXPECT_NE(failure().find("there is no lease"), std::string::npos);
  push(asker);
  EXPECT_NE(only<service::PushEffect>(), nullptr);
  EXPECT_EQ(service_.counters().calls, 1u);
}

TEST_F(ComputeServiceTest, InputsThatMayBeUpdatedMeanwhileAreCopiedFirst) {
  const std::string large(300 << 10, 'l');
  put("r", "fixed", "abc");
  put("r", "small", "defg", "local:/p", true);
  const auto small = *pools_.find("local:/p", "r", "small", 1000);
  ask(request("r", ""));
  auto made = call();
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(made->inputs.size(), 2u);
  EXPECT_EQ(made->inputs[0].data.data(), (*pools_.find("local:/p", "r", "fixed", 1000))->buffer.data());
  small->buffer.data()[0] = std::byte{'X'};  // an update
  EXPECT_EQ(text_of(made->inputs[1].data), "defg");
  EXPECT_NE(made->inputs[1].data.data(), small->buffer.data());
  answer_with();
  EXPECT_EQ(done(), 0u);
  // Much is copied by a job.
  put("large", "c", large, "local:/p", true);
  ask(request("large"));
  auto* const job = only<service::JobEffect>();
  ASSERT_NE(job, nullptr);
  const auto run = std::move(job->run);
  const std::uint64_t token = job->token;
  effects_.clear();
  ASSERT_TRUE(run());
  service_.on_job(token, {}, now_, effects_);
  made = call();
  ASSERT_NE(made, nullptr);
  (*pools_.find("local:/p", "large", "c", 1000))->buffer.data()[0] = std::byte{'X'};
  EXPECT_EQ(text_of(made->inputs.at(0).data), large);
  answer_with();
  EXPECT_EQ(done(), 0u);
  room_ = false;
  ask(request("large"));
  EXPECT_NE(failure().find("no room for copies of 307200 bytes of inputs"), std::string::npos);
  EXPECT_EQ(code_, Error::no_memory);
}

TEST_F(ComputeServiceTest, ItWaitsForObjectsUntilItsTimeIsOver) {
  put("other", "c", "x");
  ask(request("r", "c", 100));
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(service_.next_deadline(), 100);
  put("r", "other", "x");
  pass_time(50);
  EXPECT_TRUE(effects_.empty());
  put("r", "c", "abc");
  EXPECT_LE(service_.next_deadline(), 50);
  pass_time(60);
  const auto made = call();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->deadline_ns, 100);  // for the objects and the function together
  answer_with();
  EXPECT_EQ(done(), 0u);
  ask(request("never", "c", 40));
  pass_time(100);
  EXPECT_EQ(failure(), "pool \"local:/p\" has no object (never, c)");
  EXPECT_EQ(code_, Error::timeout);
  ask(request("never", "c", 0));
  EXPECT_EQ(failure(), "pool \"local:/p\" has no object (never, c)");
  EXPECT_EQ(code_, Error::not_found);
  EXPECT_EQ(service_.counters().waiting, 0u);
}

TEST_F(ComputeServiceTest, ThoseThatWaitAreListedWithWhatTheyWaitFor) {
  put("other", "c", "x");
  ask(request("r", "c", 10 * second_ns));
  EXPECT_EQ(service_.waiting(now_).count, 0u) << "it was asked for just now";
  now_ = second_ns;
  ListedGets waiting = service_.waiting(now_);
  ASSERT_EQ(waiting.count, 1u);
  EXPECT_EQ(waiting.longest.at(0).what, "the computation");
  EXPECT_EQ(waiting.longest[0].why, "plugin.f waits for its object: pool \"local:/p\" has no object (r, c)");
  EXPECT_EQ(waiting.longest[0].channel, asker);
  put("r", "c", "abc");
  pass_time(2 * second_ns);
  ASSERT_NE(call(), nullptr);
  waiting = service_.waiting(now_);
  ASSERT_EQ(waiting.count, 1u);
  EXPECT_EQ(waiting.longest.at(0).since, 0);
  EXPECT_EQ(waiting.longest[0].why, "plugin.f runs, or waits for a worker");
  ListedGets others{.count = 30};
  for (int i = 0; i < 20; ++i)
    others.longest.push_back({.pool = "p", .row = "", .column = "", .since = i - 10, .what = "", .why = ""});
  others.add(std::move(waiting));
  EXPECT_EQ(others.count, 31u);
  ASSERT_EQ(others.longest.size(), ListedGets::listed_max);
  EXPECT_TRUE(std::ranges::is_sorted(others.longest, {}, &ListedGet::since));
  answer_with();
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(service_.waiting(now_).count, 0u);
}

TEST_F(ComputeServiceTest, OutputsArePutUnderTheKeysThatWereNamed) {
  put("r", "c", "abc");
  wire::PoolCompute asked = request();
  asked.stores = true;
  asked.result_row = "q";
  asked.result_column = "out";
  ask(asked);
  ASSERT_NE(call(), nullptr);
  answer_with(output("x", "1"), output("y", "22"));
  EXPECT_EQ(done(), 2u);
  EXPECT_EQ(held("q", "out.x") + held("q", "out.y"), "122");
  // A second put under the same keys: the newer object counts.
  ask(asked);
  ASSERT_NE(call(), nullptr);
  answer_with(output("x", "3"), output("y", "4"));
  EXPECT_EQ(done(), 2u);
  EXPECT_EQ(held("q", "out.x") + held("q", "out.y"), "34");
  asked.result_column = "";
  ask(asked);
  ASSERT_NE(call(), nullptr);
  answer_with(output("x", "5"));
  EXPECT_EQ(done(), 1u);
  EXPECT_EQ(held("q", "x"), "5");
}

TEST_F(ComputeServiceTest, WhatAFunctionMakesIsCheckedBeforeItIsUsed) {
  put("r", "c", "abc");
  ask(request());
  ASSERT_NE(call(), nullptr);
  answer_with(output("o", "no Arrow", true));
  EXPECT_EQ(failure().substr(0, 74), "member a: plugin.f: output \"o\" is marked as Arrow, but is not Arrow data: ");
  ask(request());
  ASSERT_NE(call(), nullptr);
  answer_with(output("x", "1"), output("y", "2"));
  EXPECT_EQ(failure(),
            "member a: plugin.f has made 2 outputs, and only one can be returned: name keys under which to put them");
  room_ = false;
  ask(request());
  ASSERT_NE(call(), nullptr);
  answer_with(output("x", "1"));
  EXPECT_EQ(failure(), "member a: there is no room for 1 bytes of outputs of plugin.f");
  ask(request());
  ASSERT_NE(call(), nullptr);
  answer(fail(Error::function_failed, "x is negative"));
  EXPECT_EQ(failure(), "member a: x is negative");
  EXPECT_EQ(service_.counters().failed, 4u);
}

TEST_F(ComputeServiceTest, ALargeOutputIsCopiedByAJob) {
  put("r", "c", "abc");
  ask(request());
  ASSERT_NE(call(), nullptr);
  answer_with(output("o", std::string(300'000, 'z')));
  auto* const job = only<service::JobEffect>();
  ASSERT_NE(job, nullptr);
  const service::JobEffect taken = std::move(*job);
  effects_.clear();
  service_.on_job(taken.token, taken.run(), 0, effects_);
  const auto* const over = only<service::HandOverEffect>();
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(over->frame->buffer.bytes()[299'999], std::byte{'z'});
}

TEST_F(ComputeServiceTest, NobodyElseMayComputeAndWaitingIsBounded) {
  put("r", "c", "abc");
  ask(request(), stranger);
  EXPECT_EQ(failure().substr(0, 42), "pool \"local:/p\" belongs to user 1000, not ");
  EXPECT_EQ(code_, Error::denied);
  for (int i = 0; i < 2; ++i) ask(request("later", "c", 100));
  EXPECT_TRUE(effects_.empty());
  ask(request("later", "c", 100));
  EXPECT_EQ(failure(), "2 computations are waiting for objects, which is the limit");
}

TEST_F(ComputeServiceTest, AUserLeavesOthersComputationsThatMayWait) {
  ComputeService::Limits limits;
  limits.waiting_max = 8;
  ComputeService eight{limits, cache_, pools_, [](std::uint64_t) { return true; }};
  ASSERT_TRUE(pools_.admit("local:/p", 1000, effects_));
  ASSERT_TRUE(pools_.admit("local:/s", 1001, effects_));
  for (int i = 0; i < 7; ++i) ask(request("later", "c", 100));
  EXPECT_TRUE(effects_.empty());
  ask(request("later", "c", 100));
  EXPECT_EQ(failure(), "7 computations of user 1000 are waiting for objects, which is the limit of each user");
  wire::PoolCompute theirs = request("later", "c", 100);
  theirs.pool = "local:/s";
  ask(theirs, stranger);
  EXPECT_TRUE(effects_.empty());
  eight.cancel_request(asker, 1, effects_);
  failure();
  ask(request("later", "c", 100));
  EXPECT_TRUE(effects_.empty());
}

// A put visits only computations that wait for its row, and a cancel only the one that it names.
TEST_F(ComputeServiceTest, ComputationsThatWaitSlowNobodyDown) {
  ComputeService::Limits limits;
  limits.waiting_max = 60'000;
  ComputeService many{limits, cache_, pools_, [](std::uint64_t) { return true; }};
  std::vector<TimeNs> took;
  const auto rounds_take = [&] {
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 100; ++i) {
        put("other", "c", "abc");
        if (many.next_deadline() <= now_) many.on_time(now_, effects_);
        ask(request("mine", "c", 100));
        many.cancel_request(asker, ticket_, effects_);
      }
      effects_.clear();
    }));
  };
  int row = 0;
  for (; row < 10; ++row) ask(request("later" + std::to_string(row), "c", 100));
  rounds_take();
  for (; row < 50'000; ++row) ask(request("later" + std::to_string(row), "c", 100));
  rounds_take();
  EXPECT_EQ(many.counters().waiting, 50'000u);
  EXPECT_LT(took[1], 20 * took[0]) << "of 100 puts and cancels, with 50,000 that wait and with 10";
}

TEST_F(ComputeServiceTest, AProgramThatGoesCancelsItsCalls) {
  put("r", "c", "abc");
  ask(request("later", "c", 100));
  ask(request());
  ASSERT_NE(call(), nullptr);
  service_.on_channel_closed(asker, effects_);
  ASSERT_NE(only<service::CancelCallEffect>(), nullptr);
  EXPECT_EQ(only<service::CancelCallEffect>()->token, token_);
  effects_.clear();
  answer(fail(Error::cancelled, "cancelled"));
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(service_.counters().waiting + service_.counters().calling, 0u);
}

TEST_F(ComputeServiceTest, AMemberThatWantsItNoMoreCancelsIt) {
  put("r", "c", "abc", "hash:/p");
  const auto ask_as_member = [this](std::uint64_t delivery) {
    std::vector<std::byte> payload;
    wire::encode(
        wire::PeerCompute{1000, 1000, -1, delivery, {}, "b", "hash:/p", "r", "c", false, "plugin", "f", "", "", {}},
        payload);
    pools_.on_peer_request(member, {++ticket_, static_cast<std::uint8_t>(EntryKind::peer_compute), payload}, true, now_,
                           effects_);
  };
  const auto cancel_as_member = [this](std::uint64_t delivery, bool is_member) {
    std::vector<std::byte> payload;
    wire::encode(wire::PeerCancel{wire::PeerCancel::What::computation, delivery}, payload);
    pools_.on_peer_request(member, {++ticket_, static_cast<std::uint8_t>(EntryKind::peer_cancel), payload}, is_member,
                           now_, effects_);
  };
  ask_as_member(8);
  ASSERT_NE(call(), nullptr);
  cancel_as_member(8, false);
  EXPECT_EQ(failure().substr(0, 28), "members of a group belong to");
  cancel_as_member(9, true);  // of nothing
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(service_.counters().calling, 1u);
  cancel_as_member(8, true);
  ASSERT_EQ(effects_.size(), 3u);  // the request fails, the call ends, and the cancellation is answered
  EXPECT_EQ(std::get<service::FailEffect>(effects_[0]).failure.code, Error::cancelled);
  EXPECT_EQ(std::get<service::CancelCallEffect>(effects_[1]).token, token_);
  EXPECT_EQ(service_.counters().calling, 0u);
  effects_.clear();
  answer(fail(Error::cancelled, "cancelled"));
  EXPECT_TRUE(effects_.empty());
}

TEST_F(ComputeServiceTest, AProgramThatWantsItNoMoreCancelsIt) {
  put("r", "c", "abc");
  const auto cancel = [this](std::uint64_t ticket, service::ChannelNumber channel) {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolCancel{ticket}, payload);
    pools_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(EntryKind::pool_cancel), payload}, now_, effects_);
  };
  ask(request());
  const std::uint64_t called = ticket_;
  ASSERT_NE(call(), nullptr);
  cancel(called, stranger);
  EXPECT_TRUE(effects_.empty());
  cancel(called, asker);
  ASSERT_EQ(effects_.size(), 2u);
  EXPECT_EQ(std::get<service::FailEffect>(effects_[0]).ticket, called);
  EXPECT_EQ(std::get<service::FailEffect>(effects_[0]).failure.code, Error::cancelled);
  EXPECT_EQ(std::get<service::CancelCallEffect>(effects_[1]).token, token_);
  effects_.clear();
  ask(request("later", "c", 100));
  cancel(ticket_, asker);
  EXPECT_NE(only<service::FailEffect>(), nullptr);
  EXPECT_EQ(service_.counters().waiting + service_.counters().calling, 0u);
}

TEST_F(ComputeServiceTest, ATriggerCallsOnWhatComesAndPutsBesideIt) {
  put("r", "c", "abc", "local:/t");
  EXPECT_TRUE(effects_.empty());  // nothing is done from within the table
  pass_time(1);
  const auto made = call();
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(made->inputs.size(), 1u);
  answer_with(output("o", "result"));
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(held("r", "out", "local:/t"), "result");
  pass_time(2);
  EXPECT_TRUE(effects_.empty());  // not on its own result
  EXPECT_EQ(service_.triggers()[0].counters.calls, 1u);
}

}  // namespace
}  // namespace offpath::pool
