#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "agent/status/figures.h"
#include "agent/status/figures_network.h"

namespace offpath::agent {
namespace {

struct Sample {
  std::uint64_t count = 7;
  TimeNs waited_ns = 1500 * millisecond_ns;
  bool on = true;
};
constexpr Figure<Sample> sample_rows[] = {
    {"count", value<&Sample::count>, "counts_total", "Counts.", "kind", "some"},
    {"waited_s", seconds<&Sample::waited_ns>},
    {"", value<&Sample::on>, "on", "1: it is."},
};

TEST(Figures, ARowIsShownInTheStatusAndAsAMetric) {
  Json json;
  json.begin_object();
  write_figures(json, sample_rows, Sample{});
  EXPECT_EQ(json.end_object().text(), R"({"count":7,"waited_s":1.5})");
  Families families;
  add_figures(families, sample_rows, Sample{}, {{"of", "x"}});
  EXPECT_EQ(families.text(),
            "# TYPE offpath_counts_total counter\n# HELP offpath_counts_total Counts.\n"
            "offpath_counts_total{of=\"x\",kind=\"some\"} 7\n"
            "# TYPE offpath_on gauge\n# HELP offpath_on 1: it is.\noffpath_on{of=\"x\"} 1\n");
}

// All tables: metrics by name, with their help and the labels from the rows.
struct Checked {
  std::map<std::string, std::string, std::less<>> help;
  std::set<std::pair<std::string, std::string>> series;

  template <class Of>
  void take(std::span<const Figure<Of>> rows) {
    std::set<std::string_view> keys;
    for (const Figure<Of>& row : rows) {
      EXPECT_FALSE(row.key.empty() && row.metric.empty()) << "a row that nothing shows";
      EXPECT_TRUE(row.key.empty() || keys.insert(row.key).second) << row.key;
      if (row.metric.empty()) continue;
      EXPECT_TRUE(row.help.ends_with(".")) << row.metric;
      EXPECT_EQ(help.emplace(row.metric, row.help).first->second, row.help) << row.metric;
      EXPECT_TRUE(series.emplace(row.metric, row.label_value).second) << row.metric << ' ' << row.label_value;
    }
  }
  template <class... Of, std::size_t... rows>
  void take_all(const Figure<Of> (&... tables)[rows]) {
    (take(std::span<const Figure<Of>>(tables)), ...);
  }
};

TEST(Figures, NoTwoRowsSayTheSame) {
  Checked checked;
  checked.take_all(process_figures, limit_figures, acceptor_figures, loop_figures, look_out_figures, job_figures,
                   memory_figures, cache_figures, buffer_figures, mover_figures, table_figures, disk_status_figures,
                   disk_figures, remote_figures, channel_figures, group_figures, reach_figures, card_figures,
                   query_figures, stage_figures, compute_figures, trigger_figures, task_figures, message_figures,
                   plugin_figures, plugin_call_figures, tcp_figures, stack_figures, port_figures, tcp_service_figures,
                   slow_path_figures, linked_figures, core_figures, exchange_figures, exchange_status_figures,
                   decision_figures, grant_figures, sample_figures, datagram_figures, host_figures);
  EXPECT_GT(checked.help.size(), 100u);
}

}  // namespace
}  // namespace offpath::agent
