// A program's area behind a link that takes time, with the agent's copy of it (tcp/area/area_mirror.h), in virtual
// time. Writes become visible in the order of posting; reads may see the pieces that they cover at different moments.
// With a rate, the bytes of each direction leave one after the other.
#pragma once

#include <deque>
#include <random>

#include "tcp/area/area_mirror.h"
#include "testing/tcp/programs.h"

namespace offpath::tcp {

struct TestLink {
  TimeNs latency_ns;                   // of an operation: up to half of it more or less
  std::uint64_t bytes_per_second = 0;  // 0: no bound
  // An operation reaches the program's memory after exactly half of its time, as by a network card.
  bool is_exact = false;
  TimeNs post_ns = 0;  // the time to post one
};

class LinkedProgram {
 public:
  // Its area is in use by no service yet.
  LinkedProgram(TestProgram& program, const TestLink& link, std::uint64_t seed)
      : program_(program), link_(link), random_(seed) {
    void* at =
        mmap(nullptr, program.layout.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    OFP_ASSERT(at != MAP_FAILED);
    copy_ = {static_cast<std::byte*>(at), program.layout.bytes};
    mirror_.emplace(program.layout, copy_);
    word(wire::tcp_word::cores) = word(wire::tcp_word::linked) = 1;
    program.area->spread();
  }
  ~LinkedProgram() { munmap(copy_.data(), copy_.size()); }
  LinkedProgram(const LinkedProgram&) = delete;
  LinkedProgram& operator=(const LinkedProgram&) = delete;

  [[nodiscard]] MutableBytes copy() const noexcept { return copy_; }
  [[nodiscard]] AreaMirror& mirror() noexcept { return *mirror_; }
  [[nodiscard]] TestProgram& program() noexcept { return program_; }
  [[nodiscard]] std::uint64_t& word(std::uint64_t offset) noexcept {
    return *reinterpret_cast<std::uint64_t*>(program_.memory.data() + offset);
  }
  // Writes complete up to so long after they are visible, in any order.
  void complete_late(TimeNs late_ns) noexcept { late_ns_ = late_ns; }
  // How often the other machine was woken.
  [[nodiscard]] std::size_t wakes() const noexcept { return wakes_; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

  // Advances only the link: writes that reach the program's memory by now.
  void touch(TimeNs now) {
    for (Flight& each : flights_)
      if (each.touches_at <= now && !std::exchange(each.touched, true))
        for (const AreaMirror::Piece& piece : each.transfer.pieces) carry(piece, each.transfer.writes);
  }
  bool poll(TimeNs now) {
    if (!status_) return false;
    if (std::exchange(seen_wakes_, program_.wakes_of_agent) != program_.wakes_of_agent)
      looks_.push_back(now + link_.latency_ns);
    bool worked = false;
    for (; !looks_.empty() && looks_.front() <= now; looks_.pop_front(), worked = true) mirror_->look(now);
    worked |= land(now);
    if (status_) mirror_->poll(now);
    worked |= take_off(now);
    if (mirror_->take_wake()) ++wakes_;
    return worked;
  }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    TimeNs next = std::min(looks_.empty() ? never : looks_.front(), status_ ? mirror_->next_deadline() : never);
    for (const Flight& each : flights_) next = std::min(next, each.touched ? each.at : each.touches_at);
    return next;
  }

 private:
  struct Flight {
    AreaMirror::Transfer transfer;
    TimeNs at, touches_at;  // it ends; it reaches the program's memory
    bool touched = false, late = false;
  };

  bool take_off(TimeNs now) {
    auto begun = mirror_->transfers();
    for (AreaMirror::Transfer& each : begun) {
      std::uint64_t bytes = 0;
      for (const AreaMirror::Piece& piece : each.pieces) bytes += piece.length;
      const TimeNs left = leave(each.writes, bytes, now), half = link_.latency_ns / 2;
      if (link_.is_exact) {  // bytes are read when the request has arrived there
        const TimeNs touches_at = each.writes ? left + half : now + link_.post_ns + half;
        flights_.push_back({std::move(each), left + link_.latency_ns, touches_at});
        continue;
      }
      // All pieces but the first are read now, or when the transfer ends.
      if (!each.writes && random_() % 2 == 0) {
        for (std::size_t i = 1; i < each.pieces.size(); ++i) carry(each.pieces[i], false);
        each.pieces.resize(1);
      }
      TimeNs at = left + half + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(link_.latency_ns));
      if (each.writes) at = last_write_ = std::max(at, last_write_);
      flights_.push_back({std::move(each), at, at});
    }
    return !begun.empty();
  }
  // When the last of so many bytes is on its way.
  TimeNs leave(bool writes, std::uint64_t bytes, TimeNs now) {
    now += link_.post_ns;
    if (link_.bytes_per_second == 0) return now;
    TimeNs& free_at = free_at_[writes ? 1 : 0];
    free_at = std::max(free_at, now) + static_cast<TimeNs>(bytes * second_ns / link_.bytes_per_second);
    return free_at;
  }
  bool land(TimeNs now) {
    touch(now);
    bool landed = false;
    for (std::size_t i = 0; i < flights_.size() && status_;) {
      if (flights_[i].at > now) {
        ++i;
        continue;
      }
      landed = true;
      Flight& flight = flights_[i];
      if (flight.transfer.writes && late_ns_ > 0 && !std::exchange(flight.late, true) && random_() % 2 == 0) {
        flight.at = now + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(late_ns_));
        continue;
      }
      const Flight ended = std::move(flight);
      flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
      status_ = mirror_->done(ended.transfer.token, now);
    }
    return landed;
  }
  void carry(const AreaMirror::Piece& piece, bool writes) {
    OFP_ASSERT(piece.offset + piece.length <= program_.memory.size());
    std::byte* const theirs = program_.memory.data() + piece.offset;
    std::memcpy(writes ? theirs : piece.memory, writes ? piece.memory : theirs, piece.length);
  }

  TestProgram& program_;
  TestLink link_;
  TimeNs last_write_ = 0, late_ns_ = 0, free_at_[2]{};  // of reads and writes
  std::mt19937_64 random_;
  MutableBytes copy_;
  std::optional<AreaMirror> mirror_;
  std::deque<TimeNs> looks_;
  std::vector<Flight> flights_;  // in the order of posting
  std::size_t seen_wakes_ = 0, wakes_ = 0;
  Status status_;
};

// TestPrograms, of which some are linked.
class LinkedPrograms : public TestPrograms {
 public:
  using TestPrograms::TestPrograms;
  LinkedProgram& add_linked(std::uint32_t at, TimeNs latency_ns, std::uint64_t seed,
                            const SocketOptions& options = {64, 65'536, 65'536}) {
    return add_linked(at, TestLink{latency_ns}, seed, options);
  }
  LinkedProgram& add_linked(std::uint32_t at, const TestLink& link, std::uint64_t seed, const SocketOptions& options) {
    TestProgram& program = ends[at].programs.emplace_back(options);
    LinkedProgram& linked = linked_.emplace_back(program, link, seed);
    program.number = 1'000 + linked_.size();
    OFP_ASSERT(ends[at].service.open(program.number, program.layout, {.user = 0, .privileged = false, .linked = true},
                                     [&linked] { return linked.copy(); }));
    ends[at].service.measure_link(program.number, [&linked] { return linked.mirror().answer_ns(); });
    return linked;
  }

 protected:
  bool poll() override {
    bool worked = TestPrograms::poll();
    for (End& end : ends)
      for (const auto& [number, process] : end.service.take_wakes())
        for (LinkedProgram& each : linked_)
          if (each.program().number == number) each.mirror().wake(process);
    for (LinkedProgram& each : linked_) worked |= each.poll(now);
    return worked;
  }
  [[nodiscard]] TimeNs next_deadline() const override {
    TimeNs next = TestPrograms::next_deadline();
    for (const LinkedProgram& each : linked_) next = std::min(next, each.next_deadline());
    return next;
  }

 private:
  std::list<LinkedProgram> linked_;
};

}  // namespace offpath::tcp
