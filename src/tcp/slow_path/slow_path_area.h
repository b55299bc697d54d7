// One side's view of the memory between an agent and its slow path (wire/areas/tcp_slow_path.h): records are copied out
// once and checked, and neither side sleeps while the other has records for it. Records without room wait here, in
// order.
//
// Read this first in src/tcp/slow_path, then slow_path_records.h, and its two ends slow_path_agent.h and
// slow_path_host.h. tcp/flow/slow_path.h has the messages.
#pragma once

#include <deque>
#include <span>
#include <type_traits>
#include <vector>

#include "base/sleep_flag.h"
#include "base/status.h"
#include "wire/areas/tcp_slow_path.h"

namespace offpath::tcp {

class SlowPathArea {
 public:
  enum class Side { agent, process };

  // `memory` is at least as long as the layout says.
  SlowPathArea(Side side, MutableBytes memory, const wire::TcpSlowLayout& layout) noexcept;

  // Waits here if there is no room.
  void post_parts(wire::TcpSlowKind kind, std::span<const Bytes> parts);
  template <class Message>
    requires std::is_trivially_copyable_v<Message>
  void post(wire::TcpSlowKind kind, const Message& message, Bytes behind = {}) {
    const Bytes parts[] = {bytes_of(message), behind};
    post_parts(kind, parts);
  }
  // False, and nothing is written, unless so many bytes of the ring are free afterwards.
  template <class Message>
  [[nodiscard]] bool post_if_room(wire::TcpSlowKind kind, const Message& message, Bytes behind, std::uint64_t left) {
    if (!waiting_.empty() || room() < needed(sizeof message + behind.size()) + left) return false;
    post(kind, message, behind);
    return true;
  }
  // Writes waiting records, as far as there is room. Error: the other side's position is invalid.
  [[nodiscard]] Status flush();

  struct Record {
    wire::TcpSlowKind kind;
    Bytes payload;  // until the next is taken
  };
  // True: a record was read. Error: the record is invalid.
  [[nodiscard]] Result<bool> take(Record& record);

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  // The position up to which the other side has taken records; and whether any are left.
  [[nodiscard]] std::uint64_t taken_there() const noexcept { return other_word(offsetof(wire::TcpSlowLine, taken)); }
  [[nodiscard]] bool unread_there() const noexcept { return taken_there() != sent_; }

  // False: there is something to take.
  [[nodiscard]] bool fall_asleep() noexcept;
  void wake_up() noexcept;
  // After a round: the other side sleeps and there is something for it. It is said once.
  [[nodiscard]] bool wants_wake() noexcept;

 private:
  template <class Message>
  [[nodiscard]] static Bytes bytes_of(const Message& message) noexcept {
    return {reinterpret_cast<const std::byte*>(&message), sizeof message};
  }
  [[nodiscard]] static constexpr std::uint64_t needed(std::uint64_t payload) noexcept {
    return sizeof(wire::TcpSlowHead) + align_up(payload, 8);
  }
  [[nodiscard]] std::uint64_t other_word(std::uint64_t offset) const noexcept;
  void set_own(std::uint64_t offset, std::uint64_t value) noexcept;
  [[nodiscard]] SleepFlag flag(std::uint64_t line) const noexcept;
  [[nodiscard]] std::uint64_t room() const noexcept;
  void write(Bytes record) noexcept;

  MutableBytes memory_;
  std::uint64_t own_line_, other_line_;
  MutableBytes out_, in_;  // rings
  std::uint64_t sent_ = 0, taken_ = 0;
  bool posted_ = false, asleep_ = false;
  std::deque<std::vector<std::byte>> waiting_;
  std::vector<std::byte> taking_, making_;
};

}  // namespace offpath::tcp
