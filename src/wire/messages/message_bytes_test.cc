// Every message byte by byte. If these bytes change, the protocol changes: raise protocol_version with them.
#include <gtest/gtest.h>

#include <array>

#include "wire/control.h"
#include "wire/messages/message.h"

namespace offpath::wire {
namespace {

template <class Message>
std::string bytes_of_message(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return hex;
}

template <class Message>
std::uint32_t checksum_of(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  return crc32c(bytes);
}

TEST(MessageBytes, OfSmallMessages) {
  EXPECT_EQ(bytes_of_message(AnnounceRange{5, 6, 7, 8, 9}), "05000000060000000700000000000000080000000000000009000000");
  EXPECT_EQ(bytes_of_message(RetireRange{1, 2}), "0100000002000000");
  EXPECT_EQ(bytes_of_message(CloseStream{4}), "04000000");
  EXPECT_EQ(bytes_of_message(GrowStream{4, 1ull << 40}), "040000000000000000010000");
  EXPECT_EQ(bytes_of_message(StepEnd{3, "s7"}), "0300000002007337");
  EXPECT_EQ(bytes_of_message(WakeAt{3, WakeWord::credit, 99}), "03000000026300000000000000");
  EXPECT_EQ(bytes_of_message(NeedCredit{3, 1ull << 40}), "030000000000000000010000");
  EXPECT_EQ(bytes_of_message(WhyWaits{3, 1ull << 40}), "030000000000000000010000");
  EXPECT_EQ(bytes_of_message(PoolGet{"p", "r", "c", -1}), "010070010072010063ffffffffffffffff");
  EXPECT_EQ(bytes_of_message(PoolList{"p", "*", "a?", 12}), "01007001002a0200613f0c00000000000000");
  EXPECT_EQ(bytes_of_message(PoolDrop{"p", "*", ""}), "01007001002a0000");
  EXPECT_EQ(bytes_of_message(PoolWrite{"p", 3}), "0100700300000000000000");
  EXPECT_EQ(bytes_of_message(SiftWrite{9, "p", "/d"}), "090000000000000001007002002f64");
  EXPECT_EQ(bytes_of_message(SiftWritten{4, 9, true}), "0400000000000000090000000000000001");
  EXPECT_EQ(bytes_of_message(PeerWrite{PeerWrite::What::publish, 5, 6, 3, 4, 9, "p", "/d"}),
            "02050000000000000006000000000000000300000000000000040000000000000009000000000000000"
            "1007002002f64");
  EXPECT_EQ(bytes_of_message(Written{true, 3, 2, 4, 5, 6}),
            "010300000002000000040000000000000005000000000000000600000000000000");
  EXPECT_EQ(bytes_of_message(PeerDefine{5, "p"}), "050000000000000001007000000000");
  EXPECT_EQ(bytes_of_message(PeerDefine{5, "p", bytes_of("abc")}), "050000000000000001007003000000616263");
  EXPECT_EQ(bytes_of_message(LaneTable{{{5, 6, 1, 2, "t"}}}),
            "01000000050000000000000006000000000000000100000002000000010074");
  EXPECT_EQ(bytes_of_message(PeerLanes{7, 8, {.region = 1, .generation = 2, .offset = 3, .length = 4}, "a"}),
            "07000000000000000800000000000000010000000200000003000000000000000400000000000000010061");
  EXPECT_EQ(bytes_of_message(PeerReceive{1, 2, 3, 4, 5, 6, 0, 1, 9, "b", "t"}),
            "0100000000000000020000000000000003000000000000000400000000000000050000000000000006000000000000000100000009"
            "000000010062010074");
  EXPECT_EQ(bytes_of_message(PeerMessage{1, 2, 1, 0, {}, bytes_of(std::string_view("x"))}),
            "0100000000000000020000000000000001000000000000000000000000000000000000000000000000000000000000000000000000"
            "0000000100000078");
  EXPECT_EQ(bytes_of_message(PeerStepEnd{5, 1, 2, "p", "r"}), "05000000000000000100000002000000010070010072");
  EXPECT_EQ(bytes_of_message(PeerDrop{5, "p", "*", ""}), "050000000000000001007001002a0000");
  EXPECT_EQ(bytes_of_message(PeerDeliver{1, 2, true, 3, {.region = 4, .generation = 5, .offset = 6, .length = 7}}),
            "01000000000000000200000000000000010300000000000000040000000500000006000000000000000700000000000000");
  EXPECT_EQ(bytes_of_message(PushLease{77, segment_flag | 2}), "4d0000000000000002000080");
  EXPECT_EQ(bytes_of_message(Release{77}), "4d00000000000000");
  EXPECT_EQ(bytes_of_message(PoolCancel{78}), "4e00000000000000");
  EXPECT_EQ(bytes_of_message(PostTable{{.region = segment_flag | 1, .generation = 0, .offset = 64, .length = 3}, {}}),
            "01000080000000004000000000000000030000000000000000000000");
  EXPECT_EQ(bytes_of_message(PostTable{{}, bytes_of(std::string_view("x"))}),
            "0000000000000000000000000000000000000000000000000100000078");
  EXPECT_EQ(
      bytes_of_message(MemberTable{
          "a", 9, 4, {{MemberEntry::State::dead, 1, 2, 3, "a", "unix:/a", "", "g", "h", "r", MemberEntry::Role::dpu}}}),
      "01006109000000000000000400000001000000030100000000000000020000000000000003000000000000000100610700756e6978"
      "3a2f61000001006701006801007201");
  EXPECT_EQ(bytes_of_message(ListResources{"b", "/p", "/p/a", 5, 6}),
            "01006202002f7004002f702f6105000000000000000600000000000000");
  EXPECT_EQ(bytes_of_message(PeerResources{7, 8, "/p", "", 5, 6}),
            "0700000000000000080000000000000002002f70000005000000000000000600000000000000");
  EXPECT_EQ(bytes_of_message(Failed{2, Error::stale, "gone"}), "02000000080000000400676f6e65");
  EXPECT_EQ(bytes_of_message(Opened{2, 8192}), "020000000020000000000000");
  EXPECT_EQ(bytes_of_message(Probed{-5}), "fbffffffffffffff");
  EXPECT_EQ(bytes_of_message(Got{Got::How::pushed, true, 1, 2, 3}),
            "010101000000000000000200000000000000030000000000000000000000");
  const std::array object{std::byte{0xaa}, std::byte{0xbb}};
  EXPECT_EQ(bytes_of_message(Got{Got::How::enclosed, false, 0, 2, 0, object}),
            "040000000000000000000200000000000000000000000000000002000000aabb");
  EXPECT_EQ(bytes_of_message(Done{42}), "2a00000000000000");
  EXPECT_EQ(bytes_of_message(Refusal{Error::denied, "no"}), "0b00000002006e6f");
  EXPECT_EQ(bytes_of_message(SegmentNotice{segment_flag | 3, 4096, 17, 5}),
            "030000800010000000000000110000000000000005000000");
  EXPECT_EQ(bytes_of_message(Outcome{7, {}}), "0700000000000000000000000000");
  EXPECT_EQ(bytes_of_message(Outcome{8, fail(Error::stale, "late")}), "08000000000000000800000004006c617465");
}

TEST(MessageBytes, OfLargeOnesByTheirChecksums) {
  const std::vector<std::byte> schema(100, std::byte{7});
  EXPECT_EQ(checksum_of(OpenStream{4, Destination::c_abi, 1000, 3, 8, 2, "particles", "local:/particles", schema}),
            0x9a87a6e3u);
  EXPECT_EQ(checksum_of(OpenStream{4, Destination::ipc, 1000, 3, 8, 2, "particles", "local:/particles", schema,
                                   Compression::zstd}),
            0xc7aff78eu);
  Send send{1, 8192, 100, "step0", "rank0", {{100, 0}, {100, -1}}, {}};
  send.buffers.push_back(
      {.region = 3, .generation = 2, .offset = 64, .length = 800, .stride_bytes = 24, .bit_offset = 5});
  EXPECT_EQ(checksum_of(send), 0x4ff10769u);
  send.nodes.clear();
  send.set = 3;
  EXPECT_EQ(checksum_of(send), 0xb426f1ccu);
  Move move{1, true, 4096, 1 << 20, "row", "column", {}};
  move.pieces.push_back({{.region = 1, .generation = 1, .offset = 0, .length = 10}, 4000});
  EXPECT_EQ(checksum_of(move), 0x26d0f185u);
  EXPECT_EQ(checksum_of(PoolQuery{"p", "r*", "c*", 7, {.region = 1, .generation = 2, .offset = 3, .length = 4}}),
            0xddb6b500u);
  EXPECT_EQ(checksum_of(QueryNext{1ull << 63, 2}), 0x7660654fu);
  const std::vector<std::byte> arguments(10, std::byte{3});
  EXPECT_EQ(checksum_of(PoolCompute{"p", "r", "c", 7, true, "plugin", "function", "row", "column", arguments}),
            0x2d6aaf7au);
  EXPECT_EQ(checksum_of(PeerCompute{1000,
                                    1001,
                                    7,
                                    8,
                                    {.region = 1, .generation = 2, .offset = 3, .length = 4},
                                    "b",
                                    "p",
                                    "r",
                                    "c",
                                    true,
                                    "plugin",
                                    "function",
                                    "row",
                                    "column",
                                    arguments}),
            0xa2229e41u);
  const BufferRef at{.region = 1, .generation = 2, .offset = 3, .length = 4};
  EXPECT_EQ(checksum_of(PeerQuery{1000, 1001, 7, 8, 9, at, "p", "r*", "c*"}), 0x39575975u);
  EXPECT_EQ(checksum_of(PeerGet{1000, 1001, 7, 8, at, "b", "p", "r", "c"}), 0xb887d6aeu);
  EXPECT_EQ(checksum_of(PeerPut{1000, 1001, 2, 3, 4, 5, 6, true, false, true, 7, at, "p", "r", "c", 8, arguments}),
            0x372d8d6bu);
  EXPECT_EQ(checksum_of(PeerQueryNext{8, 2, 9, at, "b"}), 0x1d6dab94u);
  EXPECT_EQ(checksum_of(PeerCancel{PeerCancel::What::computation, 8}), 0x0de0ba31u);
  EXPECT_EQ(
      checksum_of(GaugesOpen{
          {.region = segment_flag | 1, .generation = 2, .offset = 64, .length = 9}, "solver", bytes_of("schema")}),
      0xeb2d0c55u);
  EXPECT_EQ(checksum_of(GaugesClose{3}), 0x576c35e3u);
  EXPECT_EQ(checksum_of(Listed{true, {{1, 2, 3, true, "r", "c", "m"}, {4, 5, 6, false, "", ""}}, 7}), 0x700a8d14u);
  EXPECT_EQ(checksum_of(Failed{2, Error::stale, std::string(600, 'x')}), 0x4be9536bu);

  Hello hello;
  hello.layout = {128, 256, 9};
  hello.force_staging = 1;
  hello.channel_address = 0x7fff'0000'1000;
  hello.pid = 4711;
  hello.nonce.fill(std::byte{5});
  hello.name = "simulation";
  hello.job_labels = {"17", "batch", "/slurm/job_17/step_batch"};
  EXPECT_EQ(checksum_of(hello), 0xf3fd922bu);
  Welcome welcome;
  welcome.direct = 1;
  welcome.incarnation = 1ull << 60;
  welcome.memory_bytes_max = 1ull << 40;
  welcome.pid = 12;
  welcome.silence_ms = 7'000;
  welcome.proof.fill(std::byte{9});
  welcome.agent_name = "dpu";
  welcome.agent_version = "1.2.3";
  welcome.reason = "because";
  EXPECT_EQ(checksum_of(welcome), 0x1010169du);
  const TransferPiece pieces[] = {{1, 2, 3, 4}, {segment_flag | 5, 0, 7, ~0ull}};
  EXPECT_EQ(checksum_of(TransferRequest{42, std::as_bytes(std::span(pieces))}), 0x57c8f5f2u);
}

}  // namespace
}  // namespace offpath::wire
