#include "agent/cores/served_core.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace offpath::agent {

namespace {

// A core whose neighbours are gone serves without them after this time.
constexpr TimeNs meeting_ns = 3 * second_ns;

}  // namespace

Status ServedCore::adopt_listeners(Acceptor& acceptor) {
  acceptor.count_handed({[this] { ends_.loads->took(ends_.core); }, [this] { handed_ended(); }});
  for (CoreEnds::Listener& each : ends_.listeners)
    OFP_TRY(acceptor.adopt(std::move(each.socket), each.kind, each.handed));
  return {};
}

Status ServedCore::join(loop::Loop& loop, std::function<bool()> all_met, Serve serve) {
  all_met_ = std::move(all_met);
  serve_ = std::move(serve);
  (void)loop.timers().start(monotonic_ns() + meeting_ns, [this](TimeNs, TimeNs) {
    if (!serve_) return;
    log(LogLevel::warning, "not all cores of this agent have joined in time; this one serves without them");
    start_serving();
  });
  return loop.watch(ends_.control.get(), EPOLLIN, [this, &loop](std::uint32_t, TimeNs) {
    char byte = 0;
    if (recv(ends_.control.get(), &byte, sizeof byte, MSG_DONTWAIT) > 0) return;
    log(LogLevel::warning, "the process that started this core has ended");
    loop.unwatch(ends_.control.get());
    loop.stop();
  });
}

void ServedCore::members_changed() {
  if (serve_ && all_met_()) start_serving();
}

void ServedCore::start_serving() {
  const std::string told = core_serves_mark + std::exchange(serve_, {})();
  if (send(ends_.control.get(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    log(LogLevel::error, "the process that started this core cannot be told that it serves: {}", std::strerror(errno));
}

}  // namespace offpath::agent
