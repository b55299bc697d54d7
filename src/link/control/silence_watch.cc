#include "link/control/silence_watch.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

namespace offpath::link {

namespace {

constexpr int tcp_rto_max_ms = 44;  // TCP_RTO_MAX_MS of <linux/tcp.h>, which is newer than most systems' headers

void set_option(int socket, int option, int value) noexcept {
  (void)setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
}

}  // namespace

Result<SilenceWatch> SilenceWatch::create(int socket, TimeNs silence_ns) {
  Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return fail_errno(errno, "timerfd_create");
  const int silence_s = static_cast<int>(silence_ns / second_ns);
  const int idle_s = std::max(1, silence_s / 2), interval_s = std::max(1, silence_s / 4);
  set_option(socket, TCP_USER_TIMEOUT, 0);
  set_option(socket, TCP_KEEPIDLE, idle_s);
  set_option(socket, TCP_KEEPINTVL, interval_s);
  set_option(socket, TCP_KEEPCNT, std::max(1, (silence_s - idle_s) / interval_s));
  set_option(socket, tcp_rto_max_ms, std::clamp<int>(silence_s * 250, 1000, 120'000));
  return SilenceWatch(std::move(timer), socket, silence_ns);
}

void SilenceWatch::arm() {
  armed_ = true;
  asked_ = false;
  begun_ = monotonic_ns();
  set_timer(begun_ + interval_ns_);
}

void SilenceWatch::set_timer(TimeNs due) {
  due_ = due;
  itimerspec at{};
  at.it_value = {static_cast<time_t>(due / second_ns), static_cast<long>(due % second_ns)};
  (void)timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);  // also takes back that it is readable
}

bool SilenceWatch::look(TimeNs now) {
  int waiting = 0;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (ioctl(socket_, SIOCOUTQ, &waiting) != 0 || waiting == 0 ||
      getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
    armed_ = false;
    set_timer(0);
    return false;
  }
  const TimeNs heard = std::max(begun_, now - TimeNs{info.tcpi_last_ack_recv} * millisecond_ns);
  // Retransmissions become rarer, so those of the second half of the time have to be lost too. A probe may have been
  // sent just now, so one look is not enough.
  const TimeNs sent = now - TimeNs{info.tcpi_last_data_sent} * millisecond_ns;
  const bool asked = info.tcpi_probes > 0 || (info.tcpi_retransmits > 0 && sent - heard >= silence_ns_ / 2);
  if (asked && asked_ && now - heard >= silence_ns_ - interval_ns_) return true;
  asked_ = asked;
  set_timer(now + interval_ns_);
  return false;
}

}  // namespace offpath::link
