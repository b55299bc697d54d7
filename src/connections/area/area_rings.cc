#include "connections/area/area_rings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "base/sleep_flag.h"

namespace offpath::channel {

using wire::TcpAreaLayout;
using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpEvent;

namespace {

std::atomic_ref<std::uint64_t> word(MutableBytes memory, std::uint64_t offset) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory.data() + offset));
}

std::uint64_t read(MutableBytes memory, std::uint32_t core, std::uint64_t offset,
                   std::memory_order order = std::memory_order_acquire) noexcept {
  return word(memory, wire::tcp_word::of_core(core) + offset).load(order);
}

SleepFlag agent_asleep(MutableBytes memory, std::uint32_t core) noexcept {
  return SleepFlag(memory.data() + wire::tcp_word::of_core(core) + wire::tcp_word::agent_asleep);
}

}  // namespace

void AreaRings::learn() noexcept {
  const std::uint64_t told = read(memory_, 0, wire::tcp_word::cores);  // 0 before the agent has opened the area
  cores_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(told, 1, wire::tcp_cores_max));
  const std::uint64_t link = read(memory_, 0, wire::tcp_word::linked);
  linked_ = link != 0;
  keeps_pages_ = link == wire::tcp_link_pins;
}

// ---- commands

bool AreaRings::has_room(std::uint32_t core, std::uint64_t entries) const noexcept {
  const std::uint64_t under_way = state_->commands[core] - read(memory_, core, wire::tcp_word::commands_taken);
  const std::uint64_t reserve = linked_ ? wire::tcp_sleep_slots + state_->processes : 0;
  return under_way + entries <= layout_.command_slots - reserve;
}

bool AreaRings::room(std::uint32_t core) const noexcept {
  const bool there = has_room(core, 1);
  if (!there) state_->waits_for_room |= 1u << core;
  return there;
}

bool AreaRings::room_anywhere() const noexcept {
  bool there = false;
  for (std::uint32_t core = 0; core < cores_; ++core) there = room(core) || there;
  return there;
}

void AreaRings::post(std::uint32_t core, TcpCommand command, std::uint64_t read_position) noexcept {
  std::uint64_t& commands = state_->commands[core];
  if (linked_) {
    if (wire::concerns_flow(command.kind)) command.send_at = read_position;
    command.stamp = wire::tcp_stamp(command, commands);
  }
  std::memcpy(memory_.data() + TcpAreaLayout::commands + layout_.of_core(core) +
                  commands % layout_.command_slots * TcpAreaLayout::slot_bytes,
              &command, sizeof command);
  std::atomic_ref<std::uint64_t>(commands).store(commands + 1, std::memory_order_relaxed);  // tell_agent() reads it
  word(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::commands).store(commands, std::memory_order_release);
  ++state_->posted;
}

void AreaRings::post_offer(std::uint32_t core, Handle handle, std::uint64_t end, Bytes sent,
                           std::uint64_t read_position) noexcept {
  wire::TcpOffer entry{};
  entry.handle = handle;
  entry.position = end;
  const std::uint64_t entries = (sent.size() + wire::tcp_entry_payload - 1) / wire::tcp_entry_payload;
  if (linked_ && sent.size() <= wire::tcp_small_send && has_room(core, entries)) {
    const auto fill = [&](std::size_t count) {
      entry.count = static_cast<std::uint8_t>(count);
      std::memcpy(entry.bytes.data(), sent.data(), count);
      sent = sent.subspan(count);
      entry.position = end - sent.size();
    };
    for (entry.kind = TcpCommandKind::payload; sent.size() > wire::tcp_entry_payload;) {
      fill(wire::tcp_entry_payload);
      post(core, std::bit_cast<TcpCommand>(entry), read_position);
    }
    fill(sent.size());
  }
  entry.kind = TcpCommandKind::offer;
  post(core, std::bit_cast<TcpCommand>(entry), read_position);
}

void AreaRings::tell_agent() const noexcept {
  fence_before_look();
  for (std::uint32_t core = 0; core < cores_; ++core) {
    if (agent_asleep(memory_, core).value() == 0) continue;
    const auto posted = std::atomic_ref<std::uint64_t>(state_->commands[core]).load(std::memory_order_relaxed);
    if (read(memory_, core, wire::tcp_word::commands_taken, std::memory_order_relaxed) != posted) tell_core(core);
  }
}

void AreaRings::tell_core(std::uint32_t core) const noexcept {
  if (agent_asleep(memory_, core).take()) wake_(core);
}

// ---- events

std::uint64_t AreaRings::events_posted(std::uint32_t core) const noexcept {
  return read(memory_, core, wire::tcp_word::events);
}

TcpEvent AreaRings::event_at(std::uint32_t core, std::uint64_t position) const noexcept {
  TcpEvent told{};
  std::memcpy(&told,
              memory_.data() + layout_.events() + layout_.of_core(core) +
                  position % layout_.event_slots * TcpAreaLayout::slot_bytes,
              sizeof told);
  return told;
}

void AreaRings::events_were_taken(std::uint32_t core, std::uint64_t position) noexcept {
  word(memory_, wire::tcp_word::of_core(core) + wire::tcp_word::events_taken)
      .store(position, std::memory_order_release);
  fence_before_look();
  if (agent_asleep(memory_, core).value() == 2) tell_core(core);
}

bool AreaRings::has_events() const noexcept {
  for (std::uint32_t core = 0; core < cores_; ++core)
    if (events_posted(core) !=
        std::atomic_ref<std::uint64_t>(state_->events_taken[core]).load(std::memory_order_relaxed))
      return true;
  return false;
}

// ---- sleep

bool AreaRings::look_before_sleep() noexcept {
  bool something = false;
  const std::uint32_t waited = std::exchange(state_->waits_for_room, 0);
  for (std::uint32_t core = 0; core < cores_; ++core) {
    if ((waited >> core & 1) != 0) something = room(core) || something;
    something = something || events_posted(core) != state_->events_taken[core];
  }
  return something;
}

bool AreaRings::post_sleep(std::uint32_t process, bool for_room, KnownSleep& known) noexcept {
  const std::uint64_t flags = for_room ? 2 : 1,
                      woken = word(memory_, wire::tcp_word::process_woken(process)).load(std::memory_order_acquire);
  if (known.flags == flags && known.position == state_->events_taken[0] && known.woken == woken) return true;
  if (state_->commands[0] - read(memory_, 0, wire::tcp_word::commands_taken) >= layout_.command_slots) return false;
  TcpCommand command{};
  command.kind = TcpCommandKind::sleep;
  command.listener = process;
  known.position = command.position = state_->events_taken[0];
  known.woken = woken;
  known.flags = command.flags = static_cast<std::uint16_t>(flags);
  post(0, command, 0);
  return true;
}

}  // namespace offpath::channel
