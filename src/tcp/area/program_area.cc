#include "tcp/area/program_area.h"

#include <atomic>
#include <cstddef>
#include <cstring>

namespace offpath::tcp {

namespace {

using wire::TcpAreaLayout;

std::atomic_ref<std::uint64_t> at(MutableBytes memory, std::uint64_t offset) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory.data() + offset));
}

}  // namespace

std::uint64_t ProgramArea::word(std::uint64_t offset) const noexcept {
  return at(memory_, offset).load(std::memory_order_acquire);
}

void ProgramArea::set_word(std::uint64_t offset, std::uint64_t value) noexcept {
  at(memory_, offset).store(value, std::memory_order_release);
}

bool ProgramArea::attach(MutableBytes memory) noexcept {
  memory_ = memory.size() >= layout_.bytes ? memory : MutableBytes();
  return !memory_.empty();
}

void ProgramArea::introduce(std::uint32_t cores, const IpAddress& address4, const IpAddress& address6,
                            wire::TcpCongestion congestion, std::uint8_t congestions,
                            std::uint8_t congestions_of_all) noexcept {
  set_word(wire::tcp_word::cores, cores);
  auto& line = *reinterpret_cast<wire::TcpAgentLine*>(memory_.data() + wire::tcp_word::agent_line);
  line.address4 = address4.is_unspecified() ? 0 : address4.v4();
  line.address6 = address6;
  line.congestion = congestion;
  line.congestions = congestions;
  line.congestions_of_all = congestions_of_all;
}

Result<bool> ProgramArea::take(wire::TcpCommand& command) {
  const std::uint64_t posted = word(own(wire::tcp_word::commands)), waiting = posted - commands_taken_;
  if (waiting == 0) return false;
  if (waiting > layout_.command_slots)
    return fail(Error::protocol, "commands: position {} in a ring of {} entries, of which {} were taken", posted,
                layout_.command_slots, commands_taken_);
  std::memcpy(&command,
              memory_.data() + TcpAreaLayout::commands + layout_.of_core(core_) +
                  commands_taken_ % layout_.command_slots * TcpAreaLayout::slot_bytes,
              sizeof command);
  set_word(own(wire::tcp_word::commands_taken), ++commands_taken_);
  took_ = true;
  return true;
}

std::uint64_t ProgramArea::read_position(std::uint32_t handle) const noexcept {
  return word(layout_.reads() + handle * sizeof(std::uint64_t));
}

Result<bool> ProgramArea::post(const wire::TcpEvent& event, std::uint64_t concerned) {
  const std::uint64_t taken = word(own(wire::tcp_word::events_taken)), waiting = events_ - taken;
  if (waiting > layout_.event_slots)
    return fail(Error::protocol, "events: {} were taken and {} were written, in a ring of {}", taken, events_,
                layout_.event_slots);
  if (waiting == layout_.event_slots) {
    full_ = true;
    return false;
  }
  std::memcpy(memory_.data() + layout_.events() + layout_.of_core(core_) +
                  events_ % layout_.event_slots * TcpAreaLayout::slot_bytes,
              &event, sizeof event);
  set_word(own(wire::tcp_word::events), ++events_);
  posted_for_ |= concerned;
  if (concerned != 0) {
    if (event.handle < layout_.flows) told_.push_back(event.handle);
    if ((event.what & wire::tcp_event::accepted) != 0 && event.listener < layout_.flows)
      told_.push_back(event.listener);
  }
  return true;
}

bool ProgramArea::wants_wake(std::uint32_t process) noexcept {
  const SleepFlag sleeper = flag(wire::tcp_word::process_asleep(process));
  const std::uint64_t asleep = sleeper.value();
  if (asleep == 0) return false;
  const bool concerned = (posted_for_ & wire::tcp_process_bit(process)) != 0;
  // Events that wait for room wake every sleeper: an event behind them may concern it.
  const bool wakes = full_ || (asleep != 3 && concerned) || (took_ && asleep == 2);
  if (wakes) sleeper.clear();
  return wakes;
}

bool ProgramArea::fall_asleep(bool events_wait) noexcept {
  const auto look = [&] {
    const bool room = events_wait && events_ - word(own(wire::tcp_word::events_taken)) < layout_.event_slots;
    return room || word(own(wire::tcp_word::commands)) != commands_taken_;
  };
  asleep_ = flag(own(wire::tcp_word::agent_asleep)).fall_asleep(look, events_wait ? 2 : 1);
  return asleep_;
}

void ProgramArea::wake_up() noexcept {
  if (asleep_) flag(own(wire::tcp_word::agent_asleep)).clear();
  asleep_ = false;
}

}  // namespace offpath::tcp
