// Threads that serve the host's ends of several streams of one process. One of them waits for all idle streams and
// serves the one at which something arrives; before it does, another one waits in its place. So there are as many
// threads as streams that are served at the same time, and a few that wait. A stream whose network is stuck keeps one
// thread and delays no other stream.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace offpath::link {

class StreamServer;

// Starts a thread of a stream. It blocks all signals, which are left to the program's threads.
[[nodiscard]] Result<pthread_t> begin_stream_thread(void* (*run)(void* argument), void* argument);

class StreamThreads {
 public:
  [[nodiscard]] static Result<std::shared_ptr<StreamThreads>> create();
  ~StreamThreads();  // after its last server was removed
  StreamThreads(const StreamThreads&) = delete;
  StreamThreads& operator=(const StreamThreads&) = delete;

  struct Sockets {
    int stream;
    int silence;  // ControlSocket::silence_fd()
  };
  // Serves it until it has ended. Returns its number.
  [[nodiscard]] Result<std::uint64_t> add(StreamServer& server, Sockets sockets);
  // Returns when no thread serves it. A thread that waits for its network has to be woken first.
  void remove(std::uint64_t number);
  // There is something to do for it besides what arrives.
  void look_at(std::uint64_t number);
  [[nodiscard]] unsigned alive() const;  // threads

 private:
  struct Shared;
  explicit StreamThreads(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;  // also the threads', which may be the last to use it
};

}  // namespace offpath::link
