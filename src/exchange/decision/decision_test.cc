#include "exchange/decision/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "base/files/file_bytes.h"
#include "base/memory_file.h"
#include "exchange/exchange_service.h"

namespace offpath::exchange {
namespace {

using testing::HasSubstr;

DecisionSettings settings() {
  return {"budget", "share", "100", {{3, "cpu", 100, 2000, 10 * second_ns}, {5, "io", 1, 9, 10 * second_ns}}};
}

template <class Row>
plugin::Output output(const std::string& name, const std::vector<Row>& rows) {
  plugin::Output made;
  made.name = name;
  made.bytes = rows.size() * sizeof(Row);
  made.memory = *memory_file("output");
  EXPECT_TRUE(write_all(made.memory.get(), std::as_bytes(std::span(rows)), 0));
  return made;
}

ofp_actuator_setting setting(const char* name, std::uint64_t value, TimeNs until, std::uint32_t flags = 0) {
  ofp_actuator_setting row{};
  std::strcpy(row.name, name);
  row.value = value;
  row.until_ns = until;
  row.flags = flags;
  return row;
}

template <class... Outputs>
plugin::Outputs outputs(Outputs... each) {
  plugin::Outputs all;
  (all.push_back(std::move(each)), ...);
  return all;
}

// One decision of two members, with a grant.
struct Scene {
  Scene() {
    view.epoch = 17;
    view.present = 1;
    view.expected = 2;
    view.leader = 1;
    view.given_at = now;
    record = std::make_shared<const std::vector<std::byte>>(8, std::byte{7});
    view.entries = {{0, true, true, 17, 5, {record, *record}}, {1, false, false, 0, 0, {}}};
  }
  std::shared_ptr<plugin::Call> call() {
    const DecisionScene scene{members, 0, 100, {}, 1000, true, held, 99, suspended};
    auto made = decision.on_view(view, scene, gauges, now);
    EXPECT_TRUE(made) << made.error().message;
    return made.value_or(nullptr);
  }
  // The setting of `cpu` in the next call, if held.
  std::optional<std::uint64_t> shown_value() {
    const auto made = call();
    decision.on_failed();
    const auto cpu = load<ofp_actuator_state>(made->inputs[3].data.data());
    return cpu.is_held != 0 ? std::optional(cpu.value) : std::nullopt;
  }
  Decision::Step answer(const plugin::Outputs& given) {
    const auto read = read_answer(given, 2, 64, decision.settings().actuators);
    EXPECT_TRUE(read) << read.error().message;
    return decision.on_answer(*read, now);
  }

  TimeNs now = 100 * second_ns, suspended = 7 * second_ns;
  Decision decision{settings()};
  View view;
  std::shared_ptr<const std::vector<std::byte>> record;
  std::vector<std::string> members{"a", "b"};
  Grants::Held held{400, 12, 1, 103 * second_ns};
  GaugeVisit gauges;
};

TEST(Decision, TheFunctionGetsViewGaugesFiguresAndActuators) {
  Scene scene;
  const Schema schema{"demand", {{"wanted", FieldType::f64}, {"jobs", FieldType::u64}}};
  Sample sample;
  sample.producer = "solver";
  sample.values.reset(2);
  sample.values.set(0, 1.5);
  scene.gauges = [&](const GaugeVisitor& visitor) { visitor(schema, sample, scene.now - 30); };
  const auto call = scene.call();
  ASSERT_TRUE(call);
  EXPECT_EQ(call->plugin, "budget");
  EXPECT_EQ(call->function, "share");
  EXPECT_EQ(text_of(call->arguments), "100");
  ASSERT_EQ(call->inputs.size(), 4u);
  const auto view = load<ofp_decision_view>(call->inputs[0].data.data());
  EXPECT_EQ(call->inputs[0].column, "view");
  EXPECT_EQ(view.interval, 17u);
  EXPECT_EQ(view.present, 1u);
  EXPECT_EQ(view.expected, 2u);
  EXPECT_EQ(view.self, 0u);
  EXPECT_EQ(view.leader, 1u);
  EXPECT_EQ(view.granted, 400u);
  EXPECT_EQ(view.granted_until_ns, 103 * second_ns);
  EXPECT_EQ(view.may_grant, 1u);
  ASSERT_EQ(view.entry_count, 2u);
  std::array<ofp_decision_entry, 2> entries{};
  std::memcpy(entries.data(), call->inputs[0].data.data() + view.entries_at, sizeof entries);
  EXPECT_EQ(entries[0].flags, OFP_ENTRY_PRESENT | OFP_ENTRY_RECORD);
  EXPECT_EQ(entries[1].flags, 0u);
  EXPECT_EQ(text_of(call->inputs[0].data.subspan(entries[1].name_at, entries[1].name_bytes)), "b");
  ASSERT_EQ(entries[0].record_bytes, 8u);
  EXPECT_EQ(call->inputs[0].data[entries[0].record_at], std::byte{7});
  ASSERT_EQ(call->inputs[1].bytes, 2 * sizeof(ofp_gauge_value));
  const auto gauge = load<ofp_gauge_value>(call->inputs[1].data.data());
  EXPECT_STREQ(gauge.source, "demand");
  EXPECT_STREQ(gauge.field, "wanted");
  EXPECT_STREQ(gauge.producer, "solver");
  EXPECT_EQ(std::bit_cast<double>(gauge.bits), 1.5);
  EXPECT_EQ(gauge.age_ns, 30);
  EXPECT_EQ(load<ofp_gauge_value>(call->inputs[1].data.data() + sizeof gauge).is_present, 0u);
  EXPECT_EQ(call->inputs[2].bytes, 0u);
  ASSERT_EQ(call->inputs[3].bytes, 2 * sizeof(ofp_actuator_state));
  const auto actuator = load<ofp_actuator_state>(call->inputs[3].data.data());
  EXPECT_STREQ(actuator.name, "cpu");
  EXPECT_EQ(actuator.max, 2000u);
  EXPECT_EQ(actuator.is_held, 0u);
}

TEST(Decision, ViewsDuringACallOrItsSettingsAreLost) {
  Scene scene;
  ASSERT_TRUE(scene.call());
  EXPECT_FALSE(scene.call());
  const auto asked = scene.answer(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 500, 0)}))).asked;
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].actuator, 3u);
  EXPECT_EQ(asked[0].until, scene.now + scene.suspended + 10 * second_ns);  // CLOCK_BOOTTIME
  EXPECT_FALSE(scene.call());
  EXPECT_TRUE(scene.decision.on_set(asked[0].number, 500).followed);
  const auto next = scene.call();
  ASSERT_TRUE(next);
  EXPECT_EQ(load<ofp_decision_view>(next->inputs[0].data.data()).lost, 2u);
  EXPECT_EQ(load<ofp_actuator_state>(next->inputs[3].data.data()).value, 500u);
  EXPECT_EQ(scene.decision.counters().lost, 2u);
  scene.decision.on_failed();
  EXPECT_TRUE(scene.call());
}

TEST(Decision, AViewThatNoWorkerTakesIsNotLaidOut) {
  Scene scene;
  const auto large = std::make_shared<const std::vector<std::byte>>(plugin::copied_bytes_max);
  scene.view.entries[0].record = {large, *large};
  bool asked = false;
  const DecisionScene shown{scene.members, 0, 100, {}, 1000, true, scene.held, 99, 0};
  const auto call = scene.decision.on_view(scene.view, shown, [&](const GaugeVisitor&) { asked = true; }, scene.now);
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().code, Error::too_large);
  EXPECT_FALSE(asked);
  EXPECT_EQ(scene.decision.counters().failed, 1u);
  EXPECT_TRUE(scene.decision.is_idle());
}

TEST(Decision, AGrantIsFollowedOnceAllSettingsAreInForce) {
  Scene scene;
  ASSERT_TRUE(scene.call());
  const auto asked = scene
                         .answer(outputs(output<ofp_actuator_setting>(
                             "settings", {setting("cpu", 500, 0, OFP_SETTING_GRANTED), setting("io", 3, 0)})))
                         .asked;
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].until, scene.held.until + scene.suspended);
  EXPECT_FALSE(scene.decision.on_set(asked[0].number, 500).followed);
  const auto followed = scene.decision.on_set(asked[1].number, 3).followed;
  ASSERT_TRUE(followed);
  EXPECT_EQ(followed->nonce, 99u);
  EXPECT_EQ(followed->number, 12u);
}

TEST(Decision, AGrantIsNotFollowedIfASettingFails) {
  Scene scene;
  ASSERT_TRUE(scene.call());
  const plugin::Outputs wanted =
      outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 500, 0, OFP_SETTING_GRANTED)}));
  const auto asked = scene.answer(wanted).asked;
  EXPECT_FALSE(scene.decision.on_set(asked[0].number, fail(Error::io, "no")).followed);
  EXPECT_EQ(scene.decision.counters().unset, 1u);
  EXPECT_EQ(scene.shown_value(), std::nullopt);  // the keeper says that nothing is held
  // It may still be in force, so the next answer gives it up before its grant is followed.
  ASSERT_TRUE(scene.call());
  const auto given_up = scene.answer(wanted).asked;
  ASSERT_EQ(given_up.size(), 1u);
  EXPECT_EQ(given_up[0].actuator, 3u);
  EXPECT_EQ(given_up[0].until, 0);
  const auto again = scene.decision.on_set(given_up[0].number, 0);
  EXPECT_FALSE(again.followed);
  ASSERT_EQ(again.asked.size(), 1u);
  EXPECT_EQ(again.asked[0].value, 500u);
  EXPECT_TRUE(scene.decision.on_set(again.asked[0].number, 500).followed);
}

TEST(Decision, LowerValuesAreInForceBeforeHigherOnesAreSet) {
  Scene scene;
  const auto decide = [&](std::uint64_t cpu, std::uint64_t io) {
    EXPECT_TRUE(scene.call());
    return scene
        .answer(outputs(output<ofp_actuator_setting>(
            "settings", {setting("cpu", cpu, 0, OFP_SETTING_GRANTED), setting("io", io, 0, OFP_SETTING_GRANTED)})))
        .asked;
  };
  auto asked = decide(200, 8);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_FALSE(scene.decision.on_set(asked[0].number, 200).followed);
  EXPECT_TRUE(scene.decision.on_set(asked[1].number, 8).followed);
  asked = decide(500, 2);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].actuator, 5u);
  const auto raised = scene.decision.on_set(asked[0].number, 2);
  EXPECT_FALSE(raised.followed);
  ASSERT_EQ(raised.asked.size(), 1u);
  EXPECT_EQ(raised.asked[0].actuator, 3u);
  EXPECT_TRUE(scene.decision.on_set(raised.asked[0].number, 500).followed);
  // If the first stage fails there is no second one.
  asked = decide(100, 9);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].actuator, 3u);
  const auto ended = scene.decision.on_set(asked[0].number, fail(Error::io, "no"));
  EXPECT_TRUE(ended.asked.empty());
  EXPECT_FALSE(ended.followed);
  EXPECT_EQ(scene.decision.counters().unset, 2u);
  EXPECT_TRUE(scene.decision.is_idle());
}

TEST(Decision, AGrantBelowTheLeastValueSetsNothing) {
  Scene scene;
  ASSERT_TRUE(scene.call());
  const auto step =
      scene.answer(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 99, 0, OFP_SETTING_GRANTED)})));
  EXPECT_TRUE(step.asked.empty());
  EXPECT_TRUE(step.followed);
  ASSERT_TRUE(scene.call());
  const auto free = scene.answer(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 99, 0)})));
  EXPECT_EQ(free.asked.size(), 1u);  // without a grant the keeper raises it to its least value
}

TEST(Decision, NoLeaseIsLongerThanTheActuatorsAndTheInputsSayWhatIsInForce) {
  Scene scene;
  ASSERT_TRUE(scene.call());
  const auto asked =
      scene.answer(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 500, INT64_MAX)}))).asked;
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].until, scene.now + scene.suspended + 10 * second_ns);
  (void)scene.decision.on_set(asked[0].number, 500);
  EXPECT_EQ(scene.shown_value(), 500u);
  // A failed setting leaves the one before it in force, until that one's lease ends.
  scene.now += second_ns;
  ASSERT_TRUE(scene.call());
  const auto lower = scene.answer(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 400, 0)}))).asked;
  (void)scene.decision.on_set(lower[0].number, fail(Error::io, "no"));
  EXPECT_EQ(scene.shown_value(), 500u);
  scene.now += 9 * second_ns;
  EXPECT_EQ(scene.shown_value(), std::nullopt);
}

TEST(Decision, WhatAnEarlierGrantAllowedIsGivenUpBeforeALaterOneIsFollowed) {
  Scene scene;
  ASSERT_TRUE(scene.call());
  const auto asked = scene
                         .answer(outputs(output<ofp_actuator_setting>(
                             "settings", {setting("cpu", 500, 0, OFP_SETTING_GRANTED), setting("io", 3, 0)})))
                         .asked;
  EXPECT_FALSE(scene.decision.on_set(asked[0].number, 500).followed);
  EXPECT_TRUE(scene.decision.on_set(asked[1].number, 3).followed);
  scene.held = {0, 13, 1, 103 * second_ns};
  ASSERT_TRUE(scene.call());
  // It still wants it, but nothing is granted any more. The other setting is not bound to a grant, and stays.
  const auto next =
      scene.answer(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 500, 0, OFP_SETTING_GRANTED)})))
          .asked;
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].actuator, 3u);
  EXPECT_EQ(next[0].until, 0);
  const auto followed = scene.decision.on_set(next[0].number, 0).followed;
  ASSERT_TRUE(followed);
  EXPECT_EQ(followed->number, 13u);
  ASSERT_TRUE(scene.call());
  const auto nothing = scene.answer({});
  EXPECT_TRUE(nothing.asked.empty());
  EXPECT_TRUE(nothing.followed);
}

TEST(Decision, AnswersThatDoNotFitAreRefused) {
  const auto actuators = settings().actuators;
  const auto refused = [&](plugin::Outputs given) {
    const auto read = read_answer(given, 2, 64, actuators);
    EXPECT_FALSE(read);
    return read ? std::string() : read.error().message;
  };
  EXPECT_THAT(refused(outputs(output<char>("records", {'a'}))), HasSubstr("'records' is not record"));
  EXPECT_THAT(refused(outputs(output<char>("grants", {'a'}))), HasSubstr("not a multiple"));
  EXPECT_THAT(refused(outputs(output<ofp_grant_target>("grants", {{2, 0, 5}}))), HasSubstr("member 2"));
  EXPECT_THAT(refused(outputs(output<ofp_grant_target>("grants", {{0, 0, 5}, {1, 0, 5}, {1, 0, 5}}))),
              HasSubstr("3 rows, at most 2"));
  EXPECT_THAT(refused(outputs(output<char>("record", std::vector<char>(65)))), HasSubstr("65 bytes"));
  EXPECT_THAT(refused(outputs(output<ofp_actuator_setting>("settings", {setting("fan", 1, 0)}))),
              HasSubstr("no actuator 'fan'"));
  EXPECT_THAT(refused(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 1, 0), setting("cpu", 2, 0)}))),
              HasSubstr("twice"));
  EXPECT_THAT(refused(outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 1, -5)}))), HasSubstr("-5"));
  ofp_actuator_setting endless{};
  std::memset(endless.name, 'c', sizeof endless.name);
  EXPECT_THAT(refused(outputs(output<ofp_actuator_setting>("settings", {endless}))), HasSubstr("no actuator"));
}

// The service around it: a function's record is the next round's, and a program cannot take its place.
TEST(ExchangeService, AFunctionPublishesGrantsAndSets) {
  ExchangeOptions options;
  options.name = "load";
  options.interval_ns = 10 * millisecond_ns;
  options.deadline_ns = 5 * millisecond_ns;
  options.grants = GrantOptions{.total = 100};
  ExchangeService service({{.options = options, .shape = {}, .members = {"a"}, .decides = settings()}}, 1);
  std::vector<std::uint64_t> values;
  ExchangeService::SetDone done;
  service.serve_decisions({}, [&](std::uint32_t actuator, std::uint64_t value, TimeNs, ExchangeService::SetDone told) {
    EXPECT_EQ(actuator, 3u);
    values.push_back(value);
    done = std::move(told);
  });
  TimeNs now = second_ns;
  service::Effects effects;
  service.set_self("a", 0);
  service.on_members({{"a", "host", true}}, now, effects);
  const auto next_call = [&]() -> std::uint64_t {
    for (; now < 100 * second_ns; now += millisecond_ns) {
      for (const service::Effect& each : std::exchange(effects, {}))
        if (const auto* call = std::get_if<service::CallEffect>(&each)) return call->token;
      service.on_time(now, effects);
    }
    return 0;
  };
  const std::uint64_t first = next_call();
  ASSERT_NE(first, 0u);
  service.on_called(first,
                    outputs(output<std::uint64_t>("record", {42}), output<ofp_grant_target>("grants", {{0, 0, 60}})),
                    now, effects);
  const std::uint64_t second = next_call();
  ASSERT_NE(second, 0u);
  const View& view = *service.status(now).front().view;
  ASSERT_EQ(view.entries.size(), 1u);
  EXPECT_EQ(load<std::uint64_t>(view.entries[0].record.bytes.data()), 42u);
  EXPECT_EQ(service.status(now).front().deciding, Deciding::granting);
  service.on_called(second, fail(Error::function_failed, "it crashed"), now, effects);
  EXPECT_EQ(service.status(now).front().decisions.failed, 1u);
  EXPECT_EQ(service.status(now).front().deciding, Deciding::granting) << "its grants stay";
  while (service.status(now).front().held == 0 && now < 100 * second_ns) {
    const std::uint64_t token = next_call();
    service.on_called(token, plugin::Outputs(), now, effects);
  }
  EXPECT_EQ(service.status(now).front().held, 60u);
  const TimeNs fails_from = now;
  while (service.status(now).front().deciding == Deciding::granting && now < 100 * second_ns) {
    const std::uint64_t token = next_call();
    service.on_called(token, fail(Error::function_failed, "it crashed"), now, effects);
  }
  EXPECT_EQ(service.status(now).front().deciding, Deciding::no);
  EXPECT_GE(now - fails_from, options.grants->lease_ns);
  const std::uint64_t again = next_call();
  service.on_called(again, plugin::Outputs(), now, effects);
  EXPECT_EQ(service.status(now).front().deciding, Deciding::granting);
  const std::uint64_t third = next_call();
  service.on_called(third,
                    outputs(output<ofp_actuator_setting>("settings", {setting("cpu", 160, 0, OFP_SETTING_GRANTED)})),
                    now, effects);
  EXPECT_EQ(values, std::vector<std::uint64_t>{160});
  const std::uint64_t lost = service.status(now).front().decisions.lost;
  for (const TimeNs until = now + 100 * millisecond_ns; now < until; now += millisecond_ns)
    service.on_time(now, effects);
  EXPECT_GT(service.status(now).front().decisions.lost, lost);  // the actuator has not answered
  done(160, now);
  EXPECT_EQ(service.status(now).front().decisions.set, 1u);
  EXPECT_NE(next_call(), 0u);
}

}  // namespace
}  // namespace offpath::exchange
