// Sift pools of agents alone: requests and answers in, effects out.
#include "sift/sift_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sift/split/particles.h"
#include "testing/pool/memory_store.h"
#include "wire/cursor.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;
using wire::EntryKind;

constexpr uid_t user = 1000, other_user = 1001;

// One agent's pools and sift pools.
struct OneAgent {
  explicit OneAgent(const std::string& name, std::shared_ptr<pool::ObjectStore> store = nullptr,
                    const SiftServiceOptions& options = {})
      : pools(pools_options(std::move(store)), buffers, [](std::uint64_t) { return true; }),
        sifts(options, buffers, [](std::uint64_t) { return true; }, pools) {
    pools.set_self(name, 1);
    sifts.set_self(name, 1);
  }
  static pool::PoolsOptions pools_options(std::shared_ptr<pool::ObjectStore> store) {
    pool::PoolsOptions options;
    options.store = std::move(store);
    return options;
  }
  // Restores the objects of its disk.
  void recover() {
    EXPECT_TRUE(pools.recover(now, effects));
    sifts.recover(now, effects);
    run_for(0);
  }
  // Runs jobs of the disk and their effects.
  void run_for(TimeNs duration) {
    for (const TimeNs end = now + duration;; now = std::min(end, now + 10 * millisecond_ns)) {
      pools.spill(now, effects);
      pools.on_time(now, effects);
      if (sifts.next_deadline() <= now) sifts.on_time(now, effects);
      for (bool any = true; std::exchange(any, false);)
        for (const service::Effect& effect : std::exchange(effects, {}))
          if (const auto* job = std::get_if<service::JobEffect>(&effect);
              job != nullptr && service::service_of(job->token) == service::ServiceId::disk) {
            pools.on_disk_job(job->token, job->run(), now, effects);
            any = true;
          } else if (const auto* stored = std::get_if<service::StoredEffect>(&effect)) {
            outcomes.push_back(stored->status);
          }
      if (now == end) return;
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const SiftService::PoolStatus& pool : sifts.pools()) all.push_back(pool.name);
    return all;
  }

  TimeNs now = second_ns;
  std::shared_ptr<service::BufferCache> buffers = service::BufferCache::make({.huge_pages = false});
  pool::Pools pools;
  SiftService sifts;
  service::Effects effects;
  std::vector<Status> outcomes;  // of puts
};

// An object that a program could have put: it claims to be the pool's identity.
void put_identity(pool::MemoryStore& store, const std::string& pool, uid_t pool_user, uid_t said_user,
                  const std::string& text) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  writer.put(std::uint64_t{7});
  writer.put(std::uint64_t{said_user});
  writer.put_text(text);
  pool::ObjectRecord record;
  record.number = store.files.size() + 1;
  record.bytes = bytes.size();
  record.pool_user = record.user = pool_user;
  record.pool = pool + "?spill=durable";
  record.row = "a";
  record.column = "pool";
  ASSERT_TRUE(store.write(std::move(record), bytes, true));
}

TEST(SiftService, AForgedRecordDefinesNoPoolAtRestart) {
  const auto store = std::make_shared<pool::MemoryStore>();
  put_identity(*store, "local:/t.kept-0badcafe", user, 0, "sift:/t?key=id&spill=durable&members=a");
  put_identity(*store, "local:/u.kept-0badcafe", user, user, "sift:/u?key=id&spill=durable&members=a");
  OneAgent agent("a", store);
  agent.recover();
  EXPECT_TRUE(agent.names().empty()) << agent.names().front() << " of user " << agent.sifts.pools().front().user;
}

TEST(SiftService, APoolWhoseRecordCannotBeReadForSecondsIsTakenUpAndNoOtherOfItsNameIsMade) {
  const auto store = std::make_shared<pool::MemoryStore>();
  constexpr const char* kept = "sift:/t?key=id&spill=durable&members=a";
  {
    OneAgent before("a", store);
    ASSERT_TRUE(before.sifts.admit(kept, user, before.effects));
    before.run_for(second_ns);
    ASSERT_EQ(store->files.size(), 1u);
  }
  OneAgent agent("a", store);
  bool fails = true;
  store->fails_reading = [&] { return fails; };
  agent.recover();
  agent.run_for(5 * second_ns);
  EXPECT_TRUE(agent.names().empty());
  constexpr const char* other = "sift:/t?key=other&spill=durable";
  EXPECT_TRUE(agent.sifts.admit(other, user, agent.effects)) << "it waits";
  EXPECT_TRUE(agent.names().empty());
  const std::uint64_t ids[] = {1, 2, 3};
  const FramePtr frame = particle_frame(*RowForm::make(particle_schema(), "id").value(), ids, 1, {agent.buffers, user});
  EXPECT_TRUE(agent.sifts.put({other, "step1", "", user, 0, false}, frame, 9, agent.now, agent.effects));
  agent.run_for(second_ns);
  EXPECT_TRUE(agent.outcomes.empty());
  fails = false;
  agent.run_for(5 * second_ns);
  ASSERT_EQ(agent.names(), std::vector<std::string>{"sift:/t"});
  EXPECT_EQ(agent.sifts.pools().front().text, kept);
  ASSERT_EQ(agent.outcomes.size(), 1u);
  ASSERT_FALSE(agent.outcomes.front());
  EXPECT_EQ(agent.outcomes.front().error().code, Error::exists) << agent.outcomes.front().error().message;
}

// Agents that answer each other's requests, and know the members that the test gives.
class Agents {
 public:
  explicit Agents(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) agents_.push_back(std::make_unique<OneAgent>(name_of(i)));
    views_.resize(count);
    for (std::size_t i = 0; i < count; ++i) views_[i] = {name_of(i)};
  }
  static std::string name_of(std::size_t i) { return std::string(1, static_cast<char>('a' + i)); }
  OneAgent& operator[](std::size_t i) { return *agents_[i]; }
  [[nodiscard]] std::size_t size() const { return agents_.size(); }

  void see(std::size_t i, std::vector<std::string> alive) {
    if (views_[i] == alive) return;
    views_[i] = alive;
    agents_[i]->sifts.on_members(std::move(alive), {}, now_, agents_[i]->effects);
    agents_[i]->pools.on_members(views_[i], {}, now_, agents_[i]->effects);
  }
  void all_see_all() {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back(name_of(i));
    for (std::size_t i = 0; i < size(); ++i) see(i, all);
  }
  // Admits a stream and puts a frame. Its outcome is in `outcomes`, under the returned number.
  std::uint64_t put(std::size_t i, const std::string& pool, uid_t who = user) {
    const std::uint64_t token = next_++;
    OneAgent& agent = *agents_[i];
    const auto name = agent.sifts.admit(pool, who, agent.effects);
    if (!name) return outcomes.emplace(token, tl::unexpected(name.error())), token;
    const std::uint64_t ids[] = {1, 2, 3};
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
  std::function<TimeNs()> delay = [] { return millisecond_ns; };

 private:
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
        later([this, i, token = ask->token, to = static_cast<std::size_t>(ask->member[0] - 'a'), kind = ask->kind,
               payload] { serve(i, token, to, kind, payload); });
      }
    }
  }
  void serve(std::size_t from, std::uint64_t token, std::size_t to, EntryKind kind,
             const std::vector<std::byte>& payload) {
    const bool meet = std::ranges::find(views_[from], name_of(to)) != views_[from].end();
    Result<pool::Answer> answer = fail(Error::peer_lost, "not met");
    if (meet) {
      take(to);
      const channel::Entry entry{token, static_cast<std::uint8_t>(kind), payload};
      const std::string program = name_of(from);
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

  std::vector<std::unique_ptr<OneAgent>> agents_;
  std::vector<std::vector<std::string>> views_;
  std::multimap<TimeNs, std::function<void()>> messages_;
  std::shared_ptr<const RowForm> form_ = RowForm::make(particle_schema(), "id").value();
  TimeNs now_ = second_ns;
  std::uint64_t next_ = 1;
};

constexpr const char* text = "sift:/t?key=id&threshold=64KiB&budget=1MiB";

TEST(SiftService, AgentsThatSeeDifferentMembersMakeOnePool) {
  Agents agents(3);
  agents.see(0, {"a", "b"});
  agents.see(1, {"a", "b", "c"});
  agents.see(2, {"b", "c"});
  std::vector<std::uint64_t> puts;
  for (std::size_t i = 0; i < 3; ++i) puts.push_back(agents.put(i, text));
  agents.run_for(second_ns);
  agents.all_see_all();
  agents.run_for(20 * second_ns);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(agents.pool(i).text, HasSubstr("members=a,b,c")) << i;
    EXPECT_TRUE(agents.pool(i).agreed) << i;
    ASSERT_TRUE(agents.outcomes.contains(puts[i])) << i;
    EXPECT_TRUE(agents.outcomes.at(puts[i])) << agents.outcomes.at(puts[i]).error().message;
  }
}

TEST(SiftService, AThousandMembersAreNamedAsRanges) {
  Agents agents(1);
  std::vector<std::string> names{"a"};
  for (int node = 1; node <= 500; ++node)
    for (int card = 0; card < 2; ++card) names.push_back(fmt::format("glinda{:03}-{}", node, card));
  agents.see(0, names);
  static_cast<void>(agents.put(0, text));
  EXPECT_THAT(agents.pool(0).text, HasSubstr("members=a,glinda{001..500}-{0..1}"));
}

// Members meet, pools are named meanwhile, and messages are late: one of all definitions is agreed on, and agents that
// are not among its members get an error.
TEST(SiftService, WhoeverNamesAPoolWhileMembersMeetOneDefinitionWins) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint64_t end) { return random() % end; };
    Agents agents(2 + below(4));
    agents.delay = [&below] {
      return static_cast<TimeNs>(1 + below(below(5) == 0 ? 2 * second_ns : 20 * millisecond_ns));
    };
    std::map<std::size_t, std::uint64_t> puts;
    std::vector<std::set<std::string>> seen(agents.size());
    for (std::size_t i = 0; i < agents.size(); ++i) seen[i] = {Agents::name_of(i)};
    for (int step = 0; step < 12; ++step) {
      const std::size_t i = below(agents.size());
      seen[i].insert(Agents::name_of(below(agents.size())));
      agents.see(i, {seen[i].begin(), seen[i].end()});
      const std::size_t who = below(agents.size());
      if (seen[who].size() > 1 && !puts.contains(who) && below(5) < 2) puts[who] = agents.put(who, text);
      agents.run_for(static_cast<TimeNs>(below(300 * millisecond_ns)));
    }
    agents.all_see_all();
    agents.run_for(60 * second_ns);
    std::set<std::string> agreed;
    std::vector<std::string> rivals;
    for (std::size_t i = 0; i < agents.size(); ++i)
      if (const auto pool = agents.pool(i); pool.agreed && !pool.text.empty()) {
        if (pool.rival.empty())
          agreed.insert(pool.text);
        else
          rivals.push_back(pool.rival);
      }
    EXPECT_LE(agreed.size(), 1u) << *agreed.begin() << " and " << *agreed.rbegin();
    for (const std::string& rival : rivals) EXPECT_TRUE(agreed.contains(rival)) << rival;
    for (const auto& [who, token] : puts) {
      ASSERT_TRUE(agents.outcomes.contains(token)) << "the put of " << who << " waits: " << agents.pool(who).text;
      const Status& outcome = agents.outcomes.at(token);
      EXPECT_TRUE(outcome || outcome.error().code == Error::exists) << outcome.error().message;
    }
  }
}

TEST(SiftService, OfTwoPoolsThatMeetTheOneWithMoreMembersWinsAndTheOtherSaysSo) {
  Agents agents(3);
  agents.see(0, {"a", "b"});
  agents.see(1, {"a", "b"});
  const std::uint64_t larger = agents.put(0, text), smaller = agents.put(2, text);
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.outcomes.at(larger));
  EXPECT_TRUE(agents.outcomes.at(smaller)) << "it knows of nobody else";
  agents.all_see_all();
  agents.run_for(10 * second_ns);
  const std::uint64_t refused = agents.put(2, text), taken = agents.put(1, text);
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.outcomes.at(taken));
  ASSERT_FALSE(agents.outcomes.at(refused));
  EXPECT_EQ(agents.outcomes.at(refused).error().code, Error::exists);
  EXPECT_THAT(agents.outcomes.at(refused).error().message, HasSubstr("members=a,b\" on other members, which wins"));
  EXPECT_THAT(agents.pool(2).rival, HasSubstr("members=a,b"));
  EXPECT_EQ(agents.pool(2).stages.front().pieces_taken, 1u) << "what it took, it has";
}

TEST(SiftService, APoolThatWaitsForMembersIsMadeWhenTheyLive) {
  Agents agents(3);
  const std::string waits = std::string(text) + "&wait=3";
  const std::uint64_t put = agents.put(0, waits), other = agents.put(0, "sift:/t", other_user),
                      differs = agents.put(0, "sift:/t?key=other&wait=3");
  EXPECT_EQ(agents.outcomes.at(other).error().code, Error::denied);
  EXPECT_EQ(agents.outcomes.at(differs).error().code, Error::exists);
  agents.see(0, {"a", "b"});
  agents.run_for(5 * second_ns);
  EXPECT_FALSE(agents.outcomes.contains(put));
  EXPECT_TRUE(agents[0].names().empty());
  agents.all_see_all();
  agents.run_for(second_ns);
  ASSERT_TRUE(agents.outcomes.contains(put));
  EXPECT_TRUE(agents.outcomes.at(put)) << agents.outcomes.at(put).error().message;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_THAT(agents.pool(i).text, HasSubstr("members=a,b,c"));
  const std::uint64_t again = agents.put(1, waits);
  agents.run_for(second_ns);
  EXPECT_TRUE(agents.outcomes.at(again)) << "the same name, once it is made";
}

TEST(SiftService, AMemberThatTakesNoRowsMakesThePool) {
  OneAgent agent("a");
  agent.sifts.set_places([](const std::string& member) { return MemberPlace{"", member == "a"}; });
  agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
  const Status made = agent.sifts.make("sift:/t?key=id&stage1=hosts", user, agent.effects);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_THAT(agent.names(), ::testing::ElementsAre("sift:/t"));
  EXPECT_TRUE(agent.sifts.make("sift:/waits?key=id&stage1=hosts&wait=3", user, agent.effects)) << "later";
  const auto rows = agent.sifts.admit("sift:/t", user, agent.effects);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, Error::unsupported);
}

TEST(SiftService, AnAgentWritesTracksForItsOwnUserAlone) {
  OneAgent agent("a", nullptr, {.agent_user = user});
  const auto write = [&](uid_t who, uid_t asker, EntryKind kind) {
    const std::string pool = fmt::format("sift:/{}?key=id&members=a", who);
    if (auto made = agent.sifts.admit(pool, who, agent.effects); !made) return made.error().message;
    agent.run_for(second_ns);
    agent.sifts.on_opened({.number = 1, .client = {.program = "p", .user = asker}});
    std::vector<std::byte> payload;
    if (kind == EntryKind::peer_write)
      wire::encode(wire::PeerWrite{wire::PeerWrite::What::begin, who, asker, 1, 1, second_ns, pool, "/none/d"},
                   payload);
    else
      wire::encode(wire::SiftWrite{second_ns, pool, "/none/d"}, payload);
    agent.effects.clear();
    const auto ask = [&](EntryKind asked, std::uint64_t ticket) {
      const channel::Entry entry{ticket, static_cast<std::uint8_t>(asked), payload};
      agent.sifts.on_request({.channel = 1, .entry = entry, .program = "p", .is_member = true}, agent.now,
                             agent.effects);
    };
    ask(kind, 1);
    if (kind == EntryKind::sift_write)
      if (const auto* begun = std::get_if<service::ReplyEffect>(&agent.effects.back())) {
        payload.clear();
        wire::encode(wire::SiftWritten{std::get<wire::Done>(begun->message).value, 0, false}, payload);
        ask(EntryKind::sift_written, 2);
      }
    for (const service::Effect& effect : agent.effects)
      if (const auto* failed = std::get_if<service::FailEffect>(&effect)) return failed->failure.message;
    return std::string();
  };
  for (const EntryKind kind : {EntryKind::peer_write, EntryKind::sift_write}) {
    EXPECT_THAT(write(other_user, other_user, kind),
                HasSubstr("agent a runs as user 1000 and writes files for that user alone, not for user 1001"));
    EXPECT_THAT(write(user, 0, kind), HasSubstr("not for user 0"));
    EXPECT_EQ(write(user, user, kind), "");
  }
}

TEST(SiftService, SiftPoolsOfAUserAreBounded) {
  OneAgent agent("a", nullptr, {.user_pools_max = 1});
  ASSERT_TRUE(agent.sifts.admit("sift:/1?key=id", user, agent.effects));
  const auto second = agent.sifts.admit("sift:/2?key=id", user, agent.effects);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Error::too_large);
  EXPECT_THAT(second.error().message, HasSubstr("limits.user_pools_max"));
  EXPECT_TRUE(agent.sifts.admit("sift:/1", user, agent.effects));
  EXPECT_TRUE(agent.sifts.admit("sift:/3?key=id", other_user, agent.effects));
}

TEST(SiftService, ARoundDoesNotLookAtPoolsThatHaveNothingToDo) {
  OneAgent agent("a");
  std::size_t pools = 0;
  std::vector<TimeNs> took;
  const auto rounds_take = [&](std::size_t count) {
    while (pools < count)
      ASSERT_TRUE(agent.sifts.admit("sift:/" + std::to_string(pools++) + "?key=id", user, agent.effects));
    agent.sifts.on_time(agent.now, agent.effects);
    EXPECT_GT(agent.sifts.next_deadline(), agent.now);
    TimeNs best = never;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const TimeNs began = monotonic_ns();
      for (int i = 0; i < 1000; ++i) {
        agent.sifts.on_time(agent.now, agent.effects);
        EXPECT_GT(agent.sifts.next_deadline(), agent.now);
      }
      best = std::min(best, monotonic_ns() - began);
    }
    took.push_back(best);
  };
  rounds_take(10);
  rounds_take(2000);
  EXPECT_LT(took[1], 20 * took[0]) << "of 1000 rounds, with 2000 pools and with 10";
}

// Agent a of a pool of three, with a program's channel.
struct OneOfThree : OneAgent {
  OneOfThree() : OneAgent("a") {
    sifts.on_members({"a", "b", "c"}, {}, now, effects);
    EXPECT_TRUE(sifts.admit("sift:/t?key=id&members=a,b,c", user, effects));
    full = sifts.pools().front().text;
    sifts.on_opened({.number = program, .client = {.program = "p", .user = user}});
    ask(member, EntryKind::peer_flush, 1, wire::PeerFlush{user, 0, 1, full});  // a member that asks has agreed
    effects.clear();
  }
  template <class Message>
  void ask(service::ChannelNumber channel, EntryKind kind, std::uint64_t ticket, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    sifts.on_request({.channel = channel,
                      .entry = {ticket, static_cast<std::uint8_t>(kind), payload},
                      .program = "p",
                      .is_member = channel == member},
                     now, effects);
  }
  // Tokens by member of what was asked since the last call.
  std::map<std::string, std::uint64_t> asked() {
    std::map<std::string, std::uint64_t> tokens;
    for (const service::Effect& effect : effects)
      if (const auto* ask = std::get_if<service::AskEffect>(&effect);
          ask != nullptr && ask->kind == EntryKind::peer_flush)
        tokens.emplace(ask->member, ask->token);
    std::erase_if(effects, [](const auto& each) { return std::holds_alternative<service::AskEffect>(each); });
    return tokens;
  }
  // By ticket.
  std::map<std::uint64_t, Failure> failed() const {
    std::map<std::uint64_t, Failure> failures;
    for (const service::Effect& effect : effects)
      if (const auto* each = std::get_if<service::FailEffect>(&effect)) failures.emplace(each->ticket, each->failure);
    return failures;
  }

  static constexpr service::ChannelNumber program = 1, member = 2;
  std::string full;
};

TEST(SiftService, AFlushEndsWhenAMemberDiesThoughItHasAnswered) {
  for (const bool restarts : {false, true}) {
    OneOfThree agent;
    agent.ask(agent.program, EntryKind::sift_flush, 7, wire::SiftFlush{-1, "sift:/t"});
    const auto tokens = agent.asked();
    ASSERT_EQ(tokens.size(), 2u);
    service::Answer done{wire::ReplyKind::done, {}, {}};
    wire::encode(wire::Done{0}, done.payload);
    agent.sifts.on_answer(tokens.at("c"), done, agent.now, agent.effects);  // b waits for a mark of c, which has all
    agent.ask(agent.member, EntryKind::peer_flush, 8, wire::PeerFlush{user, 100, never, agent.full});
    EXPECT_TRUE(agent.failed().empty());
    if (restarts)
      agent.sifts.on_members({"a", "b", "c"}, {"c"}, agent.now, agent.effects);
    else
      agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
    const auto failed = agent.failed();
    for (const std::uint64_t ticket : {7, 8}) {
      ASSERT_TRUE(failed.contains(ticket)) << ticket;
      EXPECT_EQ(failed.at(ticket).code, Error::peer_lost);
      EXPECT_THAT(failed.at(ticket).message, HasSubstr(restarts ? "member c was started anew" : "member c was lost"));
    }
  }
}

TEST(SiftService, AFlushWithoutAMemberIsRefusedBeforeOthersWaitForIt) {
  OneOfThree agent;
  agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
  agent.effects.clear();
  agent.ask(agent.program, EntryKind::sift_flush, 7, wire::SiftFlush{-1, "sift:/t"});
  EXPECT_TRUE(agent.asked().empty());
  ASSERT_TRUE(agent.failed().contains(7));
  EXPECT_EQ(agent.failed().at(7).code, Error::peer_lost);
  EXPECT_THAT(agent.failed().at(7).message, HasSubstr("member c is away"));
  agent.sifts.on_members({"a", "b", "c"}, {}, agent.now, agent.effects);
  agent.effects.clear();
  agent.ask(agent.program, EntryKind::sift_flush, 9, wire::SiftFlush{-1, "sift:/t"});
  EXPECT_EQ(agent.asked().size(), 2u);
  EXPECT_TRUE(agent.failed().empty());
}

TEST(SiftService, AWriteThatWaitsForThePoolIsDroppedWhenNobodyWaitsForIt) {
  OneAgent agent("a", nullptr, {.agent_user = user});
  agent.sifts.on_members({"a", "b"}, {}, agent.now, agent.effects);
  ASSERT_TRUE(agent.sifts.admit("sift:/t?key=id&members=a,b", user, agent.effects));
  const std::string full = agent.sifts.pools().front().text;
  agent.sifts.on_opened({.number = 1, .client = {.program = "p", .user = user}});
  const auto ask = [&](EntryKind kind, std::uint64_t ticket, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    agent.sifts.on_request(
        {.channel = 1, .entry = {ticket, static_cast<std::uint8_t>(kind), payload}, .program = "p", .is_member = true},
        agent.now, agent.effects);
  };
  agent.effects.clear();
  ask(EntryKind::sift_write, 1, wire::SiftWrite{second_ns, full, "/none/d"});
  ask(EntryKind::sift_write, 2, wire::SiftWrite{10 * second_ns, full, "/none/d"});
  agent.now += 2 * second_ns;
  ask(EntryKind::peer_flush, 3, wire::PeerFlush{user, 0, 1, full});  // a member that asks has agreed
  std::vector<std::uint64_t> begun;
  std::map<std::uint64_t, std::string> failures;
  for (const service::Effect& effect : agent.effects) {
    if (const auto* reply = std::get_if<service::ReplyEffect>(&effect)) begun.push_back(reply->ticket);
    if (const auto* failed = std::get_if<service::FailEffect>(&effect))
      failures[failed->ticket] = failed->failure.message;
  }
  EXPECT_THAT(failures[1], HasSubstr("was not ready to be written in time"));
  EXPECT_THAT(begun, testing::Contains(2u));
  EXPECT_THAT(begun, testing::Not(testing::Contains(1u)));
}

}  // namespace
}  // namespace offpath::sift
