// A program's area behind a link that takes time, with the agent's copy of it (tcp/program/area_mirror.h), in virtual
// time. Writes become visible in the order of posting; reads may see the pieces that they cover at different moments.
#pragma once

#include <deque>
#include <random>

#include "tcp/program/area_mirror.h"
#include "testing/tcp/programs.h"

namespace offpath::tcp {

class LinkedProgram {
 public:
  // Its area is in use by no service yet.
  LinkedProgram(TestProgram& program, TimeNs latency_ns, std::uint64_t seed)
      : program_(program), latency_ns_(latency_ns), random_(seed) {
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

  bool poll(TimeNs now) {
    if (!status_) return false;
    if (std::exchange(seen_wakes_, program_.wakes_of_agent) != program_.wakes_of_agent)
      looks_.push_back(now + latency_ns_);
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
    for (const Flight& each : flights_) next = std::min(next, each.at);
    return next;
  }

 private:
  struct Flight {
    AreaMirror::Transfer transfer;
    TimeNs at;
    bool visible = false;
  };

  bool take_off(TimeNs now) {
    auto begun = mirror_->transfers();
    for (AreaMirror::Transfer& each : begun) {
      // All pieces but the first are read now, or when the transfer ends.
      if (!each.writes && random_() % 2 == 0) {
        for (std::size_t i = 1; i < each.pieces.size(); ++i) carry(each.pieces[i], false);
        each.pieces.resize(1);
      }
      TimeNs at = now + latency_ns_ / 2 + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(latency_ns_));
      if (each.writes) at = last_write_ = std::max(at, last_write_);
      flights_.push_back({std::move(each), at});
    }
    return !begun.empty();
  }
  bool land(TimeNs now) {
    bool landed = false;
    for (std::size_t i = 0; i < flights_.size() && status_;) {
      if (flights_[i].at > now) {
        ++i;
        continue;
      }
      landed = true;
      Flight& flight = flights_[i];
      if (!std::exchange(flight.visible, true)) {
        for (const AreaMirror::Piece& piece : flight.transfer.pieces) carry(piece, flight.transfer.writes);
        if (flight.transfer.writes && late_ns_ > 0 && random_() % 2 == 0) {
          flight.at = now + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(late_ns_));
          continue;
        }
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
  TimeNs latency_ns_, last_write_ = 0, late_ns_ = 0;
  std::mt19937_64 random_;
  MutableBytes copy_;
  std::optional<AreaMirror> mirror_;
  std::deque<TimeNs> looks_;
  std::vector<Flight> flights_;  // in the order of posting
  std::size_t seen_wakes_ = 0, wakes_ = 0;
  Status status_;
};

// TestPrograms, of which some are linked.
class LinkedPrograms final : public TestPrograms {
 public:
  using TestPrograms::TestPrograms;
  LinkedProgram& add_linked(std::uint32_t at, TimeNs latency_ns, std::uint64_t seed,
                            const SocketOptions& options = {64, 65'536, 65'536}) {
    TestProgram& program = ends[at].programs.emplace_back(options);
    LinkedProgram& linked = linked_.emplace_back(program, latency_ns, seed);
    program.number = 1'000 + linked_.size();
    OFP_ASSERT(ends[at].service.open(program.number, program.layout, {.user = 0, .privileged = false, .linked = true},
                                     [&linked] { return linked.copy(); }));
    return linked;
  }

 private:
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

  std::list<LinkedProgram> linked_;
};

}  // namespace offpath::tcp
