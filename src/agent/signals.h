// Signals as a descriptor. Uses handlers, not signalfd: threads that libraries start before main receive signals too,
// and a handler works on any thread.
#pragma once

#include "base/fd.h"
#include "base/status.h"

namespace offpath::agent {

class Signals {
 public:
  struct Arrived {
    bool stop = false;    // SIGTERM, SIGINT
    bool reload = false;  // SIGHUP
  };

  [[nodiscard]] static Result<Signals> catch_all();  // also ignores SIGPIPE; once in a process
  Signals(Signals&&) noexcept = default;
  ~Signals();

  [[nodiscard]] int fd() const noexcept { return event_.get(); }  // readable when one has arrived
  [[nodiscard]] Arrived take() noexcept;                          // and clears them

 private:
  explicit Signals(Fd event) noexcept : event_(std::move(event)) {}
  Fd event_;
};

}  // namespace offpath::agent
