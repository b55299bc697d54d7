// Agents of a group for tests of messages: the state machine of each, and their requests in transit, a step at a time.
// The test that takes steps gives their order: oldest first, or as a seed has it.
//
// Read this first in src/testing/task, then lane_traffic.h.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_file.h"
#include "plugin/output_memory.h"
#include "task/lane_messages.h"
#include "testing/task/lane_traffic.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::task {

class LaneAgents {
 public:
  struct Outcome {
    Status status;
    std::uint64_t bytes;
    std::vector<std::byte> message;
  };

  explicit LaneAgents(std::size_t count, LaneMessages::Limits limits = {}, bool offers = false)
      : limits_(limits), offers_(offers) {
    agents_.resize(count);
    for (std::size_t place = 0; place < count; ++place) start(place);
  }

  void start(std::size_t place) {
    Agent& agent = agents_[place];
    const std::uint64_t before = agent.process;
    agent.process = next_process_++;
    agent.cache = service::BufferCache::make({.huge_pages = false});
    agent.lanes = std::make_unique<LaneMessages>(limits_, agent.cache, [this](std::uint64_t) { return room; });
    agent.lanes->set_self(name_of(place), agent.process);
    agent.lanes->set_take_offer([&agent](service::ChannelNumber, std::uint64_t number) {
      auto node = agent.offered.extract(number);
      return node ? std::move(node.mapped()) : Fd{};
    });
    for (std::size_t each = 0; each < agents_.size(); ++each) {
      if (!runs(each)) continue;
      std::optional<std::pair<std::string, std::uint64_t>> anew;
      if (each != place && before != 0) anew.emplace(name_of(place), before);
      agents_[each].lanes->on_members(alive(), anew, now, agents_[each].effects);
    }
    collect();
  }
  // Others learn of it later: tell_dead().
  void kill(std::size_t place) {
    for (std::size_t other = 0; other < agents_.size(); ++other) {
      if (other == place) continue;
      cut(place, other);
      cut(other, place);
    }
    agents_[place].lanes.reset();
    agents_[place].effects.clear();
    agents_[place].offered.clear();
  }
  void tell_dead() {
    for (Agent& agent : agents_)
      if (agent.lanes) agent.lanes->on_members(alive(), {}, now, agent.effects);
    collect();
  }

  [[nodiscard]] static std::string name_of(std::size_t place) { return fmt::format("dpu{}", place); }
  [[nodiscard]] bool runs(std::size_t place) const { return agents_[place].lanes != nullptr; }
  [[nodiscard]] LaneMessages& lanes(std::size_t place) { return *agents_[place].lanes; }
  [[nodiscard]] std::uint64_t used_bytes(std::size_t place) const { return agents_[place].cache->used_bytes(); }

  Status open(std::size_t place, std::uint64_t session, std::uint32_t lane, std::uint32_t lanes,
              std::string_view team = "job", uid_t user = 1000) {
    Status opened = agents_[place].lanes->open(session, user, team, lane, lanes, now, agents_[place].effects);
    collect();
    return opened;
  }
  void close(std::size_t place, std::uint64_t session) {
    agents_[place].lanes->close(session, now, agents_[place].effects);
    collect();
  }
  // Operations have numbers of this test's; each is a call of its own.
  std::uint64_t send(std::size_t place, std::uint64_t session, std::uint32_t lane, std::uint32_t tag,
                     const std::string& message, TimeNs deadline = never) {
    plugin::Operation operation = made(session, lane, tag, message.size(), deadline);
    if (message.size() <= 1024)
      operation.enclosed.assign(bytes_of(message).begin(), bytes_of(message).end());
    else
      operation.memory = *sealed_copy("test", bytes_of(message));
    return begin(place, std::move(operation));
  }
  std::uint64_t receive(std::size_t place, std::uint64_t session, std::uint32_t lane, std::uint32_t tag,
                        std::uint64_t room_bytes = 1 << 20, TimeNs deadline = never) {
    plugin::Operation operation = made(session, lane, tag, room_bytes, deadline);
    operation.kind = plugin::Operation::Kind::receive;
    return begin(place, std::move(operation));
  }
  void end_call(std::size_t place, std::uint64_t operation) {
    agents_[place].lanes->on_call_ended(operation, now, agents_[place].effects);
    collect();
  }
  [[nodiscard]] const Outcome* outcome(std::uint64_t operation) const {
    const auto at = outcomes_.find(operation);
    return at != outcomes_.end() ? &at->second : nullptr;
  }
  [[nodiscard]] std::optional<std::string> message(std::uint64_t operation) const {
    const Outcome* const got = outcome(operation);
    if (got == nullptr || !got->status) return std::nullopt;
    return std::string(text_of(got->message));
  }
  [[nodiscard]] std::optional<Error> error(std::uint64_t operation) const {
    const Outcome* const got = outcome(operation);
    return got == nullptr || got->status ? std::nullopt : std::optional(got->status.error().code);
  }

  void pass(TimeNs duration) {
    now += duration;
    for (Agent& agent : agents_)
      if (agent.lanes && agent.lanes->next_deadline() <= now) agent.lanes->on_time(now, agent.effects);
    collect();
  }

  // ---- messages in transit
  [[nodiscard]] std::size_t steps() const noexcept { return traffic_.steps(); }
  bool step(std::size_t which = 0) {
    if (steps() == 0) return false;
    carry(traffic_.take(which));
    collect();
    return true;
  }
  void settle() {
    for (int i = 0; i < 100'000 && step(); ++i) {
    }
    EXPECT_EQ(steps(), 0u);
  }
  // Requests between the two end with a failure, served or not: the channel is lost, and a new one comes with the
  // next request.
  void cut(std::size_t from, std::size_t to) {
    for (const auto& [ask, pulls] : traffic_.lose(from, to)) {
      for (const Step& pull : pulls) {
        if (runs(to))
          agents_[to].lanes->on_transfer(pull.token, fail(Error::peer_lost, "the channel is lost"), now,
                                         agents_[to].effects);
      }
      if (runs(from))
        agents_[from].lanes->on_answer(ask.token, fail(Error::peer_lost, "the channel is lost"), now,
                                       agents_[from].effects);
    }
    if (runs(to)) agents_[to].lanes->on_channel_closed(traffic_.channel(from, to), now, agents_[to].effects);
    traffic_.open_anew(from, to);
    collect();
  }

  bool room = true;
  TimeNs now = second_ns;

 private:
  struct Agent {
    std::uint64_t process = 0;
    std::shared_ptr<service::BufferCache> cache;
    std::unique_ptr<LaneMessages> lanes;
    service::Effects effects;
    std::map<std::uint64_t, Fd> offered;
  };
  using Ask = LaneTraffic::Ask;
  using Step = LaneTraffic::Step;

  std::vector<std::string> alive() const {
    std::vector<std::string> names;
    for (std::size_t place = 0; place < agents_.size(); ++place)
      if (runs(place)) names.push_back(name_of(place));
    return names;
  }
  plugin::Operation made(std::uint64_t session, std::uint32_t lane, std::uint32_t tag, std::uint64_t bytes,
                         TimeNs deadline) {
    plugin::Operation operation;
    operation.call = ++next_operation_;
    operation.number = 1;
    operation.session = session;
    operation.lane = lane;
    operation.tag = tag;
    operation.bytes = bytes;
    operation.deadline_ns = deadline;
    return operation;
  }
  std::uint64_t begin(std::size_t place, plugin::Operation operation) {
    const std::uint64_t number = operation.call;
    agents_[place].lanes->on_operation(std::move(operation), now, agents_[place].effects);
    collect();
    return number;
  }

  void collect() {
    for (std::size_t place = 0; place < agents_.size(); ++place) {
      while (!agents_[place].effects.empty()) {
        service::Effects effects = std::exchange(agents_[place].effects, {});
        for (service::Effect& effect : effects) take(place, effect);
      }
    }
  }
  void take(std::size_t place, service::Effect& effect) {
    if (auto* const answered = std::get_if<service::AnswerOperationEffect>(&effect))
      return take_outcome(place, *answered);
    if (auto* const asked = std::get_if<service::AskEffect>(&effect)) return take_ask(place, *asked);
    if (auto* const pull = std::get_if<service::PullEffect>(&effect)) {
      const link::ReadPiece& piece = pull->pieces.front();
      if (traffic_.has(piece.offset))
        return traffic_.add({Step::Kind::pull, 0, piece.offset, pull->token, piece.to, 0, piece.length});
      return;  // of a channel that is gone: answered already
    }
    if (auto* const reply = std::get_if<service::ReplyEffect>(&effect)) {
      if (!traffic_.has(reply->ticket)) return;
      std::vector<std::byte> payload;
      wire::encode(std::get<wire::Done>(reply->message), payload);
      traffic_.ask(reply->ticket).answer = group::Answer{wire::ReplyKind::done, std::move(payload), {}};
      return traffic_.add({Step::Kind::answer, 0, reply->ticket});
    }
    if (auto* const failed = std::get_if<service::FailEffect>(&effect)) {
      if (!traffic_.has(failed->ticket)) return;
      traffic_.ask(failed->ticket).answer = tl::unexpected(failed->failure);
      return traffic_.add({Step::Kind::answer, 0, failed->ticket});
    }
    FAIL() << "an effect that nobody expects, number " << effect.index();
  }
  void take_outcome(std::size_t place, const service::AnswerOperationEffect& answered) {
    ASSERT_FALSE(outcomes_.contains(answered.call)) << "operation " << answered.call << " was answered twice";
    const plugin::OperationAnswer& answer = *answered.answer;
    Outcome outcome{answer.status, answer.bytes, answer.enclosed};
    if (answer.fd >= 0) {
      outcome.message.resize(answer.bytes);
      EXPECT_EQ(pread(answer.fd, outcome.message.data(), answer.bytes, 0), static_cast<ssize_t>(answer.bytes));
      if (runs(place)) agents_[place].lanes->on_taken(answered.call, answered.operation);
    }
    outcomes_.emplace(answered.call, std::move(outcome));
  }
  void take_ask(std::size_t place, service::AskEffect& asked) {
    const std::uint64_t number = traffic_.take_number();
    std::size_t to = 0;
    while (to < agents_.size() && name_of(to) != asked.member) ++to;
    ASSERT_LT(to, agents_.size());
    Ask ask{place, to, asked.token, asked.kind, {}, asked.body, 0, nullptr};
    service::AskedMemory memory{};
    if (!asked.memory.empty()) ask.body.assign(asked.memory.begin(), asked.memory.end());
    memory.bytes = {.region = 1, .generation = 1, .offset = number, .length = ask.body.size()};
    if (asked.memory_fd >= 0 && offers_) {
      ask.offer = memory.offer = number;
      ask.descriptor = std::make_shared<Fd>(dup(asked.memory_fd));
    }
    asked.compose(memory, ask.payload);
    const bool offers = ask.descriptor != nullptr;
    traffic_.begin(number, std::move(ask));
    if (!runs(to)) {
      traffic_.ask(number).answer = fail(Error::peer_lost, "nobody is there");
      return traffic_.add({Step::Kind::answer, 0, number});
    }
    traffic_.add({Step::Kind::request, 0, number});
    if (offers) traffic_.add({Step::Kind::descriptor, 0, number});
  }
  void carry(const Step& step) {
    if (step.kind == Step::Kind::answer) {
      const Ask ask = traffic_.end(step.ask);
      if (runs(ask.from)) agents_[ask.from].lanes->on_answer(ask.token, ask.answer, now, agents_[ask.from].effects);
      return;
    }
    const Ask& ask = traffic_.ask(step.ask);
    Agent& target = agents_[ask.to];
    if (step.kind == Step::Kind::request) {
      const channel::Entry entry{step.ask, static_cast<std::uint8_t>(ask.kind), ask.payload};
      target.lanes->on_peer_request(traffic_.channel(ask.from, ask.to), entry, true, now, target.effects);
    } else if (step.kind == Step::Kind::descriptor) {
      target.offered.emplace(ask.offer, std::move(*ask.descriptor));
      target.lanes->on_descriptor(now, target.effects);
    } else {
      std::memcpy(step.to, ask.body.data(), step.length);
      target.lanes->on_transfer(step.token, {}, now, target.effects);
    }
  }

  LaneMessages::Limits limits_;
  bool offers_;
  std::vector<Agent> agents_;
  std::uint64_t next_process_ = 100, next_operation_ = 0;
  LaneTraffic traffic_;
  std::map<std::uint64_t, Outcome> outcomes_;
};

}  // namespace offpath::task
