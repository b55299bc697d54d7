// Objects of 64 bytes in the pool service of one agent: put, get and drop, in process. It runs the agent's code between
// taking a request from a program's ring and passing its effects to the links (pool::Pools): the request is decoded,
// the pool found, the object's buffer taken from the cache, keys looked up, leases and effects made. Rings, descriptors
// and wakes are not included: pool.remote_get_us and `offpath bench move` have those.
//
//   pool.local_ops                         one thread
//   pool.local_ops (2 threads, ...)        two agents' services on two cores: an agent's pools belong to its one loop,
//                                          so two cores never meet in a table
//   pool.local_ops (one cache, ...)        for information: the two take their buffers from one cache, as an agent's
//                                          loop and its jobs do
//   pool.local_ops (behind a lock, ...)    for information: two threads that do share one service, behind a mutex
//
// Each put, each get and each drop counts as one operation; the release of a lease belongs to its get. Keys collide if
// both threads use the same ones, all in one row; otherwise each object has a row of its own. Peer: a
// std::unordered_map with a mutex, from the same key to a string of 64 bytes, without users, leases, or memory that
// another process may map.
//
// --threads-max 1    only the part with one thread, for a profile
// --part growth      instead: an operation beside 1,000 to 10,000,000 other objects in the pool; no claims
#include <unistd.h>
#include <barrier>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "machine.h"
#include "pool/members/pools.h"
#include "report.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

namespace offpath::bench {
namespace {

constexpr std::uint64_t object_bytes = 64;
constexpr std::size_t objects = 256;  // of one thread, in the pool at the same time
constexpr std::uint64_t ops_of_round = 3 * objects;
constexpr const char* pool_name = "local:/particles";
const char contents[object_bytes] = "";

using pool::FrameTable;

struct Key {
  std::string row, column;
};

// A thread's keys. Unless they collide, no other thread has them and each has a row of its own.
std::vector<Key> keys_of(std::size_t thread, bool collide) {
  std::vector<Key> keys;
  for (std::size_t i = 0; i < objects; ++i)
    keys.push_back(collide ? Key{"step000001", fmt::format("rank{:04}", i)}
                           : Key{fmt::format("step{:06}", thread * objects + i), "rank0000"});
  return keys;
}

class Store {
 public:
  virtual ~Store() = default;
  virtual Status round(std::size_t thread) = 0;  // puts, gets and drops every object of the thread once
};

// An agent's service, and the requests of one program for every key, as in its ring.
class Service final : public Store {
 public:
  // `threads` sets of keys; protected by `lock`, if there is one.
  Service(std::size_t threads, bool collide, std::shared_ptr<service::BufferCache> cache, std::size_t first_thread,
          bool locked)
      : cache_(std::move(cache)),
        pools_({}, cache_, [](std::uint64_t) { return true; }),
        first_(first_thread),
        locked_(locked) {
    if (!pools_.admit(pool_name, user_, effects_)) std::abort();
    effects_.clear();
    for (std::size_t thread = 0; thread < threads; ++thread) {
      Program program;
      for (const Key& key : keys_of(first_thread + thread, collide)) {
        program.places.push_back({pool_name, key.row, key.column, user_, 0, false});
        wire::encode(wire::PoolGet{pool_name, key.row, key.column, 0}, program.gets.emplace_back());
        wire::encode(wire::PoolDrop{pool_name, key.row, key.column}, program.drops.emplace_back());
      }
      programs_.push_back(std::move(program));
      pools_.on_channel_open(thread, user_);
    }
  }

  // Puts objects that stay, with keys that no round has.
  Status keep(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) {
      auto frame = std::make_shared<service::Frame>();
      OFP_ASSIGN(frame->buffer, cache_->take(object_bytes, user_));
      frame->bytes = object_bytes;
      const mover::Store::Place place{pool_name, fmt::format("kept{:08}", i), "rank0000", user_, 0, false};
      OFP_TRY(pools_.put(place, std::move(frame), 0, now_, effects_).map([](mover::Stored) {}));
      effects_.clear();
    }
    return {};
  }

  Status round(std::size_t thread) override {
    const std::size_t channel = thread - first_;
    const auto alone = [this] { return locked_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>(); };
    Program& program = programs_[channel];
    for (const mover::Store::Place& place : program.places) {
      const auto held = alone();
      auto frame = std::make_shared<service::Frame>();
      OFP_ASSIGN(frame->buffer, cache_->take(object_bytes, user_));
      std::memcpy(frame->buffer.data(), contents, object_bytes);
      frame->bytes = object_bytes;
      OFP_TRY(pools_.put(place, std::move(frame), 0, now_, effects_).map([](mover::Stored) {}));
      effects_.clear();
    }
    for (const std::vector<std::byte>& asked : program.gets) OFP_TRY(get(channel, asked, alone()));
    for (const std::vector<std::byte>& asked : program.drops) {
      const auto held = alone();
      pools_.on_request(channel, {next_ticket_++, static_cast<std::uint8_t>(wire::EntryKind::pool_drop), asked}, now_,
                        effects_);
      // If threads share objects, another one may have dropped it first.
      if (effects_.size() != 1 || !std::holds_alternative<service::ReplyEffect>(effects_[0]))
        return fail(Error::io, "a drop was not answered");
      effects_.clear();
    }
    return {};
  }

 private:
  struct Program {
    std::vector<mover::Store::Place> places;
    std::vector<std::vector<std::byte>> gets, drops;
  };

  Status get(std::size_t channel, const std::vector<std::byte>& asked, const std::unique_lock<std::mutex>&) {
    pools_.on_request(channel, {next_ticket_++, static_cast<std::uint8_t>(wire::EntryKind::pool_get), asked}, now_,
                      effects_);
    const auto* const given = effects_.empty() ? nullptr : std::get_if<service::HandOverEffect>(&effects_[0]);
    if (given == nullptr) {
      const bool absent = !effects_.empty() && std::holds_alternative<service::FailEffect>(effects_[0]);
      effects_.clear();
      return absent && locked_ ? Status() : fail(Error::io, "a get was not answered");
    }
    const std::uint64_t lease = given->got.lease;
    effects_.clear();
    if (lease == 0) return {};  // the answer enclosed it
    std::vector<std::byte>& release = release_;
    release.clear();
    wire::encode(wire::Release{lease}, release);
    pools_.on_request(channel, {next_ticket_++, static_cast<std::uint8_t>(wire::EntryKind::release), release}, now_,
                      effects_);
    return {};
  }

  const uid_t user_ = ::getuid();
  const TimeNs now_ = 1;
  std::shared_ptr<service::BufferCache> cache_;
  pool::Pools pools_;
  std::size_t first_;
  bool locked_;
  std::mutex mutex_;
  std::vector<Program> programs_;
  service::Effects effects_;
  std::vector<std::byte> release_;
  std::uint64_t next_ticket_ = 1;
};

class Map final : public Store {
 public:
  Map(std::size_t threads, bool collide) {
    for (std::size_t thread = 0; thread < threads; ++thread) {
      std::vector<std::string>& all = keys_.emplace_back();
      for (const Key& key : keys_of(thread, collide)) all.push_back(key.row + '/' + key.column);
    }
  }
  Status round(std::size_t thread) override {
    for (const std::string& key : keys_[thread]) {
      auto object = std::make_shared<std::string>(contents, object_bytes);
      const std::lock_guard lock(mutex_);
      map_.insert_or_assign(key, std::move(object));
    }
    for (const std::string& key : keys_[thread]) {
      std::shared_ptr<std::string> found;
      const std::lock_guard lock(mutex_);
      if (const auto at = map_.find(key); at != map_.end()) found = at->second;
      keep(found);
    }
    for (const std::string& key : keys_[thread]) {
      const std::lock_guard lock(mutex_);
      map_.erase(key);
    }
    return {};
  }

 private:
  std::vector<std::vector<std::string>> keys_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<std::string>> map_;
};

// Nanoseconds for one operation of one thread, while all of them work.
Result<double> turn(const std::vector<Store*>& stores, const std::vector<int>& cores, std::uint64_t rounds) {
  const std::size_t threads = stores.size();
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  std::vector<double> ns(threads);
  std::vector<Status> ended(threads);
  const auto work = [&](std::size_t thread) {
    ended[thread] = pin_to_core(cores[thread % cores.size()]);
    if (ended[thread]) ended[thread] = stores[thread]->round(thread);  // warms up pages and tables
    together.arrive_and_wait();
    const std::uint64_t began = ticks();
    for (std::uint64_t i = 0; i < rounds && ended[thread]; ++i) ended[thread] = stores[thread]->round(thread);
    ns[thread] = double(ticks() - began) * ns_per_tick() / double(rounds * ops_of_round);
    together.arrive_and_wait();
  };
  std::vector<std::thread> others;
  for (std::size_t thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& each : others) each.join();
  for (const Status& status : ended) OFP_TRY(status);
  return mean(ns);
}

struct Case {
  const char* name;  // the line's name in the figure
  bool collide, one_cache, shared;
};
constexpr Case cases[] = {{"keys apart", false, false, false},
                          {"keys collide", true, false, false},
                          {"one cache, keys collide", true, true, false},
                          {"behind a lock, keys apart", false, true, true},
                          {"behind a lock, keys collide", true, true, true}};

Status measure_growth(const Options& options, Report& report) {
  const auto cache = service::BufferCache::make({});
  Service store(1, false, cache, 0, false);
  Series line{"growth_objects", "put, get or drop of 64 B", "objects in the pool", "ns", {}, {}};
  std::uint64_t kept = 0;
  for (std::uint64_t wanted = 1000; wanted <= (options.quick ? 10'000 : 10'000'000); wanted *= 10) {
    OFP_TRY(store.keep(std::exchange(kept, wanted), wanted));
    OFP_ASSIGN(const std::vector<double> ns, run_turns(options.pairs().pairs, options.pairs().warmups, [&] {
                 return turn({&store}, {options.host_core}, options.quick ? 2 : 30);
               }));
    line.x.push_back(double(wanted));
    line.y.push_back(median(ns));
  }
  report.add(std::move(line));
  return {};
}

Status run(const Options& options, Report& report) {
  // An agent has threads for jobs. In a single-threaded process the C library omits locks and atomic reference counts,
  // which an agent never does.
  const std::jthread job([](const std::stop_token& over) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, over, [] { return false; });
  });
  if (options.other("--part") == "growth") return measure_growth(options, report);
  const std::vector<int> cores{options.host_core, options.agent_core};
  const std::uint64_t rounds = options.quick ? 2 : 300;
  for (const Case& each : cases) {
    Series ours{"pool_fig3", fmt::format("Offpath, {}", each.name), "threads", "M/s", {}, {}};
    Series theirs{"pool_fig3", fmt::format("map behind a mutex, {}", each.collide ? "keys collide" : "keys apart"),
                  "threads",   "M/s",
                  {},          {}};
    for (const std::size_t threads : {1U, 2U}) {
      if (threads > 1 && options.other("--threads-max") == "1") continue;
      const auto one_cache = service::BufferCache::make({});
      std::vector<std::unique_ptr<Store>> made;
      std::vector<Store*> stores, peers;
      for (std::size_t thread = 0; thread < threads; ++thread) {
        if (!each.shared || thread == 0)
          made.push_back(std::make_unique<Service>(each.shared ? threads : 1, each.collide,
                                                   each.one_cache ? one_cache : service::BufferCache::make({}),
                                                   each.shared ? 0 : thread, each.shared));
        stores.push_back(made.back().get());
      }
      Map map(threads, each.collide);
      peers.assign(threads, &map);
      OFP_ASSIGN(const Comparison compared, run_pairs(
                                                options.pairs(), [&] { return turn(stores, cores, rounds); },
                                                [&] { return turn(peers, cores, rounds); }));
      ours.x.push_back(double(threads));
      ours.y.push_back(double(threads) * 1e3 / compared.subject);
      theirs.x.push_back(double(threads));
      theirs.y.push_back(double(threads) * 1e3 / compared.peer);
      const bool first = threads == 1 && !each.collide && !each.shared;
      report.add(Claim{
          .claim = first ? "pool.local_ops (64 B, the service in process, 1 thread, keys apart)"
                         : fmt::format("pool.local_ops ({} thread{}, {})", threads, threads > 1 ? "s" : "", each.name),
          .value = 1e3 / compared.subject,
          .unit = "M/s per core",
          .peer = "unordered_map behind a mutex",
          .peer_value = 1e3 / compared.peer,
          .ratio = compared.ratio,
          .interval = compared.interval,
          .pairs = compared.pairs,
          .target = each.one_cache ? std::nullopt : std::optional(value_at_least(2, "M/s"))});
    }
    report.add(std::move(ours));
    if (!each.one_cache) report.add(std::move(theirs));
  }
  if (options.other("--threads-max") == "1") return {};
  std::vector<std::unique_ptr<Store>> made;
  std::vector<Store*> colliding, apart;
  for (std::size_t thread = 0; thread < 2; ++thread)
    for (const bool collide : {true, false}) {
      made.push_back(std::make_unique<Service>(1, collide, service::BufferCache::make({}), thread, false));
      (collide ? colliding : apart).push_back(made.back().get());
    }
  OFP_ASSIGN(const Comparison compared, run_pairs(
                                            options.pairs(), [&] { return turn(colliding, cores, rounds); },
                                            [&] { return turn(apart, cores, rounds); }));
  report.add(Claim{.claim = "pool.local_ops_colliding_vs_apart (2 threads)",
                   .value = 1e3 / compared.subject,
                   .unit = "M/s per core",
                   .peer = "keys apart",
                   .peer_value = 1e3 / compared.peer,
                   .ratio = compared.ratio,
                   .interval = compared.interval,
                   .pairs = compared.pairs,
                   .target = ratio_at_least(0.8)});
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "pool", {"--threads-max", "--part"}, offpath::bench::run);
}
