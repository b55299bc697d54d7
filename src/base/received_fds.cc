#include "base/received_fds.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "base/sent_fds.h"

namespace offpath {

namespace {

constexpr std::uint64_t overdraft = message_descriptors_max;
constexpr std::uint64_t bytes_at_once = 4 * 1024 * 1024;  // bytes of memory freed in one step, about 400 us

bool closes_at_once(int fd) noexcept {
  struct stat status{};
  return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_blocks) * 512 <= bytes_at_once;
}

}  // namespace

std::shared_ptr<ReceivedFds::User> ReceivedFds::of(uid_t user) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<User>& known = users_[user];
  auto found = known.lock();
  if (!found) known = found = std::make_shared<User>(shared_from_this(), user);
  return found;
}

ReceivedFds::User::~User() {
  const std::lock_guard lock(all_->mutex_);
  if (const auto known = all_->users_.find(user_); known != all_->users_.end() && known->second.expired())
    all_->users_.erase(known);
}

Fd ReceivedFds::User::own(int fd) {
  Fd kept(fd);  // closes the descriptor if allocating a spare fails
  if (!kept) return kept;
  add_spare();
  ++descriptors_;
  ++all_->descriptors_;
  return Fd(kept.release(), shared_from_this());
}

void ReceivedFds::User::let_go(int) noexcept {
  drop_spare();
  --descriptors_;
  --all_->descriptors_;
}

Status ReceivedFds::User::may_take() const {
  const ReceivedLimits& limits = all_->limits_;
  if (descriptors_ >= limits.user_descriptors_max)
    return fail(Error::too_large,
                "user {} has {} descriptors in this agent, {} are allowed (limits.user_descriptors_max): close "
                "connections, or wait until "
                "those that were handed over are closed",
                user_, descriptors_.load(), limits.user_descriptors_max);
  if (all_->descriptors_ >= limits.descriptors_max)
    return fail(Error::too_large, "programs have {} descriptors in this agent, {} are allowed (LimitNOFILE)",
                all_->descriptors_.load(), limits.descriptors_max);
  return {};
}

bool ReceivedFds::User::overdrawn() const noexcept {
  return descriptors_ >= all_->limits_.user_descriptors_max + overdraft ||
         all_->descriptors_ >= all_->limits_.descriptors_max + overdraft;
}

Status ReceivedFds::User::take_mapping() {
  const ReceivedLimits& limits = all_->limits_;
  if (mappings_ >= limits.user_mappings_max)
    return fail(Error::too_large,
                "this agent has {} segments of user {} mapped, {} are allowed (limits.user_mappings_max): free some",
                mappings_.load(), user_, limits.user_mappings_max);
  if (all_->mappings_ >= limits.mappings_max)
    return fail(Error::too_large,
                "this agent has {} segments of programs mapped, {} are allowed (sysctl vm.max_map_count)",
                all_->mappings_.load(), limits.mappings_max);
  add_spare();
  ++mappings_;
  ++all_->mappings_;
  return {};
}

void ReceivedFds::User::close(int fd) noexcept {
  if (!closes_at_once(fd)) return leave({fd, nullptr, 0});
  ::close(fd);
  let_go(fd);
}

void ReceivedFds::User::unmap(void* at, std::uint64_t length) noexcept {
  if (length > bytes_at_once) return leave({-1, at, length});
  munmap(at, length);
  return_mapping();
}

void ReceivedFds::User::return_mapping() noexcept {
  drop_spare();
  --mappings_;
  --all_->mappings_;
}

void ReceivedFds::User::leave(const Leaving& leaving) noexcept {
  const std::lock_guard lock(all_->mutex_);
  ++all_->waiting_;
  leaving_.splice(leaving_.end(), spares_, spares_.begin());
  leaving_.back() = leaving;
  if (leaving_.size() == 1 && !served_) take_turn();
  all_->begin_thread();
}

void ReceivedFds::User::take_turn() noexcept {
  turn_.front() = shared_from_this();
  all_->turns_.splice(all_->turns_.end(), turn_);
}

void ReceivedFds::User::add_spare() {
  std::list<Leaving> spare(1);
  const std::lock_guard lock(all_->mutex_);
  spares_.splice(spares_.end(), spare);
}

void ReceivedFds::User::drop_spare() noexcept {
  const std::lock_guard lock(all_->mutex_);
  spares_.pop_front();
}

void ReceivedFds::begin_thread() noexcept {
  if (turns_.empty() || threads_ == threads_max) return;
  try {
    std::thread([all = shared_from_this()] { all->work(); }).detach();
    ++threads_;
  } catch (const std::exception&) {  // std::system_error, std::bad_alloc
    // The next descriptor that leaves tries to start a thread again.
  }
}

// Closes one item of each user in turn.
void ReceivedFds::work() noexcept {
  std::unique_lock lock(mutex_);
  while (!turns_.empty()) {
    std::shared_ptr<User> user = std::move(turns_.front());
    user->turn_.splice(user->turn_.end(), turns_, turns_.begin());
    const User::Leaving leaving = user->leaving_.front();
    user->spares_.splice(user->spares_.end(), user->leaving_, user->leaving_.begin());
    user->served_ = true;
    lock.unlock();
    if (leaving.fd >= 0)
      ::close(leaving.fd);
    else
      munmap(leaving.at, leaving.length);
    --waiting_;
    if (leaving.fd >= 0)
      user->let_go(leaving.fd);
    else
      user->return_mapping();
    lock.lock();
    user->served_ = false;
    if (!user->leaving_.empty()) user->take_turn();
    lock.unlock();
    user.reset();  // may be the last reference, whose destructor takes the lock
    lock.lock();
  }
  --threads_;
}

ssize_t receive_with_descriptors(int socket, std::span<const iovec> to, int flags,
                                 const std::shared_ptr<ReceivedFds::User>& user, std::vector<Fd>& descriptors,
                                 int& said) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * message_descriptors_max)> control;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(to.data());
  message.msg_iovlen = to.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got;
  do {
    got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  said = message.msg_flags;
  if (got < 0) return got;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      descriptors.push_back(user ? user->own(fd) : Fd(fd));
    }
  }
  return got;
}

}  // namespace offpath
