// Serves a program's memory over TCP; see stream_host_link.h for its rules. A thread of its own does it, or those that
// several links share (stream_threads.h), one at a time.
#pragma once

#include <pthread.h>
#include <sys/uio.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "link/control/control_socket.h"
#include "link/control/host_control.h"
#include "link/guarded_copy.h"
#include "link/link.h"
#include "link/region_table.h"
#include "link/stream/stream_threads.h"

namespace offpath::link {

class StreamServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StreamServer>> create(ControlSocket socket);
  // Only after stop(). In a forked child it is never destroyed.
  ~StreamServer() = default;
  [[nodiscard]] Status start(std::shared_ptr<StreamThreads> threads);  // null: a thread of its own
  void stop();                                                         // ends the connection and waits for the thread
  void close_copies();                                                 // in a forked child

  // For StreamThreads: serves arrived frames, and returns instead of waiting for more.
  enum class Served { idle, needs_room, ended };
  [[nodiscard]] Served serve_waiting();

  // ---- called by the program's threads
  [[nodiscard]] Status attach(RegionId region, std::uint32_t generation, std::uint64_t base, std::uint64_t length);
  // Returns when the thread does not use the region any more, but waits at most a second for a stuck network.
  void detach(RegionId region, std::uint32_t generation);
  // The same without waiting: the thread may use the region as long as is_moving returns true; then the event
  // descriptor announces the end.
  void withdraw(RegionId region, std::uint32_t generation);
  [[nodiscard]] bool is_moving(RegionId region);
  [[nodiscard]] Status send(wire::ControlType type, Bytes payload);
  void wake_agent(Bytes requests = {});
  [[nodiscard]] Status await_acknowledgement(RegionId segment, TimeNs deadline);
  void wait(TimeNs deadline);
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  [[nodiscard]] Status look();

 private:
  StreamServer(ControlSocket socket, GuardedCopy guarded, Fd event, Fd kick);

  // ---- the thread
  static void* run(void* server);
  void serve();
  void end(Failure why);
  [[nodiscard]] Result<bool> serve_next(bool again);
  [[nodiscard]] Status take_frame(const ControlSocket::Frame& frame);
  [[nodiscard]] Status serve_read(Bytes payload);
  [[nodiscard]] Status serve_write(std::uint64_t number);
  [[nodiscard]] Status send_frame(std::uint64_t number, std::uint32_t bytes, Status& outcome);
  [[nodiscard]] Result<std::size_t> send_some(Status& outcome);
  void advance(std::size_t moved) noexcept;
  [[nodiscard]] Status send_zeros_instead();
  [[nodiscard]] Result<std::size_t> receive_some(std::span<const iovec> to);
  [[nodiscard]] Status receive_copied(const wire::TransferRequest& request, Status& outcome);
  [[nodiscard]] Status receive_in_place(Status& outcome);
  [[nodiscard]] Status apply(const wire::TransferRequest& request, std::uint64_t position, Bytes bytes);
  [[nodiscard]] Status answer(wire::ControlType type, std::uint64_t number, Status outcome);
  [[nodiscard]] Status resolve(const wire::TransferPiece& piece, bool for_write, std::uint64_t& address) const;
  void release_frame();
  [[nodiscard]] Status wait_socket(bool for_output);
  void kick() noexcept;
  void fail_all(Failure why);
  void signal_program() noexcept;
  void release_output(std::unique_lock<std::mutex>& lock);
  void send_pending_wake();

  ControlSocket socket_;  // only the thread receives from it; everything else is under `output`
  std::mutex output_;
  std::atomic<bool> wake_pending_ = false;

  std::mutex table_;
  std::condition_variable moved_;
  RegionTable regions_;
  std::vector<RegionId> held_;  // of the frame being moved
  bool tells_moved_ = false;    // a caller was told that one of these regions is in use

  std::mutex state_;
  std::condition_variable changed_;
  Acknowledgements acknowledged_;
  std::optional<Failure> lost_;

  Fd event_;  // wakes the program
  Fd kick_;   // wakes the thread
  std::atomic<bool> stopping_ = false;
  pthread_t thread_{};
  bool started_ = false;
  std::shared_ptr<StreamThreads> threads_;  // instead of thread_
  std::atomic<std::uint64_t> number_ = 0;   // its own there; 0: not yet

  // Used only by the thread.
  GuardedCopy guarded_;
  std::vector<iovec> vectors_;
  std::size_t vector_ = 0;
  std::vector<RegionId> frame_regions_;  // of each vector
  Bytes chunk_;                          // TLS: copied, not sent yet
  std::vector<std::byte> request_, small_, payload_;
  bool write_expected_ = false;
  bool told_why_ = false;  // by the agent, why the channel ends
};

}  // namespace offpath::link
