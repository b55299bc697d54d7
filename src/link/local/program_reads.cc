#include "link/local/program_reads.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace offpath::link {

namespace {

iovec vector_of(void* at, std::uint64_t length) { return {at, length}; }

}  // namespace

ProgramReads::ProgramReads(pid_t pid, MutableBytes channel, std::uint64_t channel_address)
    : pid_(pid), witness_(channel, channel_address) {}

void ProgramReads::begin(std::uint64_t token) {
  reads_.push_back({token, pieces_.size(), pieces_.size(), first_vector, first_vector, {}});
}

void ProgramReads::add(const Piece& piece) {
  pieces_.push_back(piece);
  reads_.back().end_piece = pieces_.size();
}

void ProgramReads::fail_newest(Failure why) {
  Read& read = reads_.back();
  pieces_.resize(read.first_piece);
  read.end_piece = read.first_piece;
  read.status = tl::unexpected(std::move(why));
}

void ProgramReads::clear() noexcept {
  reads_.clear();
  pieces_.clear();
  next_read_ = 0;
  vectors_ = first_vector;
  bounced_ = 0;
}

// Afterwards no reads are pending, and each has its result.
void ProgramReads::run() {
  for (; next_read_ < reads_.size() && !lost_; ++next_read_) {
    Read& read = reads_[next_read_];
    read.first = read.end = vectors_;
    if (!gather(read)) vectors_ = read.end = read.first;
  }
  read_gathered();
  next_read_ = reads_.size();
  pieces_.clear();
}

// False if the read has failed.
bool ProgramReads::gather(Read& read) {
  for (std::size_t i = read.first_piece; i < read.end_piece; ++i) {
    const Piece& piece = pieces_[i];
    for (std::uint64_t done = 0; done < piece.length;) {
      if (vectors_ == vector_max || (!piece.unshared && bounced_ == bounce_bytes)) {
        read.end = vectors_;
        read_gathered();
        if (lost_ || !read.status) return false;
      }
      done += add_vector(read, piece, done);
    }
  }
  read.end = vectors_;
  return read.status.has_value();
}

// Adds a vector for the piece's bytes from `done` on, up to the free memory for it. Returns its length.
std::uint64_t ProgramReads::add_vector(const Read& read, const Piece& piece, std::uint64_t done) {
  if (!call_) call_ = std::make_unique_for_overwrite<Call>();
  const std::uint64_t address = piece.range_address + piece.offset + done;
  std::uint64_t length = piece.length - done;
  std::byte* const target = piece.to + done;
  std::byte* to = target;
  if (!piece.unshared) {
    if (!bounce_) bounce_ = std::make_unique_for_overwrite<std::byte[]>(bounce_bytes);
    length = std::min(length, bounce_bytes - bounced_);
    to = bounce_.get() + bounced_;
    bounced_ += length;
  }
  if (vectors_ > read.first) {  // continues the previous vector on all sides
    iovec& before = call_->to[vectors_ - 1];
    iovec& from = call_->from[vectors_ - 1];
    if (static_cast<std::byte*>(before.iov_base) + before.iov_len == to &&
        call_->targets[vectors_ - 1] + before.iov_len == target &&
        reinterpret_cast<std::uint64_t>(from.iov_base) + from.iov_len == address &&
        call_->ranges[vectors_ - 1].range == piece.range) {
      before.iov_len += length;
      from.iov_len += length;
      return length;
    }
  }
  call_->to[vectors_] = vector_of(to, length);
  call_->from[vectors_] = vector_of(reinterpret_cast<void*>(address), length);
  call_->targets[vectors_] = target;
  call_->ranges[vectors_] = {piece.range, piece.range_address, piece.range_bytes};
  ++vectors_;
  return length;
}

ProgramReads::Read& ProgramReads::read_of(std::size_t vector) noexcept {
  const auto read =
      std::ranges::find_if(reads_, [&](const Read& each) { return each.first <= vector && vector < each.end; });
  OFP_ASSERT(read != reads_.end());
  return *read;
}

void ProgramReads::read_gathered() {
  std::size_t next = first_vector;
  while (next < vectors_ && !lost_ && renew_witness()) {
    const std::size_t with_witness = next - 1;  // replaces a finished vector
    const std::size_t count = vectors_ - with_witness;
    call_->to[with_witness] = witness_.to();
    call_->from[with_witness] = witness_.from();
    address_.store(reinterpret_cast<std::uint64_t>(call_->from[next].iov_base), std::memory_order_relaxed);
    const ssize_t got = process_vm_readv(pid_, &call_->to[with_witness], count, &call_->from[with_witness], count, 0);
    const int error_number = got < 0 ? errno : 0;
    calls_.fetch_add(1, std::memory_order_relaxed);
    auto left = static_cast<std::uint64_t>(std::max<ssize_t>(got, 0));
    if (error_number == EFAULT || (got >= 0 && !witness_.seen())) [[unlikely]] {
      for (std::size_t i = with_witness; i < vectors_; ++i) {  // the bytes are not the program's: erased even in the
                                                               // bounce buffer
        std::memset(call_->to[i].iov_base, 0, std::min<std::uint64_t>(left, call_->to[i].iov_len));
        left -= std::min<std::uint64_t>(left, call_->to[i].iov_len);
      }
      lost_ = {Error::peer_lost,
               "the program executed another program, unmapped its channel, or is not the process that connected"};
      break;
    }
    if (got <= static_cast<ssize_t>(Witness::bytes)) [[unlikely]] {
      Read& failed = read_of(next);
      failed.status = got < 0 ? call_failure(error_number) : unreadable(next);
      next = failed.end;  // the other reads can still succeed
      continue;
    }
    // The call stopped at a page that cannot be read, or at the kernel's limit of 2 GiB: the next call shows which.
    left -= Witness::bytes;
    const std::lock_guard lock(mutex_);
    if (abandoned_) break;  // the targets may be gone
    for (; next < vectors_ && left >= call_->from[next].iov_len; ++next) {
      left -= call_->from[next].iov_len;
      deliver(next, call_->from[next].iov_len);
    }
    if (left > 0) {
      deliver(next, left);
      for (iovec* each : {&call_->to[next], &call_->from[next]})
        *each = vector_of(static_cast<std::byte*>(each->iov_base) + left, each->iov_len - left);
      call_->targets[next] += left;
    }
  }
  for (Read& read : reads_) read.first = read.end = first_vector;
  vectors_ = first_vector;
  bounced_ = 0;
}

// Returns false if the target memory may be gone.
bool ProgramReads::renew_witness() {
  const std::lock_guard lock(mutex_);
  if (abandoned_) {
    lost_ = {Error::closed, "the channel was closed"};
    return false;
  }
  witness_.renew();
  return true;
}

// Copies verified bytes of a call to their targets, where others may see them. Under the lock.
void ProgramReads::deliver(std::size_t vector, std::uint64_t length) noexcept {
  const void* const read = call_->to[vector].iov_base;
  if (call_->targets[vector] != read) std::memcpy(call_->targets[vector], read, length);
}

void ProgramReads::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

tl::unexpected<Failure> ProgramReads::call_failure(int error_number) {
  if (error_number == ESRCH) {
    lost_ = {Error::peer_lost, "the program ended"};
    return tl::unexpected<Failure>(*lost_);
  }
  if (error_number == EPERM)
    return fail(Error::denied,
                "the program's memory may not be read any more: its rights changed (new user, PR_SET_DUMPABLE, or "
                "PR_SET_PTRACER for another process)");
  return fail_errno(error_number, "process_vm_readv");
}

tl::unexpected<Failure> ProgramReads::unreadable(std::size_t vector) const {
  const auto address = reinterpret_cast<std::uint64_t>(call_->from[vector].iov_base);
  const Range& range = call_->ranges[vector];
  return fail(Error::unreadable,
              "range {} of {} bytes: no memory is mapped at its offset {}: it was freed after it was announced",
              range.range, range.bytes, address - range.address);
}

}  // namespace offpath::link
