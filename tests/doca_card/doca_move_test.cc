// A program and an agent process with the software card between them: columns move there and back, and each notices the
// other's end.
#include <gtest/gtest.h>
#include <offpath/offpath.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "testing/link/connected_pair.h"

namespace offpath {
namespace {

class DocaMove : public testing::Test {
 protected:
  void SetUp() override {
    key_ = directory_.write("key", "a key for these tests only, long enough");
    std::array<int, 2> ends;
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const Fd from(ends[0]);
    Fd to(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
    std::vector<std::string> words{OFFPATH_AGENT_WITH_CARD, "--ready", "--listen", "doca:127.0.0.1:0", "--key-file",
                                   key_,
                                   // The sandbox would refuse the software card's calls.
                                   "--set", "security.sandbox=off"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ASSERT_EQ(posix_spawn(&agent_, words[0].c_str(), &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    to.reset();
    std::string line;
    for (char byte = 0; read(from.get(), &byte, 1) == 1 && byte != '\n';) line += byte;
    const auto begin = line.find("doca:127.0.0.1:");
    ASSERT_NE(begin, std::string::npos) << line;
    address_ = line.substr(begin, line.find('"', begin) - begin);

    ofp_connect_options options{};
    options.struct_bytes = sizeof options;
    options.key_file = key_.c_str();
    ASSERT_EQ(ofp_connect(address_.c_str(), &options, &channel_, &error_), OFP_OK) << error_.message;
  }
  void TearDown() override {
    if (channel_ != nullptr) ofp_close(channel_);
    end_agent(SIGTERM);
  }
  void end_agent(int signal_number) {
    if (agent_ <= 0) return;
    kill(agent_, signal_number);
    int status = 0;
    waitpid(agent_, &status, 0);
    if (signal_number == SIGTERM) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the agent ended with " << status;
    }
    agent_ = -1;
  }

  link::TestDirectory directory_;
  std::string key_, address_;
  pid_t agent_ = -1;
  ofp_channel* channel_ = nullptr;
  ofp_error error_{};
};

constexpr std::int64_t patience_ns = 60 * second_ns;

TEST_F(DocaMove, ColumnsComeBackAsTheyWere) {
  constexpr std::uint64_t rows = 200'000;
  std::vector<std::int32_t> id(rows);
  std::vector<double> x(3 * rows);
  std::iota(id.begin(), id.end(), 7);
  ofp_channel_info info{};
  info.struct_bytes = sizeof info;
  ASSERT_EQ(ofp_channel_info_get(channel_, &info, &error_), OFP_OK) << error_.message;
  EXPECT_STREQ(info.link, "doca");

  std::array<ofp_column, 2> columns{};
  columns[0].name = "id";
  columns[0].format = "i";
  columns[1].name = "x";
  columns[1].format = "+w:3g";
  ofp_stream_options options{};
  options.struct_bytes = sizeof options;
  options.rows_max = rows;
  ofp_stream* stream = nullptr;
  ASSERT_EQ(ofp_stream_open_columns(channel_, "particles", columns.data(), 2, &options, &stream, &error_), OFP_OK)
      << error_.message;
  std::uint64_t ticket = 0;
  for (int step = 0; step < 5; ++step) {
    if (step > 0) {
      ASSERT_EQ(ofp_wait_pulled(stream, ticket, patience_ns, &error_), OFP_OK) << error_.message;
    }
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = step * 1e6 + static_cast<double>(i);
    const void* data[] = {id.data(), x.data()};
    const std::string row = "step" + std::to_string(step);
    ASSERT_EQ(
        ofp_send_columns(stream, data, rows, row.c_str(), "rank0", OFP_SEND_WAIT | OFP_SEND_ANNOUNCE, &ticket, &error_),
        OFP_OK)
        << error_.message;
  }
  ASSERT_EQ(ofp_wait_stored(stream, ticket, patience_ns, &error_), OFP_OK) << error_.message;
  for (int step = 0; step < 5; ++step) {
    ofp_frame* frame = nullptr;
    const std::string row = "step" + std::to_string(step);
    ASSERT_EQ(ofp_pool_get(channel_, "local:/particles", row.c_str(), "rank0", patience_ns, &frame, &error_), OFP_OK)
        << error_.message;
    EXPECT_EQ(ofp_frame_rows(frame), rows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = step * 1e6 + static_cast<double>(i);
    const void* bytes = ofp_frame_data(frame);
    EXPECT_NE(memmem(bytes, ofp_frame_bytes(frame), id.data(), rows * sizeof id[0]), nullptr);
    EXPECT_NE(memmem(bytes, ofp_frame_bytes(frame), x.data(), x.size() * sizeof x[0]), nullptr) << row;
    ofp_frame_release(frame);
  }
  EXPECT_EQ(ofp_stream_close(stream, patience_ns, &error_), OFP_OK) << error_.message;
}

TEST_F(DocaMove, AnAgentThatIsKilledIsNoticed) {
  end_agent(SIGKILL);
  std::array<ofp_column, 1> columns{};
  columns[0].name = "id";
  columns[0].format = "i";
  ofp_stream_options options{};
  options.struct_bytes = sizeof options;
  options.rows_max = 1;
  ofp_stream* stream = nullptr;
  EXPECT_EQ(ofp_stream_open_columns(channel_, "particles", columns.data(), 1, &options, &stream, &error_),
            OFP_PEER_LOST)
      << error_.message;
}

}  // namespace
}  // namespace offpath
