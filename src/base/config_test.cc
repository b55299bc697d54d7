#include "base/config.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/fd.h"

namespace offpath {
namespace {

constexpr ConfigKey keys[] = {
    {"name", ConfigType::text, "agent", "What others call it."},
    {"listen", ConfigType::texts, "unix:/run/a,tcp:[::1]:7", "Where programs connect."},
    {"memory.frames_bytes_max", ConfigType::bytes, "4GiB", "Bound of all frames.", 4096},
    {"memory.hugepages", ConfigType::boolean, "true", "Use them where there are any."},
    {"loop.idle_after", ConfigType::duration, "50us", "Look less often.", 1'000, second_ns},
    {"loop.cores", ConfigType::integer, "1", "How many loops.", 1, 64},
    {"loop.share", ConfigType::real, "0.5", "Of a core."},
};

std::string error_of(std::string_view toml) {
  auto config = Config::parse(keys, toml, "agent.toml");
  if (config) return "parsed";
  EXPECT_EQ(config.error().code, Error::invalid);
  return config.error().message;
}

TEST(Config, DefaultsStandWhereNothingIsSaid) {
  Config config(keys);
  EXPECT_EQ(config.text("name"), "agent");
  EXPECT_EQ(config.texts("listen"), (std::vector<std::string>{"unix:/run/a", "tcp:[::1]:7"}));
  EXPECT_EQ(config.bytes("memory.frames_bytes_max"), 4ULL << 30);
  EXPECT_TRUE(config.boolean("memory.hugepages"));
  EXPECT_EQ(config.duration_ns("loop.idle_after"), 50'000);
  EXPECT_EQ(config.integer("loop.cores"), 1);
  EXPECT_EQ(config.real("loop.share"), 0.5);
  EXPECT_EQ(config.source("name"), "default");
}

TEST(Config, TomlReplacesDefaults) {
  auto config = Config::parse(keys, R"(
name = "dpu0"
listen = []
[memory]
frames_bytes_max = 65536
hugepages = false
[loop]
idle_after = "1 ms"
cores = 2
share = 1
)",
                              "agent.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->text("name"), "dpu0");
  EXPECT_TRUE(config->texts("listen").empty());
  EXPECT_EQ(config->bytes("memory.frames_bytes_max"), 65536u);
  EXPECT_FALSE(config->boolean("memory.hugepages"));
  EXPECT_EQ(config->duration_ns("loop.idle_after"), millisecond_ns);
  EXPECT_EQ(config->integer("loop.cores"), 2);
  EXPECT_EQ(config->real("loop.share"), 1.0);
  EXPECT_EQ(config->source("memory.hugepages"), "agent.toml:6");
  EXPECT_EQ(config->source("loop.cores"), "agent.toml:9");
}

TEST(Config, DottedKeysAreTables) {
  auto config = Config::parse(keys, "loop.cores = 3\n", "agent.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->integer("loop.cores"), 3);
}

TEST(Config, UnknownKeyNamesTheNearest) {
  EXPECT_EQ(error_of("\n[memory]\nframe_bytes_max = 1\n"),
            "agent.toml:3: unknown key 'memory.frame_bytes_max'; the nearest known key is 'memory.frames_bytes_max'");
  EXPECT_EQ(error_of("nmae = 'x'\n"), "agent.toml:1: unknown key 'nmae'; the nearest known key is 'name'");
  EXPECT_EQ(error_of("[looop]\n"), "agent.toml:1: unknown table 'looop'; the nearest known table is 'loop'");
  auto config = Config::parse({}, "a = 1", "agent.toml");
  EXPECT_EQ(config.error().message, "agent.toml:1: unknown key 'a'; there are none");
  EXPECT_EQ(error_of("loop.cores.more = 1\n"),
            "agent.toml:1: 'loop.cores' is an integer, such as 16, but a table stands there");
}

TEST(Config, WrongTypeNamesBothTypes) {
  EXPECT_EQ(error_of("name = 5"), "agent.toml:1: 'name' is text, such as \"words\", but an integer stands there");
  EXPECT_EQ(error_of("loop.idle_after = 250"),
            "agent.toml:1: 'loop.idle_after' is a duration, such as \"250us\", but an integer stands there");
  EXPECT_EQ(error_of("loop.cores = 1.5"),
            "agent.toml:1: 'loop.cores' is an integer, such as 16, but a real number stands there");
  EXPECT_EQ(error_of("memory.hugepages = 'yes'"),
            "agent.toml:1: 'memory.hugepages' is a boolean, true or false, but text stands there");
  EXPECT_EQ(error_of("listen = 'unix:/a'"),
            "agent.toml:1: 'listen' is a list of text, such as [\"one\", \"two\"], but text stands there");
  EXPECT_EQ(error_of("listen = ['unix:/a', 3]"),
            "agent.toml:1: 'listen': the list holds an integer where only text may stand");
  EXPECT_EQ(error_of("loop = 3"), "agent.toml:1: 'loop' is a table of keys, but an integer stands there");
  EXPECT_EQ(error_of("[[loop]]\ncores = 3"), "agent.toml:1: 'loop' is a table of keys, but a list stands there");
  EXPECT_EQ(error_of("loop.share = 1979-05-27"),
            "agent.toml:1: 'loop.share' is a real number, such as 0.5, but a date or time stands there");
}

TEST(Config, OutOfRangeNamesBothValues) {
  EXPECT_EQ(error_of("loop.cores = 65"), "agent.toml:1: 'loop.cores': 65 is larger than the maximum, 64");
  EXPECT_EQ(error_of("loop.cores = -1"), "agent.toml:1: 'loop.cores': -1 is smaller than the minimum, 1");
  EXPECT_EQ(error_of("loop.idle_after = '2s'"),
            "agent.toml:1: 'loop.idle_after': \"2s\" is larger than the maximum, \"1s\"");
  EXPECT_EQ(error_of("memory.frames_bytes_max = '1KiB'"),
            "agent.toml:1: 'memory.frames_bytes_max': \"1KiB\" is smaller than the minimum, \"4KiB\"");
}

TEST(Config, BadTomlSaysWhere) {
  EXPECT_TRUE(error_of("name = 'a'\nname = 'b'\n").starts_with("agent.toml:2: "))
      << error_of("name = 'a'\nname = 'b'\n");
  EXPECT_TRUE(error_of("name = \n").starts_with("agent.toml:1: "));
  EXPECT_TRUE(error_of("\xFF\xFE").starts_with("agent.toml:1: "));
  EXPECT_TRUE(error_of("name = " + std::string(10'000, '[')).starts_with("agent.toml:1: "));
}

TEST(Config, SetTakesTextOfTheCommandLine) {
  Config config(keys);
  ASSERT_TRUE(config.set("listen", "a,b,c"));
  EXPECT_EQ(config.texts("listen"), (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_TRUE(config.set("loop.cores", "7"));
  EXPECT_EQ(config.integer("loop.cores"), 7);
  ASSERT_TRUE(config.set("memory.hugepages", "false"));
  EXPECT_FALSE(config.boolean("memory.hugepages"));
  ASSERT_TRUE(config.set("loop.share", "2.5"));
  EXPECT_EQ(config.real("loop.share"), 2.5);
  ASSERT_TRUE(config.set("loop.idle_after", "3us", "--idle-after"));
  EXPECT_EQ(config.source("loop.idle_after"), "--idle-after");

  EXPECT_EQ(config.set("loop.cores", "7x").error().message,
            "command line: 'loop.cores': '7x' is not an integer, such as 16");
  EXPECT_EQ(config.set("memory.hugepages", "yes").error().message,
            "command line: 'memory.hugepages': 'yes' is not a boolean, true or false");
  EXPECT_EQ(config.set("loop.core", "7").error().message,
            "command line: unknown key 'loop.core'; the nearest known key is 'loop.cores'");
  EXPECT_EQ(config.set("core", "1").error().message,
            "command line: unknown key 'core'; the nearest known key is 'loop.cores'");
  EXPECT_EQ(config.set("foo", "1").error().message, "command line: unknown key 'foo', and no known key is like it");
  EXPECT_EQ(config.set("loop.cores", "100").error().message,
            "command line: 'loop.cores': 100 is larger than the maximum, 64");
  EXPECT_EQ(config.integer("loop.cores"), 7) << "a refused value changes nothing";
}

constexpr ConfigKey pet_keys[] = {
    {"pet.name", ConfigType::text, "", "What it is called."},
    {"pet.legs", ConfigType::integer, "4", "How many.", 0, 1000},
};
constexpr ConfigList some_lists[] = {{"pet", "an animal.", pet_keys}};

TEST(Config, TablesMayStandThereAnyNumberOfTimes) {
  const auto config =
      Config::parse(keys, "[[pet]]\nname = 'Rex'\n[[pet]]\nname = 'Ant'\nlegs = 6\n", "agent.toml", some_lists);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const std::vector<Config>& pets = config->list("pet");
  ASSERT_EQ(pets.size(), 2u);
  EXPECT_EQ(pets[0].text("pet.name"), "Rex");
  EXPECT_EQ(pets[0].integer("pet.legs"), 4);
  EXPECT_EQ(pets[0].source("pet.legs"), "agent.toml:1");
  EXPECT_EQ(pets[1].integer("pet.legs"), 6);
  EXPECT_EQ(pets[1].source("pet.legs"), "agent.toml:5");
  EXPECT_TRUE(Config(keys, some_lists).list("pet").empty());

  const auto again = Config::parse(keys, config->to_toml(), "printed", some_lists);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->list("pet")[1].integer("pet.legs"), 6);
  EXPECT_NE(config_reference(keys, some_lists).find("`[[pet]]`, any number of times: an animal.\n\n| key |"),
            std::string::npos);
}

TEST(Config, ErrorsInSuchTablesNameTheirKeys) {
  const auto error = [](std::string_view toml) {
    return Config::parse(keys, toml, "agent.toml", some_lists).error().message;
  };
  EXPECT_EQ(error("[[pet]]\nnmae = 'Rex'\n"),
            "agent.toml:2: unknown key 'pet.nmae'; the nearest known key is 'pet.name'");
  EXPECT_EQ(error("[[pte]]\nname = 'Rex'\n"), "agent.toml:1: unknown table 'pte'; the nearest known table is 'pet'");
  EXPECT_EQ(error("[pet]\nname = 'Rex'\n"),
            "agent.toml:1: 'pet' is written [[pet]], once for each, but a table stands there");
  EXPECT_EQ(error("[[pet]]\nlegs = 2000\n"), "agent.toml:2: 'pet.legs': 2000 is larger than the maximum, 1000");
}

TEST(Config, WhatItPrintsItReads) {
  Config config(keys);
  ASSERT_TRUE(config.set("name", "quote \" backslash \\ newline \n end"));
  ASSERT_TRUE(config.set("loop.idle_after", "1500us"));
  std::string printed = config.to_toml();
  EXPECT_NE(printed.find("# Bound of all frames.\nframes_bytes_max = \"4GiB\"\n"), std::string::npos) << printed;
  auto read = Config::parse(keys, printed, "printed");
  ASSERT_TRUE(read) << read.error().message << "\n" << printed;
  EXPECT_EQ(read->to_toml(), printed);
  EXPECT_EQ(read->text("name"), config.text("name"));
  EXPECT_EQ(read->duration_ns("loop.idle_after"), 1'500'000);
}

TEST(Config, ReferenceListsEveryKey) {
  std::string reference = config_reference(keys);
  for (const ConfigKey& key : keys) {
    EXPECT_NE(reference.find(fmt::format("| `{}` |", key.name)), std::string::npos);
    EXPECT_NE(reference.find(key.doc), std::string::npos);
  }
}

TEST(Config, LoadReadsAFileAndNamesIt) {
  std::string path = testing::TempDir() + "offpath_config_test.toml";
  std::string toml = "name = 'from a file'\nlisten = 3\n";
  {
    Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ASSERT_EQ(::write(file.get(), toml.data(), toml.size()), static_cast<ssize_t>(toml.size()));
  }
  auto config = Config::load(keys, path);
  ASSERT_FALSE(config);
  EXPECT_TRUE(config.error().message.starts_with(path + ":2: 'listen' is a list")) << config.error().message;
  ASSERT_EQ(::truncate(path.c_str(), 21), 0);
  config = Config::load(keys, path);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->text("name"), "from a file");
  ASSERT_EQ(::truncate(path.c_str(), 2 << 20), 0);
  EXPECT_EQ(Config::load(keys, path).error().code, Error::too_large);
  ::unlink(path.c_str());
  EXPECT_EQ(Config::load(keys, path).error().code, Error::not_found);
}

TEST(ConfigDeathTest, AskingForWhatIsNotDeclaredIsABug) {
  Config config(keys);
  EXPECT_DEATH((void)config.integer("name"), "assertion failed");
  EXPECT_DEATH((void)config.text("nmae"), "assertion failed");
}

TEST(ParseBytes, TakesBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("0").value(), 0);
  EXPECT_EQ(parse_bytes("123").value(), 123);
  EXPECT_EQ(parse_bytes("5B").value(), 5);
  EXPECT_EQ(parse_bytes("4KiB").value(), 4096);
  EXPECT_EQ(parse_bytes("4 GiB").value(), 4LL << 30);
  EXPECT_EQ(parse_bytes("3MB").value(), 3'000'000);
  EXPECT_EQ(parse_bytes("1TiB").value(), 1LL << 40);
  EXPECT_EQ(parse_bytes("4gib").error().message, "'4gib' has the unit 'gib'; units are B kB MB GB TB KiB MiB GiB TiB");
  EXPECT_EQ(parse_bytes("").error().message, "'' is not a number with a unit, such as 4GiB");
  EXPECT_EQ(parse_bytes("GiB").error().message, "'GiB' is not a number with a unit, such as 4GiB");
  EXPECT_EQ(parse_bytes("99999999TiB").error().message, "'99999999TiB' is too large");
  EXPECT_EQ(parse_bytes("99999999999999999999").error().code, Error::invalid);
  EXPECT_FALSE(parse_bytes("1.5GiB"));
}

TEST(ParseDuration, NeedsAUnit) {
  EXPECT_EQ(parse_duration_ns("250us").value(), 250'000);
  EXPECT_EQ(parse_duration_ns("2 min").value(), 120 * second_ns);
  EXPECT_EQ(parse_duration_ns("1h").value(), 3600 * second_ns);
  EXPECT_EQ(parse_duration_ns("7ns").value(), 7);
  EXPECT_EQ(parse_duration_ns("250").error().message, "'250' has the unit ''; units are ns us ms s min h");
  EXPECT_FALSE(parse_duration_ns("9999999999h"));
}

TEST(Format, UsesTheLargestUnitThatDivides) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(4LL << 30), "4GiB");
  EXPECT_EQ(format_bytes(1536), "1536B");
  EXPECT_EQ(format_bytes(1'000'000), "1MB");
  EXPECT_EQ(format_duration(1'500'000), "1500us");
  EXPECT_EQ(format_duration(60 * second_ns), "1min");
  for (std::int64_t value : {1LL, 1000LL, 1024LL, 123456789LL, 86'400'000'000'000LL}) {
    EXPECT_EQ(parse_bytes(format_bytes(value)).value(), value);
    EXPECT_EQ(parse_duration_ns(format_duration(value)).value(), value);
  }
}

}  // namespace
}  // namespace offpath
