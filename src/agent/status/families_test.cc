#include "agent/status/families.h"

#include <gtest/gtest.h>

#include <limits>

#include "agent/status/status.h"

namespace offpath::agent {
namespace {

TEST(Families, AreWrittenAsOpenMetrics) {
  Families families;
  families.add("moved_bytes_total", "Bytes\n\"moved\".", 5, {{"link", "a\\b\"c\""}});
  families.add("moved_bytes_total", "Bytes \"moved\".", 6, {{"link", "d"}});
  families.add("channels", "Channels.", 2);
  EXPECT_EQ(families.openmetrics(),
            "# TYPE offpath_moved_bytes counter\n# UNIT offpath_moved_bytes bytes\n# HELP offpath_moved_bytes Bytes"
            "\\n\\\"moved\\\".\n"
            "offpath_moved_bytes_total{link=\"a\\\\b\\\"c\\\"\"} 5\noffpath_moved_bytes_total{link=\"d\"} 6\n"
            "# TYPE offpath_channels gauge\n# HELP offpath_channels Channels.\noffpath_channels 2\n# EOF\n");
}

TEST(Families, AreWrittenInTheTextFormat) {
  Families families;
  families.add("moved_bytes_total", "Bytes\n\"moved\" \\ copied.", 5, {{"link", "a\\b\"c\""}, {"way", "in"}});
  families.add("channels", "Channels.", 0.25);
  LatencyHistogram histogram;
  histogram.add(never / 2, 3, 77);
  families.add_histogram("get_latency_seconds", "Gets.", histogram);
  const std::string text = families.text();
  EXPECT_TRUE(text.starts_with(
      "# TYPE offpath_moved_bytes_total counter\n# HELP offpath_moved_bytes_total Bytes\\n\"moved\" \\\\ copied.\n"
      "offpath_moved_bytes_total{link=\"a\\\\b\\\"c\\\"\",way=\"in\"} 5\n"
      "# TYPE offpath_channels gauge\n# HELP offpath_channels Channels.\noffpath_channels 0.25\n"
      "# TYPE offpath_get_latency_seconds histogram\n# HELP offpath_get_latency_seconds Gets.\n"
      "offpath_get_latency_seconds_bucket{le=\"1e-06\"} 0\n"))
      << text;
  EXPECT_NE(text.find("_bucket{le=\"+Inf\"} 1\noffpath_get_latency_seconds_count 1\noffpath_get_latency_seconds_sum "),
            std::string::npos)
      << text;
}

TEST(Families, HistogramsNameTheNewestTicketOfEachBucket) {
  LatencyHistogram histogram;
  histogram.add(1200, 3, 77);
  histogram.add(900);
  histogram.add(never / 2);
  Families families;
  families.add_histogram("get_latency_seconds", "Gets.", histogram);
  const std::string open = families.openmetrics();
  EXPECT_TRUE(
      open.starts_with("# TYPE offpath_get_latency_seconds histogram\n# UNIT offpath_get_latency_seconds "
                       "seconds\n# HELP offpath_get_latency_seconds Gets.\n"
                       "offpath_get_latency_seconds_bucket{le=\"1e-06\"} 1\n"
                       "offpath_get_latency_seconds_bucket{le=\"1.5e-06\"} 2 # {channel=\"3\",ticket=\"77\"} "
                       "1.2e-06\n"))
      << open;
  EXPECT_NE(open.find("_bucket{le=\"+Inf\"} 3\noffpath_get_latency_seconds_count 3\noffpath_get_latency_seconds_sum "),
            std::string::npos)
      << open;
  const std::string text = families.text();
  EXPECT_NE(text.find("# TYPE offpath_get_latency_seconds histogram\n"), std::string::npos) << text;
  EXPECT_NE(text.find("offpath_get_latency_seconds_bucket{le=\"+Inf\"} 3\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("ticket"), std::string::npos) << "the text format has no exemplars";
}

TEST(Families, NamesOfOthersBecomeNamesOfMetrics) {
  Families families;
  const auto add = [&](std::string_view field, std::string_view unit, bool counter, double value = 1) {
    families.named({"host", field, unit, "Help.", counter}, value, {{"host", "n1"}});
  };
  add("cpu_seconds{mode=\"user\"}", "seconds", true);
  add("temperature{of=\"a\\\"b\"}", "celsius", false);
  add("jobs_total", "", true);
  add("strange name-1{x}", "", false, std::numeric_limits<double>::infinity());
  const std::string text = families.openmetrics();
  EXPECT_NE(text.find("\noffpath_host_cpu_seconds_total{host=\"n1\",mode=\"user\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# UNIT offpath_host_temperature_celsius celsius\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\noffpath_host_temperature_celsius{host=\"n1\",of=\"a\\\"b\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\noffpath_host_jobs_total{host=\"n1\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\noffpath_host_strange_name_1_x_{host=\"n1\"} +Inf\n"), std::string::npos) << text;
}

TEST(Families, WhatWouldContradictIsLeftOut) {
  Families families;
  families.named({"host", "a", "", "", false}, 1, {{"host", "n1"}});
  families.named({"host", "a", "", "", false}, 2, {{"host", "n1"}});  // a duplicate
  families.named({"host", "a", "", "", false}, 3, {{"host", "n2"}});
  families.named({"host", "a{host=\"forged\"}", "", "", false}, 4, {{"host", "n3"}});
  families.named({"host", "a", "", "", true}, 5, {{"host", "n4"}});  // OpenMetrics has one name for both
  const std::string text = families.text();
  EXPECT_EQ(text.find("offpath_host_a_total"), std::string::npos) << text;
  EXPECT_EQ(text.find("} 2\n"), std::string::npos);
  EXPECT_NE(text.find("offpath_host_a{host=\"n2\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("offpath_host_a{host=\"n3\"} 4\n"), std::string::npos) << text;
}

// Readers refuse a whole page with invalid UTF-8.
TEST(Families, LabelsOfOthersAreText) {
  Families families;
  families.add("a", "Help.", 1, {{"job", "\xff"}});
  families.named({"host", "b", "", "", false}, 1, {{"step", "1\xc3"}});
  const std::string text = families.text();
  EXPECT_EQ(text.find_first_of("\xff\xc3"), std::string::npos) << text;
  EXPECT_NE(text.find("offpath_host_b{step=\"1"), std::string::npos) << text;
}

TEST(Families, WhatBelongsToAJobSaysSo) {
  AgentStatus status;
  Sampled gauges;
  gauges.way = Sampled::Way::gauges;
  gauges.producer = "solver";
  gauges.where = "md, channel 3";
  gauges.job_labels = {"17", "0", "/slurm/job_17/step_0"};
  gauges.schema = {"", {{"residual", exchange::FieldType::f64, exchange::FieldKind::gauge, "", ""}}};
  gauges.sample.values.reset(1);
  gauges.sample.values.set(0, 0.5);
  gauges.fresh = true;
  status.sampled.push_back(gauges);
  for (const char* step : {"0", "0", "1", ""}) {
    Dispatcher::ChannelStatus& channel = status.channels.emplace_back();
    channel.client.program = "md";
    channel.client.job_labels.job = "17";
    channel.client.job_labels.step = step;
    channel.counters.bytes_pulled = 4096;
  }
  status.channels.emplace_back().client.program = "of no job";
  const std::string text = openmetrics_text(status, {});
  const std::string of_solver =
      "host=\"solver\",program=\"md, channel 3\",job=\"17\",step=\"0\",cgroup=\"/slurm/job_17/step_0\"";
  EXPECT_NE(text.find("offpath_program_residual{" + of_solver + "} 0.5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("offpath_job_programs{job=\"17\",step=\"0\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("offpath_job_pulled_bytes{job=\"17\",step=\"0\"} 8192\n"), std::string::npos);
  EXPECT_NE(text.find("offpath_job_programs{job=\"17\"} 1\n"), std::string::npos);
  EXPECT_NE(status_json(status, {}).find(R"("job":"17","step":"0","cgroup":"/slurm/job_17/step_0")"),
            std::string::npos);
}

TEST(Families, ASilentHostHasNoValues) {
  AgentStatus status;
  Sampled sampled;
  sampled.producer = "n1";
  sampled.schema = {"host",
                    {{"load1", exchange::FieldType::f64, exchange::FieldKind::gauge, "", "Load."},
                     {"forks", exchange::FieldType::u64, exchange::FieldKind::counter, "", ""}}};
  sampled.sample.values.reset(2);
  sampled.sample.values.set(0, 0.5);
  sampled.fresh = true;
  status.sampled.push_back(sampled);
  std::string text = openmetrics_text(status, {});
  EXPECT_NE(text.find("# HELP offpath_host_load1 Load.\noffpath_host_load1{host=\"n1\"} 0.5\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("offpath_host_forks"), std::string::npos) << "a missing value is not 0";
  EXPECT_NE(status_json(status, {}).find(R"({"name":"forks","kind":"counter","unit":"","type":"u64","value":null})"),
            std::string::npos);
  status.sampled[0].fresh = false;
  text = openmetrics_text(status, {});
  EXPECT_EQ(text.find("offpath_host_load1"), std::string::npos);
  EXPECT_NE(text.find("offpath_sample_fresh{host=\"n1\"} 0\n"), std::string::npos);
}

}  // namespace
}  // namespace offpath::agent
