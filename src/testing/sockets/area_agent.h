// The agent's side of one program's area, without a stack. It grants every connection and acknowledges every offer. A
// test plays the network: nothing arrives unless the test says so.
//
// A thread of the double answers, because calls of the program wait. When a method of this class returns, the program
// has its event. With OFFPATH_TEST_LINK=late, which ctest also runs, the program is behind a late link.
//
// Read this first in src/testing/sockets, then offloaded.h.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "connections/sockets.h"
#include "link/link.h"
#include "tcp/area/program_area.h"
#include "testing/sockets/area_link.h"

namespace offpath::sockets {

class FakeAreaAgent {
 public:
  using Handle = channel::SocketArea::Handle;
  // The agent's own: 10.9.0.2 and fd09::2.
  static constexpr std::uint32_t address = 0x0a090002;
  static constexpr wire::IpAddress address6{{0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  static constexpr std::uint16_t chosen_port = 49'152;  // for bind with port 0

  explicit FakeAreaAgent(const channel::SocketOptions& options);
  [[nodiscard]] bool is_linked() const noexcept { return link_ != nullptr; }
  ~FakeAreaAgent();
  FakeAreaAgent(const FakeAreaAgent&) = delete;
  FakeAreaAgent& operator=(const FakeAreaAgent&) = delete;

  // The first process of the program begins with these (Sockets::inherit).
  [[nodiscard]] int memory_fd() const noexcept { return memory_.fd(); }
  [[nodiscard]] channel::Sockets::Newcomer first_process();
  [[nodiscard]] MutableBytes kept() noexcept { return maker_->kept(); }

  // ---- the network
  void fail_next_connection(wire::TcpError error);
  // A peer connects to a listener, once that has an accept slot for it: the connection's handle. `peer`: by default
  // 10.9.0.1.
  Handle connect_to(std::uint16_t port, wire::IpAddress peer = wire::ipv4(0x0a090001));
  void arrive(Handle flow, std::string_view bytes);
  void end_stream(Handle flow);  // the peer's FIN
  void fail(Handle flow, wire::TcpError error);
  void acknowledge(bool at_once);                      // acknowledges later offers; true: earlier ones too
  void acknowledge(Handle flow, std::uint64_t bytes);  // that many more

  // ---- commands of the program. Waits for this command for the handle.
  void await(wire::TcpCommandKind kind, Handle handle);
  [[nodiscard]] bool has_commanded(wire::TcpCommandKind kind, Handle handle);
  [[nodiscard]] std::string offered(Handle flow);               // all so far, of no more than its ring has
  [[nodiscard]] std::uint16_t families_of(std::uint16_t port);  // flags of its last bind or listen command
  // The connection that the program made last.
  [[nodiscard]] Handle last_connected();
  [[nodiscard]] wire::TcpCommand connect_command(Handle flow);  // with the options that it began with
  [[nodiscard]] std::size_t processes();                        // that have joined so far, the first one included
  void await_processes(std::size_t count);

 private:
  struct Flow {
    wire::TcpCommand rings{};  // the command that named them
    wire::TcpEvent known{};    // the sum of all its events
    std::uint64_t offered = 0;
    std::string sent{};
  };

  using Lock = std::unique_lock<std::mutex>;

  void run();
  void rest(Lock& lock);
  void settle(Lock& lock, bool looks);
  void poll_link();
  [[nodiscard]] MutableBytes rings() noexcept { return link_ != nullptr ? link_->copy() : memory_.bytes(); }
  bool serve();
  void take(const wire::TcpCommand& command);
  void take_offer(const wire::TcpCommand& command);
  void take_datagrams();
  [[nodiscard]] bool take_datagrams(int wake, std::map<std::uint32_t, Fd>& joined);
  void tell(Handle handle, std::uint8_t what, wire::TcpError error = wire::TcpError::none);
  void wake_program();

  std::mutex lock_;
  std::condition_variable served_;
  link::SegmentMemory memory_;
  std::unique_ptr<channel::SocketArea> maker_;    // as the process that made the area
  std::unique_ptr<AreaLink> link_;                // null: the program is on the agent's machine
  tcp::ProgramArea area_;                         // the program's, or its copy
  Fd kick_;                                       // ends the thread's sleep
  std::map<std::uint32_t, std::uint64_t> woken_;  // linked: how often each process was woken
  Fd programs_wake_, programs_notices_;           // of the first process
  std::map<std::uint32_t, Fd> wakes_;             // by process
  std::vector<Fd> notices_;
  std::vector<std::uint32_t> processes_{0};
  std::map<Handle, Flow> flows_;
  std::map<std::uint16_t, Handle> listeners_;
  std::map<std::uint16_t, std::uint16_t> families_;  // by port
  std::map<Handle, std::vector<Handle>> accept_slots_;
  std::vector<std::pair<wire::TcpCommandKind, Handle>> commands_;
  wire::TcpError next_error_ = wire::TcpError::none;
  bool acknowledges_ = true;
  Handle last_connected_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace offpath::sockets
