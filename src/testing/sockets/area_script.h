// The agent's end of an area, a step at a time and on the test's own thread: commands are read and events are written
// as the test says. For tests of the program's end; FakeAreaAgent answers by itself.
#pragma once

#include <atomic>
#include <cstring>
#include <vector>

#include "wire/areas/tcp_area.h"

namespace offpath::channel {

class AreaScript {
 public:
  AreaScript(MutableBytes memory, const wire::TcpAreaLayout& layout) : memory_(memory), layout_(layout) {}

  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t offset) const {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_.data() + offset));
  }
  // All commands of a core that it has not seen.
  std::vector<wire::TcpCommand> commands(std::uint32_t core = 0) {
    std::vector<wire::TcpCommand> all;
    const std::uint64_t posted = word(wire::tcp_word::of_core(core) + wire::tcp_word::commands).load();
    for (; seen_[core] != posted; ++seen_[core]) {
      wire::TcpCommand command;
      std::memcpy(&command,
                  memory_.data() + wire::TcpAreaLayout::commands + layout_.of_core(core) +
                      seen_[core] % layout_.command_slots * wire::TcpAreaLayout::slot_bytes,
                  sizeof command);
      all.push_back(command);
    }
    return all;
  }
  // The ring's slots may be used again.
  void take_commands(std::uint32_t core = 0) const {
    word(wire::tcp_word::of_core(core) + wire::tcp_word::commands_taken).store(seen_[core]);
  }
  void tell(const wire::TcpEvent& event, std::uint32_t core = 0) const {
    auto posted = word(wire::tcp_word::of_core(core) + wire::tcp_word::events);
    std::memcpy(memory_.data() + layout_.events() + layout_.of_core(core) +
                    posted.load() % layout_.event_slots * wire::TcpAreaLayout::slot_bytes,
                &event, sizeof event);
    posted.store(posted.load() + 1);
  }

 private:
  MutableBytes memory_;
  wire::TcpAreaLayout layout_;
  std::uint64_t seen_[wire::tcp_cores_max] = {};
};

}  // namespace offpath::channel
