// Exchanges through the C interface: errors name the mistake, change nothing, and leave nothing open on the agent.
#include "testing/host/fake_agent.h"
#include "wire/limits.h"

namespace offpath::host {
namespace {

class ExchangeCalls : public HostCalls {
 protected:
  ~ExchangeCalls() override { ofp_exchange_close(exchange); }

  int open(const char* name = "load") { return ofp_exchange_open(channel, name, &options, &exchange, &error); }
  void open_publishing() {
    options.publish = 1;
    ASSERT_EQ(open(), OFP_OK) << said();
  }
  // Until the agent's view is there for this program to look at.
  void show(std::vector<std::byte> bytes) {
    const std::uint64_t shown = agent->views_shown;
    agent->show_view(std::move(bytes));
    while (agent->views_shown == shown)
      ASSERT_EQ(ofp_probe(channel, second_ns, nullptr, nullptr, &error), OFP_OK) << said();
  }
  int view(std::int64_t wait_ns) {
    ofp_view* given = nullptr;
    const int code = ofp_exchange_view(exchange, wait_ns, &given, &error);
    EXPECT_EQ(given != nullptr, code == OFP_OK);
    ofp_view_free(given);
    return code;
  }

  ofp_exchange_options options{.struct_bytes = sizeof options,
                               .publish = 0,
                               .fields = nullptr,
                               .fields_count = 0,
                               .zero = 0,
                               .record_bytes_max = 0,
                               .view_bytes_max = 0};
  ofp_exchange* exchange = nullptr;
};

TEST_F(ExchangeCalls, WrongOpeningsAreNamedAndLeaveNothingOpen) {
  EXPECT_EQ(ofp_exchange_open(nullptr, "load", &options, &exchange, &error), OFP_INVALID);
  EXPECT_EQ(said(), "channel is NULL");
  EXPECT_EQ(open(nullptr), OFP_INVALID);
  EXPECT_EQ(said(), "name is NULL");
  EXPECT_EQ(ofp_exchange_open(channel, "load", &options, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "exchange is NULL");
  EXPECT_EQ(open(""), OFP_INVALID);
  EXPECT_EQ(open(std::string(wire::name_bytes_max + 1, 'n').c_str()), OFP_INVALID);
  EXPECT_NE(said().find(std::to_string(wire::name_bytes_max + 1) + " characters"), std::string::npos) << said();
  options.struct_bytes = 12;
  EXPECT_EQ(open(), OFP_INVALID);
  EXPECT_NE(said().find("ofp_exchange_options.struct_bytes is 12"), std::string::npos) << said();
  options.struct_bytes = sizeof options;
  options.fields_count = 1;
  EXPECT_EQ(open(), OFP_INVALID);
  EXPECT_EQ(said(), "fields is NULL");
  ofp_field field{nullptr, 'f', nullptr};
  options.fields = &field;
  EXPECT_EQ(open(), OFP_INVALID);
  EXPECT_EQ(said(), "the name of a field is NULL");
  field = {"power", 'd', nullptr};
  EXPECT_EQ(open(), OFP_INVALID);
  EXPECT_NE(said().find("field power has the type 'd'"), std::string::npos) << said();
  options.fields_count = 0;
  options.record_bytes_max = agent->exchange.record_bytes + 1;
  EXPECT_EQ(open(), OFP_TOO_LARGE);
  EXPECT_NE(said().find("records of 65 bytes, exchange load has at most 64"), std::string::npos) << said();
  options.record_bytes_max = 0;
  options.view_bytes_max = sizeof(wire::ViewHead) - 1;
  EXPECT_EQ(open(), OFP_INVALID);
  EXPECT_NE(said().find("views of 111 bytes"), std::string::npos) << said();
  options.view_bytes_max = UINT64_MAX;
  EXPECT_EQ(open(), OFP_INVALID);
  options.view_bytes_max = 0;
  agent->refusal = fail(Error::not_found, "no exchange");
  EXPECT_EQ(open(), OFP_NOT_FOUND);
  EXPECT_EQ(said(), "no exchange");
  EXPECT_EQ(exchange, nullptr);
  EXPECT_TRUE(agent->areas.empty());
  agent->refusal = {};
  EXPECT_EQ(open(), OFP_OK) << said();
  EXPECT_EQ(agent->areas.size(), 1u);
}

TEST_F(ExchangeCalls, HandlesThatAreNoneAreNamed) {
  std::uint64_t amount = 0;
  ofp_view* given = nullptr;
  ofp_exchange_info info{};
  ofp_view_info view_info{};
  ofp_view_entry entry{};
  ofp_view_figure figure{};
  ofp_field field{};
  const auto never_called = [](void*, ofp_exchange*, const ofp_view*) { return 1; };
  EXPECT_EQ(ofp_exchange_info_get(nullptr, &info, &error), OFP_INVALID);
  EXPECT_EQ(said(), "exchange is NULL");
  EXPECT_EQ(ofp_exchange_publish(nullptr, &amount, 8, &error), OFP_INVALID);
  EXPECT_EQ(ofp_exchange_view(nullptr, 0, &given, &error), OFP_INVALID);
  EXPECT_EQ(ofp_exchange_grant(nullptr, nullptr, nullptr, 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_exchange_granted(nullptr, &amount, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_exchange_run(nullptr, nullptr, never_called, nullptr, 0, &error), OFP_INVALID);
  EXPECT_EQ(ofp_exchange_member(nullptr, 0), nullptr);
  EXPECT_EQ(ofp_exchange_reduction(nullptr, 0), nullptr);
  EXPECT_EQ(ofp_exchange_field(nullptr, 0, &field), OFP_NOT_FOUND);
  EXPECT_EQ(ofp_view_info_get(nullptr, &view_info, &error), OFP_INVALID);
  EXPECT_EQ(said(), "view is NULL");
  EXPECT_EQ(ofp_view_entry_get(nullptr, 0, &entry), OFP_NOT_FOUND);
  EXPECT_EQ(ofp_view_figure_get(nullptr, 0, &figure), OFP_NOT_FOUND);
  ofp_exchange_close(nullptr);
  ofp_view_free(nullptr);
}

TEST_F(ExchangeCalls, WhatThereIsHasAnEnd) {
  ASSERT_EQ(open(), OFP_OK) << said();
  ofp_exchange_info info{};
  EXPECT_EQ(ofp_exchange_info_get(exchange, &info, &error), OFP_INVALID);
  EXPECT_NE(said().find("ofp_exchange_info.struct_bytes is 0"), std::string::npos) << said();
  EXPECT_EQ(ofp_exchange_info_get(exchange, nullptr, &error), OFP_INVALID);
  info.struct_bytes = sizeof info;
  ASSERT_EQ(ofp_exchange_info_get(exchange, &info, &error), OFP_OK) << said();
  ASSERT_EQ(info.members, 2u);
  EXPECT_STREQ(ofp_exchange_member(exchange, 1), "there");
  EXPECT_EQ(ofp_exchange_member(exchange, 2), nullptr);
  ofp_field field{};
  ASSERT_EQ(info.fields, 2u);
  EXPECT_EQ(ofp_exchange_field(exchange, 1, nullptr), OFP_NOT_FOUND);
  ASSERT_EQ(ofp_exchange_field(exchange, 1, &field), OFP_OK);
  EXPECT_STREQ(field.name, "jobs");
  EXPECT_EQ(ofp_exchange_field(exchange, 2, &field), OFP_NOT_FOUND);
  ASSERT_EQ(info.reductions, 1u);
  EXPECT_STREQ(ofp_exchange_reduction(exchange, 0), "sum(power)");
  EXPECT_EQ(ofp_exchange_reduction(exchange, 1), nullptr);
}

TEST_F(ExchangeCalls, RecordsOfTheWrongLengthAndOfNobodyAreRefused) {
  const std::vector<std::byte> record(65);
  ASSERT_EQ(open(), OFP_OK) << said();
  EXPECT_EQ(ofp_exchange_publish(exchange, record.data(), 64, &error), OFP_INVALID);
  EXPECT_EQ(said(), "this exchange was opened without publish");
  ofp_exchange_close(exchange);
  EXPECT_TRUE(agent->areas.empty());
  options.record_bytes_max = 32;
  open_publishing();
  EXPECT_EQ(ofp_exchange_publish(exchange, nullptr, 8, &error), OFP_INVALID);
  EXPECT_EQ(said(), "record is NULL");
  EXPECT_EQ(ofp_exchange_publish(exchange, record.data(), 33, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("a record of 33 bytes; the exchange was opened with at most 32"), std::string::npos) << said();
  EXPECT_EQ(ofp_exchange_publish(exchange, record.data(), 32, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_exchange_publish(exchange, nullptr, 0, &error), OFP_OK) << said();
}

TEST_F(ExchangeCalls, ViewsAndGrantsBeforeThereAreAny) {
  open_publishing();
  EXPECT_EQ(ofp_exchange_view(exchange, 0, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "view is NULL");
  EXPECT_EQ(view(0), OFP_WOULD_BLOCK);
  EXPECT_EQ(view(millisecond_ns), OFP_TIMEOUT);
  std::uint64_t amount = 1;
  std::int64_t left_ns = 1;
  EXPECT_EQ(ofp_exchange_granted(exchange, nullptr, &left_ns, &error), OFP_INVALID);
  EXPECT_EQ(said(), "amount is NULL");
  EXPECT_EQ(ofp_exchange_granted(exchange, &amount, &left_ns, &error), OFP_OK) << said();
  EXPECT_EQ(amount, 0u);
  EXPECT_EQ(left_ns, 0);
  const std::uint32_t member = 1;
  const std::uint64_t target = 40;
  EXPECT_EQ(ofp_exchange_grant(exchange, nullptr, &target, 1, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "members is NULL");
  EXPECT_EQ(ofp_exchange_grant(exchange, &member, nullptr, 1, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "amounts is NULL");
  EXPECT_TRUE(agent->targets.empty());
  std::uint32_t may_grant = 0;
  EXPECT_EQ(ofp_exchange_grant(exchange, &member, &target, 1, &may_grant, &error), OFP_OK) << said();
  EXPECT_EQ(may_grant, 1u);
  ASSERT_EQ(agent->targets.size(), 1u);
  EXPECT_EQ(agent->targets[0].amount, 40u);
}

TEST_F(ExchangeCalls, AWaitForAViewEndsInTimeThoughTheAgentDoesNotAnswerAndIsOneRequest) {
  ASSERT_EQ(open(), OFP_OK) << said();
  agent->holds_views = true;
  ofp_channel_info info{};
  info.struct_bytes = sizeof info;
  const auto posted = [&] {
    EXPECT_EQ(ofp_channel_info_get(channel, &info, &error), OFP_OK) << said();
    return info.posted;
  };
  const std::uint64_t before = posted();
  for (int i = 0; i < 2000; ++i) {
    const TimeNs began = fabric->now();
    ASSERT_EQ(view(150 * millisecond_ns), OFP_TIMEOUT);
    ASSERT_EQ(fabric->now() - began, 150 * millisecond_ns);
  }
  EXPECT_LE(posted() - before, 2u) << "the wait, and a wake";
  show(std::vector<std::byte>(sizeof(wire::ViewHead)));
  EXPECT_EQ(view(second_ns), OFP_OK) << said();
  EXPECT_EQ(view(millisecond_ns), OFP_TIMEOUT) << "the answer for a view that was given is for no other";
  agent->show_view(std::vector<std::byte>(sizeof(wire::ViewHead)));
  EXPECT_EQ(view(OFP_FOREVER), OFP_OK) << said();
}

TEST_F(ExchangeCalls, ARunThatMakesNoSenseEnds) {
  const auto too_many = [](void*, void*, std::uint64_t most) { return most + 1; };
  const auto one = [](void*, void*, std::uint64_t) { return std::uint64_t{8}; };
  const auto ends = [](void*, ofp_exchange*, const ofp_view*) { return 1; };
  ASSERT_EQ(open(), OFP_OK) << said();
  EXPECT_EQ(ofp_exchange_run(exchange, nullptr, nullptr, nullptr, 0, &error), OFP_INVALID);
  EXPECT_EQ(said(), "on_view is NULL");
  EXPECT_EQ(ofp_exchange_run(exchange, one, ends, nullptr, second_ns, &error), OFP_INVALID);
  EXPECT_EQ(said(), "this exchange was opened without publish");
  EXPECT_EQ(ofp_exchange_run(exchange, too_many, ends, nullptr, second_ns, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("65 bytes in 64"), std::string::npos) << said();
  EXPECT_EQ(ofp_exchange_run(exchange, nullptr, ends, nullptr, millisecond_ns, &error), OFP_TIMEOUT) << said();
  show(std::vector<std::byte>(sizeof(wire::ViewHead)));
  EXPECT_EQ(ofp_exchange_run(exchange, nullptr, ends, nullptr, second_ns, &error), OFP_OK) << said();
}

TEST_F(ExchangeCalls, AViewWhoseRowsLieOutsideOfItIsRefused) {
  ASSERT_EQ(open(), OFP_OK) << said();
  const auto shown = [&](wire::ViewHead head, const std::vector<wire::ViewEntryRow>& rows) {
    std::vector<std::byte> bytes(sizeof head + rows.size() * sizeof(wire::ViewEntryRow) + 8);
    head.tree = agent->exchange.tree;
    store(bytes.data(), head);
    for (std::size_t i = 0; i < rows.size(); ++i) store(bytes.data() + sizeof head + i * sizeof rows[i], rows[i]);
    show(std::move(bytes));
    return view(second_ns);
  };
  wire::ViewHead head{};
  head.entries = 1;
  wire::ViewEntryRow row{1, wire::entry_has_value, 1, 0, sizeof head + sizeof row, 8};
  EXPECT_EQ(shown(head, {row}), OFP_OK) << said();
  row.length = 9;
  EXPECT_EQ(shown(head, {row}), OFP_PROTOCOL);
  EXPECT_NE(said().find("the record of member 1 lies outside of its view"), std::string::npos) << said();
  row.offset = UINT64_MAX - 4;
  EXPECT_EQ(shown(head, {row}), OFP_PROTOCOL);
}

TEST_F(ExchangeCalls, TooManyRowsAndTooLongViewsAreRefused) {
  ASSERT_EQ(open(), OFP_OK) << said();
  wire::ViewHead head{};
  head.entries = UINT32_MAX;
  std::vector<std::byte> bytes(sizeof head);
  store(bytes.data(), head);
  show(bytes);
  EXPECT_EQ(view(second_ns), OFP_PROTOCOL);
  EXPECT_NE(said().find("has rows up to"), std::string::npos) << said();
  head.entries = 0;
  head.length = UINT64_MAX;
  store(bytes.data(), head);
  show(bytes);
  EXPECT_EQ(view(second_ns), OFP_PROTOCOL);
  EXPECT_NE(said().find("is said to have"), std::string::npos) << said();
}

TEST_F(ExchangeCalls, AnExchangeOutlivesItsChannel) {
  open_publishing();
  auto* other = new ofp_channel{channel->connection};
  ofp_close(other);
  EXPECT_EQ(view(second_ns), OFP_CLOSED) << said();
  const std::uint32_t member = 0;
  const std::uint64_t amount = 1;
  EXPECT_EQ(ofp_exchange_grant(exchange, &member, &amount, 1, nullptr, &error), OFP_CLOSED) << said();
  EXPECT_STREQ(ofp_exchange_member(exchange, 0), "here");
}

}  // namespace
}  // namespace offpath::host
