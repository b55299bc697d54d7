// Memory of this program that the agent may reach: announced where it lies, or made for that.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_MEMORY_HPP
#define OFFPATH_MEMORY_HPP

#include <offpath/channel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace offpath {

// Memory of the program announced where it lies: the agent may read it for as long as this lives.
class Range {
 public:
  Range(const Channel& channel, std::span<const std::byte> memory) : channel_(channel.channel_) {
    ofp_range* range = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_range_announce(channel.get(), memory.data(), memory.size(), &range, error);
    });
    range_.reset(range);
  }
  template <class T>
  Range(const Channel& channel, std::span<T> memory) : Range(channel, std::as_bytes(memory)) {}

  // The memory moved or changed its size. Sends from the old place that are not pulled fail with OFP_STALE.
  template <class T>
  void reannounce(std::span<T> memory) {
    detail::call([&](ofp_error* error) {
      return ofp_range_reannounce(range_.get(), memory.data(), memory.size_bytes(), error);
    });
  }
  // Withdraws it once no posted send uses it; the destructor does so too, and waits a second at most.
  void retire(Wait wait) {
    detail::call([&](ofp_error* error) { return ofp_range_retire(range_.release(), wait.count(), error); });
  }

 private:
  detail::SharedChannel channel_;
  detail::Owned<ofp_range> range_;
};

// Memory from the link: zeroed, page aligned, readable and writable by the agent.
class Segment {
 public:
  Segment(const Channel& channel, std::uint64_t length_bytes) : channel_(channel.channel_) {
    ofp_segment* segment = nullptr;
    detail::call([&](ofp_error* error) { return ofp_alloc(channel.get(), length_bytes, &segment, error); });
    segment_.reset(segment);
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(ofp_segment_data(segment_.get())), ofp_segment_bytes(segment_.get())};
  }
  template <class T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(ofp_segment_data(segment_.get())), ofp_segment_bytes(segment_.get()) / sizeof(T)};
  }

 private:
  detail::SharedChannel channel_;
  detail::Owned<ofp_segment> segment_;
};

}  // namespace offpath

#endif  // OFFPATH_MEMORY_HPP
