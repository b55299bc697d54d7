// Reads of one program's memory by process_vm_readv: many pieces by few calls, each of which proves whose memory it
// read (control/witness.h).
//
// Witness and data arrive in one call, so data arrive before they are known to be the program's. If another process may
// have the target mapped (ReadPiece::unshared is false), they are read into a bounce buffer, and copied to the target
// after the witness was verified.
//
// run() may be left to a thread, which the program can block in a call. Then abandon() takes targets and channel away
// from it: memory to which the kernel may still write belongs to this object. Pieces of such reads must not be
// unshared.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "link/control/witness.h"
#include "wire/region.h"

namespace offpath::link {

class ProgramReads {
 public:
  static constexpr std::size_t vector_max = 1024;  // IOV_MAX
  static constexpr std::uint64_t bounce_bytes = 128 << 10;

  // Bytes of a range, by their address in the program.
  struct Piece {
    wire::RegionId range;
    std::uint64_t range_address, range_bytes;
    std::uint64_t offset;
    std::byte* to;
    std::uint64_t length;
    bool unshared;
  };
  struct Read {
    std::uint64_t token;
    std::size_t first_piece, end_piece;
    std::size_t first, end;  // of its vectors
    Status status;
  };

  // `channel` is the agent's mapping of the channel segment, `channel_address` the program's.
  ProgramReads(pid_t pid, MutableBytes channel, std::uint64_t channel_address);

  void begin(std::uint64_t token);
  void add(const Piece& piece);  // to the newest read
  void fail_newest(Failure why);
  void run();

  [[nodiscard]] std::span<const Read> reads() const noexcept { return reads_; }
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }
  // After run(): the memory is no longer the program's. All reads have failed.
  [[nodiscard]] const std::optional<Failure>& lost() const noexcept { return lost_; }
  void clear() noexcept;

  // ---- while another thread is in run()
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_.load(std::memory_order_relaxed); }
  // The address at which the current call begins to read.
  [[nodiscard]] std::uint64_t address() const noexcept { return address_.load(std::memory_order_relaxed); }
  void abandon() noexcept;

 private:
  static constexpr std::size_t first_vector = 1;  // the one before it is the witness

  struct Range {
    wire::RegionId range;
    std::uint64_t address, bytes;
  };

  [[nodiscard]] bool gather(Read& read);
  [[nodiscard]] std::uint64_t add_vector(const Read& read, const Piece& piece, std::uint64_t done);
  void read_gathered();
  [[nodiscard]] bool renew_witness();
  void deliver(std::size_t vector, std::uint64_t length) noexcept;
  [[nodiscard]] Read& read_of(std::size_t vector) noexcept;
  [[nodiscard]] tl::unexpected<Failure> call_failure(int error_number);
  [[nodiscard]] tl::unexpected<Failure> unreadable(std::size_t vector) const;

  const pid_t pid_;
  std::vector<Read> reads_;
  std::vector<Piece> pieces_;
  std::size_t next_read_ = 0;  // the first that has not run
  std::optional<Failure> lost_;

  // A call's vectors, 64 KiB.
  struct Call {
    std::array<iovec, vector_max> to, from;
    std::array<std::byte*, vector_max> targets;  // the final place of each vector's bytes: equal to `to`, or copied
                                                 // from there
    std::array<Range, vector_max> ranges;        // the source of each vector
  };

  // The call being built. Both are made on first use: most members of a group never read from each other.
  std::unique_ptr<Call> call_;
  std::size_t vectors_ = first_vector;
  std::unique_ptr<std::byte[]> bounce_;
  std::uint64_t bounced_ = 0;  // bytes of it in use

  std::atomic<std::uint64_t> calls_ = 0, address_ = 0;
  std::mutex mutex_;  // held while targets or the channel are written
  bool abandoned_ = false;
  Witness witness_;
};

}  // namespace offpath::link
