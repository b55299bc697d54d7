// Reads the records of one program from its area (wire/areas/exchange_area.h): the line that numbers the newest one,
// then the beginning of its slot, then the rest of a long one. A state machine: its reads are pulls that the service
// makes, and it knows neither channels nor exchanges.
//
//   begin --> line --> nothing new: the record before still holds
//                  --> slot --> complete: a new record; else --> rest --> complete
//                           '-- torn: the program was writing. Read again from the line, three times at most
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace offpath::exchange {

class RecordReader {
 public:
  // `record_bytes`: the largest record.
  RecordReader(std::uint64_t record_bytes, TimeNs now) noexcept
      : record_bytes_(record_bytes), read_at_(now), read_before_at_(now) {}

  // To be read from that offset of the area into room(), from `room_at` on.
  struct Pull {
    std::uint64_t offset, length, room_at;
  };
  // nullopt: a reading is under way, and another one is due after it (Step::again).
  [[nodiscard]] std::optional<Pull> begin(TimeNs now);

  struct Record {
    std::uint64_t number, view_number;  // the view that the program knew
    TimeNs published_at_ns;             // by the program's clock; 0: not told
    std::shared_ptr<const std::vector<std::byte>> bytes;
  };
  // The reading goes on with `next`, or is over. A record that was read stays until another one is.
  struct Step {
    std::optional<Pull> next{};
    std::optional<Record> record{};
    bool torn = false, again = false;
  };
  [[nodiscard]] Step on_read(const Status& status, TimeNs now);

  // The target of reads, which their owner keeps alive.
  [[nodiscard]] const std::shared_ptr<std::vector<std::byte>>& room() const noexcept { return room_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }  // of the newest record; 0: none
  [[nodiscard]] TimeNs seen_at() const noexcept { return seen_at_; }
  // The start of the reading before the last one. A new record is no older if the program's clock is another one: that
  // reading did not see it.
  [[nodiscard]] TimeNs not_before() const noexcept { return read_before_at_; }

 private:
  enum class State : std::uint8_t { idle, line, slot, rest };

  [[nodiscard]] Pull read_line() noexcept;
  [[nodiscard]] Step over();
  [[nodiscard]] Step take_slot(TimeNs now);

  std::uint64_t record_bytes_;
  State state_ = State::idle;
  bool again_ = false;
  unsigned torn_ = 0;
  TimeNs read_at_, read_before_at_;
  std::uint64_t reading_ = 0, number_ = 0;
  TimeNs seen_at_ = 0;
  std::shared_ptr<std::vector<std::byte>> room_;  // the line, then the slot
};

}  // namespace offpath::exchange
