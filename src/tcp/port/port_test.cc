// Ports in memory: frames arrive, are segmented as by cards, and meet exactly the requested faults.
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/segment.h"
#include "tcp/stack/stage_trace.h"
#include "testing/tcp/frames.h"
#include "testing/tcp/impaired_port.h"
#include "testing/tcp/memory_port.h"
#include "testing/tcp/network.h"

namespace offpath::tcp {
namespace {

FrameToSend frame_of(Bytes first, Bytes second, std::uint16_t segment_bytes, std::uint8_t flags) {
  Segment segment;
  segment.key = {{test_address(0x0a000001), 1000}, {test_address(0x0a000002), 2000}};
  segment.sequence = Sequence(0xfffffff0);
  segment.flags = flags;
  segment.options.timestamps = Timestamps{1, 2};
  FrameToSend frame = segment_frame(segment, {2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1}, first, second);
  frame.segment_bytes = segment_bytes;
  return frame;
}

Drop read_frame(Bytes frame, IpPacket& packet) {
  return read_ip(read_ethernet_header(frame.data()).type, frame.subspan(ethernet_header_bytes), packet);
}

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(MemoryPort, CutsFramesAsACardDoes) {
  MemoryPortOptions options;
  options.segmentation_bytes = 65536;
  auto [one, two] = MemoryPort::pair(options);
  const auto bytes = some_bytes(5000);
  const FrameToSend frame = frame_of(Bytes(bytes).first(1234), Bytes(bytes).subspan(1234), 1000,
                                     flag::ack | flag::psh | flag::fin | flag::cwr);
  ASSERT_EQ(one->transmit(std::span(&frame, 1), 0), 1u);
  std::array<ReceivedFrame, 16> frames;
  ASSERT_EQ(two->receive(frames, 0), 5u);
  std::vector<std::byte> together;
  for (std::size_t i = 0; i < 5; ++i) {
    IpPacket packet;
    Segment segment;
    ASSERT_EQ(read_frame(frames[i].bytes, packet), Drop::none);
    ASSERT_EQ(read_segment(packet, false, segment), Drop::none) << i;
    EXPECT_EQ(segment.sequence, Sequence(0xfffffff0) + static_cast<std::uint32_t>(together.size()));
    EXPECT_EQ(segment.has(flag::fin), i == 4);
    EXPECT_EQ(segment.has(flag::psh), i == 4);
    EXPECT_EQ(segment.has(flag::cwr), i == 0);
    together.insert(together.end(), segment.payload.begin(), segment.payload.end());
  }
  EXPECT_EQ(together, bytes);
}

TEST(MemoryPort, DropsWhatTheReceiverHasNoRoomFor) {
  MemoryPortOptions options;
  options.frames_max = 3;
  auto [one, two] = MemoryPort::pair(options);
  const FrameToSend frame = frame_of({}, {}, 0, flag::ack);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(one->transmit(std::span(&frame, 1), 0), 1u);
  std::array<ReceivedFrame, 16> frames;
  EXPECT_EQ(two->receive(frames, 0), 3u);
  EXPECT_EQ(two->counters().dropped_in, 2u);
  two->close();
  EXPECT_EQ(one->transmit(std::span(&frame, 1), 0), 1u);
}

struct Seen {
  std::size_t count = 0, damaged = 0, early = 0, out_of_order = 0;
};

Seen send_through(const Impairments& impairments, std::uint64_t seed, std::size_t frames_sent) {
  MemoryPortOptions options;
  options.frames_max = 1 << 20;
  auto [one, two] = MemoryPort::pair(options);
  ImpairedPort bad(*one, impairments, {}, seed);
  Seen seen;
  std::array<ReceivedFrame, 64> frames;
  std::uint32_t last = 0;
  const auto look = [&, &two = two](TimeNs now) {  // Clang 14 does not capture structured bindings implicitly
    static_cast<void>(bad.receive(frames, now));
    for (std::size_t count; (count = two->receive(frames, now)) > 0;)
      for (std::size_t i = 0; i < count; ++i) {
        ++seen.count;
        IpPacket packet;
        Segment segment;
        if (read_frame(frames[i].bytes, packet) != Drop::none || read_segment(packet, false, segment) != Drop::none) {
          ++seen.damaged;
          continue;
        }
        const auto number = load<std::uint32_t>(segment.payload.data());
        seen.out_of_order += number < last;
        last = number;
        seen.early += now < impairments.delay_ns;
      }
  };
  for (std::uint32_t i = 0; i < frames_sent; ++i) {
    std::array<std::byte, 100> payload{};
    store(payload.data(), i);
    const FrameToSend frame = frame_of(payload, {}, 0, flag::ack);
    static_cast<void>(bad.transmit(std::span(&frame, 1), i * 10 * microsecond_ns));
  }
  for (TimeNs due; (due = bad.next_due()) != never;) look(due);
  look(second_ns);
  return seen;
}

TEST(ImpairedPort, DoesWhatItIsAskedToAndNothingElse) {
  Seen seen = send_through({}, 1, 1000);
  EXPECT_EQ(seen.count, 1000u);
  EXPECT_EQ(seen.damaged + seen.out_of_order, 0u);
  Impairments bad;
  bad.loss = 0.1;
  EXPECT_NEAR(send_through(bad, 2, 10000).count, 9000, 200);
  bad = {};
  bad.duplicate = 0.1;
  EXPECT_NEAR(send_through(bad, 3, 10000).count, 11000, 200);
  bad = {};
  bad.corrupt = 0.1;
  seen = send_through(bad, 4, 10000);
  EXPECT_EQ(seen.count, 10000u);
  EXPECT_NEAR(seen.damaged, 1000, 250);  // a flipped bit in an unused field is not detected
  bad = {};
  bad.reorder = 0.1;
  bad.delay_ns = 5 * millisecond_ns;
  seen = send_through(bad, 5, 10000);
  EXPECT_EQ(seen.count, 10000u);
  EXPECT_GT(seen.out_of_order, 500u);
  EXPECT_EQ(seen.early, 0u);
}

TEST(ImpairedPath, SendsAsFastAsItsBottleneck) {
  Impairments narrow;
  narrow.bytes_per_second = 1'000'000;
  narrow.queue_bytes = 10'000;
  ImpairedPath path(narrow, 1);
  for (int i = 0; i < 100; ++i) path.push(std::vector<std::byte>(1000), 0);
  EXPECT_NEAR(static_cast<double>(path.dropped()), 89, 1);
  std::vector<std::byte> frame;
  EXPECT_FALSE(path.pop(frame, millisecond_ns - 1));
  EXPECT_TRUE(path.pop(frame, millisecond_ns));
  EXPECT_FALSE(path.pop(frame, millisecond_ns));
  EXPECT_EQ(path.next_due(), 2 * millisecond_ns);
}

TEST(Pcap, IsAFileOfItsFormat) {
  const std::string path = testing::TempDir() + "offpath_pcap_test_" + std::to_string(getpid()) + ".pcap";
  {
    auto writer = PcapWriter::create(path);
    ASSERT_TRUE(writer) << writer.error().message;
    writer->write(some_bytes(60), 3 * second_ns + 7);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  ::unlink(path.c_str());
  ASSERT_EQ(text.size(), 24u + 16 + 60);
  const auto word = [&](std::size_t at) { return load<std::uint32_t>(bytes_of(text).data() + at); };
  EXPECT_EQ(word(0), 0xa1b23c4d);
  EXPECT_EQ(word(20), 1u);
  EXPECT_EQ(word(24), 3u);
  EXPECT_EQ(word(28), 7u);
  EXPECT_EQ(word(32), 60u);
  EXPECT_FALSE(PcapWriter::create("/nowhere/file.pcap"));
}

// A process that maps the file sees the records in order, with their times.
TEST(StageTrace, NotesFramesOfItsPortAndNothingElse) {
  const std::string path = testing::TempDir() + "/trace-" + std::to_string(getpid());
  auto trace = StageTrace::create(path);
  ASSERT_TRUE(trace);
  auto [one, two] = MemoryPort::pair({});
  TracedPort port(*one, **trace);
  std::array<ReceivedFrame, 4> arrived;
  EXPECT_EQ(port.receive(arrived, 0), 0u);
  const TimeNs before = monotonic_ns();
  const FrameToSend frame = frame_of({}, {}, 0, flag::ack);
  EXPECT_EQ(port.transmit(std::span(&frame, 1), 0), 1u);
  EXPECT_EQ(two->transmit(std::span(&frame, 1), 0), 1u);
  EXPECT_EQ(port.receive(arrived, 0), 1u);

  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(StageTrace::records_at + 3 * sizeof(StageTrace::Record));
  ASSERT_TRUE(file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())));
  const auto* at = reinterpret_cast<const std::byte*>(bytes.data());
  EXPECT_EQ(load<std::uint64_t>(at), StageTrace::magic);
  EXPECT_EQ(load<std::uint64_t>(at + StageTrace::count_at), 2u);
  const auto record = [at](std::size_t i) {
    return load<StageTrace::Record>(at + StageTrace::records_at + i * sizeof(StageTrace::Record));
  };
  EXPECT_EQ(record(0).stage, StageTrace::Stage::sent);
  EXPECT_EQ(record(1).stage, StageTrace::Stage::received);
  EXPECT_TRUE(before <= record(0).at && record(0).at <= record(1).at);
  unlink(path.c_str());
}

// Has frames whenever its loop is about to sleep, as a device whose interrupt arrives too early to wake anybody.
class RestlessPort final : public Port {
 public:
  std::size_t receive(std::span<ReceivedFrame>, TimeNs) override { return 0; }
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs) override { return frames.size(); }
  [[nodiscard]] PortCapabilities capabilities() const override { return {}; }
  [[nodiscard]] int wait_descriptor() const override { return -1; }
  [[nodiscard]] PortCounters counters() const override { return {}; }
  void close() override {}
  [[nodiscard]] bool fall_asleep(TimeNs) override { return !restless; }
  [[nodiscard]] bool link_up() const override { return !restless; }
  bool restless = true;
};

TEST(Station, StaysAwakeForAPortThatHasFramesAlready) {
  RestlessPort port;
  ImpairedPort impaired(port, {}, {}, 1);
  const auto congestion = congestion_control("cubic").value();
  MemoryOwner owner;
  StackOptions options;
  set_test_address(options, 0x0a000001);
  Stack stack(options, port.capabilities(), *congestion, owner, 0);
  for (Port* used : {static_cast<Port*>(&port), static_cast<Port*>(&impaired)}) {
    Station station(*used, stack);
    port.restless = true;
    EXPECT_FALSE(station.fall_asleep(0));
    EXPECT_FALSE(used->link_up());
    port.restless = false;
    EXPECT_TRUE(station.fall_asleep(0));
    EXPECT_TRUE(used->link_up());
  }
}

}  // namespace
}  // namespace offpath::tcp
