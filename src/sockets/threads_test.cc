// Calls of threads and processes at the same time, against a fake agent.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <numeric>
#include <thread>

#include "sockets/kernel.h"
#include "testing/sockets/offloaded.h"

namespace offpath::sockets {
namespace {

using wire::TcpCommandKind;

// A buffer in whose middle a copy stops, until let_go(): its second half is not accessible, and the fault's handler
// waits. One at a time.
class StoppingBuffer {
 public:
  static constexpr std::size_t bytes = 64 << 10;

  StoppingBuffer() {
    memory_ = static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < bytes; ++i) memory_[i] = static_cast<char>('a' + i % 23);
    text_ = std::string(memory_, bytes);
    OFP_ASSERT(::mprotect(memory_ + bytes / 2, bytes / 2, PROT_NONE) == 0);
    OFP_ASSERT(::pipe(stopped_) == 0 && ::pipe(goes_on_) == 0);
    only = this;
    struct sigaction action{};
    action.sa_handler = [](int) { only->stop(); };
    OFP_ASSERT(::sigaction(SIGSEGV, &action, &before_) == 0);
  }
  ~StoppingBuffer() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    for (const int fd : {stopped_[0], stopped_[1], goes_on_[0], goes_on_[1]}) kernel::close(fd);
    ::munmap(memory_, bytes);
  }
  StoppingBuffer(const StoppingBuffer&) = delete;
  StoppingBuffer& operator=(const StoppingBuffer&) = delete;

  [[nodiscard]] char* data() const noexcept { return memory_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] std::string now() const { return std::string(memory_, bytes); }
  void await_stop() { move_byte(stopped_[0], false); }
  void let_go() { move_byte(goes_on_[1], true); }

 private:
  static void move_byte(int fd, bool writes) {
    char byte = 0;
    OFP_ASSERT((writes ? kernel::write(fd, static_cast<const void*>(&byte), std::size_t{1})
                       : kernel::read(fd, static_cast<void*>(&byte), std::size_t{1})) == 1);
  }
  void stop() {
    move_byte(stopped_[1], true);
    move_byte(goes_on_[0], false);
    OFP_ASSERT(::mprotect(memory_, bytes, PROT_READ | PROT_WRITE) == 0);
  }

  static inline StoppingBuffer* only = nullptr;
  char* memory_;
  std::string text_;
  int stopped_[2], goes_on_[2];
  struct sigaction before_{};
};

class Threads : public Offloaded {
 protected:
  static ssize_t send_all(int fd, const StoppingBuffer& buffer) {
    return ::send(fd, buffer.data(), StoppingBuffer::bytes, MSG_NOSIGNAL);
  }
  // Whether `call` ends while another thread's copy has stopped. It goes on afterwards in any case.
  template <class Call>
  static bool ends_meanwhile(StoppingBuffer& stopped, const Call& call) {
    auto done = std::async(std::launch::async, call);
    const bool ended = done.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    stopped.let_go();
    done.get();
    return ended;
  }
  // Calls on sockets other than those in `busy`, and on the set that watches them.
  void use_others(int other, Handle handle, int set) {
    const std::string much(100'000, 'm');
    EXPECT_EQ(::send(other, much.data(), much.size(), 0), static_cast<ssize_t>(much.size()));
    EXPECT_EQ(agent().offered(handle), much);
    agent().arrive(handle, much);
    std::string got(much.size(), '-');
    EXPECT_EQ(::recv(other, got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(much.size()));
    EXPECT_EQ(got, much);
    agent().arrive(handle, "m");
    epoll_event event{};
    EXPECT_EQ(::epoll_wait(set, &event, 1, -1), 1);
    EXPECT_EQ(::recv(other, got.data(), got.size(), 0), 1);
    Handle fresh = 0;
    const int made = connected(fresh);
    EXPECT_EQ(::send(made, "x", 1, 0), 1);
    EXPECT_EQ(::close(::dup(made)), 0);
  }
  int set_over(int fd) {
    const int set = keep(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    return set;
  }
};

TEST_F(Threads, ASendThatCopiesHoldsUpNoOtherSocket) {
  Handle copied = 0, free = 0;
  const int fd = connected(copied), other = connected(free), set = set_over(other);
  StoppingBuffer buffer;
  auto sent = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
  buffer.await_stop();
  EXPECT_TRUE(ends_meanwhile(buffer, [&] {
    use_others(other, free, set);
    agent().arrive(copied, "the other direction");
    char bytes[100];
    EXPECT_EQ(::recv(fd, bytes, sizeof bytes, 0), 19);
    EXPECT_EQ(agent().offered(copied), "") << "bytes were offered before they were copied";
  }));
  EXPECT_EQ(sent.get(), static_cast<ssize_t>(StoppingBuffer::bytes));
  EXPECT_EQ(agent().offered(copied), buffer.text());
}

TEST_F(Threads, AReceiveThatCopiesHoldsUpNoOtherSocket) {
  Handle copied = 0, free = 0;
  const int fd = connected(copied), other = connected(free), set = set_over(other);
  StoppingBuffer buffer;
  const std::string arrived(buffer.text().rbegin(), buffer.text().rend());
  agent().arrive(copied, arrived);
  auto got = std::async(std::launch::async, [&] { return ::recv(fd, buffer.data(), StoppingBuffer::bytes, 0); });
  buffer.await_stop();
  EXPECT_TRUE(ends_meanwhile(buffer, [&] {
    use_others(other, free, set);
    EXPECT_EQ(::send(fd, "back", 4, 0), 4);
    EXPECT_EQ(agent().offered(copied), "back");
    EXPECT_EQ(program().look(copied)->unread, StoppingBuffer::bytes) << "bytes count as read before they were copied";
  }));
  EXPECT_EQ(got.get(), static_cast<ssize_t>(StoppingBuffer::bytes));
  EXPECT_EQ(buffer.now(), arrived);
}

TEST_F(Threads, AShortSendWaitsForTheCopyBeforeIt) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  auto first = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
  buffer.await_stop();
  auto second = std::async(std::launch::async, [&] { return ::send(fd, "!", 1, 0); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  buffer.let_go();
  EXPECT_EQ(first.get(), static_cast<ssize_t>(StoppingBuffer::bytes));
  EXPECT_EQ(second.get(), 1);
  EXPECT_EQ(agent().offered(handle), buffer.text() + "!");
}

TEST_F(Threads, ACloseDuringACopyTakesEffectAfterIt) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  auto sent = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
  buffer.await_stop();
  EXPECT_TRUE(ends_meanwhile(buffer, [&] {
    EXPECT_EQ(::close(fd), 0);
    EXPECT_FALSE(is_offloaded(fd));
    EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, handle));
  }));
  EXPECT_EQ(sent.get(), static_cast<ssize_t>(StoppingBuffer::bytes));
  agent().await(TcpCommandKind::release, handle);
  EXPECT_EQ(agent().offered(handle), buffer.text());
}

TEST_F(Threads, TheLastHolderLetsGoAfterItsCopies) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  auto sent = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
  buffer.await_stop();
  auto closed = std::async(std::launch::async, [&] { program().area().close(handle); });
  EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, handle)) << "another connection may get the ring";
  buffer.let_go();
  EXPECT_EQ(sent.get(), static_cast<ssize_t>(StoppingBuffer::bytes));
  closed.get();
  agent().await(TcpCommandKind::release, handle);
}

TEST_F(Threads, TheEndOfTheStreamDuringACopyLeavesWholeBytes) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  auto sent = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
  buffer.await_stop();
  EXPECT_TRUE(ends_meanwhile(buffer, [&] { EXPECT_EQ(::shutdown(fd, SHUT_WR), 0); }));
  EXPECT_EQ(sent.get(), -1);
  EXPECT_EQ(agent().offered(handle), "") << "nothing follows the end of a stream";
}

TEST_F(Threads, AChildOfForkUsesItsSocketsDuringACopyOfItsParent) {
  Handle copied = 0, free = 0;
  const int fd = connected(copied), other = connected(free);
  StoppingBuffer buffer;
  auto sent = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
  buffer.await_stop();
  const std::string much(100'000, 'm');
  EXPECT_TRUE(ends_meanwhile(buffer, [&] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::send(other, much.data(), much.size(), 0) == static_cast<ssize_t>(much.size()) ? 7 : 1);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }));
  EXPECT_EQ(sent.get(), static_cast<ssize_t>(StoppingBuffer::bytes));
  EXPECT_EQ(agent().offered(copied), buffer.text());
  EXPECT_EQ(agent().offered(free), much);
}

TEST_F(Threads, AProcessThatIsKilledWhileItCopiesLeavesTheSocketToOthers) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(send_all(fd, buffer) < 0 ? 1 : 0);
  buffer.await_stop();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string text(10'000, 'p');
  EXPECT_EQ(::send(fd, "short,", 6, 0), 6);
  EXPECT_EQ(::send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(agent().offered(handle), "short," + text);
}

TEST_F(Threads, AProcessThatIsKilledWhileItReadsLeavesTheBytesToOthers) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  const std::string arrived(buffer.text().rbegin(), buffer.text().rend());
  agent().arrive(handle, arrived);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::recv(fd, buffer.data(), StoppingBuffer::bytes, 0) < 0 ? 1 : 0);
  buffer.await_stop();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  std::string got(arrived.size(), '-');
  EXPECT_EQ(::recv(fd, got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(got.size()));
  EXPECT_EQ(got, arrived);
}

TEST_F(Threads, AProcessThatEndsSendsNothingOfACopyUnderWay) {
  Handle handle = 0;
  const int fd = connected(handle);
  StoppingBuffer buffer;
  const pid_t child = ::fork();
  if (child == 0) {
    auto sent = std::async(std::launch::async, [&] { return send_all(fd, buffer); });
    buffer.await_stop();
    const bool last = program().area().depart();
    buffer.let_go();
    const bool refused = sent.get() == -1 && ::send(fd, "!", 1, MSG_NOSIGNAL) == -1;
    ::_exit(!last && refused ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(agent().offered(handle), "");
}

// ---- calls that wait

// How often the library's own thread has slept.
std::uint64_t sleeps_of_the_library() {
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(each.path() / "comm"), name);
    if (name != "offpath-sockets") continue;
    for (std::ifstream status(each.path() / "status"); std::getline(status, line);)
      if (line.starts_with("voluntary_ctxt_switches:")) return std::stoull(line.substr(line.find(':') + 1));
  }
  return 0;
}

// The agent wakes the waiting thread itself: no other thread of the program runs in between.
TEST_F(Threads, ACallThatWaitsIsWokenByTheAgentAlone) {
  if (agent().is_linked()) GTEST_SKIP() << "over a link the agent wakes processes, not threads";
  constexpr std::uint64_t rounds = 400;
  Handle handle = 0;
  const int fd = connected(handle);
  std::atomic<int> failed = 0;
  std::thread waits([&] {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      pollfd watched{fd, POLLIN, 0};
      char bytes[2];
      if (i % 2 == 0 && (::poll(&watched, 1, -1) != 1 || watched.revents != POLLIN)) ++failed;
      if (::recv(fd, bytes, sizeof bytes, 0) != 1 || ::send(fd, bytes, 1, 0) != 1) ++failed;
    }
  });
  agent().arrive(handle, "x");
  while (agent().offered(handle).empty()) std::this_thread::yield();
  const std::uint64_t before = sleeps_of_the_library();
  for (std::uint64_t i = 1; i < rounds; ++i) {
    agent().arrive(handle, "x");
    while (agent().offered(handle).size() == i) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  waits.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_GT(before, 0u);
  EXPECT_LT(sleeps_of_the_library() - before, rounds / 4);  // it looks once a second for memory to give back
}

// Events of sockets for which nobody waits fill their ring; the one that is awaited comes behind them.
TEST_F(Threads, ACallThatWaitsIsWokenBehindEventsOfOthers) {
  Handle awaited = 0, other = 0;
  const int fd = connected(awaited), ignored = connected(other);
  auto got = std::async(std::launch::async, [&] {
    char byte;
    return ::recv(fd, &byte, 1, 0);
  });
  EXPECT_EQ(got.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  constexpr int events = 5000;  // more than the ring has
  for (int i = 0; i < events; ++i) agent().arrive(other, "x");
  agent().arrive(awaited, "y");
  EXPECT_EQ(got.get(), 1);
  std::string all(events, '-');
  EXPECT_EQ(::recv(ignored, all.data(), all.size(), MSG_WAITALL), events);
}

TEST_F(Threads, ManyThreadsWaitForSocketsOfTheirOwn) {
  constexpr int threads = 8, rounds = 200;
  std::array<Handle, threads> handles{};
  std::vector<std::thread> all;
  std::atomic<int> failed = 0, bytes_got = 0;
  for (int i = 0; i < threads; ++i) {
    const int fd = connected(handles[static_cast<std::size_t>(i)]);
    all.emplace_back([&, i, fd] {
      for (int round = 0; round < rounds; ++round) {
        pollfd watched{fd, POLLIN, 0};
        char byte;
        if (i % 2 == 0 && ::poll(&watched, 1, 60'000) != 1) ++failed;
        if (::recv(fd, &byte, 1, 0) != 1) ++failed;
        ++bytes_got;
      }
    });
  }
  for (int round = 0; round < rounds; ++round)
    for (const Handle handle : handles) agent().arrive(handle, "x");
  for (std::thread& each : all) each.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(bytes_got.load(), threads * rounds);
}

// The other thread is like one that shows changes of the socket whenever it gets the processor.
TEST_F(Threads, ASocketHasEndedWhenItsCloseReturnsAlthoughAnotherThreadShowsIt) {
  constexpr int rounds = 50;
  std::atomic<Socket*> shown = nullptr;
  std::atomic<bool> over = false;
  std::thread shows([&] {
    while (!over) {
      Socket* const socket = shown;
      if (socket == nullptr) continue;
      socket->own().showings.fetch_add(1);
      if (const Use use = Use::of(*socket)) std::this_thread::yield();
      socket->own().showings.fetch_sub(1);
    }
  });
  int late = 0;
  for (int round = 0; round < rounds; ++round) {
    Handle handle = 0;
    const int fd = connected(handle);
    shown = &program().socket(handle);
    EXPECT_EQ(::close(fd), 0);
    late += program().own(handle).users.load() != 0 ? 1 : 0;
    shown = nullptr;
  }
  over = true;
  shows.join();
  EXPECT_EQ(late, 0);
}

// The one of several sockets that a call has found to be readable.
template <std::size_t count>
int await_readable(int way, const std::array<int, count>& fds, int set) {
  constexpr int limit_ms = 60'000;
  if (way == 0) {
    std::array<pollfd, count> watched{};
    for (std::size_t i = 0; i < count; ++i) watched[i] = {fds[i], POLLIN, 0};
    if (::poll(watched.data(), count, limit_ms) != 1) return -1;
    return static_cast<int>(std::ranges::find(watched, POLLIN, &pollfd::revents) - watched.begin());
  }
  if (way == 1) {
    fd_set readable;
    FD_ZERO(&readable);
    for (const int fd : fds) FD_SET(fd, &readable);
    timeval limit{limit_ms / 1000, 0};
    if (::select(*std::ranges::max_element(fds) + 1, &readable, nullptr, nullptr, &limit) != 1) return -1;
    return static_cast<int>(std::ranges::find_if(fds, [&](int fd) { return FD_ISSET(fd, &readable); }) - fds.begin());
  }
  epoll_event event{};
  return ::epoll_wait(set, &event, 1, limit_ms) == 1 ? static_cast<int>(event.data.u32) : -1;
}

TEST_F(Threads, ACallThatWaitsForSeveralSocketsIsWokenByEachOfThem) {
  constexpr std::size_t count = 3;
  constexpr int rounds = 60;
  std::array<Handle, count> handles{};
  std::array<int, count> fds{};
  const int set = keep(::epoll_create1(EPOLL_CLOEXEC));
  for (std::size_t i = 0; i < count; ++i) {
    fds[i] = connected(handles[i]);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(i);
    ASSERT_EQ(::epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event), 0);
  }
  for (int way = 0; way < 3; ++way) {
    std::atomic<int> taken = 0, wrong = 0;
    std::thread waits([&] {
      for (int round = 0; round < rounds; ++round, ++taken) {
        const int found = await_readable(way, fds, set), expected = round % static_cast<int>(count);
        char byte;
        if (found != expected || ::recv(fds[static_cast<std::size_t>(expected)], &byte, 1, 0) != 1) ++wrong;
      }
    });
    for (int round = 0; round < rounds; ++round) {
      if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it sleeps, and does not spin
      agent().arrive(handles[static_cast<std::size_t>(round) % count], "x");
      while (taken == round) std::this_thread::yield();
    }
    waits.join();
    EXPECT_EQ(wrong.load(), 0) << way;
  }
}

// Each of several threads waits for something else, and goes on for that alone.
TEST_F(Threads, CallsWaitSideBySide) {
  Handle receives = 0, sends = 0;
  const int listener = tcp(), receiver = connected(receives), sender = connected(sends);
  ASSERT_EQ(bind(listener, "10.9.0.2", listened_port), 0);
  ASSERT_EQ(::listen(listener, 2), 0);
  agent().acknowledge(false);
  const std::string much(1 << 20, 'x');
  while (::send(sender, much.data(), much.size(), MSG_DONTWAIT) > 0) {
  }
  const auto begin = [](auto call) { return std::async(std::launch::async, call); };
  char byte = 0;
  auto accepted = begin([&] { return ::accept(listener, nullptr, nullptr); });
  auto received = begin([&] { return static_cast<int>(::recv(receiver, &byte, 1, 0)); });
  auto sent = begin([&] { return static_cast<int>(::send(sender, "y", 1, 0)); });
  const auto is_over = [](const std::future<int>& call, int wait_ms = 0) {
    return call.wait_for(std::chrono::milliseconds(wait_ms)) == std::future_status::ready;
  };
  EXPECT_FALSE(is_over(accepted, 50) || is_over(received) || is_over(sent));
  agent().arrive(receives, "x");
  EXPECT_EQ(received.get(), 1);
  EXPECT_FALSE(is_over(accepted, 20) || is_over(sent));
  static_cast<void>(agent().connect_to(listened_port));
  EXPECT_GE(keep(accepted.get()), 0);
  EXPECT_FALSE(is_over(sent, 20));
  agent().acknowledge(true);
  EXPECT_EQ(sent.get(), 1);
}

void do_nothing(int) {}

// As poll(2) and signal(7) say: poll is always interrupted, recv without a limit only by a handler without SA_RESTART.
TEST_F(Threads, SignalsInterruptCallsThatWait) {
  Handle handle = 0;
  const int fd = connected(handle);
  for (const bool restarts : {false, true}) {
    struct sigaction action{}, before{};
    action.sa_handler = do_nothing;
    action.sa_flags = restarts ? SA_RESTART : 0;
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
    for (const bool polls : {false, true}) {
      std::atomic<bool> done = false;
      int result = 0;
      std::thread waits([&] {
        pollfd watched{fd, POLLIN, 0};
        char byte;
        result = error_of(polls ? ::poll(&watched, 1, -1) : ::recv(fd, &byte, 1, 0));
        done = true;
      });
      for (int i = 0; !done; ++i) {  // those that come before it waits interrupt nothing
        ::pthread_kill(waits.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (restarts && !polls && i == 20) agent().arrive(handle, "x");
      }
      waits.join();
      EXPECT_EQ(result, polls || !restarts ? EINTR : 0) << restarts << polls;
    }
    ::sigaction(SIGUSR1, &before, nullptr);
  }
}

// ---- many threads

// A stream of numbers in order.
std::string numbers(std::uint32_t from, std::uint32_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), from);
  return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof all[0]);
}

TEST_F(Threads, ThreadsThatReadOneSocketShareItsBytes) {
  Handle handle = 0;
  const int fd = connected(handle);
  constexpr std::uint32_t round = 20'000, rounds = 30;
  constexpr std::array<std::size_t, 4> sizes = {16'000, 4'000, 400, 40'000};
  std::array<std::map<std::uint32_t, std::string>, sizes.size()> got;  // by the first number
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    readers.emplace_back([&, i] {
      std::string bytes(sizes[i], '-');
      for (ssize_t count; (count = ::recv(fd, bytes.data(), bytes.size(), 0)) > 0;) {
        std::uint32_t first;
        std::memcpy(&first, bytes.data(), sizeof first);
        got[i][first] = bytes.substr(0, static_cast<std::size_t>(count));
      }
    });
  for (std::uint32_t i = 0; i < rounds; ++i) {
    agent().arrive(handle, numbers(i * round, round));
    while (program().look(handle)->unread > 0) std::this_thread::yield();
  }
  agent().end_stream(handle);
  for (std::thread& each : readers) each.join();
  std::map<std::uint32_t, std::string> all;
  for (auto& part : got) all.merge(part);
  std::string stream;
  for (const auto& [first, bytes] : all) stream += bytes;
  EXPECT_EQ(stream.size(), std::size_t{4} * round * rounds);
  EXPECT_TRUE(stream == numbers(0, round * rounds)) << "bytes were read twice, or not at all, or while they changed";
}

TEST_F(Threads, ThreadsThatSendOnOneSocketMixNoBytesOfACall) {
  Handle handle = 0;
  const int fd = connected(handle);
  constexpr std::array<std::size_t, 4> sizes = {5'000, 100, 1'500, 9'000};
  constexpr int rounds = 12;  // all of them fit into the ring: a call that finds less room sends a part
  std::vector<std::thread> senders;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    senders.emplace_back([&, i] {
      const std::string text(sizes[i], static_cast<char>('a' + i));
      for (int round = 0; round < rounds; ++round)
        EXPECT_EQ(::send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    });
  for (std::thread& each : senders) each.join();
  const std::string stream = agent().offered(handle);
  std::array<std::size_t, 4> whole{};
  std::size_t at = 0;
  while (at < stream.size()) {
    const std::size_t which = static_cast<std::size_t>(stream[at] - 'a');
    ASSERT_LT(which, sizes.size());
    ASSERT_EQ(stream.compare(at, sizes[which], std::string(sizes[which], stream[at])), 0) << at;
    at += sizes[which];
    ++whole[which];
  }
  for (const std::size_t count : whole) EXPECT_EQ(count, std::size_t{rounds});
}

TEST_F(Threads, ThreadsUseSocketsOfTheirOwnWhileOthersComeAndGo) {
  constexpr int threads = 4, rounds = 60;
  std::vector<std::thread> all;
  std::mutex connecting;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      const std::string text(3'000 + 500 * i, static_cast<char>('a' + i));
      for (int round = 0; round < rounds; ++round) {
        Handle handle = 0;
        int fd = -1;
        {
          const std::lock_guard lock(connecting);  // the double names the last one
          fd = ::socket(AF_INET, SOCK_STREAM, 0);
          ASSERT_EQ(connect(fd, "10.9.0.1", 80), 0);
          handle = agent().last_connected();
        }
        const int copy = ::dup(fd);
        EXPECT_EQ(::send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
        agent().arrive(handle, text);
        ::close(fd);
        std::string got(text.size(), '-');
        EXPECT_EQ(::recv(copy, got.data(), got.size(), MSG_WAITALL), static_cast<ssize_t>(text.size()));
        EXPECT_EQ(got, text);
        EXPECT_EQ(agent().offered(handle), text);
        ::close(copy);
      }
    });
  for (std::thread& each : all) each.join();
}

}  // namespace
}  // namespace offpath::sockets
