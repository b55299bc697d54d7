// Messages between lanes of teams on several agents, with requests, answers, descriptors and reads in any allowed
// order, under seeded faults: channels that are lost with all that was asked on them, agents that die, memory that runs
// out, functions that stop waiting.
//
// Whatever happens:
//   - what one lane receives from another under a tag is what that has sent, each message once, in its order
//   - an operation is answered once, and not later than its deadline
//   - when faults are over, every message between lanes that live can be received
//   - when all sessions are closed, nothing is held, and nobody waits for a time
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "testing/link/seeded_random.h"
#include "testing/task/lanes.h"
#include "tests/sim/seeds.h"

namespace offpath::sim {
namespace {

using link::SeededRandom;
using task::LaneAgents;

constexpr std::uint32_t tags = 2;
constexpr std::uint64_t room_bytes = 1 << 20;
constexpr std::size_t actions = 600;

struct Program {
  std::size_t place, team;
  std::uint32_t lane;
  std::uint64_t session;
  bool lives = true;
};
struct Sent {
  std::uint64_t operation;
  std::string message;
};
struct Receiving {
  std::uint64_t operation;
  TimeNs deadline;
  std::uint64_t room;
};
using Way = std::tuple<std::size_t, std::size_t, std::uint32_t>;  // from which program to which, tag

struct Met {
  std::size_t received = 0, timed_out = 0, too_large = 0, lost = 0, cut = 0, killed = 0;
};

class World {
 public:
  World(std::uint64_t seed, bool kills)
      : random_(seed),
        kills_(kills),
        places_(kills ? 2 + random_.below(3) : 1 + random_.below(4)),
        agents_(places_,
                {.lane_bytes_max = 250'000, .bytes_max = 400'000, .lane_bytes_min = 20'000, .lane_messages_max = 40},
                random_.chance(0.5)) {
    for (std::size_t team = 0; team < 2; ++team) {
      lanes_.push_back(static_cast<std::uint32_t>(2 + random_.below(3)));
      for (std::uint32_t lane = 0; lane < lanes_[team]; ++lane)
        programs_.push_back({random_.below(places_), team, lane, 100 * (team + 1) + lane});
    }
    for (const Program& program : programs_) {
      EXPECT_TRUE(agents_.open(program.place, program.session, program.lane, lanes_[program.team],
                               fmt::format("team {}", program.team)));
      for (std::uint64_t steps = random_.below(4); steps > 0; --steps) agents_.step(random_.next());
    }
  }

  Met run() {
    const std::size_t dies_at = kills_ ? 100 + random_.below(400) : actions;
    for (std::size_t i = 0; i < actions && !testing::Test::HasFailure(); ++i) {
      if (i == dies_at) kill(random_.below(places_));
      act();
      look();
    }
    if (!testing::Test::HasFailure()) finish();
    return met_;
  }

 private:
  [[nodiscard]] std::size_t any_program() { return random_.below(programs_.size()); }
  // Another lane of its team, or itself.
  [[nodiscard]] std::size_t any_fellow(std::size_t program) {
    std::size_t to = any_program();
    while (programs_[to].team != programs_[program].team) to = any_program();
    return to;
  }

  void act() {
    const std::uint64_t kind = random_.below(100);
    if (kind < 20) return send();
    if (kind < 45) return receive();
    if (kind < 90) {
      agents_.step(random_.next());
    } else if (kind < 95) {
      agents_.pass(static_cast<TimeNs>(random_.below(5 * millisecond_ns)));
    } else if (kind < 97) {
      if (receiving_.empty()) return;
      const auto& [way, each] =
          *std::next(receiving_.begin(), static_cast<std::ptrdiff_t>(random_.below(receiving_.size())));
      agents_.end_call(programs_[std::get<1>(way)].place, each.operation);
    } else if (kind < 98) {
      agents_.room = random_.chance(0.7);
    } else if (places_ > 1) {
      const std::size_t from = random_.below(places_), to = random_.below(places_);
      if (from == to) return;
      agents_.cut(from, to);
      ++met_.cut;
    }
  }

  void send() {
    const std::size_t from = any_program(), to = any_fellow(from);
    if (!programs_[from].lives) return;
    const auto tag = static_cast<std::uint32_t>(random_.below(tags));
    std::string message = fmt::format("message {} from {} to {}", ++messages_, from, to);
    if (random_.chance(0.3)) message.resize(message.size() + random_.below(100'000), '.');
    const TimeNs deadline = agents_.now + static_cast<TimeNs>(random_.below(20 * millisecond_ns));
    const std::uint64_t operation =
        agents_.send(programs_[from].place, programs_[from].session, programs_[to].lane, tag, message, deadline);
    sent_[{from, to, tag}].push_back({operation, std::move(message)});
    sends_.emplace_back(operation, deadline);
  }

  void receive() {
    const std::size_t to = any_program(), from = any_fellow(to);
    const auto tag = static_cast<std::uint32_t>(random_.below(tags));
    if (!programs_[to].lives || receiving_.contains({from, to, tag})) return;
    const std::uint64_t room = random_.chance(0.1) ? random_.below(1000) : room_bytes;
    const TimeNs deadline = agents_.now + static_cast<TimeNs>(random_.below(50 * millisecond_ns));
    const std::uint64_t operation =
        agents_.receive(programs_[to].place, programs_[to].session, programs_[from].lane, tag, room, deadline);
    receiving_.emplace(Way{from, to, tag}, Receiving{operation, deadline, room});
  }

  void kill(std::size_t place) {
    agents_.kill(place);
    ++met_.killed;
    for (Program& program : programs_) program.lives = program.lives && program.place != place;
    std::erase_if(receiving_, [&](const auto& each) { return programs_[std::get<1>(each.first)].place == place; });
    std::erase_if(sends_, [&](const auto& each) { return agents_.outcome(each.first) == nullptr; });
    agents_.tell_dead();
  }

  // The message that has to come next, of those that were taken.
  [[nodiscard]] const Sent* next_of(const Way& way) {
    auto& all = sent_[way];
    while (!all.empty() && agents_.error(all.front().operation)) all.erase(all.begin());
    return !all.empty() && agents_.outcome(all.front().operation) != nullptr ? &all.front() : nullptr;
  }

  void look() {
    for (const auto& [operation, deadline] : sends_)
      EXPECT_TRUE(agents_.now <= deadline || agents_.outcome(operation) != nullptr) << "a send is late";
    std::erase_if(sends_, [&](const auto& each) { return agents_.outcome(each.first) != nullptr; });
    for (auto at = receiving_.begin(); at != receiving_.end();) {
      const auto& [way, each] = *at;
      const LaneAgents::Outcome* const outcome = agents_.outcome(each.operation);
      if (outcome == nullptr) {
        EXPECT_GE(each.deadline, agents_.now) << "a receive is late";
        ++at;
        continue;
      }
      check(way, each, *outcome);
      at = receiving_.erase(at);
    }
  }

  void check(const Way& way, const Receiving& each, const LaneAgents::Outcome& outcome) {
    const Sent* const next = next_of(way);
    if (outcome.status) {
      ASSERT_NE(next, nullptr) << "a message that nobody has sent, or that was received before: "
                               << text_of(outcome.message).substr(0, 40);
      EXPECT_EQ(text_of(outcome.message), next->message);
      sent_[way].erase(sent_[way].begin());
      ++met_.received;
      return;
    }
    const Error code = outcome.status.error().code;
    met_.timed_out += code == Error::timeout;
    met_.too_large += code == Error::too_large;
    met_.lost += code == Error::peer_lost;
    if (code == Error::too_large) {
      ASSERT_NE(next, nullptr);
      EXPECT_GT(next->message.size(), each.room);
      EXPECT_EQ(outcome.bytes, next->message.size());
    } else if (code == Error::peer_lost) {
      EXPECT_FALSE(programs_[std::get<0>(way)].lives);
    } else {
      EXPECT_TRUE(code == Error::timeout || code == Error::cancelled) << outcome.status.error().message;
    }
  }

  void calm() {
    for (int i = 0; i < 20; ++i) {
      agents_.settle();
      agents_.pass(20 * millisecond_ns);
    }
    look();
  }

  void finish() {
    agents_.room = true;
    calm();
    EXPECT_TRUE(receiving_.empty());
    for (std::size_t from = 0; from < programs_.size(); ++from) {
      for (std::size_t to = 0; to < programs_.size(); ++to) {
        if (programs_[from].team != programs_[to].team || !programs_[from].lives || !programs_[to].lives) continue;
        for (std::uint32_t tag = 0; tag < tags; ++tag) drain({from, to, tag});
      }
    }
    for (const Program& program : programs_)
      if (program.lives) agents_.close(program.place, program.session);
    calm();
    for (std::size_t place = 0; place < places_; ++place) {
      if (!agents_.runs(place)) continue;
      EXPECT_EQ(agents_.lanes(place).counters().held, 0u);
      EXPECT_EQ(agents_.lanes(place).counters().held_bytes, 0u);
      EXPECT_EQ(agents_.lanes(place).counters().lanes, 0u);
      EXPECT_EQ(agents_.lanes(place).next_deadline(), never);
      EXPECT_EQ(agents_.used_bytes(place), 0u);
    }
  }

  void drain(const Way& way) {
    const auto& [from, to, tag] = way;
    while (const Sent* const next = next_of(way)) {
      const std::uint64_t operation = agents_.receive(programs_[to].place, programs_[to].session, programs_[from].lane,
                                                      tag, room_bytes, agents_.now + second_ns);
      for (int i = 0; i < 20 && agents_.outcome(operation) == nullptr; ++i) {
        agents_.settle();
        if (agents_.outcome(operation) == nullptr) agents_.pass(10 * millisecond_ns);
      }
      ASSERT_EQ(agents_.message(operation), next->message) << "from " << from << " to " << to;
      sent_[way].erase(sent_[way].begin());
    }
  }

  SeededRandom random_;
  bool kills_;
  std::size_t places_;
  LaneAgents agents_;
  std::vector<std::uint32_t> lanes_;
  std::vector<Program> programs_;
  std::map<Way, std::vector<Sent>> sent_;
  std::map<Way, Receiving> receiving_;
  std::vector<std::pair<std::uint64_t, TimeNs>> sends_;
  std::uint64_t messages_ = 0;
  Met met_;
};

void add(Met& all, const Met& met) {
  all.received += met.received;
  all.timed_out += met.timed_out;
  all.too_large += met.too_large;
  all.lost += met.lost;
  all.cut += met.cut;
  all.killed += met.killed;
}

TEST(LaneMessageSimulation, EachMessageIsReceivedOnceAndInItsOrder) {
  Met met;
  if (!each_seed(300, [&](std::uint64_t seed) { add(met, World(seed, false).run()); })) return;
  EXPECT_GT(met.received, 1000u);
  EXPECT_GT(met.timed_out, 100u);
  EXPECT_GT(met.too_large, 10u);
  EXPECT_GT(met.cut, 100u);
}

TEST(LaneMessageSimulation, LanesOfAnAgentThatDiesAreGoneForAll) {
  Met met;
  if (!each_seed(300, [&](std::uint64_t seed) { add(met, World(seed, true).run()); })) return;
  EXPECT_GT(met.killed, 100u);
  EXPECT_GT(met.lost, 100u);
  EXPECT_GT(met.received, 1000u);
}

}  // namespace
}  // namespace offpath::sim
