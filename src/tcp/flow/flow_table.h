// Finds the flow of a segment: open addressing over the four numbers of a connection, hashed with a secret key, so that
// peers cannot choose colliding ports. The keys stay in the flows: an entry of eight bytes has half of the hash, which
// almost always decides.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tcp/segment/address.h"
#include "tcp/segment/keyed_hash.h"

namespace offpath::tcp {

class FlowTable {
 public:
  static constexpr std::uint32_t nobody = ~0u;

  explicit FlowTable(const HashKey& key) : key_(key), slots_(16) {}

  // `key_of`: the key of a flow that is in the table.
  template <class KeyOf>
  [[nodiscard]] std::uint32_t find(const FlowKey& key, const KeyOf& key_of) const noexcept {
    const std::uint32_t hash = hash_of(key);
    std::size_t at = home(hash);
    while (slots_[at].flow != nobody && (slots_[at].hash != hash || key_of(slots_[at].flow) != key)) at = next(at);
    return slots_[at].flow;
  }
  void insert(const FlowKey& key, std::uint32_t flow);          // of a key that is not in it
  bool erase(const FlowKey& key, std::uint32_t flow) noexcept;  // false: it was not in it
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    std::uint32_t hash = 0, flow = nobody;
  };
  [[nodiscard]] std::uint32_t hash_of(const FlowKey& key) const noexcept {
    return static_cast<std::uint32_t>(keyed_hash(key_, key));
  }
  [[nodiscard]] std::size_t home(std::uint32_t hash) const noexcept { return hash & (slots_.size() - 1); }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }
  void place(const Slot& slot) noexcept;
  void grow();

  HashKey key_;
  std::vector<Slot> slots_;  // a power of two, at most two thirds taken
  std::size_t size_ = 0;
};

}  // namespace offpath::tcp
