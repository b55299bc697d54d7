// Local ports that peers may connect to.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

struct Listener {
  std::uint64_t tag, receive_bytes;
  FlowOptions options;
};

class Listeners {
 public:
  [[nodiscard]] bool add(std::uint16_t port, const Listener& listener) {  // false: the port has one
    return listeners_.try_emplace(port, listener).second;
  }
  void retag(std::uint16_t port, std::uint64_t tag) {
    if (const auto found = listeners_.find(port); found != listeners_.end()) found->second.tag = tag;
  }
  bool remove(std::uint16_t port) { return listeners_.erase(port) != 0; }  // false: the port has none
  [[nodiscard]] const Listener* find(std::uint16_t port) const noexcept {
    const auto found = listeners_.find(port);
    return found == listeners_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool contains(std::uint16_t port) const noexcept { return listeners_.contains(port); }
  [[nodiscard]] const std::unordered_map<std::uint16_t, Listener>& all() const noexcept { return listeners_; }

 private:
  std::unordered_map<std::uint16_t, Listener> listeners_;
};

}  // namespace offpath::tcp
