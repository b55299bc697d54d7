// The pools of one agent by themselves, for tests: requests and answers in, effects out.
//
// Read this first in src/testing/pool, then memory_store.h (its disk) and frames.h.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pool/members/pools.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {

inline constexpr service::ChannelNumber program = 1, member = 2;
inline constexpr uid_t user = 1000;

// Its program is on channel `program`, the other member on channel `member`.
class PoolsTest : public ::testing::Test {
 protected:
  PoolsTest() {
    pools_.set_self("a", 7);
    pools_.on_channel_open(program, user);
    pools_.on_channel_open(member, user);
  }
  FramePtr frame_of(std::size_t bytes) {
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = *cache_->take(bytes, user);
    frame->bytes = bytes;
    std::memset(frame->buffer.data(), 'x', bytes);
    return frame;
  }
  Result<mover::Stored> put(const std::string& pool, const std::string& row, std::size_t bytes,
                            std::uint64_t token = 5) {
    return pools_.put({pool, row, "c", user, 0, false}, frame_of(bytes), token, now_, effects_);
  }
  template <class Message>
  void ask(service::ChannelNumber channel, wire::EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    const channel::Entry entry{++ticket_, static_cast<std::uint8_t>(kind), payload};
    if (channel == member)
      pools_.on_peer_request(channel, entry, true, now_, effects_);
    else
      pools_.on_request(channel, entry, now_, effects_);
  }
  void put_of_member(const std::string& row, std::uint64_t bytes, const std::string& pool = "hash:/p") {
    wire::PeerPut put{.user = user,
                      .owner = user,
                      .writer = 3,
                      .number = ++ticket_,
                      .rows = 0,
                      .keep = 0,
                      .wait_ns = 30 * second_ns,
                      .arrow = false,
                      .hidden = false,
                      .moved = false,
                      .offer = 0,
                      .object = {.region = 1, .generation = 1, .offset = 0, .length = bytes},
                      .pool = pool,
                      .row_key = row,
                      .column_key = "c",
                      .counter = 0,
                      .over = {}};
    ask(member, wire::EntryKind::peer_put, put);
  }
  // The id of a put with that version, which replaced the others.
  void put_version(Version version, bool moved, const std::vector<Version>& over = {}) {
    const std::vector<std::byte> encoded = encode_over(over);
    wire::PeerPut put{.user = user,
                      .owner = user,
                      .writer = version.writer,
                      .number = 1,
                      .rows = 0,
                      .keep = 0,
                      .wait_ns = 30 * second_ns,
                      .arrow = false,
                      .hidden = false,
                      .moved = moved,
                      .offer = 0,
                      .object = {.region = 1, .generation = 1, .offset = 0, .length = 64},
                      .pool = "hash:/p",
                      .row_key = "r",
                      .column_key = "c",
                      .counter = version.counter,
                      .over = encoded};
    ask(member, wire::EntryKind::peer_put, put);
  }
  static Answer done(std::uint64_t value) {
    Answer answer{wire::ReplyKind::done};
    wire::encode(wire::Done{value}, answer.payload);
    return answer;
  }
  // It was pulled.
  bool pulled() {
    const auto pull = take<service::PullEffect>();
    if (pull) pools_.on_transfer(pull->token, {}, now_, effects_);
    return pull.has_value();
  }
  std::optional<std::uint64_t> answered() {
    const auto reply = take<service::ReplyEffect>();
    if (!reply) return std::nullopt;
    return std::get<wire::Done>(reply->message).value;
  }
  template <class Message>
  static Message message_of(const service::AskEffect& asked, std::vector<std::byte>& payload) {
    payload.clear();
    asked.compose({}, payload);
    Message message{};
    EXPECT_TRUE(wire::decode(payload, message));
    return message;
  }
  // As many effects of that kind as there are; the last one's copy.
  template <class Effect>
  std::optional<Effect> take() {
    std::optional<Effect> found;
    for (const service::Effect& effect : effects_)
      if (const auto* each = std::get_if<Effect>(&effect)) found = *each;
    effects_.clear();
    return found;
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  std::uint64_t room_ = UINT64_MAX;
  static PoolsOptions options() {
    PoolsOptions made;
    made.object_bytes_max = 1 << 20;
    made.compare_wait_ns = 60 * second_ns;
    return made;
  }
  Pools pools_{options(), cache_, [this](std::uint64_t bytes) { return bytes <= room_; }};
  Effects effects_;
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0;
};

}  // namespace offpath::pool
