#include "loop/job_pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace offpath::loop {

JobPool::JobPool(Loop& loop, const JobPoolOptions& options)
    : loop_(loop),
      options_{std::max(options.threads, 1u), std::max<std::size_t>(options.queue_max, 1)},
      results_(loop, options_.queue_max + options_.threads,
               [this](Finished finished, TimeNs now) { take(std::move(finished), now); }) {
  loop_.add(results_);
  workers_.reserve(options_.threads);
  for (unsigned i = 0; i < options_.threads; ++i) workers_.emplace_back([this] { work(); });
}

JobPool::~JobPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  loop_.remove(results_);
}

void JobPool::start(Run run, Done done) {
  ++counters_.started;
  waiting_.push_back({std::move(run), std::move(done)});
  fill_queue();
  counters_.waiting = waiting_.size();
  counters_.waiting_most = std::max(counters_.waiting_most, counters_.waiting);
}

void JobPool::fill_queue() {
  while (!waiting_.empty() && away_ < options_.queue_max + options_.threads) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(waiting_.front()));
    }
    queued_.notify_one();
    waiting_.pop_front();
    ++away_;
  }
}

void JobPool::take(Finished finished, TimeNs now) {
  --away_;
  ++counters_.finished;
  if (!finished.status) ++counters_.failed;
  fill_queue();
  counters_.waiting = waiting_.size();
  finished.done(std::move(finished.status), now);
}

namespace {

// Jobs give way: without a DPU they run on the host's cores, and a program that is woken must not wait for them.
// Denied is no harm.
void give_way() noexcept {
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

}  // namespace

void JobPool::work() {
  pthread_setname_np(pthread_self(), "offpath-job");
  give_way();
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      queued_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    Finished finished{std::move(job.done), guarded(job.run)};
    job.run = nullptr;  // what it captured is let go of before its result is known
    OFP_ASSERT(results_.post(std::move(finished)));
  }
}

}  // namespace offpath::loop
