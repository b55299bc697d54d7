// A query service by itself, for tests: it has this member's rows, and the test answers for other members.
#pragma once

#include "pool/query/query_service.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/pool/frames.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using wire::EntryKind;

inline constexpr service::ChannelNumber asker = 1, stranger = 2;

// Answers for this member's rows and, as a test says, for those of others.
class FakeMembers final : public QueryMembers {
 public:
  struct Asked {
    std::string member;
    EntryKind kind;
    std::vector<std::byte> body, payload;
    Fetched fetched;
  };
  explicit FakeMembers(std::shared_ptr<service::BufferCache> cache) : cache_(std::move(cache)) {}

  const std::string& self() const noexcept override { return self_; }
  Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view, std::string_view, uid_t) override {
    if (pool != "local:/p") return fail(Error::not_found, "there is no pool \"{}\"", pool);
    return std::vector<QuerySource>(4, {frame_of(*particles(100'000, 1), *cache_), "r", "c"});
  }
  Result<std::optional<Spread>> spread(const std::string& pool) override {
    if (!pool.starts_with("hash:/")) return std::nullopt;
    return Spread{pool, members.size(), members, replicas, order};
  }
  std::vector<std::string> lost(const std::string& pool) const override {
    return pool.starts_with("hash:/") ? gone : std::vector<std::string>{};
  }
  Result<std::vector<QuerySource>> choose_part(const Part& part, service::Effects&) override {
    if (part.view != view) return fail(Error::would_block, "member {} knows of others", self_);
    return own;
  }
  Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) override {
    return WaitAccounts::charge(accounts, user, bytes);
  }
  void fetch_part(std::string member, uid_t, EntryKind kind, TimeNs, std::vector<std::byte> body, Compose compose,
                  Fetched fetched, TimeNs, service::Effects&) override {
    std::vector<std::byte> payload;
    compose({.bytes = {.length = body.size()}}, 1, payload);
    asked.push_back({std::move(member), kind, std::move(body), std::move(payload), std::move(fetched)});
  }
  void cancel_part(const std::string& member, std::uint64_t, TimeNs, service::Effects&) override {
    cancelled.push_back(member);
  }
  // As who gives frames to programs does.
  void answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs, service::Effects& effects) override {
    wire::Got got{};
    got.length = frame->bytes;
    got.rows = frame->rows;
    service::HandOverEffect over{get.channel, get.ticket, frame, got};
    effects.emplace_back(std::move(over));
  }

  std::vector<std::string> members = {"a", "b", "c"};
  std::uint32_t replicas = 1;
  std::vector<std::string> order, gone;
  std::uint64_t view = 3;
  std::vector<QuerySource> own;
  std::deque<Asked> asked;
  std::vector<std::string> cancelled;
  std::shared_ptr<WaitAccounts> accounts =
      std::make_shared<WaitAccounts>(WaitAccounts::Limits{64, 64, 1 << 20});  // requests, of a user, bytes

 private:
  std::shared_ptr<service::BufferCache> cache_;
  std::string self_ = "b";
};

class QueryServiceTest : public ::testing::Test {
 protected:
  QueryServiceTest() {
    service_.on_channel_open(asker, 1000);
    service_.on_channel_open(stranger, 1001);
  }
  static QueryService::Limits limits() {
    QueryService::Limits made;
    made.query = {.threads = 1, .frame_bytes_max = 64 << 10, .step_bytes = 128 << 10};
    made.open_max = 2;
    return made;
  }
  template <class Message>
  std::uint64_t ask(EntryKind kind, const Message& message, service::ChannelNumber channel = asker, TimeNs now = 0) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    service_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, is_member_, now, effects_);
    return ticket_;
  }
  // Asks, lets the bytes arrive, and runs jobs until there is nothing to do but answer.
  void begin(const Query& query, std::int64_t wait_ns = -1, const std::string& pool = "local:/p") {
    const auto bytes = encode(query);
    ask(EntryKind::pool_query,
        wire::PoolQuery{pool, "*", "*", wait_ns, {.region = 1, .generation = 1, .offset = 0, .length = bytes.size()}});
    auto* const pull = effects_.empty() ? nullptr : std::get_if<service::PullEffect>(&effects_.back());
    if (pull == nullptr) return;
    std::memcpy(pull->pieces.at(0).to, bytes.data(), bytes.size());
    const std::uint64_t token = pull->token;
    effects_.clear();
    service_.on_transfer(token, {}, 0, effects_);
  }
  void run_jobs() {
    for (std::size_t i = 0; i < effects_.size(); ++i) {
      auto* const job = std::get_if<service::JobEffect>(&effects_[i]);
      if (job == nullptr) continue;
      const service::JobEffect taken = std::move(*job);
      effects_.erase(effects_.begin() + static_cast<std::ptrdiff_t>(i));
      service_.on_job(taken.token, taken.run(), 0, effects_);
      i = static_cast<std::size_t>(-1);
    }
  }
  template <class Effect>
  const Effect* only() {
    return effects_.size() == 1 ? std::get_if<Effect>(&effects_.front()) : nullptr;
  }
  std::uint64_t done() {
    const auto* const reply = only<service::ReplyEffect>();
    const auto* const said = reply != nullptr ? std::get_if<wire::Done>(&reply->message) : nullptr;
    EXPECT_NE(said, nullptr);
    const std::uint64_t value = said != nullptr ? said->value : 0;
    effects_.clear();
    return value;
  }
  std::string failure() {
    const auto* const failed = only<service::FailEffect>();
    const std::string message = failed != nullptr ? failed->failure.message : "no failure";
    effects_.clear();
    return message;
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  FakeMembers members_{cache_};
  QueryService service_{limits(), cache_, members_};
  service::Effects effects_;
  std::uint64_t ticket_ = 0;
  bool is_member_ = false;
};

}  // namespace offpath::pool
