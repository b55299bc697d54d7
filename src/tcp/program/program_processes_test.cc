// Processes that share a program's connections: their handles, their events, and the state that they leave behind.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <thread>

#include "testing/tcp/two_programs.h"

namespace offpath::tcp {
namespace {

using wire::TcpError;
using Programs = TwoPrograms;

// Another process of the client's: here a second view of the same memory.
class Processes : public Programs {
 protected:
  std::unique_ptr<SocketArea> child_of(TestProgram& program) {
    const std::uint32_t process = program.area->add_process().value();
    EXPECT_TRUE(world.ends[&program == &server ? 1 : 0].service.add_process(program.number, process));
    return std::make_unique<SocketArea>(
        program.memory, SocketOptions{64, 65'536, 65'536}, [](std::uint32_t) {}, process);
  }
  void dies(TestProgram& program, const SocketArea& process) {
    EXPECT_TRUE(world.ends[&program == &server ? 1 : 0].service.remove_process(program.number, process.process()));
    world.run(second_ns);
  }
  static std::vector<SocketArea::Handle> changed(SocketArea& area) {
    std::vector<SocketArea::Handle> all;
    while (const auto handle = area.take_changed()) all.push_back(*handle);
    return all;
  }
};

TEST_F(Processes, AConnectionEndsWithTheLastThatHoldsIt) {
  connect();
  const auto child = child_of(client);
  client.area->close(near);
  world.run(second_ns);
  EXPECT_FALSE(client.area->holds(near));
  EXPECT_FALSE(server.area->look(far)->finished);
  ASSERT_TRUE(child->send(near, text("still")));
  EXPECT_EQ(hear(server, far, 5), "still");
  child->close(near);
  world.run(second_ns);
  EXPECT_TRUE(server.area->look(far)->finished);
}

TEST_F(Processes, AListenerThatOneStopsListensForNobody) {
  listener = server.area->listen(port, 4).value();
  const auto child = child_of(server);
  near = client.area->connect(TestPrograms::endpoint(1, port)).value();
  ASSERT_TRUE(world.run_until([&] { return server.area->look(listener)->readable; }, second_ns));
  static_cast<void>(changed(*server.area));
  EXPECT_TRUE(child->stop(listener));
  EXPECT_EQ(changed(*server.area), std::vector{listener});
  for (SocketArea* const each : {server.area.get(), child.get()}) {
    EXPECT_EQ(each->accept(listener).error().code, Error::closed);
    EXPECT_FALSE(each->stop(listener));
  }
  ASSERT_TRUE(world.run_until([&] { return client.area->look(near)->error == TcpError::reset; }, second_ns));
  client.area->close(near);

  // The port is free, even while a process still holds the former listener's handle.
  const auto before = listener;
  listener = server.area->listen(port, 4).value();
  ASSERT_TRUE(world.run_until([&] { return server.area->look(listener)->connected; }, second_ns));
  near = client.area->connect(TestPrograms::endpoint(1, port)).value();
  ASSERT_TRUE(world.run_until([&] { return accept(); }, second_ns));
  EXPECT_NE(listener, before);
  for (SocketArea* const each : {server.area.get(), child.get()}) each->close(before);
  EXPECT_TRUE(server.area->send(far, text("hello")));
  EXPECT_EQ(hear(client, near, 5), "hello");
  EXPECT_TRUE(world.ends[1].ended.empty());
}

TEST_F(Processes, OneThatDiesLetsGoOfWhatItHeldAndOfNothingElse) {
  connect();
  const auto shared = near;
  const auto child = child_of(client);
  const auto own = child->connect(TestPrograms::endpoint(1, port)).value();
  world.run(second_ns);
  const auto of_child = server.area->accept(listener).value();
  ASSERT_TRUE(child->look(own)->connected);
  static_cast<void>(world.ends[0].service.take_wakes());
  dies(client, *child);
  EXPECT_EQ(world.ends[0].service.take_wakes(), (std::vector<TcpService::Wake>{{client.number, child->process()}}))
      << "the others are to be noticed";
  EXPECT_FALSE(server.area->look(of_child)->finished) << "nobody of the program has looked yet";
  EXPECT_TRUE(client.area->take_in());
  world.run(second_ns);
  EXPECT_TRUE(server.area->look(of_child)->finished);
  ASSERT_TRUE(client.area->send(shared, text("here")));
  EXPECT_EQ(hear(server, far, 4), "here");
  EXPECT_EQ(client.area->add_process().value(), child->process()) << "the number is used again";
}

TEST_F(Processes, EachIsToldOfWhatItHoldsAndWokenForNothingElse) {
  connect();
  const auto child = child_of(server);
  EXPECT_EQ(changed(*child).size(), 2u) << "what it begins with";
  EXPECT_FALSE(changed(*server.area).empty());
  const auto second = client.area->connect(TestPrograms::endpoint(1, port)).value();
  world.run(second_ns);
  child->take_in();
  EXPECT_EQ(changed(*child), std::vector{listener});
  EXPECT_TRUE(server.area->take_in()) << "it was told by the child";
  EXPECT_EQ(changed(*server.area), std::vector{listener});
  const auto of_child = child->accept(listener).value();
  world.run(second_ns);
  EXPECT_FALSE(server.area->holds(of_child));

  ASSERT_TRUE(child->fall_asleep());
  ASSERT_TRUE(server.area->fall_asleep());
  static_cast<void>(world.ends[1].service.take_wakes());
  ASSERT_TRUE(client.area->send(second, text("to the child")));
  world.run(second_ns);
  EXPECT_EQ(world.ends[1].service.take_wakes(), (std::vector<TcpService::Wake>{{server.number, child->process()}}));
  ASSERT_TRUE(client.area->send(near, text("to both")));
  world.run(second_ns);
  EXPECT_EQ(world.ends[1].service.take_wakes(), (std::vector<TcpService::Wake>{{server.number, 0}}))
      << "the child is awake";
  EXPECT_TRUE(server.area->take_in());
  EXPECT_EQ(changed(*server.area), std::vector{far});
  EXPECT_FALSE(child->fall_asleep()) << "the other took in what concerns it";
}

TEST_F(Processes, TheLastEndsTheProgramAndRubbishIsRefused) {
  connect();
  TcpService& service = world.ends[0].service;
  EXPECT_EQ(service.add_process(client.number, 0).error().code, Error::protocol);
  EXPECT_EQ(service.add_process(client.number, wire::tcp_processes_max).error().code, Error::protocol);
  EXPECT_EQ(service.add_process(99, 1).error().code, Error::closed);
  ASSERT_TRUE(service.add_process(client.number, 7));
  EXPECT_TRUE(service.remove_process(client.number, 7));
  EXPECT_EQ(service.add_process(client.number, 7).error().code, Error::protocol)
      << "the others were not told yet that the first ended";
  world.run(second_ns);
  EXPECT_TRUE(service.add_process(client.number, 7));
  EXPECT_TRUE(service.remove_process(client.number, 7));
  EXPECT_FALSE(service.remove_process(client.number, 0));
}

TEST_F(Processes, AreAsManyAsMayBe) {
  connect();
  for (std::uint32_t i = 1; i < wire::tcp_processes_max; ++i) ASSERT_EQ(client.area->add_process().value(), i);
  EXPECT_EQ(client.area->add_process().error().code, Error::no_space);
  client.area->drop_process(300);
  EXPECT_EQ(client.area->add_process().value(), 300u);
}

TEST_F(Processes, OneThatIsKilledInACallLeavesTheOthersTheirConnections) {
  connect();
  for (int i = 0; i < 20; ++i) {
    const auto child = child_of(client);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (;;) static_cast<void>(child->look(near)), child->close(near), child->take_in();
    }
    usleep(2000);
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    dies(client, *child);
    client.area->take_in();
    ASSERT_TRUE(client.area->send(near, text("here")));
    ASSERT_EQ(hear(server, far, 4), "here");
  }
}

// It has begun to wake a thread of another process and dies before it does: the next event wakes that thread, and if
// there is none, the agent does.
TEST_F(Processes, OneThatIsKilledWhileItWakesAnotherLeavesNobodyAsleep) {
  connect();
  const auto child = child_of(client);
  const channel::SleepWord word = client.area->sleep_word(near);
  for (const bool is_told : {true, false}) {
    const timespec until{monotonic_ns() / second_ns + 60, 0};
    const auto before = word.begin();
    auto sleeper = std::async(std::launch::async, [&] { return word.sleep(before, &until); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      static_cast<void>(child->sleep_word(near).take());
      raise(SIGKILL);
    }
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    if (is_told) {
      ASSERT_TRUE(server.area->send(far, text("more")));
    } else {
      dies(client, *child);
    }
    world.run(millisecond_ns);
    world.ends[0].service.wake_threads();
    const int ended = sleeper.get();  // EAGAIN: it had not begun to sleep
    EXPECT_TRUE(ended == 0 || ended == EAGAIN) << ended << is_told;
  }
}

TEST_F(Programs, AForkedChildGoesOnWithTheConnectionsOfItsParent) {
  connect();
  ASSERT_TRUE(client.area->send(near, text("parent, ")));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(client.area->send(near, text("child, ")) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(client.area->send(near, text("parent")));
  EXPECT_EQ(hear(server, far, 21), "parent, child, parent");
}

}  // namespace
}  // namespace offpath::tcp
