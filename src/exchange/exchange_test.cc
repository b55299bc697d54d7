#include "exchange/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "exchange/exchange_service.h"
#include "testing/exchange/loopback_members.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"

namespace offpath::exchange {
namespace {

using testing::HasSubstr;

ExchangeOptions options() {
  ExchangeOptions options;
  options.name = "load";
  options.interval_ns = 10 * millisecond_ns;
  options.deadline_ns = 5 * millisecond_ns;
  return options;
}

Shape shape(std::string_view text) { return *parse_shape(text); }

// This member's newest view.
const View& newest(LoopbackMembers& members, MemberIndex member) {
  EXPECT_FALSE(members[member].views.empty()) << member;
  return *members[member].views.back();
}

TEST(Exchange, EverybodyHasEverybodysRecordInEveryShape) {
  for (const char* text : {"allgather", "neighbourhoods(2)", "neighbourhoods(4)", "grouped_allgather(2)",
                           "grouped_allgather(4)", "hybrid(2, 3)", "hybrid(2, 32)"})
    for (const std::size_t count : {1, 2, 3, 9, 16, 31}) {
      SCOPED_TRACE(fmt::format("{} of {}", text, count));
      LoopbackMembers members(options(), shape(text), count, 1);
      members.run_for(200 * millisecond_ns);
      for (MemberIndex i = 0; i < count; ++i) {
        const View& view = newest(members, i);
        EXPECT_TRUE(view.whole);
        ASSERT_EQ(view.entries.size(), count);
        EXPECT_EQ(view.present, count);
        EXPECT_EQ(view.expected, count);
        for (MemberIndex of = 0; of < count; ++of) {
          EXPECT_EQ(view.entries[of].member, of);
          EXPECT_TRUE(view.entries[of].present && view.entries[of].has_value);
          ASSERT_EQ(view.entries[of].record.bytes.size(), 8u);
          EXPECT_EQ(view.entries[of].record.bytes[0], static_cast<std::byte>(of));
          EXPECT_LT(view.entries[of].age_ns, options().deadline_ns);
        }
      }
    }
}

TEST(Exchange, WithoutViewsToAllTheLeadersHaveTheWholeAndOthersTheirPart) {
  ExchangeOptions few = options();
  few.views_to_all = false;
  LoopbackMembers members(few, shape("grouped_allgather(3)"), 9, 1);
  members.run_for(200 * millisecond_ns);
  for (const MemberIndex leader : {0, 3, 6}) {
    EXPECT_TRUE(newest(members, leader).whole);
    EXPECT_EQ(newest(members, leader).present, 9u);
  }
  EXPECT_FALSE(newest(members, 1).whole);
  EXPECT_EQ(newest(members, 1).expected, 1u);
}

TEST(Exchange, OneLeaderOfNeighbourhoodsHasTheWholeBeforeItScatters) {
  ExchangeOptions few = options();
  few.views_to_all = false;
  LoopbackMembers members(few, shape("neighbourhoods(3)"), 9, 1);
  members.run_for(200 * millisecond_ns);
  EXPECT_TRUE(newest(members, 0).whole);
  EXPECT_EQ(newest(members, 0).present, 9u);
  for (const MemberIndex leader : {3, 6}) EXPECT_EQ(newest(members, leader).expected, 3u);  // its own group
  LoopbackMembers all(options(), shape("neighbourhoods(3)"), 9, 1);
  all.run_for(200 * millisecond_ns);
  // Up 8, down 8: no member sends across.
  std::uint64_t parcels = 0, rounds = 0;
  for (MemberIndex i = 0; i < 9; ++i) parcels += all[i].exchange->counters().parcels_out;
  rounds = all[0].exchange->counters().rounds;
  EXPECT_LE(parcels, 16 * rounds);
  EXPECT_GE(parcels, 16 * (rounds - 2));
}

TEST(Exchange, MembersThatBeginAtDifferentTimesComeToOneEpoch) {
  LoopbackMembers members(options(), shape("grouped_allgather(3)"), 9, 1);
  for (MemberIndex i = 0; i < 9; ++i) members.kill(i);
  for (MemberIndex i = 0; i < 9; ++i) {
    members[i].clock_shift = i * 777 * second_ns;  // no two clocks agree
    members.start(i);
    members.run_for(3300 * microsecond_ns);
  }
  members.run_for(300 * millisecond_ns);
  for (MemberIndex i = 0; i < 9; ++i) EXPECT_EQ(newest(members, i).present, 9u) << i;
}

TEST(Exchange, AStoppedMemberMakesViewsPartialAndNeverLateAndIsTakenBack) {
  LoopbackMembers members(options(), shape("grouped_allgather(3)"), 9, 1);
  members.run_for(100 * millisecond_ns);
  members.stop(4, members.now() + 10 * second_ns);
  members.run_for(200 * millisecond_ns);
  const View& partial = newest(members, 0);
  EXPECT_EQ(partial.present, 8u);
  EXPECT_EQ(partial.expected, 9u);
  EXPECT_FALSE(partial.entries[4].present);
  EXPECT_TRUE(partial.entries[4].has_value);  // the newest known one
  EXPECT_GE(partial.entries[4].age_ns, 100 * millisecond_ns);
  EXPECT_EQ(members[0].exchange->counters().overrun_ns_max, 0);
  // After it has been missed, rounds no longer wait for it.
  EXPECT_LT(partial.given_at - partial.began_at, options().deadline_ns / 4);
  members.run_for(10 * second_ns);
  for (MemberIndex i = 0; i < 9; ++i) EXPECT_EQ(newest(members, i).present, 9u) << i;
}

TEST(Exchange, ADeadLeaderIsReplacedAndReturns) {
  for (const char* text : {"allgather", "neighbourhoods(3)", "grouped_allgather(3)", "hybrid(2, 3)"}) {
    SCOPED_TRACE(text);
    LoopbackMembers members(options(), shape(text), 9, 1);
    members.run_for(100 * millisecond_ns);
    members.kill(0);
    members.run_for(300 * millisecond_ns);
    for (MemberIndex i = 1; i < 9; ++i) {
      EXPECT_EQ(newest(members, i).present, 8u) << i;
      EXPECT_EQ(newest(members, i).leader, 1u) << i;
      EXPECT_EQ(members[i].exchange->counters().overrun_ns_max, 0);
    }
    members.start(0);
    members.run_for(300 * millisecond_ns);
    for (MemberIndex i = 0; i < 9; ++i) {
      EXPECT_EQ(newest(members, i).present, 9u) << i;
      EXPECT_EQ(newest(members, i).leader, 0u) << i;
    }
  }
}

TEST(Exchange, WhatItsOwnerKnowsItDoesNotHaveToFindOut) {
  LoopbackMembers members(options(), shape("grouped_allgather(3)"), 9, 1);
  members.run_for(100 * millisecond_ns);
  members.kill(3);
  for (MemberIndex i = 0; i < 9; ++i) members.tell(i, 3, false);
  members.run_for(21 * millisecond_ns);
  EXPECT_EQ(newest(members, 0).present, 8u);
}

TEST(Exchange, AMemberThatPublishesNothingIsPresentWithoutAValue) {
  LoopbackMembers members(options(), shape("grouped_allgather(2)"), 4, 1);
  members[2].publishes.reset();
  members.run_for(100 * millisecond_ns);
  const View& view = newest(members, 1);
  EXPECT_EQ(view.present, 4u);
  EXPECT_TRUE(view.entries[2].present);
  EXPECT_FALSE(view.entries[2].has_value);
  EXPECT_GT(members[2].exchange->counters().without_value, 0u);
}

TEST(Exchange, ARecordThatComesAfterItsRoundsFirstPhaseIsTheNextOnesForItsOwnMemberToo) {
  LoopbackMembers members(options(), shape("grouped_allgather(2)"), 4, 1);
  members[3].publishes.reset();
  auto record = std::make_shared<const std::vector<std::byte>>(8, std::byte{42});
  std::uint64_t said_without = 0;  // the round whose first phase had ended when the record arrived
  members.run_until(members.now() + 100 * millisecond_ns, [&](TimeNs now) {
    Exchange& exchange = *members[3].exchange;
    if (exchange.counters().without_value == 0 || !exchange.is_open()) return true;
    ExchangeEffects effects;
    exchange.on_local({record, *record}, 0, now, effects);
    EXPECT_TRUE(effects.sends.empty() && effects.views.empty());
    said_without = exchange.epoch();
    return false;
  });
  ASSERT_NE(said_without, 0u);
  members.run_for(20 * millisecond_ns);
  for (const ViewPtr& view : members[3].views) {
    EXPECT_TRUE(view->entries[3].present);
    EXPECT_EQ(view->entries[3].has_value, view->epoch > said_without) << view->epoch;
  }
  EXPECT_GT(newest(members, 3).epoch, said_without);
}

TEST(Exchange, RecordsOfAnySizeTravel) {
  LoopbackMembers members(options(), shape("grouped_allgather(2)"), 5, 1);
  const std::size_t sizes[] = {0, 8, 13, 4096, record_bytes_max};
  for (MemberIndex i = 0; i < 5; ++i) members.publish(i, std::vector<std::byte>(sizes[i], std::byte{7}));
  members.run_for(60 * millisecond_ns);
  for (MemberIndex of = 0; of < 5; ++of) {
    EXPECT_EQ(newest(members, 4).entries[of].record.bytes.size(), sizes[of]);
    EXPECT_TRUE(newest(members, 4).entries[of].has_value);
  }
}

ExchangeOptions with_reductions(bool entries) {
  ExchangeOptions all = options();
  auto schema = std::make_shared<Schema>();
  schema->name = "load";
  schema->fields = {{"power", FieldType::f64}, {"jobs", FieldType::u64}};
  for (const char* text : {"sum(power)", "min(power)", "max(power)", "mean(power)", "sum(jobs)", "top(jobs, 3)",
                           "histogram(power, 0, 100, 4)"})
    all.reductions.push_back(*parse_reduction(text, *schema));
  all.schema = schema;
  all.entries = entries;
  return all;
}

std::vector<std::byte> load_record(double power, std::uint64_t jobs) {
  std::vector<std::byte> record(16);
  store(record.data(), power);
  store(record.data() + 8, jobs);
  return record;
}

TEST(Exchange, FiguresAreReducedOnTheWay) {
  for (const bool entries : {true, false})
    for (const char* text : {"allgather", "neighbourhoods(3)", "grouped_allgather(3)", "hybrid(2, 3)"}) {
      SCOPED_TRACE(text);
      LoopbackMembers members(with_reductions(entries), shape(text), 9, 1);
      for (MemberIndex i = 0; i < 9; ++i) members.publish(i, load_record(10.0 * i, 100 + i));
      members.run_for(100 * millisecond_ns);
      for (const MemberIndex i : {0, 5, 8}) {
        const View& view = newest(members, i);
        EXPECT_EQ(view.present, 9u);
        ASSERT_TRUE(view.reduced);
        EXPECT_EQ(view.reduced_members, 9u);
        const auto& reductions = members[i].exchange->options().reductions;
        EXPECT_DOUBLE_EQ(view.reduced->value(0, reductions[0]), 360);
        EXPECT_DOUBLE_EQ(view.reduced->value(1, reductions[1]), 0);
        EXPECT_DOUBLE_EQ(view.reduced->value(2, reductions[2]), 80);
        EXPECT_DOUBLE_EQ(view.reduced->value(3, reductions[3]), 40);
        EXPECT_EQ(static_cast<std::uint64_t>(view.reduced->figure(4).whole), 936u);
        ASSERT_EQ(view.reduced->figure(5).top.size(), 3u);
        EXPECT_EQ(view.reduced->figure(5).top[0].member, 8u);
        EXPECT_EQ(view.reduced->figure(6).bins, (std::vector<std::uint64_t>{3, 2, 3, 1}));
      }
    }
}

TEST(Exchange, FiguresOfAPartialRoundSayOfHowMany) {
  LoopbackMembers members(with_reductions(false), shape("grouped_allgather(3)"), 9, 1);
  for (MemberIndex i = 0; i < 9; ++i) members.publish(i, load_record(1, 1));
  members.run_for(100 * millisecond_ns);
  members.kill(8);
  members.run_for(200 * millisecond_ns);
  EXPECT_EQ(newest(members, 0).reduced_members, 8u);
  EXPECT_EQ(newest(members, 0).expected, 9u);
  EXPECT_DOUBLE_EQ(newest(members, 0).reduced->value(0, members[0].exchange->options().reductions[0]), 8);
}

TEST(Exchange, GrantsReachTheirMembersAndLapseWithTheirLeader) {
  ExchangeOptions granting = options();
  granting.grants = GrantOptions{.total = 90, .lease_ns = 200 * millisecond_ns, .ttl_ns = 100 * millisecond_ns};
  LoopbackMembers members(granting, shape("grouped_allgather(3)"), 9, 1);
  for (MemberIndex leader = 0; leader < 9; ++leader)
    for (MemberIndex i = 0; i < 9; ++i) members[leader].exchange->grants()->set_target(i, 10);
  const auto held = [&](MemberIndex i) {
    return members[i].exchange->grants()->held(LoopbackMembers::local(members[i], members.now())).amount;
  };
  members.run_for(second_ns);
  for (MemberIndex i = 0; i < 9; ++i) EXPECT_EQ(held(i), 10u) << i;
  members.kill(0);
  members.run_for(110 * millisecond_ns);
  for (MemberIndex i = 1; i < 9; ++i) EXPECT_EQ(held(i), 0u) << i;  // no member may grant at first
  members.run_for(second_ns);
  for (MemberIndex i = 1; i < 9; ++i) EXPECT_EQ(held(i), 10u) << i;
  EXPECT_EQ(members[5].exchange->grants()->leader(), 1u);
}

TEST(Exchange, AMemberWithoutAProgramStepsBackForOneThatHasOne) {
  for (const char* text : {"allgather", "neighbourhoods(3)", "grouped_allgather(3)", "hybrid(2, 3)"}) {
    SCOPED_TRACE(text);
    ExchangeOptions granting = options();
    granting.views_to_all = false;
    granting.grants = GrantOptions{.total = 90, .lease_ns = 200 * millisecond_ns, .ttl_ns = 100 * millisecond_ns};
    LoopbackMembers members(granting, shape(text), 9, 1);
    const auto expect_leader = [&](MemberIndex leader) {
      members.run_for(second_ns);
      for (MemberIndex i = 0; i < 9; ++i) {
        EXPECT_EQ(newest(members, i).leader, leader) << i;
        EXPECT_EQ(members[i].exchange->grants()->held(members.now()).amount, 10u) << i;
      }
      EXPECT_TRUE(newest(members, leader).whole);
      EXPECT_EQ(newest(members, leader).present, 9u);
    };
    const auto set = [&](MemberIndex member, Deciding deciding) {
      Grants& grants = *members[member].exchange->grants();
      grants.set_deciding(deciding, members.now());
      for (MemberIndex i = 0; i < 9; ++i) grants.set_target(i, deciding == Deciding::no ? 0 : 10);
    };
    set(0, Deciding::granting);
    set(4, Deciding::able);
    set(5, Deciding::granting);
    set(8, Deciding::granting);
    expect_leader(0);
    set(0, Deciding::no);
    expect_leader(5);
    set(5, Deciding::no);
    expect_leader(8);
    set(8, Deciding::no);
    expect_leader(4);
    set(0, Deciding::granting);
    expect_leader(0);
  }
}

TEST(Exchange, ParcelsThatMakeNoSenseAreRefusedAndChangeNothing) {
  LoopbackMembers members(options(), shape("allgather"), 3, 1);
  members.run_for(50 * millisecond_ns);
  Exchange& exchange = *members[0].exchange;
  ParcelHeader good{};
  good.kind = ParcelKind::across;
  good.tag = tag_of("load");
  good.fingerprint = exchange.topology().fingerprint();
  good.epoch = exchange.epoch();
  good.from = 1;
  good.node = exchange.topology().leaf(1);
  good.grant_leader = nobody;
  const auto post = [&](const ParcelHeader& header, std::optional<EntryRow> row = {},
                        std::optional<Ballot> ballot = {}) {
    ParcelWriter writer(header);
    if (row) writer.add_entry(*row, {});
    if (ballot) writer.add_ballot(*ballot);
    ExchangeEffects effects;
    return exchange.on_parcel(writer.finish(), members.now(), effects);
  };
  EXPECT_TRUE(post(good));
  const auto refused = [&](auto change, std::string_view why) {
    ParcelHeader bad = good;
    change(bad);
    const Status status = post(bad);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(why));
  };
  const std::uint64_t epoch = exchange.epoch();
  refused([](ParcelHeader& h) { h.tag ^= 1; }, "another exchange");
  refused([](ParcelHeader& h) { h.fingerprint ^= 1; }, "another tree");
  refused([](ParcelHeader& h) { h.from = 9; }, "of member 9");
  refused([](ParcelHeader& h) { h.from = 0; }, "of member 0");
  refused([](ParcelHeader& h) { h.node = 1000; }, "of node 1000");
  refused([](ParcelHeader& h) { h.node = 2; }, "cannot speak");
  refused([](ParcelHeader& h) { h.epoch = UINT64_MAX; }, "epoch");
  refused([](ParcelHeader& h) { h.kind = static_cast<ParcelKind>(9); }, "of kind 9");
  refused([](ParcelHeader& h) { h.round_age_ns = -1; }, "-1 ns old");
  EXPECT_FALSE(post(good, EntryRow{7, no_value, 1, 0}));
  EXPECT_FALSE(post(good, EntryRow{2, no_value, good.epoch + 1, 0}));
  EXPECT_FALSE(post(good, {}, Ballot{3, 0, 0, 0, 0, 0, 0, Deciding::no, 0}));
  EXPECT_FALSE(post(good, {}, Ballot{1, 0, 0, 0, 0, 0, 0, static_cast<Deciding>(3), 0}));
  EXPECT_EQ(exchange.epoch(), epoch);
  EXPECT_EQ(exchange.counters().refused, 13u);
}

TEST(Exchange, OptionsThatCannotWorkAreNamed) {
  const auto wrong = [](auto change) {
    ExchangeOptions bad = options();
    change(bad);
    const Status status = check(bad);
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message;
  };
  EXPECT_TRUE(check(options()));
  EXPECT_THAT(wrong([](ExchangeOptions& o) { o.name.clear(); }), HasSubstr("name"));
  EXPECT_THAT(wrong([](ExchangeOptions& o) { o.deadline_ns = 2 * o.interval_ns; }),
              HasSubstr("longer than the interval"));
  EXPECT_THAT(wrong([](ExchangeOptions& o) { o.deadline_ns = 0; }), HasSubstr("deadline"));
  EXPECT_THAT(wrong([](ExchangeOptions& o) { o.entries = false; }), HasSubstr("neither"));
  EXPECT_THAT(wrong([](ExchangeOptions& o) { o.record_bytes = record_bytes_max + 1; }), HasSubstr("records"));
  EXPECT_THAT(wrong([](ExchangeOptions& o) { o.reductions.resize(1); }), HasSubstr("schema"));
}

TEST(Exchange, GrantsWhoseTimesAreShortForTheirTreeAreWarnedOf) {
  const auto warning = [](TimeNs ttl_ns, TimeNs lease_ns, std::string_view tree, std::size_t members) {
    ExchangeOptions with = options();
    with.grants = GrantOptions{100, lease_ns, ttl_ns};
    std::vector<Place> places;
    for (std::size_t i = 0; i < members; ++i) places.push_back({fmt::format("m{}", i)});
    return warning_of_grants(with, *Topology::make(shape(tree), places));
  };
  EXPECT_EQ(warning(50 * millisecond_ns, 50 * millisecond_ns, "grouped_allgather(2)", 4), "");
  EXPECT_THAT(warning(50 * millisecond_ns, 49 * millisecond_ns, "grouped_allgather(2)", 4), HasSubstr("to 50 ms"));
  EXPECT_THAT(warning(49 * millisecond_ns, second_ns, "hybrid(2, 3)", 9), HasSubstr("exchange.grant_ttl"));
  EXPECT_EQ(warning(30 * millisecond_ns, 30 * millisecond_ns, "allgather", 4), "") << "all lead";
  EXPECT_EQ(warning(30 * millisecond_ns, 30 * millisecond_ns, "grouped_allgather(2)", 1), "");
  ExchangeOptions without = options();
  without.interval_ns = second_ns;
  EXPECT_EQ(warning_of_grants(without, *Topology::make(shape("hybrid(2, 3)"), std::vector<Place>(1, {"m"}))), "");
}

TimeNs slept_ns = 0;

// The agent of member "a", and its programs.
struct OneService {
  static constexpr uid_t user = 1000;

  explicit OneService(const ExchangeOptions& with)
      : service({{.options = with, .shape = shape("allgather"), .members = {"a"}}}, 1, nullptr,
                [] { return slept_ns; }) {
    service.set_self("a", user);
    service.on_members({{"a", "host", true}}, now, effects);
  }
  void request(std::uint64_t program, wire::EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    service.on_request(program, {1, static_cast<std::uint8_t>(kind), payload}, false, now, effects);
  }
  // Returns the exchange's number.
  std::uint64_t open(std::uint64_t program, bool publishes = false) {
    service.on_channel_open(program, user, true);
    wire::ExchangeOpen open{};
    open.name = "load";
    open.publishes = publishes;
    open.view_bytes = 4096;
    open.area = {
        .region = wire::segment_flag | 1, .generation = 1, .offset = 0, .length = wire::exchange_area_bytes(0, 4096)};
    effects.clear();
    request(program, wire::EntryKind::exchange_open, open);
    const auto* const opened = effects.empty() ? nullptr : std::get_if<service::ReplyEffect>(&effects.front());
    EXPECT_NE(opened, nullptr);
    return opened != nullptr ? std::get<wire::Done>(opened->message).value : 0;
  }
  void run_for(TimeNs duration) {
    for (const TimeNs end = now + duration; now < end; now += millisecond_ns)
      if (service.next_deadline() <= now) service.on_time(now, effects);
  }

  TimeNs now = second_ns;
  service::Effects effects;
  ExchangeService service;
};

// All grants of the service end, however the agent first learns that its machine was suspended.
TEST(ExchangeService, GrantsEndForAnAgentWhoseMachineWasSuspended) {
  using wire::EntryKind;
  slept_ns = 7 * second_ns;  // before the agent was started: does not count
  ExchangeOptions granting = options();
  granting.grants = GrantOptions{.total = 100};
  OneService one(granting);
  ExchangeService& service = one.service;
  constexpr std::uint64_t program = 1;
  const std::uint64_t number = one.open(program);
  one.request(program, EntryKind::exchange_grant, wire::ExchangeGrant{number, {{0, 0, 40}}});
  const std::function<void()> ways[] = {
      [&] { service.on_time(one.now, one.effects); },
      [&] { one.request(program, EntryKind::exchange_wait, wire::ExchangeWait{number, 0, 0}); },
      [&] { service.on_transfer(12345, {}, one.now, one.effects); },
  };
  for (const auto& notice : ways) {
    one.run_for(5 * second_ns);
    ASSERT_EQ(service.status(one.now).front().held, 40u);
    ASSERT_TRUE(service.status(one.now).front().may_grant);
    notice();
    EXPECT_EQ(service.status(one.now).front().held, 40u) << "it did not sleep";
    slept_ns += granting.grants->lease_ns;
    notice();
    EXPECT_EQ(service.status(one.now).front().held, 0u);
    EXPECT_FALSE(service.status(one.now).front().may_grant) << "others may have another leader by now";
    one.run_for(5 * second_ns);
    EXPECT_EQ(service.status(one.now).front().held, 40u) << "what was slept counts once";
  }
}

TEST(ExchangeService, WhatDecidesEndsWithItsProgram) {
  ExchangeOptions granting = options();
  granting.grants = GrantOptions{.total = 100};
  OneService one(granting);
  const auto deciding = [&] { return one.service.status(one.now).front().deciding; };
  EXPECT_EQ(deciding(), Deciding::no);
  const std::uint64_t looks = one.open(1);
  EXPECT_EQ(deciding(), Deciding::no) << "it only looks";
  const std::uint64_t publishes = one.open(2, true);
  EXPECT_EQ(deciding(), Deciding::able);
  one.request(2, wire::EntryKind::exchange_grant, wire::ExchangeGrant{publishes, {{0, 0, 40}}});
  EXPECT_EQ(deciding(), Deciding::granting);
  one.service.on_channel_closed(2, one.now, one.effects);
  EXPECT_EQ(deciding(), Deciding::no);
  one.request(1, wire::EntryKind::exchange_grant, wire::ExchangeGrant{looks, {{0, 0, 40}}});
  EXPECT_EQ(deciding(), Deciding::granting);
  one.request(1, wire::EntryKind::exchange_close, wire::ExchangeClose{looks});
  EXPECT_EQ(deciding(), Deciding::no);
}

}  // namespace
}  // namespace offpath::exchange
