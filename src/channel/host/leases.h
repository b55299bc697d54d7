// The requests that still read a region: for each stream, its newest ticket that uses the region. The first stream is
// stored in the region itself, because most regions have one, and a post should not have to follow a pointer.
#pragma once

#include <cstdint>
#include <vector>

namespace offpath::channel {

class Leases {
 public:
  struct Lease {
    std::uint32_t stream = 0;
    std::uint64_t ticket = 0;  // 0: none
  };

  void add(std::uint32_t stream, std::uint64_t ticket) {
    if (first_.stream == stream || first_.ticket == 0) [[likely]] {
      first_ = {stream, ticket};
      return;
    }
    for (Lease& other : others_) {
      if (other.stream != stream) continue;
      other.ticket = ticket;
      return;
    }
    others_.push_back({stream, ticket});
  }
  // The stream was closed: a new stream with its number starts again.
  void forget(std::uint32_t stream) {
    std::erase_if(others_, [stream](const Lease& other) { return other.stream == stream; });
    if (first_.stream != stream) return;
    first_ = {};
    if (others_.empty()) return;
    first_ = others_.back();
    others_.pop_back();
  }
  void clear() noexcept {
    first_ = {};
    others_.clear();
  }
  // A lease whose ticket is beyond `pulled(stream)`; ticket 0 if there is none.
  template <class Pulled>
  [[nodiscard]] Lease pending(const Pulled& pulled) const {
    if (first_.ticket != 0 && pulled(first_.stream) < first_.ticket) return first_;
    for (const Lease& other : others_)
      if (pulled(other.stream) < other.ticket) return other;
    return {};
  }

 private:
  Lease first_;
  std::vector<Lease> others_;  // of streams other than the first
};

}  // namespace offpath::channel
