// The sift service of many agents in virtual time, and the carrier between them: offers are delayed, repeated, lost and
// pulled; jobs run at their time. Effects of a store are left to the derived class.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "sift/sift.h"
#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"
#include "sift_sim_agent.h"
#include "testing/link/seeded_random.h"

namespace offpath::sift::simulated {

class Carrier {
 protected:
  explicit Carrier(std::uint64_t seed) : random_(seed) {}
  virtual ~Carrier() = default;

  virtual void carry_out_at_store(std::size_t /*agent*/, Effect&) {
    ADD_FAILURE() << "a pool that keeps nothing asked for its store";
  }
  // Checks the invariants of an agent after a step.
  virtual void check(const Agent&) const {}

  // ---- offers

  void offer(std::size_t from, PublishEffect effect) {
    const std::size_t to = agents_[from].sift->geometry().position_of(effect.member);
    ASSERT_LT(to, agents_.size());
    auto over = std::make_shared<bool>(false);
    const std::uint64_t life = agents_[from].incarnation;
    const auto answered = [this, from, life, over, token = effect.token](const Status& status) {
      if (std::exchange(*over, true) || agents_[from].incarnation != life) return;
      Effects effects;
      agents_[from].sift->on_published(token, status, now_, effects);
      carry_out(from, effects);
    };
    at(now_ + faults_.patience_ns + random_.below(millisecond_ns),
       [answered] { answered(fail(Error::timeout, "no answer")); });
    const auto bytes = decode_piece_header(encode(effect.header));
    ASSERT_TRUE(bytes) << bytes.error().message;
    const std::uint32_t times = random_.chance(faults_.repeated) ? 2 : 1;
    for (std::uint32_t i = 0; i < times; ++i) {
      if (random_.chance(faults_.offer_lost)) continue;
      at(now_ + 1 + random_.below(faults_.delay_max_ns),
         [this, to, answered, header = *bytes, frame = effect.frame] { deliver(to, header, frame, answered); });
    }
  }

  void deliver(std::size_t to, const PieceHeader& header, const FramePtr& frame,
               const std::function<void(const Status&)>& answered) {
    Agent& agent = agents_[to];
    if (agent.away_until > now_ || !agent.is_up()) return;
    const std::uint64_t token = agent.next_token++;
    agent.answers[token] = [this, answered](const Status& status) {
      if (random_.chance(faults_.answer_lost)) return;
      at(now_ + 1 + random_.below(faults_.delay_max_ns), [answered, status] { answered(status); });
    };
    agent.offered[token] = frame;
    Effects effects;
    agent.sift->on_offer(token, header, frame == nullptr ? 0 : frame->bytes, nullptr, now_, effects);
    carry_out(to, effects);
  }

  // A copy in the puller's own memory, as a link makes it.
  Result<FramePtr> pull(Agent& agent, std::uint64_t token) {
    const FramePtr source = agent.offered.at(token);
    if (random_.chance(faults_.pull_fails)) return fail(Error::peer_lost, "the link broke");
    auto copy = std::make_shared<service::Frame>();
    OFP_ASSIGN(copy->buffer, agent.memory.cache->take(source->bytes, 7));
    std::memcpy(copy->buffer.data(), source->buffer.data(), source->bytes);
    copy->bytes = source->bytes;
    copy->rows = source->rows;
    copy->arrow = true;
    if (random_.chance(faults_.corrupted)) {
      const auto view = form_->rows->view({copy->buffer.data(), copy->bytes}).value();
      const_cast<std::byte&>(view.ids.values[random_.below(view.rows * view.ids.value_bytes)]) ^= std::byte{16};
    }
    return copy;
  }

  // ---- effects

  void carry_out(std::size_t i, Effects& effects) {
    Agent& agent = agents_[i];
    const std::uint64_t life = agent.incarnation;
    for (Effect& effect : effects) {
      if (auto* answer = std::get_if<StoredEffect>(&effect)) {
        const auto node = agent.answers.extract(answer->token);
        ASSERT_FALSE(node.empty()) << "an answer nobody waits for, or the second one";
        agent.offered.erase(answer->token);
        node.mapped()(answer->status);
      } else if (auto* publish = std::get_if<PublishEffect>(&effect)) {
        offer(i, std::move(*publish));
      } else if (auto* wanted = std::get_if<AdmitEffect>(&effect)) {
        at(now_ + 1 + random_.below(faults_.delay_max_ns), [this, i, life, token = wanted->token] {
          if (agents_[i].incarnation != life) return;
          Effects next;
          agents_[i].sift->on_pulled(token, pull(agents_[i], token), now_, next);
          carry_out(i, next);
        });
      } else if (auto* job = std::get_if<JobEffect>(&effect)) {
        at(now_ + 1 + random_.below(2 * agent.job_ns), [this, i, life, job = std::move(*job)] {
          if (agents_[i].incarnation != life) return;
          const Status status = random_.chance(faults_.job_fails) ? Status(fail(Error::no_memory, "drawn")) : job.run();
          check(agents_[i]);
          Effects next;
          agents_[i].sift->on_job(job.token, status, now_, next);
          carry_out(i, next);
        });
      } else if (auto* flushed = std::get_if<FlushedEffect>(&effect)) {
        const auto node = agent.flushes.extract(flushed->token);
        ASSERT_FALSE(node.empty());
        node.mapped()(flushed->status);
      } else {
        carry_out_at_store(i, effect);
      }
    }
    check(agent);
    arm(i);
  }

  void arm(std::size_t i) {
    const TimeNs next = agents_[i].sift->next_deadline();
    if (next == never || agents_[i].timer_at <= next) return;
    agents_[i].timer_at = next;
    at(std::max(next, now_), [this, i, life = agents_[i].incarnation] {
      if (agents_[i].incarnation != life) return;
      agents_[i].timer_at = never;
      Effects effects;
      agents_[i].sift->on_time(now_, effects);
      carry_out(i, effects);
      arm(i);
    });
  }

  // ---- tracks

  // All rows of a reader; their values have to be those that were put.
  void each_row(TrackReader& reader, const FrameMemory& memory, const std::function<void(const Row&)>& take) {
    for (;;) {
      const auto frame = reader.next(memory);
      ASSERT_TRUE(frame) << frame.error().message;
      if (*frame == nullptr) return;
      const RowsView view = form_->answers->view({(*frame)->buffer.data(), (*frame)->bytes}).value();
      for (std::uint64_t row = 0; row < view.rows; ++row) {
        const auto step = load<std::int64_t>(view.columns[0].values + row * 8);
        const std::uint64_t id = id_of_value(*form_->rows, view.value_of_id(row));
        ASSERT_EQ(wrong_row(*form_->rows, view, row, step, 1), "");
        take({id, step});
      }
    }
  }

  // ---- time

  void at(TimeNs when, std::function<void()> what) { events_.emplace(when, std::move(what)); }

  bool step() {
    if (events_.empty() || ::testing::Test::HasFailure()) return false;
    auto first = events_.extract(events_.begin());
    now_ = first.key();
    first.mapped()();
    if (faults_.away > 0 && random_.chance(faults_.away))
      agents_[random_.below(agents_.size())].away_until = now_ + random_.below(200 * millisecond_ns);
    return true;
  }
  void step_until(TimeNs when) {
    while (!events_.empty() && events_.begin()->first <= when && step()) {
    }
    now_ = std::max(now_, when);
  }
  void run_until(const std::function<bool()>& done) {
    const TimeNs end = now_ + 3600 * second_ns;
    while (!done() && now_ < end)
      if (!step()) break;
    if (!::testing::Test::HasFailure()) {
      ASSERT_TRUE(done()) << "at " << now_ / second_ns << " s the world stands still";
    }
  }

  link::SeededRandom random_;
  Settings settings_;
  Faults faults_;
  std::shared_ptr<const TrackForm> form_;
  std::vector<Agent> agents_;
  std::multimap<TimeNs, std::function<void()>> events_;
  TimeNs now_ = 0;
};

}  // namespace offpath::sift::simulated
