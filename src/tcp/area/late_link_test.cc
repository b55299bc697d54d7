// Streams of a program behind a late link, which begin with rings of 16 KiB: how much of the link or of the path they
// fill after a few round trips, and how large their rings become. The program sleeps where it has nothing to do, and is
// woken over the link.
#include <gtest/gtest.h>

#include "testing/tcp/linked_program.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t served_port = 8000;
constexpr std::uint32_t first_bytes = 16 << 10, largest_bytes = wire::tcp_ring_bytes_max;
constexpr std::uint64_t gigabit = 125'000'000;  // bytes in a second
constexpr SocketOptions grows{
    .flows = 16, .send_bytes = first_bytes, .receive_bytes = first_bytes, .pool_bytes = 128 << 20},
    large{.flows = 16, .send_bytes = largest_bytes, .receive_bytes = largest_bytes};

struct Late {
  TimeNs link_ns, path_ns;            // each way
  std::uint64_t path_bytes = 0;       // in a second; 0: as many as come
  std::uint32_t ring_bytes_most = 0;  // that the stream's ring may have in the end
  // The program reads or writes so much, and then does something else.
  std::uint32_t piece_bytes = 64 << 10;
  TimeNs pause_ns = 0;
  TcpServiceLimits limits{};

  // How long bytes stay in a ring: a round trip of the path, and the time of an answer over the link.
  [[nodiscard]] TimeNs round_trip_ns() const noexcept {
    return 2 * path_ns + 2 * link_ns * AreaMirror::reads_of_an_answer;
  }
};

class LateStream final : private LinkedPrograms {
 public:
  LateStream(const Late& late, bool to_program)
      : LinkedPrograms(network(late), late.limits), late_(late), to_program_(to_program) {
    const auto listener = peer_.area->listen(served_port, 4).value();
    run(second_ns);
    near_ = area().connect(endpoint(1, served_port)).value();
    OFP_ASSERT(run_until(
        [&] {
          if (const auto accepted = peer_.area->accept(listener)) far_ = *accepted;
          return far_ != 0 && area().look(near_)->connected;
        },
        second_ns));
    run(second_ns);
  }

  void stream(TimeNs duration) {
    const TimeNs end = now + duration;
    run_until([&] { return now >= end; }, duration, [&] { return act(); });
  }
  // The share of a gigabit that bytes take which arrive in this time.
  double share(TimeNs duration) {
    const std::uint64_t before = received_;
    const TimeNs began = now;
    stream(duration);
    return double(received_ - before) / (double(now - began) / second_ns) / gigabit;
  }
  // Nobody sends, and the program gives memory back once a second.
  void rest(TimeNs duration) {
    is_over_ = true;
    for (const TimeNs end = now + duration; now < end;) {
      stream(second_ns);
      static_cast<void>(area().give_back(now));
    }
    is_over_ = false;
    if (asleep_) wakes_at_ = now;  // the program has something to do
  }
  [[nodiscard]] std::uint32_t ring() {
    const auto look = area().look(near_).value();
    return to_program_ ? look.receive_ring : look.send_ring;
  }
  [[nodiscard]] TcpService::ProgramStatus status() const { return ends[0].service.programs().at(0); }
  [[nodiscard]] const TcpServiceCounters& counters() const { return ends[0].service.counters(); }
  [[nodiscard]] std::size_t wrong() const noexcept { return wrong_; }

 private:
  [[nodiscard]] SocketArea& area() { return *linked_.program().area; }

  static TestNetworkOptions network(const Late& late) {
    TestNetworkOptions options;
    for (Impairments* way : {&options.there, &options.back}) {
      way->delay_ns = late.path_ns;
      way->bytes_per_second = late.path_bytes;
      way->queue_bytes = 2 * largest_bytes;
    }
    return options;
  }

  bool act() {
    bool worked = peer_.area->take_in();
    if (to_program_)
      worked |= give(*peer_.area, far_);
    else
      worked |= take(*peer_.area, far_);
    return act_of_program() || worked;
  }
  // It runs until it has nothing to do, and sleeps until it is woken.
  bool act_of_program() {
    if (asleep_ && wakes_at_ == never && linked_.wakes() != wakes_) wakes_at_ = now + late_.link_ns;
    if (asleep_ && now < wakes_at_) return false;
    if (std::exchange(asleep_, false)) area().stay_awake();
    if (now < busy_until_) return false;
    const bool moved = to_program_ ? take(area(), near_) : give(area(), near_);
    if (moved) busy_until_ = now + late_.pause_ns;
    if (area().take_in() || moved) return true;
    wakes_ = linked_.wakes();
    wakes_at_ = never;
    asleep_ = area().fall_asleep();
    return !asleep_;
  }
  // Every 512th byte says where it is.
  template <class Byte>
  void for_each_marked(std::uint64_t position, std::size_t count, const Byte& byte) {
    for (std::size_t i = (marked_every - position % marked_every) % marked_every; i < count; i += marked_every)
      byte(bytes_[i], stream_byte(1, position + i));
  }
  bool give(SocketArea& from, SocketArea::Handle handle) {
    if (is_over_) return false;
    for_each_marked(sent_, bytes_.size(), [](std::byte& at, std::byte mark) { at = mark; });
    const auto taken = from.send(handle, bytes_);
    if (!taken) return false;
    sent_ += *taken;
    return *taken > 0;
  }
  bool take(SocketArea& to, SocketArea::Handle handle) {
    const auto taken = to.receive(handle, bytes_);
    if (!taken) return false;
    for_each_marked(received_, *taken, [&](std::byte& at, std::byte mark) { wrong_ += at != mark; });
    received_ += *taken;
    return *taken > 0;
  }
  [[nodiscard]] TimeNs next_deadline() const override {
    const TimeNs next = std::min(LinkedPrograms::next_deadline(), asleep_ ? wakes_at_ : never);
    return busy_until_ > now ? std::min(next, busy_until_) : next;
  }

  static constexpr std::uint64_t marked_every = 512;

  Late late_;
  bool to_program_;
  LinkedProgram& linked_ =
      add_linked(0, TestLink{.latency_ns = 2 * late_.link_ns, .bytes_per_second = gigabit, .is_exact = true}, 1, grows);
  TestProgram& peer_ = add(1, large);
  SocketArea::Handle near_ = 0, far_ = 0;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(late_.piece_bytes);
  std::uint64_t sent_ = 0, received_ = 0;
  std::size_t wrong_ = 0, wakes_ = 0;
  bool asleep_ = false, is_over_ = false;
  TimeNs wakes_at_ = never, busy_until_ = 0;
};

class LateLink : public testing::TestWithParam<bool> {};  // to the program

// In the time for which bytes stay there, the ring is to have room for 0.3, 1.1, 0.3 and 2.7 MB.
TEST_P(LateLink, AStreamFillsTheLinkOrThePath) {
  for (const Late& late : {Late{200 * microsecond_ns, 20 * microsecond_ns, 0, 1 << 20},
                           Late{millisecond_ns, 20 * microsecond_ns, 0, 4 << 20},
                           Late{200 * microsecond_ns, 20 * microsecond_ns, gigabit, 1 << 20},
                           Late{200 * microsecond_ns, 10 * millisecond_ns, gigabit, 4 << 20}}) {
    SCOPED_TRACE(testing::Message() << late.link_ns << " " << late.path_ns << " " << late.path_bytes);
    LateStream stream(late, GetParam());
    stream.stream(20 * late.round_trip_ns());
    EXPECT_GE(stream.share(200 * millisecond_ns), 0.9) << stream.ring();
    EXPECT_LE(stream.ring(), late.ring_bytes_most);
    EXPECT_EQ(stream.wrong(), 0u);
  }
}

// The ring is full, or empty, because the program is slow: a larger one would not make the stream faster.
TEST_P(LateLink, ASlowProgramKeepsItsFirstRing) {
  Late late{millisecond_ns, 20 * microsecond_ns};
  late.piece_bytes = 4096;
  late.pause_ns = 20 * millisecond_ns;
  LateStream stream(late, GetParam());
  stream.stream(2 * second_ns);
  EXPECT_GE(stream.share(second_ns) * gigabit, 0.9 * late.piece_bytes * (second_ns / late.pause_ns));
  EXPECT_EQ(stream.ring(), first_bytes);
}

TEST_P(LateLink, MemoryGoesBackWhenTheStreamRests) {
  LateStream stream({millisecond_ns, 20 * microsecond_ns}, GetParam());
  stream.stream(100 * millisecond_ns);
  EXPECT_GT(stream.ring(), 256u << 10);
  EXPECT_GT(stream.status().lent_bytes, 256u << 10);
  stream.rest(15 * second_ns);
  EXPECT_EQ(stream.ring(), first_bytes);
  EXPECT_EQ(stream.status().lent_bytes, 0u);
  stream.stream(200 * millisecond_ns);
  EXPECT_GT(stream.ring(), 256u << 10);
  EXPECT_EQ(stream.wrong(), 0u);
}

TEST_P(LateLink, ALimitBoundsTheRings) {
  Late late{millisecond_ns, 20 * microsecond_ns};
  late.limits.receive_bytes_of_user_max = 8 << 20;
  LateStream stream(late, GetParam());
  stream.stream(500 * millisecond_ns);
  EXPECT_GT(stream.counters().rings_grown, 0u);
  EXPECT_GT(stream.counters().rings_refused, 0u);
  EXPECT_LE(stream.ring(), (8u << 20) / 16);
  EXPECT_LE(stream.status().receive_bytes, 8u << 20);
}
INSTANTIATE_TEST_SUITE_P(Ways, LateLink, testing::Bool(),
                         [](const auto& each) { return each.param ? "to_the_program" : "from_the_program"; });

}  // namespace
}  // namespace offpath::tcp
