// A mover by itself: a test's requests go in, and effects are sorted for its checks.
//
// Read this first in src/testing/mover, then decompressed.h.
#pragma once

#include "mover/mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "frame/parse.h"
#include "frame/schema.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::mover {

// Keeps the newest frame, as a pool that keeps one does.
class FakeStore final : public Store {
 public:
  Result<std::string> admit(const std::string& pool, uid_t, Effects&) override {
    ++admitted;
    ++admitted_now;
    return pool.substr(0, pool.find('?'));
  }
  Result<Stored> put(const Place& place, FramePtr frame, std::uint64_t, TimeNs, Effects&) override {
    row_keys.push_back(place.row_key);
    pools.insert(place.pool);
    kept = std::move(frame);
    return Stored::now;
  }
  Result<FramePtr> find(const std::string&, const std::string& row_key, const std::string&, uid_t) override {
    if (row_keys.empty() || row_keys.back() != row_key) return fail(Error::not_found, "{} is not there", row_key);
    return kept;
  }
  Status end_step(const std::string&, const std::string&, std::uint32_t, std::uint32_t, TimeNs, Effects&) override {
    return step_outcome;
  }
  void leave(const std::string&) override { --admitted_now; }

  FramePtr kept;
  std::vector<std::string> row_keys;
  std::set<std::string> pools;
  int admitted = 0, admitted_now = 0;
  Status step_outcome;
};

class MoverTest : public testing::Test {
 protected:
  static constexpr ChannelNumber channel = 1;
  static constexpr std::uint64_t rows = 1024, column_bytes = rows * 8;

  void make(std::uint64_t pull_ahead_bytes, const MoverOptions& options = {},
            wire::Destination destination = wire::Destination::ipc_page,
            wire::Compression compression = wire::Compression::none) {
    mover = std::make_unique<Mover>(options, cache, store);
    mover->on_channel_open(channel, {"test", 0, 1}, 4, pull_ahead_bytes);
    frame::Schema schema;
    schema.fields.push_back({.name = "v", .type = frame::Type::float64, .nullable = false});
    encoded = frame::encode(schema);
    wire::OpenStream open{.stream = 0,
                          .destination = destination,
                          .rows_max = rows * 8,
                          .keep = 1,
                          .ranks = 0,
                          .rank = 0,
                          .name = "s",
                          .pool = "local:/s?overwrite=yes",
                          .schema = encoded,
                          .compression = compression};
    request(wire::EntryKind::open_stream, open);
    ASSERT_TRUE(charge > column_bytes || !failures.empty());
  }
  template <class Message>
  void request(wire::EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    mover->on_request(channel, {++ticket, static_cast<std::uint8_t>(kind), payload}, 0, effects);
    take_effects();
  }
  // Buffers at `region`; none: those of the set.
  void send(std::uint32_t set, std::optional<wire::RegionId> region, std::uint64_t sent_rows = rows) {
    const std::string key = std::to_string(ticket + 1);
    wire::Send send{.stream = 0,
                    .charge = charge,
                    .rows = sent_rows,
                    .row_key = key,
                    .column_key = {},
                    .nodes = {},
                    .buffers = {},
                    .set = set};
    if (region) send.buffers.push_back({.region = *region, .generation = 1, .offset = 0, .length = sent_rows * 8});
    request(wire::EntryKind::send, send);
  }
  void take_effects() {
    for (service::Effect& effect : effects) {
      if (auto* pull = std::get_if<service::PullEffect>(&effect)) {
        pulls.push_back(std::move(*pull));
      } else if (auto* failed = std::get_if<service::FailEffect>(&effect)) {
        failures.push_back(failed->failure.message);
      } else if (auto* job = std::get_if<service::JobEffect>(&effect)) {
        jobs.push_back(std::move(*job));
      } else if (const auto* reply = std::get_if<service::ReplyEffect>(&effect)) {
        if (const auto* opened = std::get_if<wire::Opened>(&reply->message))
          charge = opened->charge_base + column_bytes;
        else
          answers.push_back(std::get<wire::Done>(reply->message).value);
      } else if (auto* line = std::get_if<service::LineEffect>(&effect)) {
        (line->word == service::LineEffect::Word::pulled   ? pulled
         : line->word == service::LineEffect::Word::stored ? stored
                                                           : other) = line->value;
      }
    }
    effects.clear();
  }
  void run_job() {
    const service::JobEffect job = std::move(jobs.front());
    jobs.erase(jobs.begin());
    mover->on_job(job.token, job.run(), 110, effects);
    take_effects();
  }
  // The oldest pull ends.
  service::PullEffect end_pull() {
    service::PullEffect ended = std::move(pulls.front());
    pulls.erase(pulls.begin());
    mover->on_transfer(ended.token, {}, 10, effects);
    take_effects();
    return ended;
  }
  void finish() {
    mover->finish_pulled(20, effects);
    take_effects();
  }

  std::shared_ptr<BufferCache> cache = BufferCache::make({});
  FakeStore store;
  std::unique_ptr<Mover> mover;
  Effects effects;
  std::vector<std::byte> encoded;
  std::vector<service::PullEffect> pulls;
  std::vector<service::JobEffect> jobs;
  std::vector<std::string> failures;
  std::vector<std::uint64_t> answers;  // of requests that are done
  std::uint64_t ticket = 0, charge = 0, pulled = 0, stored = 0, other = 0;
};

}  // namespace offpath::mover
