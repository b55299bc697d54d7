#include "pool/table/waiting_reads.h"

#include <algorithm>

#include "base/backoff.h"

namespace offpath::pool {

namespace {

constexpr TimeNs room_wait_ns = second_ns;  // for memory, without a deadline of the caller
constexpr TimeNs again_ns = 10 * millisecond_ns, again_max_ns = second_ns;  // after a failure

}  // namespace

std::string WaitingReads::Read::describe() const {
  if (failures == 0) return fmt::format("there is no memory for its {} bytes", frame->bytes);
  return fmt::format("{}; it was tried {} times, and is tried again", why, failures);
}

void WaitingReads::add(Read read) {
  const Number number = ++last_;
  if (read.failures == 0) {
    by_bytes_.emplace(read.frame->bytes, number);
    bytes_ += read.frame->bytes;
  }
  if (read.channel != 0) by_channel_.emplace(read.channel, number);
  fresh_.push_back(number);
  reads_.emplace(number, std::move(read));
}

WaitingReads::Read WaitingReads::extract(Number number) {
  auto node = reads_.extract(number);
  Read& read = node.mapped();
  if (read.failures == 0) {
    by_bytes_.erase({read.frame->bytes, number});
    bytes_ -= read.frame->bytes;
  }
  by_channel_.erase({read.channel, number});
  times_.erase(number);
  return std::move(read);
}

void WaitingReads::drop(service::ChannelNumber channel) {
  for (auto at = by_channel_.lower_bound({channel, 0}); at != by_channel_.end() && at->first == channel;)
    (void)extract((at++)->second);
}

std::vector<WaitingReads::Read> WaitingReads::take_due(TimeNs now) {
  for (const Number number : std::exchange(fresh_, {})) {
    const auto at = reads_.find(number);
    if (at == reads_.end()) continue;
    Read& read = at->second;
    if (read.until == 0) read.until = deadline_after(now, room_wait_ns);
    const TimeNs again =
        read.failures >= failures_max ? now : now + backoff_ns(again_ns, read.failures - 1, again_max_ns);
    times_.set(number, read.failures == 0 ? read.until : std::min(read.until, again));
  }
  std::vector<Read> due;
  for (const Number number : times_.take(now)) due.push_back(extract(number));
  return due;
}

std::optional<WaitingReads::Read> WaitingReads::take_smallest(const std::function<bool(std::uint64_t bytes)>& fits) {
  if (by_bytes_.empty() || !fits(by_bytes_.begin()->first)) return std::nullopt;
  return extract(by_bytes_.begin()->second);
}

}  // namespace offpath::pool
