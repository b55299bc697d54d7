// Objects of pools, as a program gets them: frames, frames that are wanted, entries of listings. Channel gives them.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_OBJECTS_HPP
#define OFFPATH_OBJECTS_HPP

#include <offpath/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace offpath {

// Where an object lies in its pool.
struct Key {
  std::string row;
  std::string column;
};

// An object read from the agent, as read-only bytes. On one machine they are the agent's own pages, leased until this
// is destroyed.
class Frame {
 public:
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(ofp_frame_data(frame_.get())), ofp_frame_bytes(frame_.get())};
  }
  [[nodiscard]] std::uint64_t rows() const noexcept { return ofp_frame_rows(frame_.get()); }
  [[nodiscard]] bool is_arrow() const noexcept { return ofp_frame_is_arrow(frame_.get()) != 0; }  // an Arrow IPC stream
  [[nodiscard]] bool mapped() const noexcept { return ofp_frame_mapped(frame_.get()) != 0; }

 private:
  friend class Channel;
  friend class Want;
  Frame(detail::SharedChannel channel, ofp_frame* frame) : channel_(std::move(channel)), frame_(frame) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_frame> frame_;
};

// An object that was asked for and may not be there yet. Destroyed before, it is wanted no more.
class Want {
 public:
  // Nothing if it is not over by then. The object is given once; Error::code() is OFP_TIMEOUT when the want's own time is over.
  [[nodiscard]] std::optional<Frame> wait(Wait wait = forever) {
    ofp_frame* frame = nullptr;
    ofp_error error{};
    const int code = ofp_want_wait(want_.get(), wait.count(), &frame, &error);
    if (code == OFP_WOULD_BLOCK) return std::nullopt;
    if (code != OFP_OK) throw Error(error);
    return Frame(channel_, frame);
  }

 private:
  friend class Channel;
  Want(detail::SharedChannel channel, ofp_want* want) : channel_(std::move(channel)), want_(want) {}
  detail::SharedChannel channel_;
  detail::Owned<ofp_want> want_;
};

// What a listing says of an object.
struct Entry {
  Key key;
  std::uint64_t bytes, rows, sequence;
};

}  // namespace offpath

#endif  // OFFPATH_OBJECTS_HPP
