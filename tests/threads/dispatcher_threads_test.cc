// One agent's loop with its jobs, disk and workers, and programs on threads of their own beside it: src/service and all
// parts that it joins, for the thread sanitizer. Links are real; programs use the C library. How much is done is a
// number of rounds, never a time.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <thread>
#include <unordered_map>

#include "agent/acceptor.h"
#include "agent/plugin_processes.h"
#include "agent/services/dispatcher.h"
#include "group/group.h"
#include "loop/job_pool.h"
#include "pool/query/query.h"
#include "pool/table/spill_directory.h"
#include "testing/link/emulated.h"
#include "tests/threads/programs.h"

namespace offpath::agent {
namespace {

constexpr std::uint64_t memory_max = 256 << 20;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char path[] = "/tmp/offpath_threads_XXXXXX";
    OFP_ASSERT(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The state that is left when the programs have gone.
struct Left {
  loop::JobPoolCounters jobs, file_jobs, disk_jobs;
  mover::MoverCounters mover;
  std::uint64_t used_bytes = 0, objects = 0;
  std::uint64_t worker_starts = 0;
};

// The parts that src/agent/agent.cc joins, on a thread of its own, without configuration, status, other members and
// network.
class RunningAgent {
 public:
  explicit RunningAgent(const TemporaryFolder& folder) : folder_(folder) {
    std::promise<void> listening;
    thread_ = std::thread([&] { live(listening); });
    listening.get_future().wait();
  }
  // Once all programs have closed their channels.
  [[nodiscard]] Left stop() {
    OFP_ASSERT(ends_->post(0));
    thread_.join();
    return left_;
  }
  [[nodiscard]] std::string address() const { return "unix:" + folder_.file("agent"); }

 private:
  struct Channels final : loop::Poller {
    explicit Channels(RunningAgent& of) : agent(of) {}
    bool poll(TimeNs now) override {
      const bool did = agent.dispatcher_->poll(now);
      if (agent.ending_ && agent.dispatcher_->channels().empty() && agent.is_idle()) agent.end();
      return did;
    }
    bool fall_asleep(TimeNs now) override { return !agent.ending_ && agent.dispatcher_->fall_asleep(now); }
    TimeNs next_deadline() const override { return agent.dispatcher_->next_deadline(); }
    RunningAgent& agent;
  };

  static std::string built(const std::string& file) { return std::string(getenv("OFFPATH_BUILD_DIR")) + "/" + file; }

  void live(std::promise<void>& listening) {
    auto loop = loop::Loop::make({});
    auto store = pool::SpillDirectory::open(folder_.file("spill"));
    OFP_ASSERT(loop && store);
    loop_ = std::move(*loop);
    jobs_ = std::make_unique<loop::JobPool>(*loop_, loop::JobPoolOptions{.threads = 3, .queue_max = 4});
    file_jobs_ = std::make_unique<loop::JobPool>(*loop_, loop::JobPoolOptions{.threads = 2});
    disk_jobs_ = std::make_unique<loop::JobPool>(*loop_, loop::JobPoolOptions{.threads = 4});
    DispatcherOptions options;
    options.mover.memory_bytes_max = memory_max;
    options.mover.inline_bytes_max = 16 << 10;  // larger frames are finished in jobs
    options.buffers.cached_bytes_max = 16 << 20;
    options.pools.store = std::move(*store);
    dispatcher_ = std::make_unique<Dispatcher>(options, [this](std::uint64_t token, std::function<Status()> run) {
      const service::ServiceId service = service::service_of(token);
      loop::JobPool& pool = service == service::ServiceId::disk   ? *disk_jobs_
                            : service == service::ServiceId::pool ? *file_jobs_
                                                                  : *jobs_;
      pool.start(std::move(run),
                 [this, token](Status status, TimeNs now) { dispatcher_->on_job(token, std::move(status), now); });
    });
    dispatcher_->on_added = [this](const channel::AgentEnd& channel) {
      link::AgentLink& link = dispatcher_->find(channel.number())->link();
      const auto watch = [&](int fd, std::uint32_t events, void (link::AgentLink::*tell)()) {
        OFP_ASSERT(loop_->watch(
            fd, events, [&link, tell](std::uint32_t, TimeNs) { (link.*tell)(); }, loop::Loop::After::sleep));
        watched_[channel.number()].push_back(fd);
      };
      watch(link.event_fd(), EPOLLIN, &link::AgentLink::on_readable);
      watch(link.life_fd(), EPOLLIN, &link::AgentLink::on_readable);
      watch(link.wake_fd(), EPOLLIN | EPOLLET, &link::AgentLink::on_wake);
      link.on_watched();
    };
    dispatcher_->on_closing_channel = [this](const channel::AgentEnd& channel) {
      const auto watched = watched_.extract(channel.number());
      for (const int fd : watched.mapped()) loop_->unwatch(fd);
    };
    Channels channels(*this);
    loop_->add(channels);
    group_ = std::make_unique<group::Group>(group::Identity{"alone", 0, 1, address(), "", "", ""},
                                            group::GroupOptions{}, group::Reach::Surroundings{}, monotonic_ns());
    dispatcher_->serve_group(*group_, geteuid(), monotonic_ns());
    loop_->add(*group_);
    make_plugins();
    Acceptor acceptor(
        *loop_, std::make_shared<link::AgentPolicy>(), welcome(), {}, [](uid_t) { return Status(); },
        [this](Acceptor::Arrival arrival, TimeNs now) {
          dispatcher_->add_channel(std::move(arrival.link), arrival.layout, arrival.client, now);
        });
    auto listened = link::Address::parse(address());
    OFP_ASSERT(listened && acceptor.listen(*listened));
    ends_ = std::make_unique<loop::Mailbox<int>>(*loop_, 2, [this](int, TimeNs) { ending_ = true; });
    loop_->add(*ends_);
    listening.set_value();
    loop_->run();
    disk_jobs_.reset();
    dispatcher_->flush();
    acceptor.close();
    loop_->remove(*plugins_);
    plugins_.reset();
    jobs_.reset();
    file_jobs_.reset();
    dispatcher_.reset();
    loop_->remove(*group_);
    loop_->remove(channels);
  }

  void make_plugins() {
    plugin::PluginOptions options;
    options.name = "t";
    options.path = built("tests/task_plugin.so");
    options.memory_bytes = std::uint64_t{1} << 46;  // a sanitizer's shadow is a worker's memory, too
    options.deadline_ns = link::patience_ns();
    options.workers = 2;
    plugins_ = std::make_unique<PluginProcesses>(*loop_, std::vector{std::move(options)}, built("bin/offpath-worker"));
    loop_->add(*plugins_);
    CallFunctions functions;
    functions.call = [this](plugin::Call call, TimeNs now, CallFunctions::Done done) {
      return plugins_->call(std::move(call), now, std::move(done));
    };
    functions.cancel = [this](plugin::CallNumber number, TimeNs now) { plugins_->cancel(number, now); };
    dispatcher_->serve_plugins(std::move(functions));
  }

  static wire::Welcome welcome() {
    wire::Welcome welcome;
    welcome.incarnation = 77;
    welcome.memory_bytes_max = memory_max;
    welcome.agent_name = "threads";
    welcome.agent_version = "0";
    return welcome;
  }

  [[nodiscard]] bool is_idle() const {
    return std::ranges::all_of(std::array{jobs_.get(), file_jobs_.get(), disk_jobs_.get()},
                               [](const auto* pool) { return pool->counters().started == pool->counters().finished; });
  }

  void end() {
    left_ = {.jobs = jobs_->counters(),
             .file_jobs = file_jobs_->counters(),
             .disk_jobs = disk_jobs_->counters(),
             .mover = dispatcher_->mover().counters(),
             .used_bytes = dispatcher_->buffers().used_bytes()};
    for (const auto& each : dispatcher_->pools().pools()) left_.objects += each.frames;
    for (const auto& each : plugins_->status()) left_.worker_starts += each.counters.starts;
    loop_->stop();
  }

  const TemporaryFolder& folder_;
  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<loop::JobPool> jobs_, file_jobs_, disk_jobs_;
  std::unique_ptr<group::Group> group_;  // of this agent alone
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<PluginProcesses> plugins_;
  std::unique_ptr<loop::Mailbox<int>> ends_;  // posted to by the test's thread
  std::unordered_map<std::uint64_t, std::vector<int>> watched_;
  bool ending_ = false;
  Left left_;
  std::thread thread_;
};

TEST(DispatcherThreads, ProgramsJobsDiskAndWorkersSideBySide) {
  OFP_NEEDS_KERNEL("process_vm_readv, and what starting a worker takes");
  const TemporaryFolder folder;
  RunningAgent agent(folder);
  pool::Query count;
  count.aggregates.push_back({pool::AggregateFunction::count, "rows", {}});
  const bool queried = threads::run_programs({agent.address(), folder.file("written"), pool::encode(count)});
  const Left left = agent.stop();
  EXPECT_EQ(left.objects, 0u);
  EXPECT_EQ(left.used_bytes, 0u);
  EXPECT_EQ(left.mover.streams_open, 0u);
  EXPECT_EQ(left.mover.operations, 0u);
  EXPECT_EQ(left.mover.promised_bytes, 0u);
  EXPECT_GE(left.worker_starts, 1u);
  for (const loop::JobPoolCounters& jobs : {left.jobs, left.file_jobs, left.disk_jobs}) {
    EXPECT_GT(jobs.finished, 0u);
    EXPECT_EQ(jobs.failed, 0u);
  }
  if (!queried) GTEST_SKIP() << "all but queries, which need libarrow";
}

}  // namespace
}  // namespace offpath::agent
