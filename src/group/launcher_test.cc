#include "group/launcher.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace offpath::group {
namespace {

// A launcher of some processes, each served by a thread of its own.
class Server {
 public:
  using Answer = std::function<std::string(const std::string& line)>;  // empty: closes the connection

  explicit Server(int size, Answer instead = {}) : size_(size), instead_(std::move(instead)) {
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
      clients_.push_back(Fd(ends[0]));
      threads_.emplace_back([this, end = ends[1]] { serve(Fd(end)); });
    }
  }
  ~Server() {
    clients_.clear();
    for (std::thread& thread : threads_) thread.join();
  }
  Launcher client(int rank) { return {std::move(clients_[static_cast<std::size_t>(rank)]), rank, size_}; }

 private:
  void serve(Fd end) {
    std::string unread;
    char byte = 0;
    while (read(end.get(), &byte, 1) == 1) {
      if (byte != '\n') {
        unread += byte;
        continue;
      }
      const std::string answer =
          (instead_ ? instead_ : Answer([this](const std::string& line) { return usual(line); }))(unread);
      unread.clear();
      if (answer.empty()) return;
      if (send(end.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  std::string usual(const std::string& line) {
    std::unique_lock lock(mutex_);
    if (line.starts_with("cmd=init ")) return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (line == "cmd=get_maxes") return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_7\n";
    if (line.starts_with("cmd=put kvsname=kvs_7 ")) {
      const std::size_t key = line.find("key=") + 4, value = line.find(" value=");
      values_[line.substr(key, value - key)] = line.substr(value + 7);
      return "cmd=put_result rc=0 msg=success\n";
    }
    if (line == "cmd=barrier_in") {
      ++inside_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return inside_ == size_; });
      return "cmd=barrier_out rc=0\n";
    }
    if (line.starts_with("cmd=get kvsname=kvs_7 "))
      return "cmd=get_result rc=0 msg=success value=" + values_[line.substr(line.find("key=") + 4)] + "\n";
    return line == "cmd=finalize" ? "cmd=finalize_ack rc=0\n" : "";
  }

  int size_, inside_ = 0;
  Answer instead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::vector<Fd> clients_;
  std::vector<std::thread> threads_;
};

TimeNs soon() { return monotonic_ns() + 30 * second_ns; }

std::string failure_of(const Server::Answer& answer) {
  Server server(1, answer);
  const auto all = server.client(0).exchange("tcp:here:1", soon());
  return all ? "" : all.error().message;
}

TEST(Launcher, EveryoneLearnsAllAddressesByRank) {
  constexpr int size = 5;
  Server server(size);
  std::vector<std::thread> agents;
  std::vector<std::vector<std::string>> learnt(size);
  for (int rank = 0; rank < size; ++rank) {
    agents.emplace_back([&, rank] {
      if (auto all = server.client(rank).exchange(fmt::format("tcp:node{}:7470", rank), soon()))
        learnt[static_cast<std::size_t>(rank)] = *all;
    });
  }
  for (std::thread& agent : agents) agent.join();
  const std::vector<std::string> wanted{"tcp:node0:7470", "tcp:node1:7470", "tcp:node2:7470", "tcp:node3:7470",
                                        "tcp:node4:7470"};
  for (const auto& all : learnt) EXPECT_EQ(all, wanted);
}

TEST(Launcher, DoesNotWaitLongerThanToldForAgentsThatDoNotCome) {
  Server server(2, [](const std::string& line) {
    return line == "cmd=barrier_in"       ? " "  // no end of line
           : line.starts_with("cmd=init") ? "cmd=response_to_init rc=0\n"
           : line.starts_with("cmd=put")  ? "cmd=put_result rc=0\n"
           : line == "cmd=get_maxes"      ? "cmd=maxes vallen_max=1024\n"
                                          : "cmd=my_kvsname kvsname=x\n";
  });
  const auto all = server.client(0).exchange("tcp:here:1", monotonic_ns() + 50 * millisecond_ns);
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Error::timeout);
}

TEST(Launcher, WhatALauncherShouldNotSayIsShown) {
  EXPECT_NE(failure_of([](const std::string&) {
              return "cmd=response_to_init rc=-1\n";
            }).find("answered 'cmd=response_to_init rc=-1'"),
            std::string::npos);
  EXPECT_NE(failure_of([](const std::string&) { return "nonsense\n"; }).find("answered 'nonsense'"), std::string::npos);
  EXPECT_NE(failure_of([](const std::string&) { return std::string(10000, 'x'); }).find("a line of more than"),
            std::string::npos);
  EXPECT_NE(failure_of([](const std::string&) { return std::string(); }).find("closed its connection"),
            std::string::npos);
}

TEST(Launcher, AProcessThatNoLauncherStartedIsToldHowItWouldBe) {
  unsetenv("PMI_FD");
  const auto launcher = Launcher::from_environment();
  ASSERT_FALSE(launcher);
  EXPECT_EQ(launcher.error().code, Error::not_found);
  EXPECT_NE(launcher.error().message.find("group.members"), std::string::npos);
}

TEST(Launcher, EnvironmentThatMakesNoSenseIsRefused) {
  setenv("PMI_FD", "1048575", 1);
  setenv("PMI_RANK", "0", 1);
  setenv("PMI_SIZE", "2", 1);
  EXPECT_NE(Launcher::from_environment().error().message.find("not open"), std::string::npos);
  setenv("PMI_RANK", "2", 1);
  EXPECT_NE(Launcher::from_environment().error().message.find("PMI_RANK is 2, PMI_SIZE is 2"), std::string::npos);
  setenv("PMI_RANK", "one", 1);
  EXPECT_NE(Launcher::from_environment().error().message.find("not a number"), std::string::npos);
  for (const char* variable : {"PMI_FD", "PMI_RANK", "PMI_SIZE"}) unsetenv(variable);
}

}  // namespace
}  // namespace offpath::group
