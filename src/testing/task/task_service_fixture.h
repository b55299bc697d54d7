// A task service by itself: requests of programs go in; the test answers its pulls, pushes and calls.
#pragma once

#include "task/task_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "plugin/output_memory.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::task {

using wire::EntryKind;

inline constexpr service::ChannelNumber program = 1, stranger = 2;
inline constexpr wire::RegionId segment = wire::segment_flag | 1;

inline void open_channel(TaskService& service, service::ChannelNumber channel, uid_t user,
                         std::optional<gid_t> group = {}) {
  service.on_opened({.number = channel, .client = {.program = "test", .user = user, .group = group}});
}
inline void send_request(TaskService& service, service::ChannelNumber channel, const channel::Entry& entry, TimeNs now,
                         service::Effects& effects) {
  static const std::string name = "test";
  service.on_request({.channel = channel, .entry = entry, .program = name}, now, effects);
}

class TaskServiceTest : public ::testing::Test {
 protected:
  TaskServiceTest() {
    open_channel(service_, program, 1000);
    open_channel(service_, stranger, 1001);
  }
  template <class Message>
  std::uint64_t post(EntryKind kind, const Message& message, service::ChannelNumber channel = program) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    send_request(service_, channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
    return ticket_;
  }
  std::uint64_t open(std::uint32_t lane = wire::task_any_lane, std::uint32_t lanes = 0) {
    post(EntryKind::task_open,
         wire::TaskOpen{lane, lanes, {.region = segment, .generation = 0, .offset = 0, .length = 64 * 64}});
    const auto done = take<service::ReplyEffect>();
    return done ? std::get<wire::Done>(done->message).value : 0;
  }
  static wire::TaskInput input(std::string_view name = "x", std::uint64_t bytes = 8, std::uint64_t version = 0) {
    return {{.region = 1, .generation = 1, .offset = 64, .length = bytes}, bytes, version, 0, 0, 0, name};
  }
  static wire::TaskOutput output(std::string_view name = "y", std::uint64_t bytes = 8) {
    return {{.region = segment, .generation = 0, .offset = 8192, .length = bytes}, bytes, 0, name};
  }
  static wire::TaskRun task(std::uint64_t session, std::vector<wire::TaskInput> inputs = {input()},
                            std::vector<wire::TaskOutput> outputs = {output()}) {
    return {session, 3, 0, "p", "f", {}, std::move(inputs), std::move(outputs), {}};
  }
  // Removes and returns the oldest effect of this kind.
  template <class Effect>
  std::optional<Effect> take() {
    const auto at = std::ranges::find_if(
        effects_, [](const service::Effect& each) { return std::holds_alternative<Effect>(each); });
    if (at == effects_.end()) return std::nullopt;
    Effect taken = std::move(std::get<Effect>(*at));
    effects_.erase(at);
    return taken;
  }
  // Answers the oldest pull, with bytes of this value.
  bool pull(std::byte value = std::byte{7}, const Status& status = {}) {
    auto pull = take<service::PullEffect>();
    if (!pull) return false;
    if (status)
      for (const link::ReadPiece& piece : pull->pieces) std::memset(piece.to, static_cast<int>(value), piece.length);
    pulled_ = pull->pieces;
    service_.on_transfer(pull->token, status, now_, effects_);
    return true;
  }
  // The line word of the newest notified task.
  std::optional<std::uint64_t> told() {
    auto push = take<service::PushEffect>();
    if (!push || push->pieces.size() != 1 || push->pieces[0].length != 8) return std::nullopt;
    const auto word = load<std::uint64_t>(push->pieces[0].from);
    service_.on_transfer(push->token, {}, now_, effects_);
    return word;
  }
  struct Called {
    std::uint64_t token;
    std::shared_ptr<plugin::Call> call;
  };
  std::optional<Called> called() {
    auto call = take<service::CallEffect>();
    if (!call) return std::nullopt;
    return Called{call->token, call->call};
  }
  static plugin::Output made(const std::string& name, const std::string& bytes) {
    auto memory = plugin::OutputMemory::make(bytes.size());
    EXPECT_TRUE(memory);
    std::memcpy(memory->data(), bytes.data(), bytes.size());
    return {name, false, bytes.size(), *memory->seal()};
  }
  void returns(const Called& call, plugin::Outputs outputs) {
    service_.on_called(call.token, std::move(outputs), now_, effects_);
  }
  std::optional<service::FailEffect> failed() { return take<service::FailEffect>(); }
  std::optional<wire::TaskDone> done() {
    auto reply = take<service::ReplyEffect>();
    if (!reply || !std::holds_alternative<wire::TaskDone>(reply->message)) return std::nullopt;
    return std::get<wire::TaskDone>(reply->message);
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({.huge_pages = false});
  bool room_ = true;
  TaskService service_{{.ahead_max = 2, .resident_bytes_max = 64}, cache_, [this](std::uint64_t) { return room_; }};
  service::Effects effects_;
  std::vector<link::ReadPiece> pulled_;
  TimeNs now_ = 1000;
  std::uint64_t ticket_ = 0;
};

}  // namespace offpath::task
