// Messages between the agents of ranks, in functions of the plug-in: rank i is lane i of the program's team.
#pragma once

#include <offpath/plugin.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "md/kernels/array.h"
#include "md/ranks/rank_messages.h"

namespace md {

// The context knows why.
class MessageFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class LaneMessages : public RankMessages {
 public:
  explicit LaneMessages(ofp_context* context) : context_(context) {
    if (!OFP_HAS(context, receive)) throw std::runtime_error("this agent has no messages between lanes");
  }
  [[nodiscard]] int rank() const override { return static_cast<int>(context_->lane); }
  [[nodiscard]] int count() const override { return static_cast<int>(std::max(1U, context_->lanes)); }

  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) override {
    std::uint64_t size = out.size();
    if (to == rank() && from == rank()) {
      if (in.size() == size && size > 0) std::memcpy(in.data(), out.data(), size);
    } else {
      send(to, out);
      size = receive(from, in);
    }
    if (size != in.size()) throw std::runtime_error("a message of another size than the halo's");
  }

  std::vector<std::byte> exchange_any(int to, std::span<const std::byte> out, int from) override {
    if (to == rank() && from == rank()) return {out.begin(), out.end()};
    send(to, out);
    std::vector<std::byte> in(first_room);
    in.resize(receive_any(from, in));
    return in;
  }

  // Every lane has a worker at this moment, and its messages arrive; otherwise throws at the call's deadline.
  void meet() {
    for (int other = 0; other < count(); ++other) {
      if (other != rank()) send(other, {});
    }
    for (int other = 0; other < count(); ++other) {
      if (other != rank()) receive(other, {});
    }
  }

 private:
  static constexpr std::size_t first_room = std::size_t{1} << 16;

  void send(int to, std::span<const std::byte> bytes) {
    if (context_->send(context_, static_cast<std::uint32_t>(to), 0, bytes.data(), bytes.size()) != OFP_MESSAGE_OK)
      throw MessageFailed("a message could not be sent");
  }
  // Returns the size.
  std::uint64_t receive(int from, std::span<std::byte> room) {
    std::uint64_t size = 0;
    if (context_->receive(context_, static_cast<std::uint32_t>(from), 0, room.data(), room.size(), &size) !=
        OFP_MESSAGE_OK)
      throw MessageFailed("a message has not arrived");
    return size;
  }
  // Into `room`, which grows to the message.
  std::uint64_t receive_any(int from, std::vector<std::byte>& room) {
    std::uint64_t size = 0;
    const auto lane = static_cast<std::uint32_t>(from);
    std::int32_t code = context_->receive(context_, lane, 0, room.data(), room.size(), &size);
    if (code == OFP_MESSAGE_TOO_LARGE) {
      room.resize(size);
      code = context_->receive(context_, lane, 0, room.data(), room.size(), &size);
    }
    if (code != OFP_MESSAGE_OK) throw MessageFailed("a message has not arrived");
    return size;
  }

  ofp_context* context_;
};

}  // namespace md
