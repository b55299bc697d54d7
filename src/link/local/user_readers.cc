#include "link/local/user_readers.h"

#include <pthread.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include "base/relax.h"

namespace offpath::link {

namespace {

constexpr unsigned spins = 1'000;  // about 40 us: the next read of a busy program finds the thread awake
// A longer gap means that the process was stopped or its loop busy: the thread is not to blame.
constexpr TimeNs look_gap_max_ns = second_ns;

}  // namespace

UserReaders::UserReaders(TimeNs patience_ns, bool own_user) : patience_ns_(patience_ns), own_user_(own_user) {
  if (sched_getaffinity(0, sizeof cores_, &cores_) != 0) CPU_ZERO(&cores_);
}

std::shared_ptr<UserReaders::User> UserReaders::of(uid_t user) {
  if (user == geteuid() && !own_user_) return nullptr;
  std::erase_if(known_, [](const auto& each) { return each.second.queue.expired(); });
  Known& known = known_[user];
  if (auto there = known.user.lock()) return there;
  auto queue = known.queue.lock();
  if (!queue) {
    queue = std::make_shared<Queue>();
    queue->cores = cores_;
    queue->patience_ns = patience_ns_;
  }
  auto made = std::make_shared<User>(queue);
  const std::lock_guard lock(queue->mutex);
  ++queue->users;  // after the calls that may fail
  known = {made, queue};
  return made;
}

UserReaders::User::~User() {
  const std::lock_guard lock(queue_->mutex);
  --queue_->users;
  queue_->posted.fetch_add(1, std::memory_order_release);
  queue_->changed.notify_all();
}

Status UserReaders::User::post(std::shared_ptr<Work> work) {
  Queue& queue = *queue_;
  const std::lock_guard lock(queue.mutex);
  if (!queue.runs) {
    try {
      std::thread([shared = queue_] { UserReaders::work(*shared); }).detach();
    } catch (const std::exception& error) {  // std::system_error, std::bad_alloc
      return fail(Error::no_memory, "no thread for reads of this user's programs: {}", error.what());
    }
    queue.runs = true;
  }
  queue.waiting.push_back(std::move(work));
  queue.posted.fetch_add(1, std::memory_order_release);
  queue.changed.notify_all();
  return {};
}

void UserReaders::User::withdraw(const Work& work) noexcept {
  const std::lock_guard lock(queue_->mutex);
  std::erase_if(queue_->waiting, [&](const auto& each) { return each.get() == &work; });
}

bool UserReaders::User::is_held(TimeNs now) noexcept {
  Queue& queue = *queue_;
  const std::lock_guard lock(queue.mutex);
  const TimeNs gap = now - std::exchange(queue.looked, now);
  const std::pair progress{queue.begun, queue.current ? queue.current->progress() : 0};
  if (std::exchange(queue.progress, progress) != progress || !queue.current)
    queue.since = now;
  else if (gap > look_gap_max_ns && now - queue.since < queue.patience_ns + gap)
    queue.since += gap;
  return now - queue.since >= queue.patience_ns;
}

bool UserReaders::User::is_at(const Work& work) const noexcept {
  const std::lock_guard lock(queue_->mutex);
  return queue_->current.get() == &work;
}

TimeNs UserReaders::User::patience_ns() const noexcept { return queue_->patience_ns; }

void UserReaders::work(Queue& queue) noexcept {
  pthread_setname_np(pthread_self(), "offpath-read");
  std::unique_lock lock(queue.mutex);
  if (CPU_COUNT(&queue.cores) > 0) sched_setaffinity(0, sizeof queue.cores, &queue.cores);
  for (;;) {
    if (queue.waiting.empty() && queue.users > 0) {
      const std::uint64_t seen = queue.posted.load(std::memory_order_relaxed);
      lock.unlock();
      for (unsigned i = 0; i < spins && queue.posted.load(std::memory_order_acquire) == seen; ++i) relax();
      lock.lock();
      queue.changed.wait(lock, [&queue] { return queue.users == 0 || !queue.waiting.empty(); });
    }
    if (queue.waiting.empty()) break;
    const std::shared_ptr<Work> work = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    queue.current = work;
    ++queue.begun;
    lock.unlock();
    try {
      work->run();
    } catch (const std::exception&) {  // std::bad_alloc
      work->out_of_memory_ = true;
    }
    lock.lock();
    queue.current.reset();
    work->done_.store(true, std::memory_order_release);
    // Works of closed links were withdrawn.
  }
  queue.runs = false;
}

}  // namespace offpath::link
