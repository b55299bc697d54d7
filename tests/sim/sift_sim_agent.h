// One agent of a simulation of the sift service, and the faults of the carrier between agents.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sift/sift.h"

namespace offpath::sift::simulated {

using Row = std::pair<std::uint64_t, std::int64_t>;  // identifier, step

struct Faults {
  double offer_lost = 0, answer_lost = 0, repeated = 0, pull_fails = 0, corrupted = 0;
  double away = 0;          // at an event: an agent hears nothing for a while
  double job_fails = 0.02;  // also where nothing else fails
  TimeNs delay_max_ns = millisecond_ns;
  TimeNs patience_ns = 50 * millisecond_ns;  // of a carrier without an answer
};

struct Agent {
  std::string name;
  std::uint64_t incarnation = 1;
  FrameMemory memory;
  std::unique_ptr<Sift> sift;
  TimeNs job_ns = millisecond_ns;
  std::uint64_t next_token = 1;
  std::map<std::uint64_t, std::function<void(const Status&)>> answers;  // of its puts and of offers to it
  std::map<std::uint64_t, FramePtr> offered;                            // the result of a pull of an offer
  std::map<std::uint64_t, std::function<void(const Status&)>> flushes;
  TimeNs away_until = 0;
  TimeNs timer_at = never;

  std::deque<std::pair<std::string, FramePtr>> to_put;
  std::uint32_t puts_open = 0;

  struct Object {
    std::vector<std::byte> bytes;
    std::uint64_t rows;
  };
  std::map<std::string, Object> store;  // outlives the agent
  // Copies of others, with their bytes; those that wait for room, in order. It outlives the agent, which is made anew.
  struct Copies {
    std::uint64_t room = 0, used = 0, used_peak = 0, waited = 0;
    std::map<std::pair<std::size_t, std::string>, std::uint64_t> held;
    std::deque<std::function<bool()>> waiting;  // each says whether it has begun
  } copies;
  std::map<std::uint64_t, std::vector<Row>> unanswered;
  [[nodiscard]] bool is_up() const { return sift != nullptr && sift->is_restored(); }
};

}  // namespace offpath::sift::simulated
