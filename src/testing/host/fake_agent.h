// For tests: an agent reduced to its visible behaviour. It pulls every batch piece by piece, records requests, and
// answers reads from a table of objects. In virtual time, in this process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channel/agent_end.h"
#include "host/connection.h"
#include "testing/link/loopback_link.h"
#include "wire/areas/exchange_area.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::host {

class FakeAgent final : public channel::AgentEvents {
 public:
  // One batch or move: its request and the bytes that were read.
  struct Batch {
    wire::EntryKind kind = wire::EntryKind::send;
    std::uint64_t ticket = 0;
    std::uint32_t stream = 0;
    std::uint64_t charge = 0, rows = 0;
    std::string row_key, column_key;
    std::vector<wire::Node> nodes;
    std::vector<wire::BufferRef> buffers;
    std::uint32_t set = 0;                      // as the request says
    bool named = false;                         // its buffers came with it
    std::vector<std::vector<std::byte>> bytes;  // of each buffer
    Status pulled;
  };
  struct Object {
    std::vector<std::byte> bytes;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    std::uint64_t said_bytes = 0;  // the length it claims
  };

  FakeAgent(std::unique_ptr<link::AgentLink> link, const wire::ChannelLayout& layout, bool hands_over)
      : hands_over_(hands_over), end_(1, "test", std::move(link), layout, *this) {}

  TimeNs step(TimeNs now) {
    if (now >= tells_pulled_at)
      for (const std::uint64_t ticket : std::exchange(task_waits_, {}))
        end_.reply(wire::ReplyKind::done, ticket, wire::Done{0});
    const bool did = end_.poll(now);
    if (!did && end_.fall_asleep(now)) return tells_pulled_at > now ? tells_pulled_at : never;
    return now + microsecond_ns;
  }

  std::vector<wire::OpenStream> opened;                        // texts and schema are not to be looked at
  std::vector<std::pair<std::uint32_t, std::uint64_t>> grown;  // streams, and their new rows_max
  std::vector<std::string> pools;
  std::deque<Batch> batches;  // those under way keep their places
  std::vector<std::string> steps;
  std::vector<std::uint64_t> released;
  std::vector<std::uint64_t> cancelled;   // gets, by their tickets
  std::map<std::string, Object> objects;  // by row key
  std::uint64_t credit_bytes = 1ull << 40;
  std::vector<std::uint64_t> credit_wanted;  // totals that programs have asked for
  bool pulls = true;                         // if not, batches stay in the air
  std::string why_waits;                     // the reason of their wait; may be empty
  Status refusal;                            // of the next stream, or of the growth of one
  bool holds_requests = false;               // about pools
  std::size_t held() const { return held_.size(); }
  void answer_held() {
    for (const Held& each : std::exchange(held_, {})) answer_pool(end_, {each.ticket, each.kind, each.payload});
  }
  std::vector<std::string> query_frames;  // of each query's answer: objects by row key
  std::vector<std::byte> query;           // the newest one's bytes
  // The directory: (path, description), two on a page, and its version. The requested paths.
  std::vector<std::pair<std::string, std::string>> resources;
  std::uint64_t directory_version = 1;
  std::vector<std::string> directory_asked;

  // The one exchange there is, and how often it is open.
  wire::ExchangeDescription exchange{.members = {"here", "there"},
                                     .tree = 5,
                                     .record_bytes = 64,
                                     .interval_ns = second_ns,
                                     .deadline_ns = second_ns,
                                     .grant_total = 100,
                                     .topology = "allgather",
                                     .fields = {{"power", 'f', "watts", ""}, {"jobs", 'u', "", ""}},
                                     .reductions = {"sum(power)"}};
  std::map<std::uint64_t, wire::BufferRef> areas;  // of those that are open, by number
  std::vector<wire::ExchangeTarget> targets;       // the newest
  wire::ExchangeOpen exchange_opened{};            // texts and fields are not to be looked at
  std::uint64_t views_shown = 0;
  bool holds_views = false;  // answers waits for views when there is one
  // Pushes these bytes, which are to begin with a ViewHead, as the next view of the exchange that was opened last.
  void show_view(std::vector<std::byte> view) {
    wire::ViewHead head = load<wire::ViewHead>(view.data());
    head.number = ++views_;
    head.length = head.length == 0 ? view.size() : head.length;
    store(view.data(), head);
    view_ = std::move(view);
    const wire::BufferRef& area = areas.rbegin()->second;
    const std::uint64_t slot =
        area.offset + wire::view_slot_at(views_, exchange_opened.record_bytes, exchange_opened.view_bytes);
    end_.push(views_from + views_, {{area.region, slot, view_.data(), view_.size()}});
  }

  struct Task {
    std::uint64_t ticket;
    std::uint32_t line;
    std::size_t inputs, outputs;
    std::vector<std::uint64_t> after;
  };
  bool holds_tasks = false;
  std::vector<Task> tasks;  // that are under way
  void answer_tasks() {
    for (const Task& task : std::exchange(tasks, {})) answer(end_, task);
  }
  void answer_task(std::size_t index) {
    const Task task = tasks.at(index);
    tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(index));
    answer(end_, task);
  }
  TimeNs tells_pulled_at = 0;  // `pulled` of a task's inputs is reported then, later at once
  int sessions_of_tasks = 0;   // open

  static constexpr std::uint64_t charge_base = 4096 + 1;
  static constexpr std::uint64_t answer_number = 1ull << 63 | 5;

 private:
  void on_request(channel::AgentEnd& channel, const channel::Entry& request, TimeNs) override;
  void open(channel::AgentEnd& channel, const channel::Entry& request);
  void send(channel::AgentEnd& channel, const channel::Entry& request);
  void move(channel::AgentEnd& channel, const channel::Entry& request);
  void pull(channel::AgentEnd& channel, Batch batch);
  void open_exchange(channel::AgentEnd& channel, const channel::Entry& request);
  void describe(channel::AgentEnd& channel, const channel::Entry& request);
  void run(channel::AgentEnd& channel, const channel::Entry& request);
  static void answer(channel::AgentEnd& channel, const Task& task);
  template <class Which>
  void cancel_tasks(channel::AgentEnd& channel, const Which& which);
  void on_transfer(channel::AgentEnd& channel, std::uint64_t token, Status status, TimeNs) override;
  void answer_pool(channel::AgentEnd& channel, const channel::Entry& request);
  void give(channel::AgentEnd& channel, const channel::Entry& request, const std::string& row);
  void push(channel::AgentEnd& channel, const channel::Entry& request);
  void list(channel::AgentEnd& channel, const channel::Entry& request);
  void list_resources(channel::AgentEnd& channel, const channel::Entry& request);
  void on_offer(channel::AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(channel::AgentEnd&, const Failure&, TimeNs) override {}

  static constexpr std::uint64_t pushes_from = 1ull << 40, descriptions_from = 2ull << 40, views_from = 3ull << 40,
                                 lines_from = 4ull << 40, queries_from = 5ull << 40;
  std::uint64_t exchanges_ = 0, views_ = 0, line_ = 0;
  std::vector<std::uint64_t> view_waits_;
  std::vector<std::byte> described_, view_;                                               // being pushed
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<wire::BufferRef>> sets_;  // by stream and number
  struct Held {
    std::uint64_t ticket;
    std::uint8_t kind;
    std::vector<std::byte> payload;
  };
  std::vector<Held> held_;                 // requests about pools
  std::vector<std::uint64_t> task_waits_;  // tickets that are not answered
  bool hands_over_;
  wire::Got pushed_{};
  std::uint64_t leases_ = 0;
  std::map<std::uint64_t, std::string> leased_;  // by lease: the object's row
  channel::AgentEnd end_;
};

// A channel of the C interface with a fake agent behind it.
class HostCalls : public testing::Test {
 protected:
  explicit HostCalls(link::LoopbackOptions options = {}, std::uint64_t staging_bytes_max = 1 << 20) {
    options.welcome.memory_bytes_max = 1ull << 40;
    auto pair = link::make_loopback(fabric, options, layout);
    OFP_ASSERT(pair);
    agent = std::make_unique<FakeAgent>(std::move(pair->agent), layout, options.mapped);
    fabric->set_stepper([this](TimeNs now) { return agent->step(now); });
    channel = new ofp_channel{std::make_shared<Connection>(std::move(pair->host), layout, staging_bytes_max,
                                                           link::LoopbackFabric::clock, fabric.get())};
  }
  ~HostCalls() override {
    ofp_close(channel);
    fabric->set_stepper({});
  }

  ofp_stream* open(std::vector<ofp_column> columns, std::uint64_t rows_max = 1000, const char* destination = nullptr) {
    ofp_stream_options options{};
    options.struct_bytes = sizeof options;
    options.rows_max = rows_max;
    options.destination = destination;
    ofp_stream* stream = nullptr;
    EXPECT_EQ(
        ofp_stream_open_columns(channel, "stream", columns.data(), unsigned(columns.size()), &options, &stream, &error),
        OFP_OK)
        << error.message;
    return stream;
  }
  const FakeAgent::Batch& stored(ofp_stream* stream, std::uint64_t ticket) {
    EXPECT_EQ(ofp_wait_stored(stream, ticket, second_ns, &error), OFP_OK) << error.message;
    return agent->batches.back();
  }
  [[nodiscard]] std::string said() const { return error.message; }

  wire::ChannelLayout layout;
  std::shared_ptr<link::LoopbackFabric> fabric = std::make_shared<link::LoopbackFabric>(1);
  std::unique_ptr<FakeAgent> agent;
  ofp_channel* channel = nullptr;
  ofp_error error{};
};

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace offpath::host
