#include "loop/job_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"

namespace offpath::loop {

namespace {

constexpr TimeNs looks_per_patience = 4;
constinit thread_local std::atomic<std::uint64_t>* progress_of_thread = nullptr;

// Jobs have a lower priority: without a DPU they run on the host's cores, and a woken program must not wait for them. A
// failure is ignored.
void give_way() noexcept {
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  setpriority(PRIO_PROCESS, 0, 10);  // of this thread alone
}

}  // namespace

JobPool::Shared::Shared(Loop& loop, const JobPoolOptions& options, JobPool& pool)
    : threads(options.threads),
      results(loop, options.queue_max + options.threads,
              [&pool](Finished finished, TimeNs now) { pool.take(std::move(finished), now); }),
      idle_end_ns(options.idle_end_ns) {}

JobPool::JobPool(Loop& loop, const JobPoolOptions& options)
    : loop_(loop),
      options_{std::max(options.threads, 1u), std::max<std::size_t>(options.queue_max, 1), options.patience,
               options.idle_end_ns},
      shared_(std::make_shared<Shared>(loop, options_, *this)) {
  if (sched_getaffinity(0, sizeof cores_, &cores_) != 0) CPU_ZERO(&cores_);
  loop_.add(shared_->results);
  if (options_.idle_end_ns == never) begin_threads();
}

JobPool::~JobPool() {
  if (looks_) loop_.timers().cancel(look_);
  loop_.remove(shared_->results);
  const bool waits_for_all = options_.patience.end_within_ns == never;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->queue.splice(shared_->queue.end(), waiting_);
  if (waits_for_all) drop_queue(*shared_, lock);
  shared_->queued.notify_all();
  const auto all_have_ended = [this] { return shared_->alive == 0; };
  if (waits_for_all)
    shared_->ended.wait(lock, all_have_ended);
  else
    shared_->ended.wait_for(lock, std::chrono::nanoseconds(options_.patience.end_within_ns), all_have_ended);
  for (Worker& worker : workers_)
    if (!worker.slot->has_ended) worker.thread.detach();
  lock.unlock();
  for (Worker& worker : workers_)
    if (worker.thread.joinable()) worker.thread.join();
}

void JobPool::drop_queue(Shared& shared, std::unique_lock<std::mutex>& lock) {
  while (!shared.queue.empty()) {  // one at a time: while one hangs, other workers drop the rest
    std::list<Job> dropped;
    dropped.splice(dropped.end(), shared.queue, shared.queue.begin());
    lock.unlock();
    dropped.clear();
    lock.lock();
  }
}

void JobPool::note_progress() noexcept {
  if (progress_of_thread != nullptr) progress_of_thread->fetch_add(1, std::memory_order_relaxed);
}

// Starts threads up to the number that serves; held ones do not count.
void JobPool::begin_threads() {
  std::size_t wanted = options_.threads;
  const std::lock_guard lock(shared_->mutex);
  if (options_.idle_end_ns != never) {
    wanted = std::min<std::size_t>(wanted, away_ + waiting_.size());
    shared_->filling = !waiting_.empty();
    // These have left the mutex for good.
    std::erase_if(workers_, [](Worker& worker) {
      if (!worker.slot->has_ended) return false;
      worker.thread.join();
      return true;
    });
  }
  while (shared_->alive - shared_->held < wanted &&
         shared_->alive < options_.threads + options_.patience.stand_ins_max) {
    try {
      Worker& worker = workers_.emplace_back(Worker{std::make_shared<Slot>(), {}});
      worker.thread = std::thread([shared = shared_, slot = worker.slot, cores = cores_] {
        if (CPU_COUNT(&cores) > 0) sched_setaffinity(0, sizeof cores, &cores);
        work(*shared, *slot);
      });
      ++shared_->alive;
    } catch (const std::exception&) {  // std::system_error, std::bad_alloc
      if (!workers_.empty() && !workers_.back().thread.joinable()) workers_.pop_back();
      return;
    }
  }
}

void JobPool::start(Run run, Done done) {
  ++counters_.started;
  waiting_.push_back({std::move(run), std::move(done)});
  fill_queue();
  counters_.waiting = waiting_.size();
  counters_.waiting_most = std::max(counters_.waiting_most, counters_.waiting);
  if (!looks_ && options_.patience.stand_in_after_ns != never) look_later(monotonic_ns());
}

void JobPool::fill_queue() {
  if (waiting_.empty()) return;
  begin_threads();
  while (!waiting_.empty() && away_ < options_.queue_max + options_.threads) {
    std::unique_lock lock(shared_->mutex);
    if (shared_->alive > 0) {
      shared_->queue.splice(shared_->queue.end(), waiting_, waiting_.begin());
    } else {
      Status none = tl::unexpected(Failure{Error::no_memory, "no thread"});  // a short text, which allocates nothing
      OFP_ASSERT(shared_->results.post({std::move(waiting_.front().done), std::move(none)}));
      waiting_.pop_front();
    }
    lock.unlock();
    shared_->queued.notify_one();
    ++away_;
  }
  if (options_.idle_end_ns == never) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->filling = false;
}

void JobPool::take(Finished finished, TimeNs now) {
  --away_;
  ++counters_.finished;
  if (!finished.status) ++counters_.failed;
  fill_queue();
  counters_.waiting = waiting_.size();
  finished.done(std::move(finished.status), now);
}

// ---- jobs that make no progress

void JobPool::look_later(TimeNs now) {
  looks_ = true;
  const JobPatience& patience = options_.patience;
  const TimeNs every = std::min(patience.stand_in_after_ns, patience.give_up_after_ns) / looks_per_patience;
  look_ = loop_.timers().start(now + std::max(every, millisecond_ns), [this](TimeNs at, TimeNs) {
    looks_ = false;
    look_at_workers(at);
  });
}

void JobPool::look_at_workers(TimeNs now) {
  const JobPatience& patience = options_.patience;
  std::vector<Finished> over;
  std::list<Worker> gone;
  bool serves = false;
  {
    const std::lock_guard lock(shared_->mutex);
    for (auto at = workers_.begin(); at != workers_.end();) {
      Worker& worker = *at++;
      Slot& slot = *worker.slot;
      const std::uint64_t progress = slot.progress.load(std::memory_order_relaxed);
      if (std::exchange(worker.progress, progress) != progress || !slot.is_busy) worker.since = now;
      if (slot.has_ended) gone.splice(gone.end(), workers_, std::prev(at));
      if (!slot.is_held && now - worker.since >= patience.stand_in_after_ns) {
        slot.is_held = true;
        ++shared_->held;
      }
      if (slot.is_held && !slot.is_given_up && now - worker.since >= patience.give_up_after_ns) {
        slot.is_given_up = true;
        over.push_back({std::move(slot.done), fail(Error::timeout, "the job made no progress for {:.3g} s",
                                                   static_cast<double>(now - worker.since) / second_ns)});
      }
      serves |= !slot.has_ended && !slot.is_given_up;
    }
  }
  counters_.given_up += over.size();
  if (!over.empty())
    log(LogLevel::warning, "{} jobs made no progress for {:.3g} s: they have failed, and keep their threads",
        over.size(), static_cast<double>(patience.give_up_after_ns) / second_ns);
  for (Worker& worker : gone) worker.thread.join();
  begin_threads();
  std::unique_lock lock(shared_->mutex);
  if (!serves && shared_->alive == options_.threads + patience.stand_ins_max) {
    for (Job& job : std::exchange(shared_->queue, {}))
      over.push_back({std::move(job.done), fail(Error::timeout, "all {} threads for it wait for other processes",
                                                options_.threads + patience.stand_ins_max)});
  }
  lock.unlock();
  for (Finished& finished : over) take(std::move(finished), now);
  lock.lock();
  const bool is_idle = shared_->held == 0;
  lock.unlock();
  if (!looks_ && (away_ > 0 || !is_idle)) look_later(now);
}

// ---- a worker

void JobPool::work(Shared& shared, Slot& slot) {
  pthread_setname_np(pthread_self(), "offpath-job");
  give_way();
  progress_of_thread = &slot.progress;
  std::unique_lock lock(shared.mutex);
  for (;;) {
    const auto has_work = [&shared] { return shared.stopping || !shared.queue.empty(); };
    if (shared.idle_end_ns == never)
      shared.queued.wait(lock, has_work);
    else if (!shared.queued.wait_for(lock, std::chrono::nanoseconds(shared.idle_end_ns), has_work)) {
      if (shared.filling) continue;
      break;
    }
    if (shared.stopping) break;
    Run run = std::move(shared.queue.front().run);
    slot.done = std::move(shared.queue.front().done);
    shared.queue.pop_front();
    slot.is_busy = true;
    note_progress();
    lock.unlock();
    Status status = guarded(run);
    run = nullptr;  // its captures are released before its result is known
    lock.lock();
    slot.is_busy = false;
    if (std::exchange(slot.is_held, false)) --shared.held;
    if (shared.stopping) break;
    if (!std::exchange(slot.is_given_up, false))
      OFP_ASSERT(shared.results.post({std::move(slot.done), std::move(status)}));
    if (shared.alive - shared.held > shared.threads) break;  // a stand-in took its place, and stays
  }
  if (shared.stopping) drop_queue(shared, lock);
  slot.has_ended = true;
  --shared.alive;
  shared.ended.notify_all();
}

}  // namespace offpath::loop
