// Reads of pages that a program should supply and does not: only its user's thread waits, never the agent's loop.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>

#include "link/local/sealed_memory.h"
#include "testing/link/connected_pair.h"
#include "testing/link/emulated.h"
#include "wire/control.h"

namespace offpath::link {
namespace {

using wire::ControlType;

constexpr uid_t user = 64'002;
constexpr std::uint64_t bytes = 64 << 10;

// A descriptor that blocks the supply of the pages of [at, at + length) until it is closed. Empty if the kernel or this
// user's privileges do not allow it.
Fd hold_pages(void* at, std::uint64_t length) {
  Fd faults(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!faults) return {};
  uffdio_api api{};
  api.api = UFFD_API;
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uintptr_t>(at), length};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(faults.get(), UFFDIO_API, &api) != 0 || ioctl(faults.get(), UFFDIO_REGISTER, &range) != 0) return {};
  return faults;
}

void* map(std::uint64_t length) {
  void* const at = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  OFP_ASSERT(at != MAP_FAILED);
  return at;
}

bool can_hold_pages() {
  void* const page = map(4096);
  const bool can = static_cast<bool>(hold_pages(page, 4096));
  munmap(page, 4096);
  return can;
}

// Counts all users' reader threads, or those that wait in the kernel.
unsigned reader_threads(bool held_only = false) {
  unsigned count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    std::getline(std::ifstream(thread.path() / "stat"), stat);
    if (stat.find(held_only ? "(offpath-read) D" : "(offpath-read)") != std::string::npos) ++count;
  }
  return count;
}

class HeldReads : public testing::Test {
 protected:
  struct Blackboard {
    std::atomic<std::uint64_t> address, release;
  };
  enum class Holds { nothing, range, channel };

  // A program of another user, as a process.
  struct Program {
    pid_t pid = 0;
    SegmentMemory memory;
    TestAgent::Arrival arrival;
    std::vector<std::byte> target = std::vector<std::byte>(bytes, std::byte{'t'});

    [[nodiscard]] Blackboard& board() const { return *reinterpret_cast<Blackboard*>(memory.data()); }
    void post(std::uint64_t token = 1) {
      const ReadPiece piece{1, 1, 0, target.data(), target.size(), true};
      arrival.link->read(token, {&piece, 1});
    }
    Program() = default;
    Program(Program&&) = default;
    ~Program() {
      if (pid <= 0) return;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  };

  void SetUp() override {
    OFP_NEEDS_KERNEL("userfaultfd");
    if (geteuid() != 0) GTEST_SKIP() << "only root can start a process of another user";
    if (!can_hold_pages()) GTEST_SKIP() << "no userfaultfd here";
    ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
    agent.policy.uids = {user};
  }

  void run(const Program& program, Holds holds) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void* const range = map(bytes);
    const std::uint64_t channel_bytes = wire::ChannelLayout{}.total_bytes();
    void* const channel = map(channel_bytes);
    std::optional<Fd> held;
    if (holds == Holds::nothing)
      std::memset(range, 'p', bytes);
    else
      held = holds == Holds::range ? hold_pages(range, bytes) : hold_pages(channel, channel_bytes);
    OFP_ASSERT(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
    prctl(PR_SET_DUMPABLE, 1);
    program.board().address = reinterpret_cast<std::uint64_t>(range);
    const auto memory = allocate_sealed(channel_bytes);
    ControlSocket socket(*dial(agent.address, soon()), ControlSocket::Kind::unix_socket);
    wire::Hello hello;
    hello.channel_address = reinterpret_cast<std::uint64_t>(holds == Holds::channel ? channel : memory->data());
    std::vector<std::byte> payload;
    wire::encode(hello, payload);
    OFP_ASSERT(socket.send(ControlType::hello, payload, memory->fd()));
    while (program.board().release == 0) usleep(1000);
    held.reset();  // from now on its pages are zeros
    for (;;) pause();
  }

  Program start(Holds holds) {
    Program program;
    program.memory = std::move(*allocate_sealed(sizeof(Blackboard)));
    program.pid = fork();
    if (program.pid == 0) run(program, holds);
    program.arrival = agent.serve();
    OFP_ASSERT(program.arrival.link);
    OFP_ASSERT(!program.arrival.link->traits().staged);
    OFP_ASSERT(program.arrival.link->attach_range(1, 1, program.board().address, bytes, 0));
    return program;
  }
  // Polls in virtual time, in steps of half a second, until there is an event.
  LinkEvent next_event(AgentLink& link, TimeNs step_ns = second_ns / 2) {
    const TimeNs deadline = soon();
    std::array<LinkEvent, 1> events;
    while (monotonic_ns() < deadline) {
      if (link.poll(now += step_ns, events) == 1) return std::move(events[0]);
      usleep(100);
    }
    ADD_FAILURE() << "the event did not come in time";
    return {};
  }
  // For a read that nothing holds: no virtual time passes, however late its thread gets a core.
  Status read_at_once(Program& program) {
    program.post();
    return next_event(*program.arrival.link, 0).status;
  }
  // Waits until the thread waits in the kernel for a page.
  void expect_held_by(Program& program) {
    program.post();
    std::array<LinkEvent, 1> events;
    EXPECT_EQ(program.arrival.link->poll(now, events), 0u);
    const TimeNs deadline = soon();
    while (reader_threads(true) == 0 && monotonic_ns() < deadline) usleep(1000);
    EXPECT_EQ(reader_threads(true), 1u);
    EXPECT_EQ(program.arrival.link->poll(now, events), 0u);
  }
  static void expect_no_thread() {
    const TimeNs deadline = soon();
    while (reader_threads() > 0 && monotonic_ns() < deadline) usleep(1000);
    EXPECT_EQ(reader_threads(), 0u);
  }

  TestDirectory directory;
  TestAgent agent{"unix:" + directory.file("agent")};
  TimeNs now = 3600 * second_ns;  // no read was polled for a long time
};

// The memory of a finished work is reused for the user's next reads.
TEST(UserReadersTest, AWorkThatRanOutOfMemoryMayBeDoneAgain) {
  struct Scarce final : UserReaders::Work {
    void run() override {
      if (++runs == 1) throw std::bad_alloc();
    }
    [[nodiscard]] std::uint64_t progress() const noexcept override { return 0; }
    std::atomic<unsigned> runs = 0;
  };
  UserReaders readers(30 * second_ns, true);
  const auto reader = readers.of(geteuid());
  const auto work = std::make_shared<Scarce>();
  for (const bool short_of_memory : {true, false}) {
    work->reset();
    ASSERT_TRUE(reader->post(work));
    const TimeNs deadline = soon();
    while (!work->is_done() && monotonic_ns() < deadline) usleep(100);
    ASSERT_TRUE(work->is_done());
    EXPECT_EQ(work->ran_out_of_memory(), short_of_memory);
  }
}

class HeldReadsOf : public HeldReads, public testing::WithParamInterface<bool> {};

// By order of events, not by time: the other link's read ends while the first one's waits.
TEST_P(HeldReadsOf, AProgramThatSuppliesNoPagesLosesItsChannelAlone) {
  Program held = start(GetParam() ? Holds::channel : Holds::range);
  expect_held_by(held);

  auto [host, other] = agent.meet();  // of the agent's own user
  ASSERT_TRUE(host && other.link);
  const std::vector<std::byte> source(bytes, std::byte{'o'});
  std::vector<std::byte> target(bytes);
  ASSERT_TRUE(other.link->attach_range(1, 1, reinterpret_cast<std::uint64_t>(source.data()), bytes, 0));
  ASSERT_TRUE(read_one(*other.link, {1, 1, 0, target.data(), bytes, true}));
  EXPECT_EQ(target, source);

  const TimeNs held_since = now;
  const LinkEvent failed = next_event(*held.arrival.link);
  EXPECT_LE(now - held_since, 31 * second_ns);  // of virtual time
  ASSERT_EQ(failed.kind, LinkEvent::Kind::read_done);
  ASSERT_FALSE(failed.status);
  EXPECT_EQ(failed.status.error().code, Error::timeout);
  for (const std::string& part : {fmt::format("process {} at address {:#x}", held.pid, held.board().address.load()),
                                  std::string("userfaultfd"), std::string("30 s")})
    EXPECT_NE(failed.status.error().message.find(part), std::string::npos) << failed.status.error().message;
  const LinkEvent closed = next_event(*held.arrival.link);
  EXPECT_EQ(closed.kind, LinkEvent::Kind::closed);
  EXPECT_EQ(closed.status.error().code, Error::timeout);
  ASSERT_TRUE(read_one(*other.link, {1, 1, 0, target.data(), bytes, true}));

  // The call continues although its link is gone: it must not write to the link's memory.
  held.arrival.link->close();
  held.arrival.link.reset();
  std::ranges::fill(held.target, std::byte{'t'});
  EXPECT_EQ(reader_threads(), 1u);
  held.board().release = 1;
  expect_no_thread();
  EXPECT_TRUE(std::ranges::all_of(held.target, [](std::byte each) { return each == std::byte{'t'}; }));
}

INSTANTIATE_TEST_SUITE_P(Places, HeldReadsOf, testing::Bool(),
                         [](const auto& each) { return each.param ? "TheChannelsWitness" : "ARange"; });

TEST_F(HeldReads, OfOneUserTakeOneThreadAndOtherReadsOfThatUserFailUntilTheyEnd) {
  Program held = start(Holds::range);
  Program other = start(Holds::nothing);
  ASSERT_TRUE(read_at_once(other));
  EXPECT_TRUE(std::ranges::all_of(other.target, [](std::byte each) { return each == std::byte{'p'}; }));
  expect_held_by(held);
  for (int i = 0; i < 2; ++i) {
    other.post();
    const LinkEvent failed = next_event(*other.arrival.link);
    ASSERT_FALSE(failed.status);
    EXPECT_EQ(failed.status.error().code, Error::timeout);
    EXPECT_NE(failed.status.error().message.find(fmt::format("user {}", user)), std::string::npos)
        << failed.status.error().message;
    EXPECT_EQ(reader_threads(), 1u);
  }
  EXPECT_EQ(next_event(*held.arrival.link).status.error().code, Error::timeout);
  held.arrival.link.reset();

  // A program that connects while the thread is held gets the same thread, and no further one.
  Program late = start(Holds::nothing);
  late.post();
  EXPECT_EQ(next_event(*late.arrival.link).status.error().code, Error::timeout);
  EXPECT_EQ(reader_threads(), 1u);

  held.board().release = 1;
  const TimeNs deadline = soon();
  bool read = false;
  while (!read && monotonic_ns() < deadline) read = read_at_once(other).has_value();
  EXPECT_TRUE(read);
  EXPECT_TRUE(read_at_once(late));
  EXPECT_EQ(reader_threads(), 1u);
  other.arrival.link.reset();
  late.arrival.link.reset();
  expect_no_thread();
}

// The held program's channel ends when its process ends, and the thread becomes free when its memory does.
TEST_F(HeldReads, EndWithTheirProgram) {
  Program held = start(Holds::range);
  expect_held_by(held);
  kill(held.pid, SIGKILL);
  waitpid(held.pid, nullptr, 0);
  held.pid = 0;
  const LinkEvent failed = next_event(*held.arrival.link);
  ASSERT_FALSE(failed.status);
  EXPECT_EQ(failed.status.error().code, Error::peer_lost);
  held.arrival.link.reset();
  expect_no_thread();
}

}  // namespace
}  // namespace offpath::link
