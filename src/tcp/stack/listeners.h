// Local ports that peers of one family or the other may connect to.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

struct Listener {
  IpFamily family;
  std::uint16_t port;
  std::uint64_t tag, receive_bytes;
  FlowOptions options;
};

class Listeners {
 public:
  [[nodiscard]] bool add(const Listener& listener) {  // false: the port has one
    return listeners_.try_emplace(place(listener.family, listener.port), listener).second;
  }
  // Null: the port has none.
  const Listener* retag(IpFamily family, std::uint16_t port, std::uint64_t tag, const FlowOptions& options) {
    const auto found = listeners_.find(place(family, port));
    if (found == listeners_.end()) return nullptr;
    found->second.tag = tag;
    found->second.options = options;
    return &found->second;
  }
  bool remove(IpFamily family, std::uint16_t port) {  // false: the port has none
    return listeners_.erase(place(family, port)) != 0;
  }
  [[nodiscard]] const Listener* find(IpFamily family, std::uint16_t port) const noexcept {
    const auto found = listeners_.find(place(family, port));
    return found == listeners_.end() ? nullptr : &found->second;
  }
  // The one that peers of this flow's address would reach.
  [[nodiscard]] const Listener* find(const FlowKey& key) const noexcept { return find(key.family(), key.local.port); }
  [[nodiscard]] const std::unordered_map<std::uint32_t, Listener>& all() const noexcept { return listeners_; }

 private:
  [[nodiscard]] static std::uint32_t place(IpFamily family, std::uint16_t port) noexcept {
    return std::uint32_t{port} << 1 | (family == IpFamily::v6 ? 1u : 0u);
  }
  std::unordered_map<std::uint32_t, Listener> listeners_;
};

}  // namespace offpath::tcp
