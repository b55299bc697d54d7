// Channels, the move service and the table of frames in virtual time, under seeded faults.
//
// Each seed draws a world (how many programs, which kind of link, how slow, which faults) and then actions: send,
// change and announce arrays again, grow a stream, wait, read back, drop, stop, kill. What must hold whatever happens:
//   - a batch that was stored reads back exactly as it was when it was posted
//   - a batch that was not stored was reported with an error, or its channel was
//   - nobody waits beyond a deadline, nobody's credit or memory is lost: at the end the agent holds nothing
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "frame/layout.h"
#include "frame/parse.h"
#include "testing/link/fault_link.h"
#include "testing/mover/decompressed.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_agent.h"
#include "tests/sim/sim_host.h"
#include "wire/limits.h"
#include "wire/messages/stream_messages.h"

namespace offpath::sim {
namespace {

using link::SeededRandom;

constexpr std::uint64_t rows_max = 4000;
constexpr TimeNs patience_ns = 5 * second_ns;

struct Program {
  std::unique_ptr<SimHost> host;
  std::shared_ptr<link::LoopbackFate> fate;
  std::string name;
  std::vector<Column> columns;
  std::vector<Sent> sent;
  std::uint64_t rows_max = 0;  // of its stream
  wire::Compression compression = wire::Compression::none;
  bool faulty = false;  // its link misbehaves: errors are allowed, wrong bytes and silence are not
  bool over = false;    // its channel has ended
};

struct Killed {
  std::uint64_t programs = 0, agents = 0;
};

class World {
 public:
  World(std::uint64_t seed, Killed& killed)
      : killed_(killed), random_(seed), fabric_(std::make_shared<link::LoopbackFabric>(random_.next())) {
    agent::DispatcherOptions options;
    options.mover.memory_bytes_max = memory_bytes_max;
    options.mover.window_bytes = 1ull << 20;
    options.mover.inline_bytes_max = random_.chance(0.5) ? 0 : 1 << 20;
    options.channels.pull_slice_bytes = options.channels.asked_slice_bytes = random_.chance(0.5) ? 4096 : 512 * 1024;
    options.mover.waiting_bytes_max = random_.chance(0.5) ? 4096 : 1 << 20;
    options.channels.gathered_bytes = random_.chance(0.5) ? 0 : 256 * 1024;
    options.channels.idle_before_sleep_ns = 20 * microsecond_ns;
    options.channels.idle_before_rest_ns = 100 * microsecond_ns;
    options.channels.polled_channels = 0;
    agent_ = std::make_unique<SimAgent>(fabric_, options);
    const std::uint64_t programs = 1 + random_.below(4);
    for (std::uint64_t i = 0; i < programs; ++i) add_program(i);
  }

  void run() {
    const std::uint64_t actions = 20 + random_.below(60);
    for (std::uint64_t i = 0; i < actions && agent_->runs && !::testing::Test::HasFailure(); ++i)
      if (Program& program = programs_[random_.below(programs_.size())]; !program.over) act(program);
    for (Program& program : programs_)
      if (!program.over) settle(program);
    end();
  }

 private:
  static constexpr std::uint64_t memory_bytes_max = 64ull << 20;

  [[nodiscard]] TimeNs deadline() const { return fabric_->now() + patience_ns; }

  void add_program(std::uint64_t index) {
    link::LoopbackOptions options;
    options.mapped = random_.chance(0.5);
    options.one_sided = random_.chance(0.7);
    if (random_.chance(0.3)) options.operation = {1'000, 100'000, 0.05, 2'000'000};
    options.welcome.memory_bytes_max = memory_bytes_max;
    const auto number = std::make_shared<std::uint64_t>(0);
    options.on_ready = [this, number] {
      if (channel::AgentEnd* const end = agent_->dispatcher().find(*number)) end->end_rest();
    };
    const wire::ChannelLayout layout{
        .request_slots = 64u << random_.below(4), .reply_slots = 64u << random_.below(3), .streams_max = 4};
    auto pair = link::make_loopback(fabric_, options, layout);
    ASSERT_TRUE(pair) << pair.error().message;
    Program program;
    program.name = "program" + std::to_string(index);
    program.faulty = random_.chance(0.4);
    program.rows_max = 1 + random_.below(rows_max);
    std::unique_ptr<link::AgentLink> agent_link = std::move(pair->agent);
    if (program.faulty)
      agent_link = std::make_unique<link::FaultAgentLink>(std::move(agent_link), draw_faults(), random_.next());
    program.fate = pair->fate;
    *number = agent_->dispatcher().add_channel(std::move(agent_link), layout,
                                               {program.name, 1000, 100 + static_cast<int>(index)}, fabric_->now());
    if (!program.faulty) agent_->dispatcher().find(*number)->may_rest();  // faults hold events back, without a sign
    program.host = std::make_unique<SimHost>(fabric_, std::move(pair->host), layout);
    const std::uint64_t columns = 1 + random_.below(5);
    const auto destination = random_.chance(0.5) ? wire::Destination::ipc_page : wire::Destination::ipc;
    if (random_.chance(0.5))
      program.compression = random_.chance(0.5) ? wire::Compression::lz4 : wire::Compression::zstd;
    programs_.push_back(std::move(program));
    Program& added = programs_.back();
    if (auto opened = added.host->open(added.name, "local:/" + added.name, columns, added.rows_max, destination,
                                       added.compression, 0, 0, deadline());
        !opened)
      return lose(added, opened.error());
    for (std::uint64_t i = 0; i < columns && !added.over; ++i) announce_column(added);
  }

  link::AgentFaults draw_faults() {
    link::AgentFaults faults;
    faults.read_unreadable = random_.chance(0.5) ? 0.02 : 0;
    faults.completion_delayed = 0.1;
    faults.completion_reordered = 0.1;
    faults.wake_delayed = 0.2;
    faults.wake_repeated = 0.1;
    faults.stall = 0.001;
    faults.close = random_.chance(0.2) ? 0.001 : 0;
    return faults;
  }

  // The channel's end, which only a program with a faulty link may see.
  void lose(Program& program, const Failure& why) {
    EXPECT_TRUE(program.faulty) << program.name << ": " << why.message << describe_channels();
    program.over = true;
  }

  [[nodiscard]] std::string describe_channels() const {
    std::string text;
    for (const auto& each : agent_->dispatcher().channels())
      text +=
          fmt::format("\n  {}: {}; asleep {}, requests {}, looks {}, sleeps {}, pulls {}, replies {}, wakes {}",
                      each.client.program, each.traits.reason, each.asleep, each.counters.requests, each.counters.looks,
                      each.counters.sleeps, each.counters.pulls, each.counters.replies, each.counters.wakes_sent);
    return text;
  }

  // Noise, which no codec makes smaller, or numbers that become so.
  std::int64_t draw_value(const Program& program) {
    return static_cast<std::int64_t>(program.compression == wire::Compression::none ? random_.next()
                                                                                    : random_.below(1000));
  }

  void announce_column(Program& program) {
    Column column;
    column.values.resize(rows_max);
    for (auto& value : column.values) value = draw_value(program);
    auto range = program.host->end().announce(column.values.data(), rows_max * 8);
    if (!range) return lose(program, range.error());
    column.range = *range;
    program.columns.push_back(std::move(column));
  }

  void act(Program& program) {
    switch (random_.below(14)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return send(program);
      case 5:
        return send_named_wrongly(program);
      case 6:
        return move_column(program);
      case 7:
        return wait_for_one(program);
      case 8:
        return read_back_one(program);
      case 9:
        return agent_->run_for(static_cast<TimeNs>(random_.below(5 * millisecond_ns)));
      case 10:
        return pause(program);
      case 13:
        return grow(program);
      case 11:
        if (random_.chance(0.1)) kill(program);
        return;
      case 12:
        return ask_why_it_waits(program);
    }
  }

  void send(Program& program) {
    const std::uint64_t rows = random_.chance(0.1) ? 0 : random_.below(program.rows_max + 1);
    Sent sent;
    sent.row_key = "step" + std::to_string(program.sent.size());
    if (random_.chance(0.2))
      sent.row_key.append(random_.below(wire::key_bytes_max - 32), 'k');  // some too long for any of the rings
    for (const Column& column : program.columns)
      sent.values.emplace_back(column.values.begin(), column.values.begin() + static_cast<std::ptrdiff_t>(rows));
    auto ticket = program.host->send(program.columns, rows, sent.row_key, "c", random_.chance(0.5) ? deadline() : 0);
    if (!ticket && ticket.error().code == Error::would_block) return;
    if (!ticket) return lose(program, ticket.error());
    sent.ticket = *ticket;
    program.sent.push_back(std::move(sent));
  }

  // While batches are under way. Afterwards larger ones are sent; a smaller limit is as good as none.
  void grow(Program& program) {
    const std::uint64_t wanted = 1 + random_.below(rows_max);
    std::vector<std::byte> payload;
    wire::encode(wire::GrowStream{program.host->stream(), wanted}, payload);
    const auto grown = program.host->end().call(wire::EntryKind::grow_stream, payload, deadline());
    if (!grown && grown.error().code == Error::would_block) return;
    if (!grown) return lose(program, grown.error());
    program.rows_max = std::max(program.rows_max, wanted);
    wire::Done done{};
    ASSERT_TRUE(wire::decode(grown->payload, done));
    EXPECT_EQ(done.value, program.rows_max);
  }

  // A ticket that is on its way, is stored, or was never given.
  void ask_why_it_waits(Program& program) {
    std::vector<std::byte> payload;
    wire::encode(wire::WhyWaits{program.host->stream(), random_.below(program.sent.size() + 2)}, payload);
    const auto why = program.host->end().call(wire::EntryKind::why_waits, payload, deadline());
    if (!why && why.error().code != Error::would_block) lose(program, why.error());
  }

  // A generation that was, or never was: the host refuses it, and nothing is posted.
  void send_named_wrongly(Program& program) {
    std::vector<Column> columns = program.columns;
    for (std::size_t i = 0; i < columns.size(); ++i) columns[i].values.swap(program.columns[i].values);
    columns[random_.below(columns.size())].range.generation += 1;
    auto ticket = program.host->send(columns, 1, "wrong", "c", 0);
    for (std::size_t i = 0; i < columns.size(); ++i) columns[i].values.swap(program.columns[i].values);
    ASSERT_FALSE(ticket);
    if (ticket.error().code != Error::stale && ticket.error().code != Error::would_block) lose(program, ticket.error());
  }

  // As a simulation that reallocates: waits for its leases, moves the array, announces it again.
  void move_column(Program& program) {
    if (!program.sent.empty()) wait(program, program.sent.back(), channel::Progress::pulled);
    if (program.over) return;
    Column& column = program.columns[random_.below(program.columns.size())];
    std::vector<std::int64_t> moved(rows_max);
    for (auto& value : moved) value = draw_value(program);
    auto range = program.host->end().reannounce(column.range, moved.data(), rows_max * 8);
    if (!range) return lose(program, range.error());
    column.values = std::move(moved);
    column.range = *range;
  }

  // Returns true if the batch got there.
  bool wait(Program& program, const Sent& sent, channel::Progress progress) {
    auto status = program.host->end().wait(program.host->stream(), sent.ticket, progress, deadline());
    if (status) return true;
    if (status.error().code == Error::unreadable) {  // that batch only
      EXPECT_TRUE(program.faulty) << status.error().message;
      return false;
    }
    lose(program, status.error());
    return false;
  }

  void wait_for_one(Program& program) {
    if (!program.sent.empty())
      wait(program, program.sent[random_.below(program.sent.size())],
           random_.chance(0.5) ? channel::Progress::pulled : channel::Progress::stored);
  }

  void read_back_one(Program& program) {
    if (!program.sent.empty()) read_back(program, program.sent[random_.below(program.sent.size())]);
  }

  void read_back(Program& program, const Sent& sent) {
    if (!wait(program, sent, channel::Progress::stored)) return;
    auto frame = program.host->get(sent.row_key, "c", second_ns);
    if (!frame) return lose(program, frame.error());
    check(program, sent, *frame);
  }

  static void check(const Program& program, const Sent& sent, Bytes frame) {
    auto view = frame::parse_frame(frame);
    ASSERT_TRUE(view) << view.error().message;
    auto schema = frame::read_schema(frame, *view);
    ASSERT_TRUE(schema) << schema.error().message;
    auto layout = frame::make_layout(*schema);
    ASSERT_TRUE(layout) << layout.error().message;
    if (view->messages.back().compressed) return check_compressed(program, sent, frame, *view, std::move(*schema));
    std::int64_t rows = 0;
    std::vector<frame::NodeShape> nodes;
    std::vector<frame::BufferPlace> buffers;
    auto read = frame::read_batch(*layout, frame, *view, rows, nodes, buffers);
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_EQ(layout->columns.size(), sent.values.size());
    for (std::size_t i = 0; i < sent.values.size(); ++i) {
      ASSERT_EQ(static_cast<std::size_t>(rows), sent.values[i].size());
      const frame::BufferPlace& values = buffers[layout->nodes[layout->columns[i]].buffer + 1];
      ASSERT_EQ(values.bytes, sent.values[i].size() * 8);
      if (values.bytes > 0) {
        ASSERT_EQ(std::memcmp(frame.data() + values.offset, sent.values[i].data(), values.bytes), 0)
            << program.name << " " << sent.row_key << " column " << i;
      }
    }
  }

  static void check_compressed(const Program& program, const Sent& sent, Bytes frame, const frame::FrameView& view,
                               frame::Schema schema) {
    auto form = frame::make_template(std::move(schema), frame::ipc_alignment, program.compression);
    ASSERT_TRUE(form) << form.error().message;
    const std::vector<mover::FoundBuffer> buffers = mover::found_buffers(**form, frame, view);
    for (std::size_t i = 0; i < sent.values.size(); ++i) {
      const std::vector<std::byte>& values =
          buffers[(*form)->layout.nodes[(*form)->layout.columns[i]].buffer + 1].plain;
      ASSERT_TRUE(std::ranges::equal(values, std::as_bytes(std::span(sent.values[i]))))
          << program.name << " " << sent.row_key << " column " << i;
    }
  }

  void pause(Program& program) {
    const bool agent = random_.chance(0.3);
    agent ? program.fate->stop_agent() : program.fate->stop_host();
    agent_->run_for(static_cast<TimeNs>(random_.below(20 * millisecond_ns)));
    agent ? program.fate->continue_agent() : program.fate->continue_host();
  }

  void kill(Program& program) {
    if (random_.chance(0.8)) {
      ++killed_.programs;
      program.fate->kill_host();
      program.over = true;
      return;
    }
    // The agent dies: every lease soon ends with an error that reports it.
    ++killed_.agents;
    agent_->runs = false;
    for (Program& each : programs_) each.fate->kill_agent();
    for (Program& each : programs_) {
      if (each.over) continue;
      const TimeNs before = fabric_->now();
      const std::uint64_t ticket = each.sent.empty() ? 0 : each.sent.back().ticket;
      auto status = each.host->end().wait(each.host->stream(), ticket + 1, channel::Progress::stored, deadline());
      ASSERT_FALSE(status);
      EXPECT_TRUE(status.error().code == Error::peer_lost || status.error().code == Error::invalid)
          << status.error().message;
      EXPECT_LE(fabric_->now() - before, second_ns);
      agent_->run_for(millisecond_ns);
      EXPECT_EQ(each.host->end().poll().error().code, Error::peer_lost);
      each.over = true;
    }
  }

  // Every post has an outcome, and stored batches are right.
  void settle(Program& program) {
    for (const Sent& sent : program.sent) {
      if (program.over) return;
      read_back(program, sent);
    }
  }

  void end() {
    for (Program& program : programs_) program.host->end().close(second_ns);
    if (!agent_->runs) return;
    agent_->run_for(second_ns);
    const agent::Dispatcher& dispatcher = agent_->dispatcher();
    EXPECT_TRUE(dispatcher.channels().empty()) << describe_channels();
    EXPECT_EQ(dispatcher.mover().counters().streams_open, 0u);
    EXPECT_EQ(dispatcher.mover().counters().operations, 0u);
    EXPECT_EQ(dispatcher.mover().counters().promised_bytes, 0u) << "credit was lost";
    EXPECT_EQ(dispatcher.pools().table().counters().waiting, 0u);
    EXPECT_EQ(dispatcher.pools().table().counters().leases, 0u);
    std::uint64_t held = 0;
    for (const auto& pool : dispatcher.pools().pools()) held += pool.bytes;
    EXPECT_GE(dispatcher.buffers().used_bytes(), held);
    EXPECT_LE(dispatcher.buffers().used_bytes(), held + dispatcher.pools().table().counters().frames * page_bytes)
        << "memory was lost";
  }

  Killed& killed_;
  SeededRandom random_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  std::unique_ptr<SimAgent> agent_;
  std::vector<Program> programs_;
};

TEST(ChannelSimulation, NothingIsLostOrWrongUnderSeededFaults) {
  Killed killed;
  const bool all = each_seed(300, [&](std::uint64_t seed) {
    World world(seed, killed);
    if (!testing::Test::HasFailure()) world.run();
  });
  if (!all) return;
  EXPECT_GT(killed.programs, 0u);
  EXPECT_GT(killed.agents, 0u);
}

}  // namespace
}  // namespace offpath::sim
