#include "wire/control.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace offpath::wire {
namespace {

template <class Message>
std::vector<std::byte> encoded(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  return bytes;
}

// Every shorter and every longer payload is refused.
template <class Decode>
void expect_exact_length(const std::vector<std::byte>& bytes, Decode decode) {
  ASSERT_TRUE(decode(bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode(Bytes(bytes).first(length))) << length;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{});
  EXPECT_FALSE(decode(longer));
}

TEST(Control, HelloComesBack) {
  Hello hello;
  hello.layout = {128, 256, 9};
  hello.force_staging = 1;
  hello.channel_address = 0x7fff'0000'1000;
  hello.pid = 4711;
  hello.nonce.fill(std::byte{5});
  hello.name = "simulation";
  hello.job_labels = {"17", "batch", "/slurm/job_17/step_batch"};
  const auto back = decode_hello(encoded(hello));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->layout.request_slots, 128u);
  EXPECT_EQ(back->layout.reply_slots, 256u);
  EXPECT_EQ(back->layout.streams_max, 9u);
  EXPECT_EQ(back->force_staging, 1);
  EXPECT_EQ(back->channel_address, hello.channel_address);
  EXPECT_EQ(back->pid, 4711);
  EXPECT_EQ(back->nonce, hello.nonce);
  EXPECT_EQ(back->name, "simulation");
  EXPECT_EQ(back->job_labels.job, "17");
  EXPECT_EQ(back->job_labels.step, "batch");
  EXPECT_EQ(back->job_labels.cgroup, "/slurm/job_17/step_batch");
  expect_exact_length(encoded(hello), decode_hello);

  hello.name = std::string(256, 'n');
  EXPECT_EQ(decode_hello(encoded(hello)).error().message, "hello: the name has 256 bytes, at most 255 are allowed");
  hello.name.clear();
  hello.job_labels.job = std::string(job_bytes_max + 1, '1');
  EXPECT_EQ(decode_hello(encoded(hello)).error().message, "hello: the job has 64 bytes, at most 63 are allowed");
}

TEST(Control, WelcomeComesBack) {
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
  const auto back = decode_welcome(encoded(welcome));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->direct, 1);
  EXPECT_EQ(back->incarnation, welcome.incarnation);
  EXPECT_EQ(back->memory_bytes_max, welcome.memory_bytes_max);
  EXPECT_EQ(back->pid, 12);
  EXPECT_EQ(back->silence_ms, 7'000u);
  EXPECT_EQ(back->proof, welcome.proof);
  EXPECT_EQ(back->agent_name + back->agent_version + back->reason, "dpu1.2.3because");
  expect_exact_length(encoded(welcome), decode_welcome);
  for (const std::uint32_t silence_ms : {silence_ms_min - 1, silence_ms_max + 1}) {
    welcome.silence_ms = silence_ms;
    EXPECT_EQ(decode_welcome(encoded(welcome)).error().code, Error::protocol) << silence_ms;
  }
  welcome.version = protocol_version + 1;
  EXPECT_EQ(decode_welcome(encoded(welcome)).error().code, Error::version);
}

TEST(Control, RefusalsNameAnErrorEvenIfTheirCodeIsUnknown) {
  const auto back = decode_refusal(encoded(Refusal{Error::denied, "no"}));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->code, Error::denied);
  EXPECT_EQ(back->message, "no");
  EXPECT_EQ(decode_refusal(encoded(Refusal{static_cast<Error>(999), "no"}))->code, Error::protocol);
  EXPECT_EQ(decode_refusal(encoded(Refusal{Error::denied, std::string(5000, 'x')}))->message.size(), 1024u);
}

TEST(Control, SegmentsHaveSegmentNumbersAndLengths) {
  const SegmentNotice notice{segment_flag | 3, 4096, 17, 5};
  const auto back = decode_segment_notice(encoded(notice));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->region, notice.region);
  EXPECT_EQ(back->length, 4096u);
  EXPECT_EQ(back->address, 17u);
  EXPECT_EQ(back->key, 5u);
  expect_exact_length(encoded(notice), decode_segment_notice);
  EXPECT_FALSE(decode_segment_notice(encoded(SegmentNotice{3, 4096, 0, 0})));
  EXPECT_FALSE(decode_segment_notice(encoded(SegmentNotice{segment_flag | 3, 0, 0, 0})));
  EXPECT_FALSE(decode_segment_notice(encoded(SegmentNotice{segment_flag | 3, ~0ull, 0, 0})));
}

TEST(Control, ExportsNameARegionAndBoundTheirDescriptor) {
  std::vector<std::byte> descriptor(MemoryExport::descriptor_bytes_max, std::byte{7});
  const MemoryExport exported{5, 2, 0x7000, 4096, 9, descriptor};
  const auto bytes = encoded(exported);
  const auto back = decode_memory_export(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->region, 5u);
  EXPECT_EQ(back->generation, 2u);
  EXPECT_EQ(back->address, 0x7000u);
  EXPECT_EQ(back->length, 4096u);
  EXPECT_EQ(back->key, 9u);
  EXPECT_TRUE(std::ranges::equal(back->descriptor, descriptor));
  expect_exact_length(bytes, decode_memory_export);
  EXPECT_TRUE(decode_memory_export(encoded(MemoryExport{segment_flag, 0, 0x7000, 4096, 9, descriptor})));

  const auto refused = [&](MemoryExport wrong) {
    EXPECT_EQ(decode_memory_export(encoded(wrong)).error().code, Error::protocol);
  };
  refused({regions_max, 2, 0x7000, 4096, 9, descriptor});
  refused({segment_flag | 3, 1, 0x7000, 4096, 9, descriptor});
  refused({5, 2, 0x7000, 0, 9, descriptor});
  refused({5, 2, 0x7000, region_bytes_max + 1, 9, descriptor});
  refused({5, 2, ~0ull - 4000, 4096, 9, descriptor});
  refused({5, 2, 0x7000, 4096, 0, descriptor});
  refused({5, 2, 0x7000, 4096, 9, {}});
  descriptor.push_back(std::byte{});
  refused({5, 2, 0x7000, 4096, 9, descriptor});
}

TEST(Control, TransfersKeepTheirPieces) {
  const TransferPiece pieces[] = {{1, 2, 3, 4}, {segment_flag | 5, 0, 7, ~0ull}};
  const TransferRequest request{42, std::as_bytes(std::span(pieces))};
  const auto bytes = encoded(request);
  const auto back = decode_transfer(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->token, 42u);
  ASSERT_EQ(back->count(), 2u);
  EXPECT_EQ(back->piece(1).region, segment_flag | 5);
  EXPECT_EQ(back->piece(1).length, ~0ull);
  expect_exact_length(bytes, decode_transfer);
  auto wrong = bytes;
  wrong[12] = std::byte{1};
  EXPECT_EQ(decode_transfer(wrong).error().message, "transfer: the reserved field is 1 and must be 0");
  wrong = bytes;
  store(wrong.data() + 8, 0xffff'ffffu);
  EXPECT_EQ(decode_transfer(wrong).error().code, Error::protocol);
}

TEST(Control, OutcomesCarryTheFailure) {
  const auto well = decode_outcome(encoded(Outcome{7, {}}));
  ASSERT_TRUE(well);
  EXPECT_EQ(well->token, 7u);
  EXPECT_TRUE(well->status);
  const auto badly = decode_outcome(encoded(Outcome{8, fail(Error::stale, "too late")}));
  ASSERT_TRUE(badly);
  EXPECT_EQ(badly->status.error().code, Error::stale);
  EXPECT_EQ(badly->status.error().message, "too late");
  expect_exact_length(encoded(Outcome{8, fail(Error::stale, "too late")}), decode_outcome);
  EXPECT_EQ(decode_outcome(encoded(Outcome{8, fail(static_cast<Error>(999), "?")})).error().message,
            "outcome: 999 is not an error code");
}

TEST(Control, WithdrawalsNameTheGeneration) {
  const auto bytes = encoded(Withdrawal{12, 34});
  const auto back = decode_withdrawal(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->region, 12u);
  EXPECT_EQ(back->generation, 34u);
  expect_exact_length(bytes, decode_withdrawal);
  EXPECT_TRUE(decode_withdrawal(encoded(Withdrawal{segment_flag | 3, 0})));
  EXPECT_EQ(decode_withdrawal(encoded(Withdrawal{segment_flag | 3, 1})).error().message,
            "withdrawal: segment 3 has generation 1, segments have 0");
}

TEST(Control, EveryTypeHasAName) {
  for (std::uint16_t type = 1; type <= control_types; ++type)
    EXPECT_EQ(control_type_name(static_cast<ControlType>(type)).find(' '), std::string_view::npos) << type;
  EXPECT_EQ(control_type_name(ControlType::write_done), "write_done");
  EXPECT_EQ(control_type_name(static_cast<ControlType>(control_types + 1)), "frame of an unknown type");
}

}  // namespace
}  // namespace offpath::wire
