// Which flow a segment belongs to: open addressing over the four numbers of a connection, hashed with a key that peers
// do not know, so that nobody can choose ports that collide.
#pragma once

#include <cstdint>
#include <vector>

#include "tcp/segment/address.h"
#include "tcp/segment/keyed_hash.h"

namespace offpath::tcp {

class FlowTable {
 public:
  static constexpr std::uint32_t nobody = ~0u;

  explicit FlowTable(const HashKey& key) : key_(key), slots_(16) {}

  [[nodiscard]] std::uint32_t find(const FlowKey& key) const noexcept;
  void insert(const FlowKey& key, std::uint32_t flow);  // one that is not in it
  bool erase(const FlowKey& key) noexcept;              // false: it was not in it
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    FlowKey key{};
    std::uint32_t flow = nobody;
  };
  [[nodiscard]] std::size_t home(const FlowKey& key) const noexcept {
    return keyed_hash(key_, key) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t place(const FlowKey& key) const noexcept;  // where it is, or would be
  void grow();

  HashKey key_;
  std::vector<Slot> slots_;  // a power of two, at most two thirds taken
  std::size_t size_ = 0;
};

}  // namespace offpath::tcp
