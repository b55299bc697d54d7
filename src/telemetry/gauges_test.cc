#include "telemetry/gauges.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"

#include <gtest/gtest.h>

#include <cstring>

namespace offpath::exchange {
namespace {

Schema some_schema() {
  return {
      "solver",
      {{"residual", FieldType::f64, FieldKind::gauge, "", ""}, {"steps", FieldType::u64, FieldKind::counter, "", ""}}};
}

// A program's memory, and reads of it that the test carries out.
struct Read {
  Read() {
    encode(some_schema(), schema);
    memory.resize(wire::gauges_bytes(2));
    word(offsetof(wire::GaugesHead, count)) = 2;
    EXPECT_EQ(open(1).value(), 1u);
  }
  std::uint64_t& word(std::size_t offset) { return *reinterpret_cast<std::uint64_t*>(memory.data() + offset); }
  void set(std::size_t i, std::uint64_t bits) {
    word(sizeof(wire::GaugesHead)) |= 1ull << i;
    word(wire::gauges_values_at(2) + 8 * i) = bits;
  }
  Result<std::uint64_t> open(std::uint64_t channel, std::uint64_t length = wire::gauges_bytes(2)) {
    std::vector<std::byte> payload;
    wire::encode(wire::GaugesOpen{{.region = wire::segment_flag | 7, .length = length}, "rank0", schema}, payload);
    gauges.on_request(
        channel, "solver",
        {.ticket = 5, .kind = static_cast<std::uint8_t>(wire::EntryKind::gauges_open), .payload = payload}, now,
        effects);
    return answered();
  }
  Result<std::uint64_t> answered() {
    service::Effect last = std::move(effects.back());  // an earlier pull may wait before it
    effects.pop_back();
    if (auto* const failed = std::get_if<service::FailEffect>(&last)) return tl::unexpected(std::move(failed->failure));
    return std::get<wire::Done>(std::get<service::ReplyEffect>(last).message).value;
  }
  // Carries out the pending read; false: there is none.
  bool step(const Status& status = {}) {
    const service::Effects asked = std::exchange(effects, {});
    if (asked.empty()) return false;
    EXPECT_EQ(asked.size(), 1u);
    const auto& pull = std::get<service::PullEffect>(asked[0]);
    const link::ReadPiece& piece = pull.pieces.at(0);
    EXPECT_EQ(piece.region, wire::segment_flag | 7);
    EXPECT_LE(piece.offset + piece.length, memory.size());
    std::memcpy(piece.to, memory.data() + piece.offset, piece.length);
    gauges.on_transfer(pull.token, status, now, 1000 + now, effects);
    return true;
  }
  void begin() {
    now = gauges.next_deadline();
    gauges.on_time(now, effects);
  }
  const Gauges::Set& set_of() { return *gauges.sets().at(0); }

  TimeNs now = 0;
  std::vector<std::byte> schema;
  alignas(8) std::vector<std::byte> memory;
  Gauges gauges{second_ns};
  service::Effects effects;
};

TEST(Gauges, AreReadEachInterval) {
  Read all;
  all.begin();
  while (all.step()) {
  }
  EXPECT_EQ(all.set_of().counters.samples, 1u);
  EXPECT_EQ(all.set_of().newest.values.missing(), 2u) << "none was set yet";
  all.set(0, std::bit_cast<std::uint64_t>(0.5));
  all.begin();
  EXPECT_EQ(all.now, second_ns);
  while (all.step()) {
  }
  EXPECT_EQ(all.set_of().newest.values.f64(0), 0.5);
  EXPECT_FALSE(all.set_of().newest.values.has(1));
  EXPECT_EQ(all.set_of().newest.producer, "rank0");
  EXPECT_EQ(all.set_of().newest.sequence, 2u);
  EXPECT_EQ(all.set_of().newest_at, all.now);
  EXPECT_TRUE(fits(all.set_of().newest, all.set_of().schema));
}

TEST(Gauges, NoSampleMixesOldAndNewValues) {
  // The program writes a group while the agent is at any of its reads.
  for (int at = 0; at < 3; ++at) {
    Read all;
    all.set(0, 1);
    all.set(1, 1);
    all.begin();
    for (int i = 0; i < at; ++i) ASSERT_TRUE(all.step());
    all.word(0) = 1;  // a lap starts
    all.set(0, 2);
    ASSERT_TRUE(all.step());
    ASSERT_TRUE(all.step());
    all.set(1, 2);
    all.word(0) = 2;
    while (all.step()) {
    }
    EXPECT_EQ(all.set_of().counters.samples, 1u);
    const Values& values = all.set_of().newest.values;
    EXPECT_EQ(values.u64(0), values.u64(1)) << at;
    EXPECT_EQ(values.u64(0), 2u);
    EXPECT_GE(all.set_of().counters.torn, 1u);
  }
}

TEST(Gauges, AProgramThatStopsWhileWritingHoldsNobodyUp) {
  Read all;
  all.word(0) = 1;
  all.begin();
  int steps = 0;
  while (all.step()) ASSERT_LT(++steps, 100);
  EXPECT_EQ(all.set_of().counters.samples, 0u);
  EXPECT_EQ(all.set_of().counters.torn, Gauges::looks_max);
  EXPECT_EQ(all.gauges.next_deadline(), second_ns);
  EXPECT_EQ(all.set_of().newest_at, never);
}

TEST(Gauges, AReadThatFailsIsCountedAndTriedAgain) {
  Read all;
  all.begin();
  ASSERT_TRUE(all.step(fail(Error::unreadable, "gone")));
  EXPECT_FALSE(all.step());
  EXPECT_EQ(all.set_of().counters.failures, 1u);
  all.begin();
  while (all.step()) {
  }
  EXPECT_EQ(all.set_of().counters.samples, 1u);
  all.word(offsetof(wire::GaugesHead, count)) = 3;  // contradicts the description
  all.begin();
  while (all.step()) {
  }
  EXPECT_EQ(all.set_of().counters.failures, 2u);
}

TEST(Gauges, WhatProgramsAskIsChecked) {
  Read all;
  EXPECT_EQ(all.open(1, 64).error().code, Error::invalid);
  all.schema.pop_back();
  EXPECT_EQ(all.open(1).error().code, Error::schema);
  all.schema.clear();
  encode(some_schema(), all.schema);
  for (std::size_t i = 1; i < Gauges::of_channel_max; ++i) EXPECT_TRUE(all.open(1));
  EXPECT_EQ(all.open(1).error().code, Error::too_large);
  EXPECT_TRUE(all.open(2));
  all.gauges.on_channel_closed(1);
  EXPECT_EQ(all.gauges.sets().size(), 1u);
}

TEST(Gauges, AreClosedByWhoOpenedThemAndNotWhileTheyAreRead) {
  Read all;
  const auto close = [&](std::uint64_t channel) {
    std::vector<std::byte> payload;
    wire::encode(wire::GaugesClose{1}, payload);
    all.gauges.on_request(
        channel, "solver",
        {.ticket = 6, .kind = static_cast<std::uint8_t>(wire::EntryKind::gauges_close), .payload = payload}, all.now,
        all.effects);
    return all.answered();
  };
  EXPECT_EQ(close(2).error().code, Error::not_found);
  all.begin();
  EXPECT_TRUE(close(1));
  EXPECT_EQ(all.gauges.sets().size(), 1u);
  all.step();
  EXPECT_TRUE(all.gauges.sets().empty());
  EXPECT_EQ(close(1).error().code, Error::not_found);
}

}  // namespace
}  // namespace offpath::exchange
