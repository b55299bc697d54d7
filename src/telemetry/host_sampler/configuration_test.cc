#include "telemetry/host_sampler/configuration.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace offpath::exchange {
namespace {

struct Read {
  explicit Read(std::string toml) : text(std::move(toml)), configuration(std::make_unique<ofs_configuration>()) {
    good = ofs_read_configuration(configuration.get(), text.data());
  }
  std::string text;
  std::unique_ptr<ofs_configuration> configuration;
  bool good;
};

TEST(SamplerConfiguration, ReadsWhatTheAgentReadsToo) {
  const Read read(R"(# a host
[sampler]
listen = "0.0.0.0:7480"   # all of them
key_file = '/etc/offpath/sampler.key'

[[source]]
set = "cpu"
[[source]]
file = "/sys/class/hwmon/*/temp1_input"
fields = ["temperature"]
type = "f64"
scale = 0.001
unit = "celsius"
description = "With \"quotes\"."
[[source]]
command = [ "nvidia-smi", "--query" ]
interval = "2s"
time_limit = "250ms"
pattern = '\{{}'
fields = "power"
)");
  ASSERT_TRUE(read.good) << read.configuration->why;
  EXPECT_STREQ(read.configuration->listen, "0.0.0.0:7480");
  ASSERT_EQ(read.configuration->source_count, 3u);
  const ofs_source_options* sources = read.configuration->sources;
  EXPECT_STREQ(sources[0].set, "cpu");
  EXPECT_STREQ(sources[1].fields[0], "temperature");
  EXPECT_EQ(sources[1].scale, 0.001);
  EXPECT_STREQ(sources[1].description, "With \"quotes\".");
  EXPECT_STREQ(sources[2].command[1], "--query");
  EXPECT_EQ(sources[2].command[2], nullptr);
  EXPECT_EQ(sources[2].interval_ns, 2'000'000'000);
  EXPECT_EQ(sources[2].time_limit_ns, 250'000'000);
  EXPECT_STREQ(sources[2].pattern, "\\{{}");
  EXPECT_EQ(read.configuration->source_lines[1], 8u);
}

TEST(SamplerConfiguration, WhatIsWrongIsSaidWithItsLine) {
  for (const auto& [toml, why] : std::vector<std::pair<std::string, std::string>>{
           {"[sampler]\nlisten 5\n", "line 2: key = value is expected"},
           {"[sampler]\nlissen = \"x\"\n", "line 2: [sampler] has"},
           {"\n\n[[sauce]]\n", "line 3: the tables are"},
           {"[[source]]\nset = cpu\n", "line 2: a text in quotes"},
           {"[[source]]\nset = \"cpu\n", "line 2: a text has no end"},
           {"[[source]]\nset = \"cpu\" x\n", "line 2: there is text after"},
           {"[[source]]\ninterval = \"5\"\n", "line 2: this is not a duration"},
           {"[[source]]\nscale = -1\n", "line 2: a scale has to be more than 0"},
           {"[[source]]\nfields = []\n", "line 2: this list is empty"},
           {"set = \"cpu\"\n", "line 1: this key is in no table"}}) {
    const Read read(toml);
    EXPECT_FALSE(read.good) << toml;
    EXPECT_NE(std::string(read.configuration->why).find(why), std::string::npos) << read.configuration->why;
  }
}

TEST(SamplerConfiguration, WhateverWasCutOffIsReadOrRefused) {
  const std::string whole =
      "[sampler]\nlisten = \"a:1\"\n[[source]]\nfields = [\"a\", 'b']\nscale = 1.5e3\ninterval = \"5ms\"";
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    const Read read(whole.substr(0, length));
    EXPECT_EQ(read.good, read.configuration->why[0] == '\0') << length;
  }
}

}  // namespace
}  // namespace offpath::exchange
