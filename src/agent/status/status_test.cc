#include "agent/status/status.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "agent/status/json.h"

namespace offpath::agent {
namespace {

TEST(JsonTest, NestsAndSeparates) {
  Json json;
  json.begin_object().member("a", 1).key("b").begin_list().value(true).null().value(0.5).begin_object().end_object();
  json.end_list().member("c", "d").key("e").begin_list().end_list().end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":[true,null,0.5,{}],"c":"d","e":[]})");
}

TEST(JsonTest, NamesOfOtherProgramsCannotBreakOut) {
  Json json;
  json.begin_list()
      .value("\"\\\n\x01</script>")
      .value("\xFFok\xC3\xA4\xC3")
      .value("\xED\xA0\x80\xF4\x90\x80\x80")
      .end_list();
  EXPECT_EQ(json.text(),
            "[\"\\\"\\\\\\u000a\\u0001</script>\",\"\xEF\xBF\xBDok\xC3\xA4\xEF\xBF\xBD\","
            "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"]");
  Json numbers;
  numbers.begin_list()
      .value(std::numeric_limits<double>::infinity())
      .value(std::numeric_limits<std::uint64_t>::max())
      .end_list();
  EXPECT_EQ(numbers.text(), "[null,18446744073709551615]");
}

std::shared_ptr<AgentStatus> some_status() {
  auto status = std::make_shared<AgentStatus>();
  status->name = "node \"17\"";
  status->version = "1.2.3";
  status->profile = "none";
  status->buffers.hits = 3;
  status->buffers.misses = 1;
  status->channels.push_back({1, {"lmp\n", 1000, 42}, {"local", true, false, 0, "direct"}, {}, true});
  status->channels.push_back({2, {"other", 1000, 43}, {"local", true, false, 0, "direct"}, {}, false});
  plugin::PluginStatus particles;
  particles.name = "particles";
  particles.functions = {{"mean", "The \"mean\"."}};
  particles.counters.done = 5;
  particles.counters.crashed = 2;
  particles.counters.running_ns = 1500 * millisecond_ns;
  status->plugins.push_back(particles);
  sift::StageCounters first, last;
  first.rows_taken = 70;
  last.rows_taken = 60;
  last.merges = 9;
  last.merge_failures = 4;
  last.track_runs = 12;
  last.damaged_runs = 1;
  status->sifts.push_back({"sift:/tracks", "sift:/tracks?key=id", 1000, 4096, 3072, {first, last}});
  status->sifts.push_back({"sift:/others", "sift:/others?key=id", 1000, 1024, 0, {first}});
  status->queries.queries = 8;
  status->queries.failed = 1;
  return status;
}

TEST(StatusTest, SiftPoolsAndQueriesAreShown) {
  const std::string json = status_json(*some_status(), {}), metrics = metrics_text(*some_status(), {});
  EXPECT_NE(
      json.find(R"("sifts":[{"name":"sift:/tracks","options":"sift:/tracks?key=id","user":1000,"track_bytes":4096,)"
                R"("spilled_track_bytes":3072,"kept":false,"restored":true,"agreed":true,"rival":"","stages":[{)"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("queries":{"queries":8,"failed":1,)"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_sift_rows_total{stage=\"0\"} 140\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("offpath_sift_rows_total{stage=\"1\"} 60\n"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_sift_track_bytes 5120\n"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_sift_spilled_track_bytes 3072\n"), std::string::npos);
  EXPECT_NE(json.find(R"("merges":9,"merge_failures":4,"track_runs":12,"damaged_runs":1)"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_sift_merge_failures_total{stage=\"1\"} 4\n"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_sift_damaged_runs{stage=\"1\"} 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_pool_query_failures_total 1\n"), std::string::npos);
}

TEST(StatusTest, SaysWhichStreamsWaitAndWhatFailed) {
  const auto status = some_status();
  status->taken_at = 10 * second_ns;
  mover::Mover::StreamStatus stream{};
  stream.name = "s";
  stream.credit_lacking = 4096;
  stream.lacking_since = 7 * second_ns;
  stream.recent = mover::RecentRates{2 * second_ns, {0, 1.5e9, 2}};
  status->streams = {stream, {}};
  status->failures.push_back({9 * second_ns, 3, "solver", {Error::invalid, "no \"such\" row"}});
  status->failures_count = 5;
  status->waiting_puts.count = 3;
  status->waiting_puts.longest.push_back({"hash:/p", "row", "", {"b"}, 8 * second_ns, "it is away"});
  status->waiting_gets.count = 7;
  status->channels.at(0).number = 3;
  status->channels[0].client.program = "reader";
  status->channels[0].client.pid = 4711;
  status->waiting_gets.longest.push_back({"hash:/p", "row", "c", 3, 4 * second_ns, "the disk", "it is not there"});
  status->steps.push_back({.pool = "p", .newest = "", .waiting = 2, .listed = {{"s1", 1, 2, {1}, "", 5 * second_ns}}});
  status->pools.push_back({"p", 1000, 0, 0, 0, 0, 0, "", 1});
  status->lines.push_back({LogLevel::warning, 1500 * millisecond_ns, "a line"});
  const std::string json = status_json(*status, {}), metrics = metrics_text(*status, {});
  EXPECT_NE(json.find(R"("waits_for_credit_s":3,"credit_lacking_bytes":4096)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("recent":{"every_s":5,"ended_s":2,"bytes_per_s":[0,1500000000,2]}})"), std::string::npos)
      << json;
  EXPECT_NE(json.find(R"(],"recent":{"every_s":5,"ended_s":0,"bytes_per_s":[]},"pools")"), std::string::npos) << json;
  EXPECT_EQ(json.find("waits_for_credit_s"), json.rfind("waits_for_credit_s")) << "the other one waits for nothing";
  EXPECT_NE(json.find(R"("failures_count":5,"shows_events":true,"failures":[{"ago_s":1,"program":"solver","channel":3,)"
                      R"("error":"invalid","why":"no \"such\" row"}])"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("events":[{"at_s":1.5,"level":"warning","what":"a line"}])"), std::string::npos) << json;
  EXPECT_NE(metrics.find("\noffpath_streams_waiting 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_stream_longest_wait_seconds 3\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_puts_waiting 3\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_put_longest_wait_seconds 2\n"), std::string::npos);
  EXPECT_NE(json.find(R"("waiting_gets":{"count":7,"longest":[{"pool":"hash:/p","row":"row","column":"c","waits_s":6,)"
                      R"("what":"the disk","why":"it is not there","program":"reader","pid":4711}]})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("steps":[{"row":"s1","ended":1,"ranks":2,"waits_s":5,"gone":"","missing":[1]}])"),
            std::string::npos)
      << json;
  EXPECT_NE(metrics.find("\noffpath_gets_waiting 7\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_get_longest_wait_seconds 6\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_steps_waiting 2\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_step_longest_wait_seconds 5\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_failed_requests_total 5\n"), std::string::npos);
}

TEST(StatusTest, FullRingsAreShownWithTheirPrograms) {
  const auto status = some_status();
  status->taken_at = 10 * second_ns;
  EXPECT_NE(status_json(*status, {}).find(R"("requests_full":0,"replies_full":0})"), std::string::npos);
  status->channels[0].requests_full = {.since = 7 * second_ns, .times = 2};
  status->channels[0].why_requests_wait = "the agent is out of memory";
  status->channels[1].replies_full = {.since = 8 * second_ns, .times = 1};
  TcpStatus& tcp = status->tcp.emplace();
  tcp.programs.push_back({1, 4096, 0, 0, 0, 0, 0, {.times = 5}, {.since = 9 * second_ns, .times = 1}});
  const std::string json = status_json(*status, {}), metrics = metrics_text(*status, {});
  EXPECT_NE(json.find(R"("requests_full":2,"requests_full_s":3,"replies_full":0,)"
                      R"("requests_wait_for":"the agent is out of memory"})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("requests_full":0,"replies_full":1,"replies_full_s":2})"), std::string::npos);
  EXPECT_NE(json.find(R"("commands_full":5,"events_full":1,"events_full_s":1})"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_rings_full{ring=\"requests\"} 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\noffpath_ring_longest_full_seconds{ring=\"requests\"} 3\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_rings_full{ring=\"commands\"} 0\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_ring_longest_full_seconds{ring=\"commands\"} 0\n"), std::string::npos);
  EXPECT_NE(metrics.find("\noffpath_ring_longest_full_seconds{ring=\"events\"} 1\n"), std::string::npos);
}

TEST(StatusTest, PlugInsAreShown) {
  const std::string json = status_json(*some_status(), {}), metrics = metrics_text(*some_status(), {});
  EXPECT_NE(json.find(R"("functions":[{"name":"mean","doc":"The \"mean\"."}])"), std::string::npos) << json;
  EXPECT_NE(metrics.find("offpath_plugin_calls_total{plugin=\"particles\",result=\"crashed\"} 2\n"), std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("offpath_plugin_running_seconds_total{plugin=\"particles\"} 1.5\n"), std::string::npos);
  EXPECT_NE(metrics.find("offpath_plugin_usable{plugin=\"particles\"} 1\n"), std::string::npos);
}

// /proc is not used for this: it would also show a service manager's own filter.
TEST(StatusTest, TheSandboxIsToldAsTheAgentGotIt) {
  const auto told = [](std::optional<plugin::Sandbox> sandbox) {
    const auto status = some_status();
    status->sandbox = sandbox;
    const std::string json = status_json(*status, {}), metrics = metrics_text(*status, {});
    const std::string before = R"("sandbox":{"seccomp":")", name = "offpath_sandboxed ";
    const std::size_t from = json.find(before) + before.size(), at = metrics.find("\n" + name) + 1 + name.size();
    return json.substr(from, json.find('"', from) - from) + " " + metrics.substr(at, metrics.find('\n', at) - at);
  };
  EXPECT_EQ(told(plugin::Sandbox::on), "on 1");
  EXPECT_EQ(told(plugin::Sandbox::log), "log 0");
  EXPECT_EQ(told(plugin::Sandbox::off), "off 0");
  EXPECT_EQ(told(std::nullopt), "none 0");
}

TEST(StatusTest, JsonHasTheFigures) {
  const std::string json = status_json(*some_status(), {.cpu_s = 1.5, .resident_bytes = 4096});
  EXPECT_NE(json.find(R"("name":"node \"17\"")"), std::string::npos);
  EXPECT_NE(json.find(R"("hit_rate":0.75)"), std::string::npos);
  EXPECT_NE(json.find(R"("cpu_s":1.5)"), std::string::npos);
  EXPECT_NE(json.find(R"("program":"lmp\u000a")"), std::string::npos);
}

TEST(StatusTest, MetricsHaveTheFigures) {
  const std::string text = metrics_text(*some_status(), {.cpu_s = 1.5});
  EXPECT_NE(text.find("# TYPE offpath_buffers_total counter\n"), std::string::npos) << text;
  EXPECT_NE(text.find("offpath_buffers_total{cache=\"hit\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("offpath_channels{link=\"local\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("offpath_channels_asleep{link=\"local\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("offpath_channels{link=\"tcp\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find(R"(name="node \"17\"")"), std::string::npos);
}

TEST(StatusTest, FloodsAndLossesOfTheNetworkAreShown) {
  const auto status = some_status();
  TcpStatus& tcp = status->tcp.emplace();
  tcp.stack.out_of_order = 11;
  tcp.stack.duplicates = 12;
  tcp.stack.syns_dropped = 13;
  tcp.stack.cookies_out = 14;
  tcp.stack.cookies_in = 15;
  tcp.stack.resets_in = 16;
  tcp.stack.resets_out = 17;
  tcp.stack.challenges = 18;
  tcp.port = {.frames_in = 21, .bytes_in = 22, .frames_out = 23, .bytes_out = 24, .dropped_in = 25, .dropped_out = 26};
  Sampled& host = status->sampled.emplace_back();
  host.producer = "n1";
  host.requests.restarts = 31;
  const std::string json = status_json(*status, {}), metrics = metrics_text(*status, {});
  for (const char* each :
       {R"("out_of_order":11,"duplicates":12,"syns_dropped":13,"cookies_sent":14,"cookies_returned":15,)"
        R"("resets_in":16,"resets_out":17,"challenges":18,)",
        R"("port":{"frames_in":21,"frames_out":23,"bytes_in":22,"bytes_out":24,"dropped_in":25,"dropped_out":26})",
        R"("sampler_restarts":31)"})
    EXPECT_NE(json.find(each), std::string::npos) << each << " in " << json;
  for (const char* each :
       {"tcp_out_of_order_segments_total 11", "tcp_duplicate_segments_total 12", "tcp_syns_dropped_total 13",
        "tcp_syn_cookies_total{direction=\"out\"} 14", "tcp_syn_cookies_total{direction=\"in\"} 15",
        "tcp_resets_total{direction=\"in\"} 16", "tcp_resets_total{direction=\"out\"} 17",
        "tcp_challenge_acks_total 18", "tcp_device_frames_total{direction=\"in\"} 21",
        "tcp_device_bytes_total{direction=\"in\"} 22", "tcp_device_frames_total{direction=\"out\"} 23",
        "tcp_device_bytes_total{direction=\"out\"} 24", "tcp_device_drops_total{direction=\"in\"} 25",
        "tcp_device_drops_total{direction=\"out\"} 26", "sampler_restarts_total{host=\"n1\"} 31"})
    EXPECT_NE(metrics.find(std::string("\noffpath_") + each + "\n"), std::string::npos) << each << " in " << metrics;
}

TEST(StatusTest, TheKernelKnowsThisProcess) {
  const ProcessUsage usage = process_usage();
  EXPECT_GT(usage.resident_bytes, usage.own_resident_bytes);
  EXPECT_GT(usage.own_resident_bytes, 0u);
  EXPECT_GE(usage.threads, 1u);
}

TEST(StatusBoardTest, AsksOnceForAllWhoWait) {
  std::atomic<int> asked{0};
  StatusBoard board([&] { asked.fetch_add(1); });
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (auto status = board.get(); status && status->version == "1.2.3") answered.fetch_add(1);
    });
  }
  while (asked.load() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  board.publish(some_status(), monotonic_ns() + 3600 * second_ns);  // fresh for a thread that begins late, too
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered.load(), 4);
  EXPECT_EQ(asked.load(), 1);
}

TEST(StatusBoardTest, AStatusIsReusedWhileItIsFresh) {
  int asked = 0;
  StatusBoard board([&] { ++asked; });
  board.publish(some_status(), monotonic_ns() + 3600 * second_ns);  // however long it takes to get it
  EXPECT_NE(board.get(), nullptr);
  EXPECT_EQ(asked, 0);
}

TEST(StatusBoardTest, ClosingEndsEveryWait) {
  std::atomic<bool> asked{false};
  StatusBoard board([&] { asked.store(true); });
  std::shared_ptr<const AgentStatus> status;
  std::thread waiting([&] { status = board.get(); });
  while (!asked.load()) std::this_thread::yield();
  board.close();
  waiting.join();
  EXPECT_EQ(status, nullptr);
  EXPECT_EQ(board.get(), nullptr);
}

}  // namespace
}  // namespace offpath::agent
