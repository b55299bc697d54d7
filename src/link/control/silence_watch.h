// Finds out that the other machine is silent while bytes that were sent to it wait for their acknowledgement.
//
// TCP_USER_TIMEOUT detects that, too, but it also ends a connection whose other process does not read for that long
// although its machine answers each probe of the closed window: a program that a debugger stopped, or an agent that
// gets no processor. So the kernel's timeout is off here, and its counters are looked at four times within the time.
// Connections without such bytes are probed by the kernel (keepalive).
//
// The kernel probes a closed window ever more rarely, down to every two minutes. Where that interval can be set
// (TCP_RTO_MAX_MS, Linux 6.15), a machine that falls silent then is detected in time as well.
#pragma once

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::link {

class SilenceWatch {
 public:
  // For `socket`, connected over TCP; of any other kind is never found silent. `silence_ns` is in whole seconds.
  [[nodiscard]] static Result<SilenceWatch> create(int socket, TimeNs silence_ns);

  void sent() {  // bytes, just now
    if (!armed_) arm();
  }
  // Readable when a look is due.
  [[nodiscard]] int fd() const noexcept { return timer_.get(); }
  [[nodiscard]] bool due(TimeNs now) const noexcept { return armed_ && now >= due_; }
  // True if nothing has arrived from the other machine for that long, although it was asked. Call it when due.
  [[nodiscard]] bool look(TimeNs now);

 private:
  SilenceWatch(Fd timer, int socket, TimeNs silence_ns) noexcept
      : timer_(std::move(timer)), socket_(socket), silence_ns_(silence_ns), interval_ns_(silence_ns / 4) {}
  void arm();
  void set_timer(TimeNs due);

  Fd timer_;
  int socket_;
  TimeNs silence_ns_, interval_ns_;
  bool armed_ = false;  // until everything is acknowledged
  bool asked_ = false;  // at the last look, bytes that were sent again or a probe waited for an answer
  TimeNs begun_ = 0, due_ = 0;
};

}  // namespace offpath::link
