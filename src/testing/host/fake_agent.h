// For tests: an agent reduced to what a host program can notice. It pulls every batch piece by piece as it was named,
// keeps what it was told, and answers reads from a table of objects. In virtual time, in this process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
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
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::host {

class FakeAgent final : public channel::AgentEvents {
 public:
  // One batch or move as it was asked for and as its bytes were read.
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

  std::vector<wire::OpenStream> opened;  // texts and schema are not to be looked at
  std::vector<std::string> pools;
  std::vector<Batch> batches;
  std::vector<std::string> steps;
  std::vector<std::uint64_t> released;
  std::vector<std::uint64_t> cancelled;   // gets, by their tickets
  std::map<std::string, Object> objects;  // by row key
  std::uint64_t credit_bytes = 1ull << 40;
  bool pulls = true;            // if not, batches stay in the air
  Status refusal;               // of the next stream
  bool holds_requests = false;  // about pools
  std::size_t held() const { return held_.size(); }
  void answer_held() {
    for (const Held& each : std::exchange(held_, {})) answer_pool(end_, {each.ticket, each.kind, each.payload});
  }
  std::vector<std::string> query_frames;  // of each query's answer: objects by row key
  std::vector<std::byte> query;           // the newest one's bytes

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
  std::vector<wire::ExchangeWish> wishes;          // the newest
  wire::ExchangeOpen exchange_opened{};            // texts and fields are not to be looked at
  std::uint64_t views_shown = 0;
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
  TimeNs tells_pulled_at = 0;  // who waits for a task's inputs, from then on at once
  int sessions_of_tasks = 0;   // open

  static constexpr std::uint64_t charge_base = 4096 + 1;
  static constexpr std::uint64_t answer_number = 1ull << 63 | 5;

 private:
  void on_request(channel::AgentEnd& channel, const channel::Entry& request, TimeNs) override {
    switch (static_cast<wire::EntryKind>(request.kind)) {
      case wire::EntryKind::open_stream:
        return open(channel, request);
      case wire::EntryKind::close_stream:
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
      case wire::EntryKind::send:
        return send(channel, request);
      case wire::EntryKind::move:
        return move(channel, request);
      case wire::EntryKind::step_end: {
        wire::StepEnd step{};
        ASSERT_TRUE(wire::decode(request.payload, step));
        steps.emplace_back(step.row_key);
        channel.set_pulled(step.stream, request.ticket);
        return channel.set_stored(step.stream, request.ticket);
      }
      case wire::EntryKind::pool_get:
      case wire::EntryKind::pool_list:
      case wire::EntryKind::pool_drop:
      case wire::EntryKind::pool_compute:
      case wire::EntryKind::pool_query:
      case wire::EntryKind::query_next:
      case wire::EntryKind::push_lease:
        if (holds_requests)
          return held_.push_back({request.ticket, request.kind, {request.payload.begin(), request.payload.end()}});
        return answer_pool(channel, request);
      case wire::EntryKind::release: {
        wire::Release release{};
        ASSERT_TRUE(wire::decode(request.payload, release));
        return released.push_back(release.lease);
      }
      case wire::EntryKind::pool_cancel: {
        wire::PoolCancel cancel{};
        ASSERT_TRUE(wire::decode(request.payload, cancel));
        return cancelled.push_back(cancel.ticket);
      }
      case wire::EntryKind::need_credit:
        return;
      case wire::EntryKind::exchange_open:
        return open_exchange(channel, request);
      case wire::EntryKind::exchange_info:
        return describe(channel, request);
      case wire::EntryKind::exchange_wait:
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{views_});
      case wire::EntryKind::exchange_grant: {
        wire::ExchangeGrant grant{};
        ASSERT_TRUE(wire::decode(request.payload, grant));
        wishes = grant.wishes;
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{1});
      }
      case wire::EntryKind::exchange_close: {
        wire::ExchangeClose close{};
        ASSERT_TRUE(wire::decode(request.payload, close));
        ASSERT_EQ(areas.erase(close.number), 1u) << "there is no exchange " << close.number;
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
      }
      case wire::EntryKind::task_open:
        ++sessions_of_tasks;
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{1});
      case wire::EntryKind::task_run:
        return run(channel, request);
      case wire::EntryKind::task_wait:
        return task_waits_.push_back(request.ticket);
      case wire::EntryKind::task_cancel: {
        wire::TaskCancel cancel{};
        ASSERT_TRUE(wire::decode(request.payload, cancel));
        return cancel_tasks(channel, [&](const Task& task) { return task.ticket == cancel.ticket; });
      }
      case wire::EntryKind::task_close:
        --sessions_of_tasks;
        cancel_tasks(channel, [](const Task&) { return true; });
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
      default:
        FAIL() << "request kind " << int(request.kind);
    }
  }
  void open(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::OpenStream open{};
    ASSERT_TRUE(wire::decode(request.payload, open));
    if (!refusal) return channel.reply_failure(request.ticket, wire::any_reply, refusal.error());
    pools.emplace_back(open.pool);
    opened.push_back(open);
    channel.reset_line(open.stream);
    channel.set_credit(open.stream, credit_bytes);
    channel.reply(wire::ReplyKind::opened, request.ticket, wire::Opened{open.stream, charge_base});
  }
  void send(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::Send send{};
    ASSERT_TRUE(wire::decode(request.payload, send));
    Batch batch;
    batch.ticket = request.ticket;
    batch.stream = send.stream;
    batch.charge = send.charge;
    batch.rows = send.rows;
    batch.row_key = send.row_key;
    batch.column_key = send.column_key;
    batch.nodes = send.nodes;
    batch.buffers = send.buffers;
    batch.set = send.set;
    batch.named = !send.buffers.empty();
    auto& set = sets_[{send.stream, send.set}];
    if (send.set != 0 && batch.named) set = send.buffers;
    if (send.set != 0) batch.buffers = set;
    pull(channel, std::move(batch));
  }
  void move(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::Move move{};
    ASSERT_TRUE(wire::decode(request.payload, move));
    Batch batch;
    batch.kind = wire::EntryKind::move;
    batch.ticket = request.ticket;
    batch.stream = move.stream;
    batch.charge = move.charge;
    batch.rows = move.object_bytes;
    batch.row_key = move.row_key;
    for (const wire::MovePiece& piece : move.pieces) batch.buffers.push_back(piece.source);
    pull(channel, std::move(batch));
  }
  void pull(channel::AgentEnd& channel, Batch batch) {
    std::vector<link::ReadPiece> pieces;
    for (const wire::BufferRef& buffer : batch.buffers) {
      batch.bytes.emplace_back(buffer.length);
      if (buffer.length > 0)
        pieces.push_back({buffer.region, buffer.generation, buffer.offset, batch.bytes.back().data(), buffer.length});
    }
    batches.push_back(std::move(batch));
    if (pulls) channel.pull(batches.size() - 1, std::move(pieces));
  }
  void open_exchange(channel::AgentEnd& channel, const channel::Entry& request) {
    ASSERT_TRUE(wire::decode(request.payload, exchange_opened));
    if (!refusal) return channel.reply_failure(request.ticket, wire::any_reply, refusal.error());
    areas[++exchanges_] = exchange_opened.area;
    channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{exchanges_});
  }
  void describe(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::ExchangeInfo info{};
    ASSERT_TRUE(wire::decode(request.payload, info));
    described_.clear();
    wire::encode_description(exchange, described_);
    ASSERT_LE(described_.size(), info.room.length);
    channel.push(descriptions_from + request.ticket,
                 {{info.room.region, info.room.offset, described_.data(), described_.size()}});
  }
  void run(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::TaskRun run{};
    ASSERT_TRUE(wire::decode(request.payload, run));
    const Task task{request.ticket, run.line, run.inputs.size(), run.outputs.size(), run.after};
    if (holds_tasks) return tasks.push_back(task);
    answer(channel, task);
  }
  static void answer(channel::AgentEnd& channel, const Task& task) {
    wire::TaskDone done{};
    done.output_bytes.assign(task.outputs, 8);
    channel.reply(wire::ReplyKind::task_done, task.ticket, done);
  }
  template <class Which>
  void cancel_tasks(channel::AgentEnd& channel, const Which& which) {
    std::erase_if(tasks, [&](const Task& task) {
      if (!which(task)) return false;
      channel.reply_failure(task.ticket, wire::any_reply, {Error::cancelled, "cancelled"});
      return true;
    });
  }
  void on_transfer(channel::AgentEnd& channel, std::uint64_t token, Status status, TimeNs) override {
    if (token >= queries_from) {
      ASSERT_TRUE(status) << status.error().message;
      return channel.reply(wire::ReplyKind::done, token - queries_from, wire::Done{answer_number});
    }
    if (token >= lines_from) {
      ++views_shown;
      return;
    }
    if (token >= views_from) {
      const wire::BufferRef& area = areas.rbegin()->second;
      line_ = token - views_from;
      return channel.push(lines_from + line_, {{area.region, area.offset + sizeof(wire::PublishLine),
                                                reinterpret_cast<const std::byte*>(&line_), sizeof line_}});
    }
    if (token >= descriptions_from)
      return channel.reply(wire::ReplyKind::done, token - descriptions_from, wire::Done{described_.size()});
    if (token >= pushes_from) return channel.reply(wire::ReplyKind::got, token - pushes_from, pushed_);
    Batch& batch = batches[token];
    batch.pulled = status;
    if (!status) channel.reply_failure(batch.ticket, batch.stream, status.error());
    channel.set_pulled(batch.stream, batch.ticket);
    channel.set_stored(batch.stream, batch.ticket);
  }
  void answer_pool(channel::AgentEnd& channel, const channel::Entry& request) {
    switch (static_cast<wire::EntryKind>(request.kind)) {
      case wire::EntryKind::pool_get: {
        wire::PoolGet get{};
        ASSERT_TRUE(wire::decode(request.payload, get));
        return give(channel, request, std::string(get.row_key));
      }
      case wire::EntryKind::pool_compute: {
        wire::PoolCompute compute{};
        ASSERT_TRUE(wire::decode(request.payload, compute));
        if (compute.stores) return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{1});
        return give(channel, request, std::string(compute.row_key));
      }
      case wire::EntryKind::pool_query: {
        wire::PoolQuery asked{};
        ASSERT_TRUE(wire::decode(request.payload, asked));
        query.resize(asked.query.length);
        return channel.pull(queries_from + request.ticket, {{asked.query.region, asked.query.generation,
                                                             asked.query.offset, query.data(), query.size()}});
      }
      case wire::EntryKind::query_next: {
        wire::QueryNext next{};
        ASSERT_TRUE(wire::decode(request.payload, next));
        if (next.index == query_frames.size())
          return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
        ASSERT_LT(next.index, query_frames.size());
        return give(channel, request, query_frames[next.index]);
      }
      case wire::EntryKind::push_lease:
        return push(channel, request);
      case wire::EntryKind::pool_list:
        return list(channel, request);
      default:
        return channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{objects.size()});
    }
  }
  void give(channel::AgentEnd& channel, const channel::Entry& request, const std::string& row) {
    const auto at = objects.find(row);
    if (at == objects.end())
      return channel.reply_failure(request.ticket, wire::any_reply, {Error::not_found, "no object " + row});
    const Object& object = at->second;
    const std::uint64_t length = object.said_bytes != 0 ? object.said_bytes : object.bytes.size();
    wire::Got got{wire::Got::How::descriptor, true, 0, length, 7};
    got.lease = ++leases_;
    leased_[got.lease] = at->first;
    if (!hands_over_) {
      got.how = wire::Got::How::needs_segment;
      return channel.reply(wire::ReplyKind::got, request.ticket, got);
    }
    const Fd fd(memfd_create("object", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(write(fd.get(), object.bytes.data(), object.bytes.size()), ssize_t(object.bytes.size()));
    if (object.seals != 0) {
      ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, object.seals), 0);
    }
    ASSERT_TRUE(channel.hand_over(request.ticket, fd.get()));
    channel.reply(wire::ReplyKind::got, request.ticket, got);
  }
  void push(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::PushLease asked{};
    ASSERT_TRUE(wire::decode(request.payload, asked));
    const auto lease = leased_.extract(asked.lease);
    ASSERT_TRUE(lease) << "there is no lease " << asked.lease;
    const Object& object = objects.at(lease.mapped());
    pushed_ = {wire::Got::How::pushed, true, 0, object.bytes.size(), 7};
    channel.push(pushes_from + request.ticket, {{asked.segment, 0, object.bytes.data(), object.bytes.size()}});
  }
  void list(channel::AgentEnd& channel, const channel::Entry& request) {
    wire::PoolList list{};
    ASSERT_TRUE(wire::decode(request.payload, list));
    wire::Listed listed{};
    std::uint64_t sequence = 0;
    for (const auto& [row, object] : objects) {
      if (++sequence <= list.after) continue;
      listed.more = listed.entries.size() == 3;  // so that a listing takes several replies
      if (listed.more) break;
      listed.entries.push_back({sequence, object.bytes.size(), 7, true, row, "column"});
    }
    channel.reply(wire::ReplyKind::listed, request.ticket, listed);
  }
  void on_offer(channel::AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(channel::AgentEnd&, const Failure&, TimeNs) override {}

  static constexpr std::uint64_t pushes_from = 1ull << 40, descriptions_from = 2ull << 40, views_from = 3ull << 40,
                                 lines_from = 4ull << 40, queries_from = 5ull << 40;
  std::uint64_t exchanges_ = 0, views_ = 0, line_ = 0;
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
