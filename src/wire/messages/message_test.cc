#include "wire/messages/message.h"

#include <gtest/gtest.h>

#include <optional>

#include "wire/cursor.h"
#include "wire/slot.h"

namespace offpath::wire {
namespace {

template <class Message>
std::vector<std::byte> bytes_of_message(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  return bytes;
}

// Every message survives encoding and decoding; every truncated one, and every one with an extra byte, is refused.
template <class Message>
Message there_and_back(const Message& message, std::vector<std::byte>& kept) {
  kept = bytes_of_message(message);
  Message back{};
  const auto status = decode(kept, back);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  for (std::size_t length = 0; length < kept.size(); ++length) {
    Message shortened{};
    EXPECT_FALSE(decode(Bytes(kept).first(length), shortened)) << "of " << kept.size() << " bytes, " << length;
  }
  auto longer = kept;
  longer.push_back(std::byte{1});
  Message other{};
  EXPECT_FALSE(decode(longer, other));
  return back;
}

TEST(Message, RangesAndSteps) {
  std::vector<std::byte> kept;
  const auto announce = there_and_back(AnnounceRange{5, 6, 7, 8, 9}, kept);
  EXPECT_EQ(announce.range, 5u);
  EXPECT_EQ(announce.generation, 6u);
  EXPECT_EQ(announce.base, 7u);
  EXPECT_EQ(announce.length, 8u);
  EXPECT_EQ(announce.key, 9u);
  EXPECT_EQ(there_and_back(RetireRange{1, 2}, kept).generation, 2u);
  EXPECT_EQ(there_and_back(StepEnd{3, "step7"}, kept).row_key, "step7");
  EXPECT_EQ(there_and_back(WakeAt{3, WakeWord::credit, 99}, kept).value, 99u);
  EXPECT_EQ(there_and_back(NeedCredit{3, 1ull << 40}, kept).total, 1ull << 40);
  EXPECT_EQ(there_and_back(WhyWaits{3, 1ull << 40}, kept).ticket, 1ull << 40);
  EXPECT_EQ(there_and_back(GrowStream{3, 1ull << 40}, kept).rows_max, 1ull << 40);
}

TEST(Message, AnnouncingASegmentAsARangeIsRefused) {
  AnnounceRange back{};
  const auto status = decode(bytes_of_message(AnnounceRange{segment_flag | 1, 1, 1, 1, 0}), back);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Error::protocol);
}

TEST(Message, Streams) {
  std::vector<std::byte> kept;
  const std::vector<std::byte> schema(100, std::byte{7});
  const auto open = there_and_back(
      OpenStream{4, Destination::c_abi, 1000, 3, 8, 2, "particles", "local:/particles", schema, Compression::lz4},
      kept);
  EXPECT_EQ(open.destination, Destination::c_abi);
  EXPECT_EQ(open.compression, Compression::lz4);
  EXPECT_EQ(open.rows_max, 1000u);
  EXPECT_EQ(open.keep, 3u);
  EXPECT_EQ(open.ranks, 8u);
  EXPECT_EQ(open.rank, 2u);
  EXPECT_EQ(open.name, "particles");
  EXPECT_EQ(open.pool, "local:/particles");
  EXPECT_EQ(open.schema.size(), 100u);
  EXPECT_EQ(there_and_back(CloseStream{4}, kept).stream, 4u);
}

TEST(Message, SendCarriesBuffersAndNodes) {
  std::vector<std::byte> kept;
  Send send{1, 8192, 100, "step0", "rank0", {{100, 0}, {100, -1}}, {}};
  send.buffers.push_back(
      {.region = 3, .generation = 2, .offset = 64, .length = 800, .stride_bytes = 24, .bit_offset = 5});
  const auto back = there_and_back(send, kept);
  EXPECT_EQ(back.charge, 8192u);
  EXPECT_EQ(back.rows, 100u);
  EXPECT_EQ(back.row_key, "step0");
  EXPECT_EQ(back.column_key, "rank0");
  ASSERT_EQ(back.nodes.size(), 2u);
  EXPECT_EQ(back.nodes[1].null_count, -1);
  ASSERT_EQ(back.buffers.size(), 1u);
  EXPECT_EQ(back.buffers[0].stride_bytes, 24u);
  EXPECT_EQ(back.buffers[0].bit_offset, 5);
}

TEST(Message, SetsOfBuffersHaveANumberAndABound) {
  std::vector<std::byte> kept;
  Send send{1, 8192, 100, "step0", "", {}, {}};
  send.set = sets_max;
  EXPECT_EQ(there_and_back(send, kept).set, sets_max);
  send.buffers.resize(set_buffers_max);
  EXPECT_EQ(there_and_back(send, kept).buffers.size(), set_buffers_max);
  const auto refusal = [](const Send& sent) {
    Send back{};
    const auto status = decode(bytes_of_message(sent), back);
    return status ? std::string("taken") : status.error().message;
  };
  send.buffers.resize(set_buffers_max + 1);
  EXPECT_EQ(refusal(send), "buffer set 32 would have 65 buffers, at most 64 are allowed");
  send.buffers.clear();
  send.set = sets_max + 1;
  EXPECT_EQ(refusal(send), "a send names buffer set 33, the last one is 32");
  send.set = 1;
  send.nodes = {{100, 0}};
  EXPECT_EQ(refusal(send), "a send with nodes names buffer set 1");
}

TEST(Message, TheLargestSendFitsAnEntry) {
  Send send{1, 0, 1, std::string_view(), std::string_view(), {}, {}};
  const std::string key(key_bytes_max, 'k');
  send.row_key = send.column_key = key;
  send.buffers.resize(buffers_max);
  send.nodes.resize(buffers_max);
  EXPECT_LE(bytes_of_message(send).size(), entry_bytes_max);
  Send taken{};
  const std::vector<std::byte> bytes = bytes_of_message(send);
  ASSERT_TRUE(decode(bytes, taken));
  EXPECT_EQ(taken.column_key, key);
  EXPECT_EQ(taken.nodes.size(), buffers_max);
  send.nodes.clear();
  send.buffers.resize(buffers_max + 1);
  Send back{};
  const auto status = decode(bytes_of_message(send), back);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("2801"), std::string::npos) << status.error().message;
}

TEST(Message, ASendIsWrittenInPlaceAsItIsEncoded) {
  const std::vector<BufferRef> buffers{{.region = 1, .generation = 2, .offset = 3, .length = 4, .stride_bytes = 5},
                                       {.region = segment_flag, .length = 9, .bit_offset = 7}};
  for (const std::string_view key : {"", "a longer key"}) {
    const Send send{7, 1ull << 40, 100, key, "c", {}, buffers, 3};
    std::vector<std::byte> written(sizeof(SendHead) + key.size() + 1 + buffers.size() * sizeof(BufferRef));
    write_send({7, 0, 2, 3, static_cast<std::uint32_t>(key.size()), 1, 1ull << 40, 100}, key, "c", buffers,
               written.data());
    EXPECT_EQ(written, bytes_of_message(send));
  }
}

TEST(Message, KeysHaveUpTo64KiB) {
  std::vector<std::byte> kept;
  for (const std::size_t length : {255u, 256u, 65534u, 65535u, 65536u}) {
    const std::string row(length, 'r'), column(length, 'c');
    const auto get = there_and_back(PoolGet{"local:/p", row, column, -1}, kept);
    EXPECT_EQ(get.row_key, row);
    EXPECT_EQ(get.column_key, column);
    EXPECT_EQ(get.wait_ns, -1);
    const auto send = there_and_back(Send{65535, 8192, 100, row, column, {}, {}}, kept);
    EXPECT_EQ(send.stream, 65535u);
    EXPECT_EQ(send.row_key, row);
    EXPECT_EQ(send.column_key, column);
    EXPECT_EQ(there_and_back(StepEnd{3, row}, kept).row_key, row);
    EXPECT_EQ(there_and_back(Listed{false, {{1, 2, 3, true, row, column}}}, kept).entries.at(0).column_key, column);
  }
  const std::string longer(65537, 'k');
  const auto refusal = [](const auto& message) {
    auto back = message;
    const auto status = decode(bytes_of_message(message), back);
    return status ? std::string("taken") : status.error().message;
  };
  EXPECT_EQ(refusal(PoolGet{"local:/p", longer, "c", 0}),
            "get: the row key has 65537 bytes, at most 65536 are allowed");
  EXPECT_EQ(refusal(PoolGet{"local:/p", "r", longer, 0}),
            "get: the column key has 65537 bytes, at most 65536 are allowed");
  EXPECT_EQ(refusal(Send{1, 0, 0, "r", longer, {}, {}}),
            "send: the column key has 65537 bytes, at most 65536 are allowed");
  EXPECT_EQ(refusal(PeerStepEnd{5, 1, 2, "p", longer}),
            "end of step of a member: the row key has 65537 bytes, at most 65536 are allowed");
}

TEST(Message, ATextHasOneWayToSayItsLength) {
  std::vector<std::byte> bytes;
  Writer writer(bytes);
  writer.put(std::uint32_t{3});
  writer.put(std::uint16_t{0xFFFF});
  writer.put(std::uint32_t{2});
  writer.put_bytes(bytes_of("ab"));
  StepEnd back{};
  const auto status = decode(bytes, back);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Error::protocol);
}

TEST(Message, MovesAndPools) {
  std::vector<std::byte> kept;
  Move move{1, true, 4096, 1 << 20, "row", "column", {}};
  move.pieces.push_back({{.region = 1, .generation = 1, .offset = 0, .length = 10}, 4000});
  const auto back = there_and_back(move, kept);
  EXPECT_TRUE(back.update);
  EXPECT_EQ(back.object_bytes, 1u << 20);
  ASSERT_EQ(back.pieces.size(), 1u);
  EXPECT_EQ(back.pieces[0].target_offset, 4000u);
  EXPECT_EQ(there_and_back(PoolGet{"local:/p", "r", "c", -1}, kept).wait_ns, -1);
  EXPECT_EQ(there_and_back(PoolList{"local:/p", "*", "a?", 12}, kept).after, 12u);
  EXPECT_EQ(there_and_back(PoolDrop{"local:/p", "*", ""}, kept).row_glob, "*");
  EXPECT_EQ(there_and_back(PoolWrite{"local:/p", 3}, kept).offer, 3u);
  EXPECT_EQ(there_and_back(Release{77}, kept).lease, 77u);
  EXPECT_EQ(there_and_back(PoolCancel{78}, kept).ticket, 78u);
}

TEST(Message, OfMembersForTheirPools) {
  std::vector<std::byte> kept;
  const BufferRef at{.region = segment_flag | 1, .generation = 2, .offset = 64, .length = 9};
  const auto put = there_and_back(PeerPut{1000, 1001, 7, 8, 9, 10, 12, true, false, true, 11, at, "hash:/p?replicas=2",
                                          "r", "c", 13, bytes_of("over")},
                                  kept);
  EXPECT_EQ(put.writer, 7u);
  EXPECT_TRUE(put.arrow && put.moved && !put.hidden);
  EXPECT_EQ(put.offer, 11u);
  EXPECT_EQ(put.object.offset, 64u);
  EXPECT_EQ(put.pool, "hash:/p?replicas=2");
  EXPECT_EQ(put.counter, 13u);
  EXPECT_EQ(text_of(put.over), "over");
  const std::string digests(compared_parts * 8, 'd');
  EXPECT_EQ(there_and_back(PeerCompare{1000, 6, "dpu1", "hash:/p", bytes_of(digests)}, kept).view, 6u);
  PeerCompare fewer{};
  EXPECT_FALSE(decode(bytes_of_message(PeerCompare{1000, 6, "dpu1", "hash:/p", bytes_of("d")}), fewer));
  const auto get = there_and_back(PeerGet{1000, 1001, -1, 5, at, "dpu1", "hash:/p", "r", "c"}, kept);
  EXPECT_EQ(get.wait_ns, -1);
  EXPECT_EQ(get.reader, "dpu1");
  EXPECT_EQ(get.inbox.length, 9u);
  const auto delivery = there_and_back(PeerDeliver{5, 6, true, 0, at}, kept);
  EXPECT_EQ(delivery.rows, 6u);
  EXPECT_EQ(delivery.object.region, segment_flag | 1);
  EXPECT_EQ(there_and_back(PeerList{1000, 12, "hash:/p", "*", ""}, kept).after, 12u);
  EXPECT_EQ(there_and_back(PeerDrop{1000, "hash:/p", "*", "c"}, kept).column_glob, "c");
  EXPECT_EQ(there_and_back(PeerStepEnd{1000, 1, 4, "hash:/p", "r"}, kept).ranks, 4u);
  EXPECT_EQ(there_and_back(PeerDefine{1000, "hash:/p"}, kept).user, 1000u);
  const auto query = there_and_back(PeerQuery{1000, 1001, -1, 5, 6, at, "hash:/p", "r*", "c"}, kept);
  EXPECT_EQ(query.view, 6u);
  EXPECT_EQ(query.query.length, 9u);
  EXPECT_EQ(query.row_glob, "r*");
  const auto next = there_and_back(PeerQueryNext{5, 6, 7, at, "dpu1"}, kept);
  EXPECT_EQ(next.delivery, 7u);
  EXPECT_EQ(next.reader, "dpu1");
  EXPECT_EQ(there_and_back(PeerCancel{PeerCancel::What::computation, 8}, kept).number, 8u);
  const auto gauges = there_and_back(GaugesOpen{at, "solver", bytes_of("schema")}, kept);
  EXPECT_EQ(gauges.memory.region, at.region);
  EXPECT_EQ(gauges.name, "solver");
  EXPECT_EQ(text_of(gauges.schema), "schema");
  EXPECT_EQ(there_and_back(GaugesClose{3}, kept).number, 3u);
  PeerCancel unknown{};
  EXPECT_FALSE(decode(bytes_of_message(PeerCancel{static_cast<PeerCancel::What>(5), 8}), unknown));
  const std::string name(pool_bytes_max + 1, 'p');
  const PeerPut long_name{1000, 1001, 7, 8, 9, 10, 12, true, false, true, 11, at, name, "r", "c", 13, {}};
  PeerPut refused{};
  EXPECT_EQ(decode(bytes_of_message(long_name), refused).error().message,
            "put of a member: the pool's name has 1025 bytes, at most 1024 are allowed");
}

TEST(Message, Replies) {
  std::vector<std::byte> kept;
  const auto failed = there_and_back(Failed{2, Error::stale, "range 3 is gone"}, kept);
  EXPECT_EQ(failed.code, Error::stale);
  EXPECT_EQ(failed.message, "range 3 is gone");
  EXPECT_EQ(there_and_back(Opened{2, 8192}, kept).charge_base, 8192u);
  EXPECT_EQ(there_and_back(Probed{-5}, kept).seen_ns, -5);
  EXPECT_EQ(there_and_back(Got{Got::How::pushed, true, 1, 2, 3}, kept).rows, 3u);
  const std::vector<std::byte> object(enclosed_bytes_max, std::byte{7});
  const Got enclosed = there_and_back(Got{Got::How::enclosed, false, 0, object.size(), 0, object}, kept);
  EXPECT_TRUE(std::ranges::equal(enclosed.bytes, object));
  const auto listed = there_and_back(Listed{true, {{1, 2, 3, true, "r", "c", "m"}, {4, 5, 6, false, "", ""}}, 9}, kept);
  EXPECT_TRUE(listed.more);
  EXPECT_EQ(listed.view, 9u);
  ASSERT_EQ(listed.entries.size(), 2u);
  EXPECT_EQ(listed.entries[0].column_key, "c");
  EXPECT_EQ(listed.entries[0].member, "m");
  EXPECT_EQ(there_and_back(Done{42}, kept).value, 42u);
}

TEST(Message, WhatIsEnclosedIsTheWholeObjectAndSmall) {
  const std::vector<std::byte> object(enclosed_bytes_max + 1);
  const auto refusal = [](const Got& sent) {
    std::vector<std::byte> bytes;
    encode(sent, bytes);
    Got back{};
    return decode(bytes, back).error().message;
  };
  EXPECT_NE(refusal({Got::How::enclosed, false, 0, object.size(), 0, object}).find("1025 bytes enclosed"),
            std::string::npos);
  EXPECT_NE(
      refusal({Got::How::enclosed, false, 0, 8, 0, Bytes(object).first(7)}).find("7 bytes enclosed of an object of 8"),
      std::string::npos);
  EXPECT_NE(refusal({Got::How::descriptor, false, 1, 7, 0, Bytes(object).first(7)}).find("7 bytes enclosed"),
            std::string::npos);
}

TEST(Message, Members) {
  std::vector<std::byte> kept;
  const auto post =
      there_and_back(PostTable{{.region = segment_flag | 1, .generation = 0, .offset = 64, .length = 9}, {}}, kept);
  EXPECT_EQ(post.table.region, segment_flag | 1);
  EXPECT_EQ(post.table.offset, 64u);
  EXPECT_EQ(post.table.length, 9u);
  EXPECT_TRUE(post.enclosed.empty());
  const std::vector<std::byte> small(enclosed_bytes_max, std::byte{7}), large(enclosed_bytes_max + 1);
  EXPECT_EQ(there_and_back(PostTable{{}, small}, kept).enclosed.size(), small.size());
  using State = MemberEntry::State;
  const auto table = there_and_back(
      MemberTable{"b",
                  77,
                  5,
                  {{State::suspect, 1, 2, 3, "a", "unix:/a", "", "", ""},
                   {State::dead, 4, 5, 6, "b", "tcp:b:1", "b:2", "b:3", "h", "r", MemberEntry::Role::dpu}}},
      kept);
  EXPECT_EQ(table.sender, "b");
  EXPECT_EQ(table.digest, 77u);
  EXPECT_EQ(table.members, 5u);
  ASSERT_EQ(table.entries.size(), 2u);
  EXPECT_EQ(table.entries[1].state, State::dead);
  EXPECT_EQ(table.entries[1].incarnation, 4u);
  EXPECT_EQ(table.entries[1].process, 5u);
  EXPECT_EQ(table.entries[1].refuted, 6u);
  EXPECT_EQ(table.entries[1].http, "b:2");
  EXPECT_EQ(table.entries[1].flight, "b:3");
  EXPECT_EQ(table.entries[1].host, "h");
  EXPECT_EQ(table.entries[1].rack, "r");
  EXPECT_EQ(table.entries[1].role, MemberEntry::Role::dpu);
  EXPECT_EQ(table.entries[0].role, MemberEntry::Role::host);
  EXPECT_EQ(there_and_back(GroupMembers{"a"}, kept).after, "a");
  const auto asked = there_and_back(ListResources{"b", "/pools", "/pools/x", 9, -1}, kept);
  EXPECT_EQ(asked.member, "b");
  EXPECT_EQ(asked.path, "/pools");
  EXPECT_EQ(asked.after, "/pools/x");
  EXPECT_EQ(asked.seen, 9u);
  EXPECT_EQ(asked.wait_ns, -1);
  const auto passed_on = there_and_back(PeerResources{1000, 3, "/pools", "", 9, 5}, kept);
  EXPECT_EQ(passed_on.user, 1000u);
  EXPECT_EQ(passed_on.number, 3u);
  EXPECT_EQ(passed_on.path, "/pools");

  const auto refusal = [](const auto& message) {
    auto back = message;
    const auto status = decode(bytes_of_message(message), back);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(refusal(PostTable{{.region = 1, .generation = 1, .offset = 0, .length = member_table_bytes_max + 1}, {}}),
            "a table of members of 2097153 bytes, at most 2097152 are allowed");
  EXPECT_EQ(refusal(PostTable{{}, large}), "a table of members encloses 1025 bytes, at most 1024 are allowed");
  EXPECT_EQ(refusal(MemberTable{"b", 0, 1, {{State::alive, 1, 2, 3, "", "", "", "", ""}}}),
            "table of members: one has no name");
  EXPECT_EQ(refusal(MemberTable{"b", 0, 1, {{static_cast<State>(4), 1, 2, 3, "a", "", "", "", ""}}}),
            "table of members: state number 4, the last one is 3");
  EXPECT_EQ(refusal(MemberTable{"a", 0, 1, {{State::alive, 1, 2, 3, "a", "", "", "", "", "r&stage1=x"}}}),
            "table of members: one is in no rack that has a name");
  EXPECT_EQ(refusal(MemberTable{"a", 0, 1, {{State::alive, 1, 2, 3, "a", "", "", "", "", "r_1.A-b"}}}), "");
  const std::vector<MemberEntry> many(members_max + 1, MemberEntry{State::alive, 1, 2, 3, "a", "", "", "", ""});
  EXPECT_EQ(refusal(MemberTable{"b", 0, 1025, many}), "a table of 1025 members, at most 1024 are allowed");
}

TEST(Message, AnUnknownErrorOfTheOtherSideIsAProtocolError) {
  Failed back{};
  ASSERT_TRUE(decode(bytes_of_message(Failed{0, static_cast<Error>(12345), "?"}), back));
  EXPECT_EQ(back.code, Error::protocol);
}

TEST(Message, DestinationsAndCompressionsHaveNamesThatComeBack) {
  for (int i = 0; i < destinations; ++i) {
    const auto parsed = parse_destination(destination_name(static_cast<Destination>(i)));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(static_cast<int>(*parsed), i);
  }
  for (int i = 0; i < compressions; ++i) {
    const auto parsed = parse_compression(compression_name(static_cast<Compression>(i)));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(static_cast<int>(*parsed), i);
  }
  const auto unknown_compression = parse_compression("snappy");
  ASSERT_FALSE(unknown_compression);
  EXPECT_EQ(unknown_compression.error().message, "compression \"snappy\" is unknown; known are none, lz4, zstd");
  const auto unknown = parse_destination("parquet");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("\"parquet\" is unknown; known are native"), std::string::npos);
}

TEST(Message, Tasks) {
  std::vector<std::byte> kept;
  const BufferRef lines{.region = segment_flag | 3, .generation = 0, .offset = 128, .length = 640};
  const auto open = there_and_back(TaskOpen{2, 8, lines, {{"mine", "/lib/mine.so"}}}, kept);
  EXPECT_EQ(open.lane, 2u);
  EXPECT_EQ(open.lanes, 8u);
  EXPECT_EQ(open.lines.offset, 128u);
  ASSERT_EQ(open.plugins.size(), 1u);
  EXPECT_EQ(open.plugins[0].name, "mine");
  EXPECT_EQ(open.plugins[0].path, "/lib/mine.so");
  const std::vector<std::byte> arguments(9, std::byte{3});
  const BufferRef source{.region = 4, .generation = 1, .offset = 8, .length = 100},
      target{.region = segment_flag | 1, .generation = 0, .offset = 64, .length = 50};
  const auto run = there_and_back(
      TaskRun{7, 3, -1, "md", "force", {11, 12}, {{source, 100, 6, 5, 40, 60, "x"}}, {{target, 50, 9, "f"}}, arguments},
      kept);
  EXPECT_EQ(run.session, 7u);
  EXPECT_EQ(run.line, 3u);
  EXPECT_EQ(run.function, "force");
  EXPECT_EQ(run.after, (std::vector<std::uint64_t>{11, 12}));
  ASSERT_EQ(run.inputs.size(), 1u);
  EXPECT_EQ(run.inputs[0].changed_at, 40u);
  EXPECT_EQ(run.inputs[0].name, "x");
  ASSERT_EQ(run.outputs.size(), 1u);
  EXPECT_EQ(run.outputs[0].version, 9u);
  EXPECT_EQ(run.arguments.size(), 9u);
  EXPECT_EQ(there_and_back(TaskWait{5}, kept).ticket, 5u);
  EXPECT_EQ(there_and_back(TaskCancel{6}, kept).ticket, 6u);
  EXPECT_EQ(there_and_back(TaskClose{7}, kept).session, 7u);
  EXPECT_EQ(there_and_back(TaskOpen{2, 8, lines, {}, "job"}, kept).team, "job");
  const auto table = there_and_back(LaneTable{{{1000, 5, 1, 2, "job"}, {1001, 6, 0, 1, "other"}}}, kept);
  ASSERT_EQ(table.entries.size(), 2u);
  EXPECT_EQ(table.entries[1].session, 6u);
  EXPECT_EQ(table.entries[1].team, "other");
  const auto told =
      there_and_back(PeerLanes{11, 12, {.region = 1, .generation = 2, .offset = 3, .length = 4}, "dpu"}, kept);
  EXPECT_EQ(told.version, 12u);
  EXPECT_EQ(told.sender, "dpu");
  const auto wanted = there_and_back(PeerReceive{1000, 1, 2, 3, 4, 9, 5, 6, 7, "dpu", "job"}, kept);
  EXPECT_EQ(wanted.got, 4u);
  EXPECT_EQ(wanted.to, 6u);
  EXPECT_EQ(wanted.tag, 7u);
  EXPECT_EQ(wanted.team, "job");
  const auto message = there_and_back(PeerMessage{1, 2, 3, 0, {}, bytes_of(std::string_view("abc"))}, kept);
  EXPECT_EQ(message.message, 2u);
  EXPECT_EQ(text_of(message.bytes), "abc");
  const auto connections =
      there_and_back(TcpOpen{{.region = segment_flag | 2, .length = 1 << 20}, 1, 16, 32, 64, 1, 1000}, kept);
  EXPECT_EQ(connections.memory.region, segment_flag | 2);
  EXPECT_EQ(connections.event_slots, 32u);
  EXPECT_EQ(connections.flows, 64u);
  EXPECT_EQ(connections.user, 1000u);
  EXPECT_EQ(there_and_back(TcpClose{1}, kept).version, 1u);
  const auto slow_path =
      there_and_back(TcpSlowPathOpen{{.region = segment_flag | 3, .length = 1 << 21}, 1, 1 << 20}, kept);
  EXPECT_EQ(slow_path.memory.region, segment_flag | 3);
  EXPECT_EQ(slow_path.ring_bytes, 1u << 20);
  EXPECT_EQ(there_and_back(TaskDone{1, 2, 3, 4, 5, 6, {7, 8}}, kept).output_bytes, (std::vector<std::uint64_t>{7, 8}));
}

TEST(Message, TasksThatMakeNoSenseAreRefused) {
  const auto code_of = [](const auto& message) {
    auto back = message;
    const auto status = decode(bytes_of_message(message), back);
    return status ? std::optional<Error>() : std::optional(status.error().code);
  };
  const BufferRef lines{.region = segment_flag | 3, .generation = 0, .offset = 0, .length = 640},
      range{.region = 3, .generation = 1, .offset = 0, .length = 640};
  EXPECT_EQ(code_of(TaskOpen{8, 8, lines}), Error::invalid);
  EXPECT_EQ(code_of(TaskOpen{0, 1, range}), Error::protocol);
  EXPECT_EQ(code_of(TaskOpen{task_any_lane, 0, lines}), std::nullopt);
  EXPECT_EQ(code_of(TaskOpen{task_any_lane, 0, lines, {}, "job"}), Error::invalid);  // a team needs a lane
  EXPECT_EQ(code_of(TaskOpen{1, 2, lines, {}, "job"}), std::nullopt);
  EXPECT_EQ(code_of(LaneTable{{{1000, 5, 2, 2, "job"}}}), Error::protocol);
  EXPECT_EQ(code_of(LaneTable{{{1000, 5, 1, 2, ""}}}), Error::protocol);
  EXPECT_EQ(code_of(LaneTable{std::vector(lane_table_max + 1, LaneEntry{1000, 5, 1, 2, "job"})}), Error::too_large);
  EXPECT_EQ(
      code_of(PeerLanes{1, 1, {.region = 1, .generation = 1, .offset = 0, .length = lane_table_bytes_max + 1}, "dpu"}),
      Error::too_large);
  EXPECT_EQ(code_of(PeerReceive{1000, 1, 1, 0, 0, 2, 2, 0, 0, "dpu", "job"}), Error::protocol);
  EXPECT_EQ(code_of(PeerReceive{1000, 1, 1, 0, 0, 2, 0, 2, 0, "dpu", "job"}), Error::protocol);
  const std::vector<std::byte> bytes(message_enclosed_max + 1);
  EXPECT_EQ(code_of(PeerMessage{1, 1, bytes.size(), 0, {}, bytes}), Error::protocol);
  EXPECT_EQ(code_of(PeerMessage{1, 1, 10, 0, {}, Bytes(bytes).first(9)}), Error::protocol);
  EXPECT_EQ(code_of(PeerMessage{1, 1, 10, 0, {.region = 1, .generation = 1, .offset = 0, .length = 9}, {}}),
            Error::protocol);
  EXPECT_EQ(code_of(PeerMessage{1, 1, message_bytes_max + 1, 1, {}, {}}), Error::protocol);
  EXPECT_EQ(code_of(TaskOpen{task_any_lane, 0, lines, {{"mine", "mine.so"}}}), Error::invalid);
  EXPECT_EQ(code_of(TaskOpen{task_any_lane, 0, lines, std::vector(65, TaskPlugin{"mine", "/mine.so"})}),
            Error::too_large);
  TaskRun run{};
  run.outputs = {{range, 640, 0, "f"}};
  EXPECT_EQ(code_of(run), Error::denied);
  run.outputs.clear();
  run.inputs = {{{}, 8, 0, 0, 0, 0, "x"}};
  EXPECT_EQ(code_of(run), Error::invalid);
  run.inputs = {{range, 640, 2, 1, 600, 41, "x"}};
  EXPECT_EQ(code_of(run), Error::invalid);
  run.inputs = {{range, 641, 0, 0, 0, 0, "x"}};
  EXPECT_EQ(code_of(run), Error::protocol);
}

}  // namespace
}  // namespace offpath::wire
