#include "agent/status/joined_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "agent/status/json_tree.h"

namespace offpath::agent {
namespace {

TEST(JsonTree, WritesWhatItHasRead) {
  for (const char* text : {"{}", "[]", "null", "-1.5e3", "\"a \\\"b\\\\\"", "[1,true,{\"a\":[],\"b\":\"]}\"}]"}) {
    const auto tree = JsonTree::parse(text);
    ASSERT_TRUE(tree) << text;
    EXPECT_EQ(tree->written(), text);
  }
  EXPECT_EQ(JsonTree::parse(" { \"a\" : [ 1 , 2 ] }\n")->written(), "{\"a\":[1,2]}");
}

TEST(JsonTree, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1", "[1,]", "{\"a\"}", "{\"a\":}", "\"open", "\"open\\", "nul", "1 2", "{1:2}"})
    EXPECT_FALSE(JsonTree::parse(text)) << text;
  EXPECT_FALSE(JsonTree::parse(std::string(10'000, '['))) << "the stack is finite";
}

TEST(JoinedPages, CountsAreAddedAndListsFollowEachOther) {
  const std::vector<CorePage> cores{
      {"a", R"({"name":"a","pid":7,"uptime_s":2.5,"addresses":["unix:/a"],"mover":{"bytes":10,"operations":1},)"
            R"("loop":{"longest_round_s":0.5},"channels":[{"number":1}],)"
            R"("pools":[{"name":"local:/p","user":5,"frames":2,"rows":null,"members":2}],)"
            R"("latency":{"get":{"count":2,"p99_s":0.1,"buckets":[{"from_s":0.5,"count":2}]}},)"
            R"("members":[{"name":"a"},{"name":"a+1"},{"name":"b"}]})"},
      {"a+1",
       R"({"name":"a+1","pid":8,"uptime_s":3,"addresses":["unix:/a"],"mover":{"bytes":32,"operations":2},)"
       R"("loop":{"longest_round_s":0.25},"channels":[{"number":1}],)"
       R"("pools":[{"name":"local:/p","user":5,"frames":3,"rows":4,"members":2},{"name":"local:/q","frames":1}],)"
       R"("latency":{"get":{"count":3,"p99_s":0.2,"buckets":[{"from_s":0,"count":1},{"from_s":0.5,"count":2}]}},)"
       R"("members":[{"name":"a+1"},{"name":"a"},{"name":"b"}]})"},
      {"a+2", std::nullopt}};
  EXPECT_EQ(joined_status(cores),
            R"({"name":"a","pid":7,"uptime_s":3,"addresses":["unix:/a"],"mover":{"bytes":42,"operations":3},)"
            R"("loop":{"longest_round_s":0.5},"channels":[{"number":1,"core":0},{"number":1,"core":1}],)"
            R"("pools":[{"name":"local:/p","user":5,"frames":5,"rows":4,"members":2},{"name":"local:/q","frames":1}],)"
            R"("latency":{"get":{"count":5,"p99_s":0.2,"buckets":[{"from_s":0,"count":1},{"from_s":0.5,"count":4}]}},)"
            R"("members":[{"name":"a"},{"name":"b"}],)"
            R"("cores":[{"core":0,"name":"a","answers":true,"pid":7,"channels":1},)"
            R"({"core":1,"name":"a+1","answers":true,"pid":8,"channels":1},{"core":2,"name":"a+2","answers":false}]})"
            "\n");
}

TEST(JoinedPages, ACoreThatDoesNotAnswerLeavesTheOthers) {
  const std::vector<CorePage> cores{{"a", std::nullopt}, {"a+1", R"({"name":"a+1","pid":8})"}};
  EXPECT_EQ(joined_status(cores), R"({"name":"a","pid":8,"cores":[{"core":0,"name":"a","answers":false},)"
                                  R"({"core":1,"name":"a+1","answers":true,"pid":8}]})"
                                  "\n");
}

TEST(JoinedPages, SamplesSayTheirCoreAndFamiliesStayTogether) {
  const std::vector<CorePage> cores{
      {"a",
       "# HELP x_total Things.\n# TYPE x_total counter\nx_total 1\n# HELP y Y.\n# TYPE y gauge\n"
       "y{pool=\"p q\"} 2 # {ticket=\"3\"} 4\n# EOF\n"},
      {"a+1", "# HELP x_total Things.\n# TYPE x_total counter\nx_total 5\n# HELP z Z.\n# TYPE z gauge\nz 6\n# EOF\n"}};
  EXPECT_EQ(joined_metrics(cores),
            "# HELP x_total Things.\n# TYPE x_total counter\nx_total{core=\"0\"} 1\nx_total{core=\"1\"} 5\n"
            "# HELP y Y.\n# TYPE y gauge\ny{core=\"0\",pool=\"p q\"} 2 # {ticket=\"3\"} 4\n"
            "# HELP z Z.\n# TYPE z gauge\nz{core=\"1\"} 6\n# EOF\n");
}

TEST(JoinedPages, ListsAreOneList) {
  const std::vector<CorePage> cores{
      {"a", "[{\"name\":\"s\"}]\n"}, {"a+1", "[]\n"}, {"a+2", "[1]"}, {"a+3", std::nullopt}};
  EXPECT_EQ(joined_list(cores), "[{\"name\":\"s\"},1]\n");
}

}  // namespace
}  // namespace offpath::agent
