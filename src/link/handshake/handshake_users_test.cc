// The identity of the other end: processes that use another's connection, other users, programs that made themselves
// unreadable.
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "link/local/sealed_memory.h"
#include "testing/link/emulated.h"
#include "testing/link/raw_client.h"

namespace offpath::link {
namespace {

TEST(Strangers, ProcessThatSpeaksForAnotherIsNotReadDirectly) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  TestAgent agent;
  RawClient client(agent);     // this process connects
  const pid_t child = fork();  // another process uses the connection
  if (child == 0) {
    // This process is also the agent, and maps the memory where the child would have mapped it: so the child maps its
    // own elsewhere.
    const auto first = allocate_sealed(wire::ChannelLayout{}.total_bytes());
    const auto memory = allocate_sealed(wire::ChannelLayout{}.total_bytes());
    wire::Hello hello = good_hello();
    hello.pid = getpid();
    hello.channel_address = reinterpret_cast<std::uint64_t>(memory->data());
    client.say(hello, memory->fd());
    (void)await_frame(client.socket, soon());
    _exit(0);
  }
  const auto arrival = agent.serve();
  ASSERT_TRUE(arrival.link) << arrival.failure.message;
  EXPECT_EQ(arrival.pid, getpid());
  EXPECT_TRUE(arrival.link->traits().staged);
  EXPECT_EQ(
      arrival.link->traits().reason,
      fmt::format("process {} opened the connection, but another process uses it: connect after the fork", getpid()));
  waitpid(child, nullptr, 0);
}

// Runs an agent and a host as two users; the host's child exits with 0 if `check` returns true.
class Users : public testing::Test {
 protected:
  static constexpr uid_t agent_uid = 64'001, host_uid = 64'002;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can start processes of two other users";
    ASSERT_EQ(chmod(agent.address.path.substr(0, agent.address.path.rfind('/')).c_str(), 0755), 0);
  }
  static void become(uid_t uid, bool readable = true) {
    OFP_ASSERT(setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
    prctl(PR_SET_DUMPABLE, readable ? 1 : 0, 0, 0, 0);
  }
  // Returns the result of the host's end: its reason, or the failure's message.
  std::string meet(uid_t host, bool host_readable = true) {
    int pipe_ends[2];
    OFP_ASSERT(pipe(pipe_ends) == 0);
    const pid_t program = fork();
    if (program == 0) {
      become(host, host_readable);
      auto connected = connect(agent.address, {}, soon());
      const std::string text =
          !connected ? connected.error().message
                     : ((*connected)->traits().staged ? "staged: " : "direct: ") + (*connected)->traits().reason;
      (void)!::write(pipe_ends[1], text.data(), text.size());
      _exit(0);
    }
    const pid_t serving = fork();
    if (serving == 0) {
      become(agent_uid);
      const auto arrival = agent.serve();
      _exit(arrival.uid == host || !arrival.link ? 0 : 1);
    }
    int status = 1;
    waitpid(program, nullptr, 0);
    waitpid(serving, &status, 0);
    EXPECT_EQ(status, 0);
    char text[1024];
    const ssize_t got = ::read(pipe_ends[0], text, sizeof text);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    return {text, got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  TestAgent agent;
};

TEST_F(Users, TheSameUserIsReadDirectly) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  if (yama_scope() > 1) GTEST_SKIP() << "kernel.yama.ptrace_scope is " << yama_scope();
  EXPECT_EQ(meet(agent_uid), "direct: one machine: the agent reads the program's memory in place");
}

TEST_F(Users, AnotherUserHasToBeOnTheList) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  const std::string refused = meet(host_uid);
  EXPECT_NE(
      refused.find(fmt::format("refuses: uid {} may not use this agent; allowed uids are 0, {}", host_uid, agent_uid)),
      std::string::npos)
      << refused;
  agent.policy.uids = {host_uid};
  EXPECT_EQ(meet(host_uid),
            fmt::format("staged: direct reads are not permitted: the program runs as uid {}, the agent as uid {}: run "
                        "both as the same user, or give the agent CAP_SYS_PTRACE",
                        host_uid, agent_uid));
}

TEST_F(Users, RootIsServedButNotReadByOthers) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  EXPECT_EQ(
      meet(0),
      fmt::format("staged: direct reads are not permitted: the program runs as uid 0, the agent as uid {}: run both as "
                  "the same user, or give the agent CAP_SYS_PTRACE",
                  agent_uid));
}

TEST_F(Users, AProgramThatMadeItselfUnreadableIsStaged) {
  OFP_NEEDS_KERNEL("process_vm_readv");
  const std::string text = meet(agent_uid, false);
  EXPECT_NE(text.find("staged: direct reads are not permitted: the program made itself unreadable"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace offpath::link
