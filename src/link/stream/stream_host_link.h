// The host's end over TCP or TLS. One thread, named "offpath-tcp", serves the program's memory and blocks all signals
// (a process with many links may give all of them the same StreamThreads);
// every piece of every request is checked against the announcements. Read stream_agent_link.h first.
//
// Bytes go from and to the program's memory without a copy (TLS needs one). If announced memory was freed, the kernel
// returns EFAULT, which fails that request and nothing else.
//
// Locks, never two at a time: `table` (regions, and those of the frame being moved), `output` (everything on the
// socket), `state` (results that the program waits for). Program threads never wait for the network under a lock: a
// wake that finds the socket busy is left to the thread that holds it.
#pragma once

#include <unistd.h>

#include <memory>

#include "link/control/control_socket.h"
#include "link/link.h"

namespace offpath::link {

class StreamThreads;
class StreamServer;  // the thread and all state that it shares with the program's threads

class StreamHostLink final : public HostLink {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StreamHostLink>> create(ControlSocket socket,
                                                                      SegmentMemory channel_segment,
                                                                      wire::Welcome welcome,
                                                                      std::shared_ptr<StreamThreads> threads = nullptr);
  ~StreamHostLink() override;

  const LinkTraits& traits() const override { return traits_; }
  const wire::Welcome& welcome() const override { return welcome_; }
  MutableBytes channel_memory() override { return channel_segment_.bytes(); }
  Result<SegmentMemory> allocate(std::uint64_t length) override;
  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  void retire_segment(RegionId segment) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;
  void retire_range(RegionId range, std::uint32_t generation) override;
  void withdraw_range(RegionId range, std::uint32_t generation) override;
  bool is_withdrawn(RegionId range, std::uint32_t generation) override;
  void wake() override;
  void wake_with(Bytes requests) override;
  void wait(TimeNs deadline) override;
  int event_fd() const override;
  Status look() override;
  void abandon() override;
  void close() override;

 private:
  StreamHostLink(std::unique_ptr<StreamServer> server, SegmentMemory channel_segment, wire::Welcome welcome);

  SegmentMemory channel_segment_;
  wire::Welcome welcome_;
  LinkTraits traits_;
  std::unique_ptr<StreamServer> server_;
  const pid_t owner_ = getpid();
  bool abandoned_ = false;
};

// Zeroed, page aligned, shared with children, so that its contents survive a fork.
[[nodiscard]] Result<SegmentMemory> allocate_shared(std::uint64_t length);

}  // namespace offpath::link
