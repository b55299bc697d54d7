// What a program keeps of its connections behind the rings of its area: see socket_area.h. Only the program looks at it.
#pragma once

#include <pthread.h>

#include <cerrno>

#include "channel/socket_area.h"

namespace offpath::channel {

inline constexpr SocketArea::Handle nobody = ~0u;
enum Owed : std::uint8_t { owed_allow = 1, owed_finish = 2, owed_release = 4, owed_abort = 8 };

struct SocketArea::Shared {
  pthread_mutex_t lock;
  std::uint64_t wishes, news_taken;
  Handle first_free;
  std::uint32_t owing;    // cells that owe a wish for which there was no room
  std::uint32_t lacking;  // listeners that have fewer seats than they should
  std::uint32_t listeners;  // so far
  bool waits_for_room;
  Handle first_changed;  // a list through Cell::next_changed
};

struct alignas(64) SocketArea::Cell {
  enum class Is : std::uint8_t { free, listener, seat, flow, ending } is;
  std::uint8_t told;  // news so far
  std::uint8_t owed;
  wire::TcpError error;
  bool finishing, gone, lacks;
  std::uint16_t port, remote_port, flags;
  std::uint32_t local_address, remote_address;
  std::uint32_t listener;            // of a seat
  Handle next;                       // free cells; flows that wait to be accepted
  Handle first_waiting, last_waiting;  // of a listener
  std::uint32_t backlog, seated;       // of a listener; seated: seats, and flows that wait
  std::uint32_t serial;                // of a listener, and of its seats: handles are used again
  std::uint64_t offered, acknowledged, received, read, allowed;
  // Of the handle, whatever it stands for.
  Handle next_changed;
  bool changed;
};

// Of all processes. Who dies with it leaves positions that were not published, which are as if they had not been written.
class SocketArea::Lock {
 public:
  explicit Lock(Shared& shared) noexcept : shared_(shared) {
    const int code = pthread_mutex_lock(&shared_.lock);
    if (code == EOWNERDEAD) pthread_mutex_consistent(&shared_.lock);
    OFP_ASSERT(code == 0 || code == EOWNERDEAD);
  }
  ~Lock() { pthread_mutex_unlock(&shared_.lock); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Shared& shared_;
};

}  // namespace offpath::channel
