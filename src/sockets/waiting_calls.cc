// epoll, poll and select. Epoll is answered by this library (epoll_sets.h); for the others the descriptors show
// readiness and the kernel answers.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "sockets/calls.h"
#include "sockets/epoll_sets.h"
#include "sockets/kernel.h"

using namespace offpath;
using namespace offpath::sockets;

namespace {

void show(int fd) {
  if (const Use socket = descriptors().find(fd))
    program().begin_showing(fd, *socket);
  else
    epoll_sets().leave_to_kernel(fd);
}

void show(const pollfd* watched, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) show(watched[i].fd);
}

void show(int count, const fd_set* a, const fd_set* b, const fd_set* c) {
  for (int fd = 0; fd < std::min(count, FD_SETSIZE); ++fd)
    for (const fd_set* set : {a, b, c})
      if (set != nullptr && FD_ISSET(fd, set)) show(fd);
}

[[nodiscard]] TimeNs wait_of(int ms) { return ms < 0 ? never : ms * millisecond_ns; }
[[nodiscard]] TimeNs wait_of(const timespec* limit) {
  return limit == nullptr || limit->tv_sec >= never / second_ns ? never : limit->tv_sec * second_ns + limit->tv_nsec;
}

// Otherwise the kernel refuses it.
[[nodiscard]] bool is_valid(const timespec* limit) {
  return limit == nullptr || (limit->tv_sec >= 0 && limit->tv_nsec >= 0 && limit->tv_nsec < second_ns);
}

}  // namespace

OFP_CALL int epoll_create(int size) noexcept {
  const int made = kernel::epoll_create(size);
  epoll_sets().note_made(made);
  return made;
}

OFP_CALL int epoll_create1(int flags) noexcept {
  const int made = kernel::epoll_create1(flags);
  epoll_sets().note_made(made);
  return made;
}

OFP_CALL int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  const Use socket = descriptors().find(fd);
  if (socket && !program().left_out()) return epoll_sets().control(epoll, operation, fd, *socket, event);
  const int done = kernel::epoll_ctl(epoll, operation, fd, event);
  if (done == 0 && operation == EPOLL_CTL_ADD) epoll_sets().note_kernel_member(epoll, fd);
  return done;
}

OFP_CALL int epoll_pwait(int epoll, epoll_event* events, int room, int ms, const sigset_t* mask) {
  return epoll_sets().wait(epoll, events, room, wait_of(ms), mask,
                           [&] { return kernel::epoll_pwait(epoll, events, room, ms, mask); });
}

OFP_CALL int epoll_wait(int epoll, epoll_event* events, int room, int ms) {
  return epoll_pwait(epoll, events, room, ms, nullptr);
}

OFP_CALL int epoll_pwait2(int epoll, epoll_event* events, int room, const timespec* limit, const sigset_t* mask) {
  return epoll_sets().wait(epoll, events, room, wait_of(limit), mask,
                           [&] { return kernel::epoll_pwait2(epoll, events, room, limit, mask); });
}

OFP_CALL int poll(pollfd* watched, nfds_t count, int ms) {
  if (count == 1 && !is_bad(watched, sizeof *watched))
    if (const auto done = poll_one(*watched, wait_of(ms))) return *done;
  show(watched, count);
  return kernel::poll(watched, count, ms);
}

OFP_CALL int ppoll(pollfd* watched, nfds_t count, const timespec* limit, const sigset_t* mask) {
  if (count == 1 && mask == nullptr && is_valid(limit) && !is_bad(watched, sizeof *watched))
    if (const auto done = poll_one(*watched, wait_of(limit))) return *done;
  show(watched, count);
  return kernel::ppoll(watched, count, limit, mask);
}

OFP_CALL int select(int count, fd_set* reads, fd_set* writes, fd_set* errors, timeval* limit) {
  show(count, reads, writes, errors);
  return kernel::select(count, reads, writes, errors, limit);
}

OFP_CALL int pselect(int count, fd_set* reads, fd_set* writes, fd_set* errors, const timespec* limit,
                     const sigset_t* mask) {
  show(count, reads, writes, errors);
  return kernel::pselect(count, reads, writes, errors, limit, mask);
}

// The functions that -D_FORTIFY_SOURCE calls instead.
OFP_CALL int __poll_chk(pollfd* watched, nfds_t count, int ms, std::size_t room) {
  if (count * sizeof *watched > room) std::abort();
  return poll(watched, count, ms);
}

OFP_CALL int __ppoll_chk(pollfd* watched, nfds_t count, const timespec* limit, const sigset_t* mask, std::size_t room) {
  if (count * sizeof *watched > room) std::abort();
  return ppoll(watched, count, limit, mask);
}
