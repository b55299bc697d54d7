// The host's end on one machine: segments are memfds it makes and seals, ranges need nothing but their announcement.
// No thread; a wake is a frame on the Unix socket. Wakes towards the host come the same way and not by an eventfd,
// because a host could make an eventfd block the agent that writes to it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "link/control_socket.h"
#include "link/link.h"
#include "link/peer.h"

namespace offpath::link {

class LocalHostLink final : public HostLink {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LocalHostLink>> create(ControlSocket socket, Peer agent,
                                                                     SegmentMemory channel_segment, wire::Welcome welcome);
  ~LocalHostLink() override;

  const LinkTraits& traits() const override { return traits_; }
  const wire::Welcome& welcome() const override { return welcome_; }
  MutableBytes channel_memory() override { return channel_segment_.bytes(); }
  Result<SegmentMemory> allocate(std::uint64_t length) override;
  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  void retire_segment(RegionId segment) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;
  void retire_range(RegionId range, std::uint32_t generation) override;
  void wake() override;
  void wait(TimeNs deadline) override;
  int event_fd() const override { return events_.get(); }
  Status look() override;
  Result<Fd> take_descriptor(std::uint64_t ticket, TimeNs deadline) override;
  Status offer(std::uint64_t number, int fd) override;
  void abandon() override;
  void close() override;

 private:
  LocalHostLink(ControlSocket socket, Peer agent, SegmentMemory channel_segment, wire::Welcome welcome, Fd events);

  [[nodiscard]] Status take_frames();
  [[nodiscard]] Status take_frame(const ControlSocket::Frame& frame);
  [[nodiscard]] Status send(wire::ControlType type, Bytes payload, int descriptor = -1);
  [[nodiscard]] tl::unexpected<Failure> lose(Failure why);

  ControlSocket socket_;
  Peer agent_;
  SegmentMemory channel_segment_;
  wire::Welcome welcome_;
  LinkTraits traits_;
  Fd events_;  // an epoll of the socket and the agent's pidfd
  const pid_t owner_ = getpid();
  std::vector<RegionId> acknowledged_;                      // segments, until announce_segment asks
  std::vector<RegionId> given_up_;                          // those nobody will ask for
  std::deque<std::pair<std::uint64_t, Fd>> descriptors_;    // handed over, until take_descriptor asks
  std::atomic<bool> output_waits_ = false;                  // wait() runs without the channel's lock
  std::optional<Failure> lost_;
};

}  // namespace offpath::link
