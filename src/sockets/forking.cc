// Programs with several processes: the steps before and after a fork.
#include <sys/eventfd.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "sockets/epoll_sets.h"
#include "sockets/own_descriptors.h"
#include "sockets/program.h"
#include "sockets/spawn_actions.h"

namespace offpath::sockets {

// Takes the locks in the order in which calls take them.
void Program::before_fork() {
  executing_.lock();
  spawn_actions().before_fork();
  forking_.lock();
  opening_.lock();
  sleeping_.lock();
  epoll_sets().before_fork();
  telling_.lock();
  if (to_hand_over() == nullptr) return;
  if (auto newcomer = connections_->prepare_child()) newcomer_ = std::move(*newcomer);
}

void Program::unlock_after_fork() noexcept {
  telling_.unlock();
  epoll_sets().after_fork();
  sleeping_.unlock();
  opening_.unlock();
  forking_.unlock();
  spawn_actions().after_fork();
  executing_.unlock();
}

void Program::in_parent() noexcept {
  auto newcomer = std::exchange(newcomer_, std::nullopt);
  unlock_after_fork();
}  // if the fork failed, the agent finds the newcomer's sockets closed, as if the child had ended

void Program::in_child() noexcept {
  pid_ = ::getpid();
  own_descriptors().in_child();
  auto newcomer = std::exchange(newcomer_, std::nullopt);
  new (&told_) std::optional<std::condition_variable>(
      std::in_place);  // a destructor would wait for the old one's waiters, which this process does not have
  unlock_after_fork();
  if (area_.load() == nullptr || left_out()) return;
  if (!newcomer) {
    left_out_ = true;
    return;
  }
  for (const int fd : {connections_->wake_fd(), connections_->notice_fd(), changes_.get()})
    own_descriptors().remove(fd);
  connections_->join(std::move(*newcomer));
  connections_->renumber(out_of_the_way);
  int listeners = 0;
  for (SocketArea::Handle handle = 0; handle < options().flows; ++handle) {
    own_[handle].users = own_[handle].descriptors = own_[handle].showings = 0;
    listeners += own_[handle].listens.load() ? 1 : 0;
  }
  descriptors().count_again();
  sleepers_ = full_sleepers_ = 0;
  blocked_ = 0;
  listeners_ = listeners;
  for (SocketArea::Handle handle = 0; handle < options().flows;
       ++handle)  // held only by calls of the parent's other threads
    if (own_[handle].users.load() == 0 && area().holds(handle)) end(sockets_[handle]);
  epoll_sets().in_child();
  if (!lost()) start_listening();
}

// ---- exec

void Program::take_up(std::unique_ptr<channel::Sockets> connections) {
  tried_ = true;
  begin(std::move(connections));
}

void Program::take_up(SocketArea::Handle handle, int signal, std::span<const int> found) {
  own_[handle].signal = signal;
  own_descriptors().add(signal);
  own_[handle].users = 1;
  Use use(&sockets_[handle]);
  for (const int fd : found) descriptors().put(fd, Use::of(*use));
}

void Program::drop_what_was_not_taken_up() {
  for (SocketArea::Handle handle = 0; handle < options().flows; ++handle)
    if (own_[handle].users.load() == 0 && area().holds(handle)) area().close(handle);
}

}  // namespace offpath::sockets
