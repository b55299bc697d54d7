// Agents with sift pools that answer each other's requests, and know the members that the test gives.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/sift/one_sift_agent.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"

namespace offpath::sift {

class SiftAgents {
 public:
  // Called a, b, c ...
  explicit SiftAgents(std::size_t count) : SiftAgents(names_of(count)) {}
  explicit SiftAgents(std::vector<std::string> names) : names_(std::move(names)) {
    for (const std::string& name : names_) {
      agents_.push_back(std::make_unique<OneSiftAgent>(name));
      views_.push_back({name});
    }
  }
  ~SiftAgents() { suffix.clear(); }
  static inline std::string suffix;  // of all such names
  static std::string name_of(std::size_t i) { return std::string(1, static_cast<char>('a' + i)) + suffix; }
  OneSiftAgent& operator[](std::size_t i) { return *agents_[i]; }
  [[nodiscard]] std::size_t size() const { return agents_.size(); }

  void see(std::size_t i, std::vector<std::string> alive) {
    if (views_[i] == alive) return;
    views_[i] = alive;
    agents_[i]->sifts.on_members(std::move(alive), {}, now_, agents_[i]->effects);
    agents_[i]->pools.on_members(views_[i], {}, now_, agents_[i]->effects);
  }
  void all_see_all() {
    std::vector<std::string> all = names_;
    std::ranges::sort(all);
    for (std::size_t i = 0; i < size(); ++i) see(i, all);
  }
  // Admits a stream and puts a frame. Its outcome is in `outcomes`, under the returned number.
  std::uint64_t put(std::size_t i, const std::string& pool, uid_t who = user,
                    const std::vector<std::uint64_t>& ids = {1, 2, 3}) {
    const std::uint64_t token = next_++;
    OneSiftAgent& agent = *agents_[i];
    const auto name = agent.sifts.admit(pool, who, agent.effects);
    if (!name) return outcomes.emplace(token, tl::unexpected(name.error())), token;
    FramePtr frame = particle_frame(*form_, ids, 1, {agent.buffers, who});
    const auto stored = agent.sifts.put({*name, "step1", "", who, 0, false}, frame, token, now_, agent.effects);
    if (!stored) outcomes.emplace(token, tl::unexpected(stored.error()));
    return token;
  }
  void run_for(TimeNs duration) {
    for (const TimeNs end = now_ + duration; now_ < end; now_ += 10 * millisecond_ns) {
      for (auto& agent : agents_)
        if (agent->sifts.next_deadline() <= now_) agent->sifts.on_time(now_, agent->effects);
      for (std::size_t i = 0; i < size(); ++i) take(i);
      const auto due = messages_.upper_bound(now_);
      std::vector<std::function<void()>> ready;
      for (auto at = messages_.begin(); at != due; ++at) ready.push_back(std::move(at->second));
      messages_.erase(messages_.begin(), due);
      for (const auto& each : ready) each();
    }
  }
  [[nodiscard]] SiftService::PoolStatus pool(std::size_t i) {
    const auto all = agents_[i]->sifts.pools();
    return all.empty() ? SiftService::PoolStatus{} : all.front();
  }
  [[nodiscard]] TimeNs now() const { return now_; }

  std::map<std::uint64_t, Status> outcomes;
  std::map<std::string, int> definitions_sent;  // to each member
  std::size_t largest_message = 0;
  std::function<TimeNs()> delay = [] { return millisecond_ns; };

 private:
  [[nodiscard]] static std::vector<std::string> names_of(std::size_t count) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(name_of(i));
    return names;
  }
  void later(std::function<void()> what) { messages_.emplace(now_ + delay(), std::move(what)); }
  void take(std::size_t i) {
    for (service::Effect& effect : std::exchange(agents_[i]->effects, {})) {
      if (auto* stored = std::get_if<service::StoredEffect>(&effect)) {
        EXPECT_TRUE(!stored->status || pool(i).agreed) << "stored before it was agreed on";
        outcomes.emplace(stored->token, std::move(stored->status));
      } else if (auto* ask = std::get_if<service::AskEffect>(&effect);
                 ask != nullptr && service::service_of(ask->token) == service::ServiceId::sift) {
        std::vector<std::byte> payload;
        ask->compose({}, payload);
        largest_message = std::max(largest_message, payload.size());
        if (wire::PeerDefine said{};
            ask->kind == wire::EntryKind::peer_define && wire::decode(payload, said) && !said.definition.empty())
          ++definitions_sent[ask->member];
        later([this, i, token = ask->token, to = ask->member, kind = ask->kind, payload] {
          serve(i, token, to, kind, payload);
        });
      }
    }
  }
  void serve(std::size_t from, std::uint64_t token, const std::string& member, wire::EntryKind kind,
             const std::vector<std::byte>& payload) {
    const bool meet = std::ranges::find(views_[from], member) != views_[from].end();
    const auto to = static_cast<std::size_t>(std::ranges::find(names_, member) - names_.begin());
    Result<pool::Answer> answer = fail(Error::peer_lost, "not met");
    if (meet && to < size()) {
      take(to);
      const channel::Entry entry{token, static_cast<std::uint8_t>(kind), payload};
      const std::string& program = names_[from];
      agents_[to]->sifts.on_request({.channel = 100 + from, .entry = entry, .program = program, .is_member = true},
                                    now_, agents_[to]->effects);
      for (const service::Effect& effect : agents_[to]->effects) {
        if (const auto* failed = std::get_if<service::FailEffect>(&effect)) answer = tl::unexpected(failed->failure);
        if (const auto* reply = std::get_if<service::ReplyEffect>(&effect)) {
          answer = pool::Answer{wire::ReplyKind::done, {}, {}};
          wire::encode(std::get<wire::Done>(reply->message), answer->payload);
        }
      }
      take(to);
    }
    later([this, from, token, answer] { agents_[from]->sifts.on_answer(token, answer, now_, agents_[from]->effects); });
  }

  std::vector<std::string> names_;
  std::vector<std::unique_ptr<OneSiftAgent>> agents_;
  std::vector<std::vector<std::string>> views_;
  std::multimap<TimeNs, std::function<void()>> messages_;
  std::shared_ptr<const RowForm> form_ = RowForm::make(particle_schema(), "id").value();
  TimeNs now_ = second_ns;
  std::uint64_t next_ = 1;
};

}  // namespace offpath::sift
