#include "exchange/record_reader.h"

#include <algorithm>
#include <utility>

#include "wire/areas/exchange_area.h"

namespace offpath::exchange {

namespace {

constexpr unsigned torn_max = 3;
constexpr std::uint64_t line_bytes = sizeof(wire::PublishLine);
constexpr std::uint64_t first_read_bytes = 4096;  // of a record, with its head

}  // namespace

RecordReader::Pull RecordReader::read_line() noexcept {
  state_ = State::line;
  return {0, line_bytes, 0};
}

std::optional<RecordReader::Pull> RecordReader::begin(TimeNs now) {
  if (state_ != State::idle) {
    again_ = true;
    return std::nullopt;
  }
  torn_ = 0;
  read_before_at_ = std::exchange(read_at_, now);
  if (!room_) room_ = std::make_shared<std::vector<std::byte>>(line_bytes + wire::record_slot_bytes(record_bytes_));
  return read_line();
}

RecordReader::Step RecordReader::over() {
  state_ = State::idle;
  return {.again = std::exchange(again_, false)};
}

RecordReader::Step RecordReader::on_read(const Status& status, TimeNs now) {
  if (!status) return over();
  const std::uint64_t slot_at = wire::record_slot_at(reading_, record_bytes_);
  const std::uint64_t there = std::min(wire::record_slot_bytes(record_bytes_), first_read_bytes);
  if (state_ == State::line) {
    reading_ = load<wire::PublishLine>(room_->data()).number;
    if (reading_ == 0 || reading_ == number_) return over();  // nothing new
    state_ = State::slot;
    return {.next = Pull{wire::record_slot_at(reading_, record_bytes_), there, line_bytes}};
  }
  const auto head = load<wire::RecordHead>(room_->data() + line_bytes);
  const std::uint64_t wanted = sizeof head + head.length;
  if (state_ == State::slot && head.number == reading_ && head.length <= record_bytes_ && wanted > there) {
    state_ = State::rest;
    return {.next = Pull{slot_at + there, wanted - there, line_bytes + there}};
  }
  return take_slot(now);
}

RecordReader::Step RecordReader::take_slot(TimeNs now) {
  const auto head = load<wire::RecordHead>(room_->data() + line_bytes);
  const bool fits = head.number == reading_ && head.length <= record_bytes_;
  const Bytes record = fits ? Bytes(*room_).subspan(line_bytes + sizeof head, head.length) : Bytes();
  if (!fits || wire::record_crc(head.number, record) != head.crc32c) {
    Step step = ++torn_ >= torn_max ? over() : Step{.next = read_line()};
    step.torn = true;
    return step;
  }
  number_ = head.number;
  seen_at_ = now;
  Step step = over();
  step.record = Record{head.number, head.view_number, head.published_at_ns,
                       std::make_shared<const std::vector<std::byte>>(record.begin(), record.end())};
  return step;
}

}  // namespace offpath::exchange
