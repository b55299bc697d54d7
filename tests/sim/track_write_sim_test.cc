// Tracks that members write to a directory, in virtual time and into real files, while members are killed, cut off and
// held up, and the program goes away.
//
// A write that succeeds has every row, and nothing else is in the directory. One that fails names no file, unless a
// member was killed while files got their names, and then only whole ones. Files without a name are of killed members.
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/sim/seeds.h"
#include "tests/sim/small_memory_world.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sim {
namespace {

namespace files = std::filesystem;

constexpr std::uint64_t rows_max = 500;
constexpr std::size_t members = 4;
constexpr TimeNs patience_ns = SmallMemoryWorld::patience_ns;

class World : public SmallMemoryWorld {
 public:
  explicit World(std::uint64_t seed) : SmallMemoryWorld(seed, options()) {
    std::string name = files::temp_directory_path() / "track_write_sim_XXXXXX";
    OFP_ASSERT(mkdtemp(name.data()) != nullptr);
    root = name;
  }
  ~World() { files::remove_all(root); }

  [[nodiscard]] static SimCluster::Options options() {
    SimCluster::Options options = small_memory(members, 16 << 20);
    options.tick_ns = 5 * millisecond_ns;  // a minute passes in most worlds
    options.dispatcher.buffers.huge_pages = false;
    options.dispatcher.sifts.agent_user = SimCluster::user;
    return options;
  }
  // Sends rows from each member's program, and waits until all are in tracks.
  std::uint64_t fill() {
    std::uint64_t rows = 0;
    for (std::int64_t step = 0; step < 8; ++step) {
      Program& program = programs[static_cast<std::size_t>(step) % programs.size()];
      const std::uint64_t some = 1 + random_.below(rows_max);
      const auto ticket = program.host->send(program.columns, some, fmt::format("step{:06}", step), "c", deadline());
      EXPECT_TRUE(ticket) << ticket.error().message;
      EXPECT_TRUE(program.host->end().wait(program.host->stream(), *ticket, channel::Progress::stored, deadline()));
      rows += some;
    }
    std::vector<std::byte> payload;
    wire::encode(wire::SiftFlush{patience_ns, "sift:/t"}, payload);
    EXPECT_TRUE(programs[0].host->end().call(wire::EntryKind::sift_flush, payload, deadline()));
    return rows;
  }
  Result<std::uint64_t> begin(std::size_t program) {
    std::vector<std::byte> payload;
    wire::encode(wire::SiftWrite{30 * second_ns, "sift:/t", directory()}, payload);
    OFP_ASSIGN(const channel::Reply reply,
               programs[program].host->end().call(wire::EntryKind::sift_write, payload, deadline()));
    wire::Done done{};
    OFP_TRY(wire::decode(reply.payload, done));
    return done.value;
  }
  Result<wire::Written> written(std::size_t program, std::uint64_t number) {
    std::vector<std::byte> payload;
    wire::encode(wire::SiftWritten{number, 40 * second_ns, false}, payload);
    OFP_ASSIGN(const channel::Reply reply,
               programs[program].host->end().call(wire::EntryKind::sift_written, payload, deadline()));
    wire::Written told{};
    OFP_TRY(wire::decode(reply.payload, told));
    return told;
  }
  [[nodiscard]] std::string directory() const { return root + "/" + directory_name; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    if (!files::exists(directory())) return all;
    for (const auto& each : files::directory_iterator(directory())) all.push_back(each.path().filename());
    return all;
  }
  [[nodiscard]] bool is_whole(const std::string& name) const {
    std::ifstream file(directory() + "/" + name, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    return bytes.starts_with("PAR1") && bytes.ends_with("PAR1") && bytes.size() > 12;
  }

  std::string root, directory_name = "tracks";
};

constexpr const char* pool = "sift:/t?key=c0&stages=1&fanout=16&threshold=16KiB&budget=1MiB&age=5ms";

TEST(TrackWriteSimulation, AWriteIsWholeOrNotThereWhateverFails) {
  each_seed(12, [](std::uint64_t seed) {
    World world(seed);
    ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
    for (std::size_t i = 0; i < members; ++i) ASSERT_TRUE(world.add_program(i, pool, 2, rows_max));
    const std::uint64_t rows = world.fill();
    const std::size_t asker = world.random_.below(members), victim = world.random_.below(members);
    const auto number = world.begin(asker);
    ASSERT_TRUE(number) << number.error().message;
    world.cluster_->run_for(static_cast<TimeNs>(world.random_.below(400)) * 10 * microsecond_ns);
    std::vector<unsigned> sides(members);
    const std::uint64_t event = world.random_.below(5);
    if (event == 0) world.cluster_->kill(victim);
    if (event == 1) world.cluster_->hold_up(victim, world.fabric_->now() + 50 * second_ns);
    if (event == 2) sides[victim] = 1, world.cluster_->set_sides(sides);
    if (event == 3) world.programs[asker].host.reset();
    bool failed = false;
    const bool gone = event == 3 || (event == 0 && victim == asker);
    if (!gone && !(event == 1 && victim == asker)) {
      const auto told = world.written(asker, *number);
      if (told) {
        EXPECT_TRUE(told->over);
        EXPECT_EQ(told->rows, rows);
        EXPECT_EQ(world.names().size(), told->files);
        for (const std::string& name : world.names()) EXPECT_TRUE(world.is_whole(name)) << name;
        if (event == 0 && world.cluster_->runs(victim) == false) return;
      } else {
        failed = true;
        EXPECT_NE(event, 4u) << told.error().message;
      }
    }
    world.cluster_->set_sides(std::vector<unsigned>(members));
    world.cluster_->run_for(70 * second_ns);  // parts whose asker is gone end
    for (const std::string& name : world.names()) {
      const bool of_victim = name.find(SimCluster::name_of(victim)) != std::string::npos;
      // All members live, so one that fails leaves no name.
      if (failed && event == 1) {
        EXPECT_TRUE(name.starts_with(".")) << name;
      }
      if (name.starts_with("."))
        EXPECT_TRUE(event == 0 && of_victim) << name;
      else
        EXPECT_TRUE(world.is_whole(name)) << name;
    }
    if (event == 0) {
      world.cluster_->start(victim);
      return;
    }
    ASSERT_TRUE(world.cluster_->wait_for_agreement(patience_ns));
    const std::size_t other = (asker + 1) % members;
    world.directory_name = "again";
    const auto again = world.begin(other);
    ASSERT_TRUE(again) << again.error().message;
    const auto told = world.written(other, *again);
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_EQ(told->rows, rows);
    EXPECT_EQ(world.names().size(), told->files);
    std::uint64_t counted = 0;
    for (std::size_t place = 0; place < members; ++place)
      counted += world.cluster_->dispatcher(place).sifts().track_files().rows;
    EXPECT_GE(counted, rows);
  });
}

}  // namespace
}  // namespace offpath::sim
