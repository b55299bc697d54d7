#include "tcp/slow_path/slow_path_area.h"

#include <atomic>
#include <cstring>

#include "base/ring_bytes.h"

namespace offpath::tcp {

namespace {

using wire::TcpSlowHead;
using wire::TcpSlowLayout;
using wire::TcpSlowLine;

constexpr std::uint64_t sent_word = offsetof(TcpSlowLine, sent), taken_word = offsetof(TcpSlowLine, taken);

std::atomic_ref<std::uint64_t> word_at(MutableBytes memory, std::uint64_t offset) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory.data() + offset));
}

}  // namespace

SlowPathArea::SlowPathArea(Side side, MutableBytes memory, const TcpSlowLayout& layout) noexcept
    : memory_(memory),
      own_line_(side == Side::agent ? TcpSlowLayout::agent_line : TcpSlowLayout::process_line),
      other_line_(side == Side::agent ? TcpSlowLayout::process_line : TcpSlowLayout::agent_line) {
  OFP_ASSERT(memory.size() >= layout.bytes());
  const MutableBytes to_agent = memory.subspan(TcpSlowLayout::rings, layout.ring_bytes);
  const MutableBytes to_process = memory.subspan(TcpSlowLayout::rings + layout.ring_bytes, layout.ring_bytes);
  out_ = side == Side::agent ? to_process : to_agent;
  in_ = side == Side::agent ? to_agent : to_process;
}

std::uint64_t SlowPathArea::other_word(std::uint64_t offset) const noexcept {
  return word_at(memory_, other_line_ + offset).load(std::memory_order_acquire);
}
void SlowPathArea::set_own(std::uint64_t offset, std::uint64_t value) noexcept {
  word_at(memory_, own_line_ + offset).store(value, std::memory_order_release);
}

std::uint64_t SlowPathArea::room() const noexcept {
  const std::uint64_t there = sent_ - taken_there();
  return there > out_.size() ? 0 : out_.size() - there;  // flush() reports the error
}

void SlowPathArea::write(Bytes record) noexcept {
  copy_into_ring(out_, sent_, record);
  sent_ += record.size();
  set_own(sent_word, sent_);
  posted_ = true;
}

void SlowPathArea::post_parts(wire::TcpSlowKind kind, std::span<const Bytes> parts) {
  std::size_t payload = 0;
  for (const Bytes& part : parts) payload += part.size();
  OFP_ASSERT(payload <= wire::tcp_slow_record_bytes_max);
  making_.assign(needed(payload), std::byte{0});
  const TcpSlowHead head{static_cast<std::uint32_t>(payload), static_cast<std::uint16_t>(kind), 0};
  std::memcpy(making_.data(), &head, sizeof head);
  std::size_t place = sizeof head;
  for (const Bytes& part : parts) {
    if (!part.empty()) std::memcpy(making_.data() + place, part.data(), part.size());
    place += part.size();
  }
  if (waiting_.empty() && room() >= making_.size()) return write(making_);
  waiting_.push_back(making_);
}

Status SlowPathArea::flush() {
  const std::uint64_t taken = taken_there();
  if (sent_ - taken > out_.size())
    return fail(Error::protocol, "{} bytes were taken from a ring of {}, but {} were written", taken, out_.size(),
                sent_);
  while (!waiting_.empty() && room() >= waiting_.front().size()) {
    write(waiting_.front());
    waiting_.pop_front();
  }
  return {};
}

Result<bool> SlowPathArea::take(Record& record) {
  const std::uint64_t sent = other_word(sent_word), there = sent - taken_;
  if (there == 0) return false;
  TcpSlowHead head;
  if (there > in_.size() || there % 8 != 0 || there < sizeof head)
    return fail(Error::protocol, "position {} in a ring of {} bytes, of which {} were taken", sent, in_.size(), taken_);
  copy_out_of_ring(in_, taken_, std::as_writable_bytes(std::span(&head, 1)));
  if (head.bytes > wire::tcp_slow_record_bytes_max || needed(head.bytes) > there || head.zero != 0)
    return fail(Error::protocol, "a record of kind {} claims {} bytes, but {} are present", head.kind, head.bytes,
                there);
  taking_.resize(head.bytes);
  copy_out_of_ring(in_, taken_ + sizeof head, taking_);
  taken_ += needed(head.bytes);
  set_own(taken_word, taken_);
  record = {static_cast<wire::TcpSlowKind>(head.kind), taking_};
  return true;
}

SleepFlag SlowPathArea::flag(std::uint64_t line) const noexcept {
  return SleepFlag(memory_.data() + line + offsetof(TcpSlowLine, asleep));
}

bool SlowPathArea::fall_asleep() noexcept {
  asleep_ = flag(own_line_).fall_asleep([&] { return other_word(sent_word) != taken_; });
  return asleep_;
}

void SlowPathArea::wake_up() noexcept {
  if (asleep_) flag(own_line_).clear();
  asleep_ = false;
}

bool SlowPathArea::wants_wake() noexcept {
  if (!posted_) return false;
  posted_ = false;
  fence_before_look();
  return flag(other_line_).take();
}

}  // namespace offpath::tcp
