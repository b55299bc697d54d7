// Requests of a test's agents to each other, and everything on its way between them (lanes.h): requests, descriptors,
// pulls and answers, each a step. It knows no agents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "service/effects.h"
#include "wire/messages/message_kinds.h"

namespace offpath::task {

class LaneTraffic {
 public:
  struct Ask {
    std::size_t from, to;
    std::uint64_t token;
    wire::EntryKind kind;
    std::vector<std::byte> payload;
    std::vector<std::byte> body;  // bytes that may be pulled
    std::uint64_t offer = 0;
    std::shared_ptr<Fd> descriptor;
    Result<service::Answer> answer = service::Answer{};
  };
  struct Step {
    enum class Kind { request, descriptor, pull, answer } kind;
    std::uint64_t number, ask;
    std::uint64_t token = 0;  // pull
    std::byte* to = nullptr;
    std::uint64_t at = 0, length = 0;
  };
  // A lost request, with the pulls for it that were on their way.
  struct Lost {
    Ask ask;
    std::vector<Step> pulls;
  };

  // The next request's, which its memory names before it is composed.
  [[nodiscard]] std::uint64_t take_number() noexcept { return next_ask_++; }
  void begin(std::uint64_t number, Ask ask) { asks_.emplace(number, std::move(ask)); }
  [[nodiscard]] bool has(std::uint64_t number) const { return asks_.contains(number); }
  [[nodiscard]] Ask& ask(std::uint64_t number) { return asks_.at(number); }
  // Drops everything that is on its way for it.
  Ask end(std::uint64_t number) {
    Ask ended = std::move(asks_.extract(number).mapped());
    std::erase_if(steps_, [&](const Step& each) { return each.ask == number; });
    return ended;
  }

  [[nodiscard]] std::size_t steps() const noexcept { return steps_.size(); }
  void add(Step step) {
    step.number = next_step_++;
    steps_.push_back(step);
  }
  // Requests between two agents come in their order; everything else in any. There is a step.
  Step take(std::size_t which) {
    Step step = steps_[which % steps_.size()];
    if (step.kind == Step::Kind::request) {
      step = *std::ranges::find_if(steps_, [&](const Step& each) {
        return each.kind == Step::Kind::request && asks_.at(each.ask).from == asks_.at(step.ask).from &&
               asks_.at(each.ask).to == asks_.at(step.ask).to;
      });
    }
    std::erase_if(steps_, [&](const Step& each) { return each.number == step.number; });
    return step;
  }

  [[nodiscard]] service::ChannelNumber channel(std::size_t from, std::size_t to) {
    return 1 + from + 100 * generation_[{from, to}];
  }
  void open_anew(std::size_t from, std::size_t to) { ++generation_[{from, to}]; }
  // All that one has asked the other.
  [[nodiscard]] std::vector<Lost> lose(std::size_t from, std::size_t to) {
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, ask] : asks_)
      if (ask.from == from && ask.to == to) numbers.push_back(number);
    std::vector<Lost> all;
    for (const std::uint64_t number : numbers) {
      std::vector<Step> pulls;
      for (const Step& step : steps_)
        if (step.kind == Step::Kind::pull && step.ask == number) pulls.push_back(step);
      all.push_back({end(number), std::move(pulls)});
    }
    return all;
  }

 private:
  std::uint64_t next_ask_ = 1, next_step_ = 1;
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> generation_;
  std::map<std::uint64_t, Ask> asks_;
  std::deque<Step> steps_;
};

}  // namespace offpath::task
