#include "telemetry/host_sampler/sources.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/fd.h"
#include "telemetry/schema.h"
#include "testing/telemetry/host.h"

namespace offpath::exchange {
namespace {

std::optional<std::uint64_t> read(const std::string& text, ofs_type type, std::uint64_t factor = 1, double scale = 1) {
  std::uint64_t bits = 0;
  if (ofs_read_number(text.data(), text.data() + text.size(), type, factor, scale, &bits) == nullptr)
    return std::nullopt;
  return bits;
}

TEST(SamplerNumber, ReadsWhatFilesOfTheKernelHave) {
  EXPECT_EQ(read("18446744073709551615", OFS_U64), ~0ull);
  EXPECT_EQ(read("18446744073709551616", OFS_U64), std::nullopt);
  EXPECT_EQ(read("4611686018427387904", OFS_U64, 4), std::nullopt) << "times 4 it does not fit";
  EXPECT_EQ(read("12 kB", OFS_U64, 1024), 12u * 1024);
  EXPECT_EQ(read("12kB", OFS_U64), 12u);
  EXPECT_EQ(read("-5", OFS_I64), static_cast<std::uint64_t>(-5));
  EXPECT_EQ(read("-9223372036854775808", OFS_I64), 1ull << 63);
  EXPECT_EQ(read("-9223372036854775809", OFS_I64), std::nullopt);
  for (const char* none : {"", "-", "x", "N/A", "12abc", "1.5", "-1", "nan", "inf", " 1"})
    EXPECT_EQ(read(none, OFS_U64), std::nullopt) << none;
}

TEST(SamplerNumber, ReadsRealsAsTheLibraryDoes) {
  for (const char* text : {"0", "0.5", ".25", "3.", "1e3", "1.5E-3", "-2.75", "123456789012345678901234",
                           "0.000000000000000000001", "99.99", "1e300"}) {
    const auto bits = read(text, OFS_F64);
    ASSERT_TRUE(bits) << text;
    EXPECT_NEAR(std::bit_cast<double>(*bits), std::stod(text), std::abs(std::stod(text)) * 1e-15) << text;
  }
  EXPECT_EQ(std::bit_cast<double>(*read("150", OFS_F64, 1, 0.01)), 1.5);
  for (const char* none : {".", "-", "1e999", "e5", "--1"}) EXPECT_EQ(read(none, OFS_F64), std::nullopt) << none;
}

std::string matched(const char* pattern, const std::string& line, bool anywhere = false) {
  ofs_capture captures[OFS_CAPTURES_MAX];
  std::uint64_t bits[OFS_CAPTURES_MAX] = {};
  bool present[OFS_CAPTURES_MAX] = {};
  for (ofs_capture& each : captures) each = {OFS_U64, 1, 1};
  const auto match = anywhere ? ofs_search : ofs_match;
  if (!match(pattern, line.data(), line.data() + line.size(), captures, bits, present)) return "no";
  std::string text = "yes";
  for (int i = 0; i < ofs_pattern_captures(pattern); ++i) text += present[i] ? fmt::format(" {}", bits[i]) : " -";
  return text;
}

TEST(SamplerPattern, TakesNumbersOfALine) {
  EXPECT_EQ(matched("MemFree: {}", "MemFree:       1234 kB"), "yes 1234");
  EXPECT_EQ(matched("MemFree: {}", "MemFreedom:    1234 kB"), "no");
  EXPECT_EQ(matched("cpu {} {}", "cpu  10 20 30"), "yes 10 20");
  EXPECT_EQ(matched("cpu {} {}", "cpu0 10 20 30"), "no");
  EXPECT_EQ(matched(" eth0: {} * {}", "  eth0: 1 2 3"), "yes 1 3");
  EXPECT_EQ(matched("*: {}", "lo: 5"), "yes 5");
  EXPECT_EQ(matched("a {} b", "a none b"), "yes -")
      << "a word instead of a number: the value is missing, the line is known";
  EXPECT_EQ(matched("a {} b", "a 1"), "no");
  EXPECT_EQ(matched("\\{{}\\}", "{7}"), "yes 7");
  EXPECT_EQ(matched("took {}ms", "2026-11-22 job 17 took 93ms", true), "yes 93");
  EXPECT_EQ(matched("took {}ms", "nothing took long", true), "no");
  for (const char* none : {"{", "}", "{name}", "a\\"}) EXPECT_EQ(ofs_pattern_captures(none), -1) << none;
}

constexpr const char* stat_text =
    "cpu  100 2 30 4000 5 6 7 8 9 10\ncpu0 60 1 10 2000 5 6 7 8 0 0\ncpu1 40 1 20 2000 0 0 0 0 0 0\n"
    "intr 123 4 5\nctxt 98765\nbtime 1700000000\nprocesses 4321\nprocs_running 3\nprocs_blocked 1\n";

TEST(SamplerSources, ReadySetsKnowTheUsual) {
  const TestDirectory directory;
  directory.write("/proc/stat", stat_text);
  directory.write("/proc/meminfo",
                  "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 500 kB\nBuffers: 0 kB\nCached: 7 kB\n");
  directory.write("/proc/loadavg", "0.50 0.25 0.10 2/345 6789\n");
  for (const char* cpu : {"cpu0", "cpu1", "cpu10"})
    directory.write(fmt::format("/sys/devices/system/cpu/{}/topology/core_id", cpu), "0\n");
  directory.write("/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "1000\n");
  directory.write("/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "3\n");
  directory.write("/sys/class/net/eth0/mtu", "1500\n");
  directory.write("/proc/net/dev",
                  "Inter-|   Receive\n face |bytes\n  eth0: 11 12 13 14 15 16 17 18 21 22 23 24 25 26 27 28\n");
  TestSources sources(directory.path());
  for (const char* set : {"cpu", "cpus", "memory", "load", "infiniband", "network"})
    ASSERT_TRUE(ofs_add_set(&sources.all, set)) << sources.all.why;
  ofs_sources_read(&sources.all, 0);
  EXPECT_EQ(sources.f64("cpu_seconds{mode=\"idle\"}"), 40.0);
  EXPECT_EQ(sources.f64("cpu_seconds{cpu=\"1\",mode=\"system\"}"), 0.2);
  EXPECT_FALSE(sources.has("cpu_seconds{cpu=\"10\",mode=\"system\"}")) << "a core that is offline";
  EXPECT_EQ(sources.u64("context_switches"), 98765u);
  EXPECT_EQ(sources.u64("tasks_running"), 3u);
  EXPECT_EQ(sources.u64("memory_available_bytes"), 500u * 1024);
  EXPECT_FALSE(sources.has("swap_free_bytes"));
  EXPECT_EQ(sources.f64("load5"), 0.25);
  EXPECT_EQ(sources.u64("infiniband_received_bytes{device=\"mlx5_0\",port=\"1\"}"), 4000u) << "a word has four bytes";
  EXPECT_EQ(sources.u64("network_sent_bytes{device=\"eth0\"}"), 21u);
  EXPECT_EQ(sources.u64("network_received_drops{device=\"eth0\"}"), 14u);
  EXPECT_FALSE(ofs_add_set(&sources.all, "cpuu"));
  EXPECT_NE(std::string(sources.all.why).find("'cpuu'"), std::string::npos) << sources.all.why;
}

TEST(SamplerSources, EnergyGoesOnWhereItsCounterBeginsAnew) {
  const TestDirectory directory;
  const std::string zone = "/sys/class/powercap/intel-rapl:0", part = "/sys/class/powercap/intel-rapl:0:1";
  const auto counts = [&](const std::string& of, const char* uj) { directory.write(of + "/energy_uj", uj); };
  for (const auto& [of, name] : {std::pair(zone, "package-0\n"), std::pair(part, "dram\n")}) {
    directory.write(of + "/name", name);
    directory.write(of + "/max_energy_range_uj", "1000000000\n");
    counts(of, "999000000\n");
  }
  directory.write("/sys/class/powercap/intel-rapl/enabled", "1\n");
  TestSources sources(directory.path());
  ASSERT_TRUE(ofs_add_set(&sources.all, "power")) << sources.all.why;
  ASSERT_EQ(sources.all.field_count, 2u) << "one of each zone";
  const char* const joules = "energy_joules{zone=\"intel-rapl:0\",name=\"package-0\"}";
  ofs_sources_read(&sources.all, 0);
  EXPECT_DOUBLE_EQ(sources.f64(joules), 999.0);
  counts(zone, "2000000\n");
  counts(part, "999500000\n");
  ofs_sources_read(&sources.all, 1);
  EXPECT_DOUBLE_EQ(sources.f64(joules), 1002.0);
  EXPECT_DOUBLE_EQ(sources.f64("energy_joules{zone=\"intel-rapl:0:1\",name=\"dram\"}"), 999.5);
  counts(zone, "not now\n");
  ofs_sources_read(&sources.all, 2);
  EXPECT_FALSE(sources.has(joules));
  counts(zone, "1000000\n");
  ofs_sources_read(&sources.all, 3);
  EXPECT_DOUBLE_EQ(sources.f64(joules), 2001.0) << "the second time that it begins anew";
  counts(zone, "1000000\n");
  ofs_sources_read(&sources.all, 4);
  EXPECT_DOUBLE_EQ(sources.f64(joules), 2001.0);
}

TEST(SamplerSources, SensorsOfAllChipsHaveTheirLabels) {
  const TestDirectory directory;
  const auto write = [&](const char* chip, const char* file, const char* text) {
    directory.write(fmt::format("/sys/class/hwmon/{}/{}", chip, file), text);
  };
  for (const char* chip : {"hwmon0", "hwmon1"}) {
    write(chip, "name", "coretemp\n");
    write(chip, "temp1_input", "41500\n");
    write(chip, "temp1_label", "Package \"0\"\n");
    write(chip, "temp1_max", "100000\n");
  }
  write("hwmon1", "temp2_input", "-3000\n");
  write("hwmon1", "temp2_label", "Core\x7f\n");  // a control character, which schemas refuse
  write("hwmon2", "name", "acpitz\n");
  write("hwmon2", "fan1_input", "1200\n");
  write("hwmon2", "in0_input", "12100\n");
  write("hwmon2", "curr1_input", "1500\n");
  write("hwmon2", "energy1_input", "5000000\n");
  write("hwmon2", "power1_average", "250500000\n");
  write("hwmon2", "power1_input", "251000000\n");
  TestSources sources(directory.path());
  ASSERT_TRUE(ofs_add_set(&sources.all, "sensors")) << sources.all.why;
  ofs_sources_read(&sources.all, 0);
  const auto of = [&](const char* name, const char* chip, const char* device, int sensor, const char* label = "") {
    return sources.f64(
        fmt::format("{}{{chip=\"{}\",device=\"{}\",sensor=\"{}\",label=\"{}\"}}", name, chip, device, sensor, label));
  };
  EXPECT_DOUBLE_EQ(of("temperature_celsius", "coretemp", "hwmon0", 1, "Package _0_"), 41.5);
  EXPECT_DOUBLE_EQ(of("temperature_celsius", "coretemp", "hwmon1", 1, "Package _0_"), 41.5);
  EXPECT_DOUBLE_EQ(of("temperature_celsius", "coretemp", "hwmon1", 2, "Core_"), -3.0);
  EXPECT_DOUBLE_EQ(of("fan_rpm", "acpitz", "hwmon2", 1), 1200.0);
  EXPECT_DOUBLE_EQ(of("voltage_volts", "acpitz", "hwmon2", 0), 12.1);
  EXPECT_DOUBLE_EQ(of("current_amperes", "acpitz", "hwmon2", 1), 1.5);
  EXPECT_DOUBLE_EQ(of("sensor_energy_joules", "acpitz", "hwmon2", 1), 5.0);
  EXPECT_DOUBLE_EQ(of("power_watts", "acpitz", "hwmon2", 1), 251.0);
  EXPECT_DOUBLE_EQ(of("power_mean_watts", "acpitz", "hwmon2", 1), 250.5);
  EXPECT_EQ(sources.all.field_count, 9u);
}

TEST(SamplerSources, ItsSchemaIsOneThatAgentsRead) {
  const TestDirectory directory;
  TestSources sources(directory.path());
  ASSERT_TRUE(ofs_add_set(&sources.all, "cpu"));
  ASSERT_TRUE(ofs_add_set(&sources.all, "load"));
  std::vector<std::uint8_t> bytes(65536);
  const std::size_t length = ofs_sources_schema(&sources.all, "host", bytes.data(), bytes.size());
  const auto schema = decode_schema(std::as_bytes(std::span(bytes)).first(length));
  ASSERT_TRUE(schema) << schema.error().message;
  EXPECT_EQ(schema->id(), ofs_schema_id(bytes.data(), length));
  EXPECT_EQ(schema->fields[0].unit, "seconds");
  EXPECT_EQ(schema->fields[0].kind, FieldKind::counter);
  EXPECT_EQ(schema->fields[0].type, FieldType::f64);
  EXPECT_EQ(ofs_sources_schema(&sources.all, "host", bytes.data(), length - 1), 0u);
}

ofs_source_options file_source(const char* path, const char* field) {
  ofs_source_options options{};
  options.file = path;
  options.fields[0] = field;
  return options;
}

TEST(SamplerSources, AFieldThatStopsBeingANumberIsMissingUntilItIsOneAgain) {
  const TestDirectory directory;
  directory.write("/temperature", "41\n");
  TestSources sources(directory.path());
  const auto options = file_source("/temperature", "temperature");
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  ofs_sources_read(&sources.all, 0);
  EXPECT_EQ(sources.u64("temperature"), 41u);
  directory.write("/temperature", "N/A\n");
  ofs_sources_read(&sources.all, 1);
  EXPECT_FALSE(sources.has("temperature"));
  directory.write("/temperature", "0\n");
  ofs_sources_read(&sources.all, 2);
  EXPECT_EQ(sources.u64("temperature"), 0u);
}

TEST(SamplerSources, AnUnreadableFileIsMissingAndTriedAgainAfterASecond) {
  const TestDirectory directory;
  TestSources sources(directory.path());
  const auto options = file_source("/late", "late");
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options)) << "a file that is not there yet is no mistake";
  ofs_sources_read(&sources.all, 0);
  EXPECT_FALSE(sources.has("late"));
  EXPECT_EQ(sources.all.sources[0].error, ENOENT);
  directory.write("/late", "5\n");
  ofs_sources_read(&sources.all, second_ns / 2);
  EXPECT_FALSE(sources.has("late"));
  ofs_sources_read(&sources.all, second_ns);
  EXPECT_EQ(sources.u64("late"), 5u);
  directory.write("/late", "");
  ofs_sources_read(&sources.all, second_ns + 1);
  EXPECT_FALSE(sources.has("late"));
  EXPECT_EQ(sources.all.failures, 1u);
}

TEST(SamplerSources, WhatIsWrongIsSaidAtTheStart) {
  const TestDirectory directory;
  directory.write("/a/1", "1\n");
  TestSources sources(directory.path());
  const auto why = [&](ofs_source_options options) {
    EXPECT_FALSE(ofs_sources_add(&sources.all, &options));
    return std::string(sources.all.why);
  };
  EXPECT_NE(why({}).find("one of set, file, log and command"), std::string::npos);
  auto options = file_source("relative", "f");
  EXPECT_NE(why(options).find("'relative'"), std::string::npos);
  options = file_source("/a/1", "f");
  options.type = "u32";
  EXPECT_NE(why(options).find("'u32'"), std::string::npos);
  options.type = nullptr;
  options.scale = 0.5;
  EXPECT_NE(why(options).find("f64"), std::string::npos);
  options.scale = 0;
  options.pattern = "a {} {}";
  EXPECT_NE(why(options).find("fields"), std::string::npos);
  options.pattern = "{x}";
  EXPECT_NE(why(options).find("not a pattern"), std::string::npos);
  EXPECT_NE(why(file_source("/b/*", "f")).find("no file matches"), std::string::npos);
  const auto good = file_source("/a/*", "f");
  EXPECT_TRUE(ofs_sources_add(&sources.all, &good)) << sources.all.why;
  EXPECT_STREQ(sources.all.fields[0].name, "f{of=\"1\"}");
  EXPECT_NE(why(file_source("/a/*", "f")).find("two fields"), std::string::npos);
}

TEST(SamplerSources, FilesOfJobsAreToldApartByThem) {
  const TestDirectory directory;
  directory.write("/cgroup/slurmstepd.scope/cgroup.procs", "1\n");
  ofs_source_options options = file_source("/cgroup/slurmstepd.scope/job_*/memory.current", "job_memory");
  options.label = "job";
  TestSources before(directory.path());
  EXPECT_TRUE(ofs_sources_add(&before.all, &options)) << "no job is there yet: " << before.all.why;
  EXPECT_EQ(before.all.field_count, 0u);
  directory.write("/cgroup/slurmstepd.scope/job_4711/memory.current", "4096\n");
  TestSources sources(directory.path());
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options)) << sources.all.why;
  ofs_sources_read(&sources.all, 0);
  EXPECT_EQ(sources.u64("job_memory{job=\"4711\"}"), 4096u);
  options.file = "/cgroup/slurmstepd.scope/job_*/memory.curent";
  TestSources wrong(directory.path());
  EXPECT_FALSE(ofs_sources_add(&wrong.all, &options));
}

TEST(SamplerSources, NamesOfFilesCannotBreakOutOfALabel) {
  const TestDirectory directory;
  directory.write("/d/a\"} 1\nb\\/x", "1\n");
  TestSources sources(directory.path());
  const auto options = file_source("/d/*/x", "f");
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options)) << sources.all.why;
  EXPECT_STREQ(sources.all.fields[0].name, "f{of=\"a_} 1_b_\"}");
}

TEST(SamplerSources, ALogIsFollowedOverItsRotation) {
  const TestDirectory directory;
  directory.write("/log", "took 1ms\nerror\n");
  TestSources sources(directory.path());
  ofs_source_options options{};
  options.log = "/log";
  options.pattern = "took {}ms";
  options.fields[0] = "took";
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  options.pattern = "error";
  options.fields[0] = "errors";
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  ofs_sources_read(&sources.all, 0);
  EXPECT_FALSE(sources.has("took")) << "what was there before is not told";
  ofs_sources_read(&sources.all, 1);
  EXPECT_EQ(sources.u64("errors"), 0u);
  directory.write("/log", "took 22ms\nmore error text\ntook 3", std::ios::app);
  ofs_sources_read(&sources.all, 2);
  EXPECT_EQ(sources.u64("took"), 22u) << "a line is taken when it is whole";
  EXPECT_EQ(sources.u64("errors"), 1u);
  directory.write("/log", "3ms\n", std::ios::app);
  ofs_sources_read(&sources.all, 3);
  EXPECT_EQ(sources.u64("took"), 33u);
  directory.write("/log", "last error of the old one\n", std::ios::app);
  std::filesystem::rename(directory.path() + "/log", directory.path() + "/log.1");
  ofs_sources_read(&sources.all, 2 * second_ns);
  directory.write("/log", "took 4ms\nerror\n");
  ofs_sources_read(&sources.all, 4 * second_ns);
  EXPECT_EQ(sources.u64("took"), 4u);
  EXPECT_EQ(sources.u64("errors"), 3u);
  directory.write("/log", "took 5ms\n");  // truncated and written again
  ofs_sources_read(&sources.all, 6 * second_ns);
  EXPECT_EQ(sources.u64("took"), 5u);
}

// Sources with a command. Its program runs in real time, however slow it is. The sampler's time passes as tests say.
struct CommandSources : TestSources {
  explicit CommandSources(const std::string& root = "") : TestSources(root) {}
  // Steps, `each_ns` apart, until `done`.
  template <class Done>
  bool step_until(const Done& done, TimeNs each_ns = 0) {
    for (const TimeNs end = monotonic_ns() + 60 * second_ns; monotonic_ns() < end; now += each_ns) {
      ofs_sources_read(&all, now);
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  TimeNs now = second_ns;
};

ofs_source_options shell_source(const char* script, const char* field) {
  ofs_source_options options{};
  options.command[0] = "/bin/sh";
  options.command[1] = "-c";
  options.command[2] = script;
  options.fields[0] = field;
  options.interval_ns = 20 * millisecond_ns;
  return options;
}

TEST(SamplerCommand, ItsOutputIsRead) {
  CommandSources sources;
  auto options = shell_source("echo ignored; echo power 215 W", "power");
  options.pattern = "power {}";
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options)) << sources.all.why;
  EXPECT_TRUE(sources.step_until([&] { return sources.u64("power") == 215; }));
}

TEST(SamplerCommand, ItInheritsNoDescriptorOfThisProcess) {
  const TestDirectory directory;
  const Fd inherited(::fcntl(Fd(::open(directory.path().c_str(), O_RDONLY | O_CLOEXEC)).get(), F_DUPFD, 100));
  ASSERT_GE(inherited.get(), 100);
  CommandSources sources;
  const std::string script = fmt::format("test -e /proc/$$/fd/{}; echo $?", inherited.get());
  auto options = shell_source(script.c_str(), "is_closed");
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options)) << sources.all.why;
  ASSERT_TRUE(sources.step_until([&] { return sources.has("is_closed"); }));
  EXPECT_EQ(sources.u64("is_closed"), 1u);
}

TEST(SamplerCommand, OneThatHangsIsKilledWithItsChildren) {
  const TestDirectory directory;
  const std::string pid_file = directory.path() + "/pid";
  const std::string script = fmt::format("sleep 1000 & echo $! > {}; echo 1; wait", pid_file);
  CommandSources sources;
  auto options = shell_source(script.c_str(), "never");
  options.time_limit_ns = 100 * millisecond_ns;
  options.interval_ns = 1000 * second_ns;
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  pid_t child = 0;
  ASSERT_TRUE(sources.step_until([&] { return (std::ifstream(pid_file) >> child) && child > 0; }));
  EXPECT_EQ(sources.all.commands[0]->kills, 0u) << "its time is not over";
  sources.now += options.time_limit_ns;
  ASSERT_TRUE(
      sources.step_until([&] { return sources.all.commands[0]->kills == 1 && sources.all.commands[0]->pid == 0; }));
  EXPECT_FALSE(sources.has("never")) << "what it said before counts only if it ends";
  EXPECT_TRUE(sources.step_until([&] {
    std::string state, line;
    std::ifstream status(fmt::format("/proc/{}/status", child));
    while (std::getline(status, line))
      if (line.starts_with("State:")) state = line;
    return state.empty() || state.find('Z') != std::string::npos;
  }));
}

TEST(SamplerCommand, OrphansThatLeftItsGroupAreKilledToo) {
  const TestDirectory directory;
  const std::string pid_file = directory.path() + "/pid";
  const std::string script =
      fmt::format("setsid sh -c 'echo $$ > {}; exec sleep 1000' & while [ ! -s {} ]; do sleep 0.01; done; echo 1",
                  pid_file, pid_file);
  CommandSources sources;
  auto options = shell_source(script.c_str(), "one");
  options.interval_ns = 1000 * second_ns;
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  ofs_adopt_orphans();
  EXPECT_TRUE(sources.step_until([&] { return sources.u64("one") == 1; }));
  pid_t child = 0;
  std::ifstream(pid_file) >> child;
  ASSERT_GT(child, 0);
  EXPECT_TRUE(sources.step_until([&] {
    ofs_kill_orphans(sources.all.commands, sources.all.command_count);
    return ::kill(child, 0) != 0;
  }));
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(SamplerCommand, ItsValuesDoNotOutliveIt) {
  const TestDirectory directory;
  directory.write("/go", "");
  const std::string script = fmt::format("test -e {0}/go && rm {0}/go && echo 7", directory.path());
  CommandSources sources;
  auto options = shell_source(script.c_str(), "seven");
  options.time_limit_ns = 50 * millisecond_ns;
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  ASSERT_TRUE(sources.step_until([&] { return sources.u64("seven") == 7; }));
  sources.now += options.interval_ns;
  EXPECT_TRUE(sources.step_until([&] { return sources.all.commands[0]->failures > 0; }));
  EXPECT_TRUE(sources.step_until([&] { return !sources.has("seven"); }, 10 * millisecond_ns));
}

// Programs of these names, before those of the machine.
class OwnPrograms {
 public:
  OwnPrograms() { ::setenv("PATH", (directory_.path() + "/bin:" + path_).c_str(), 1); }
  ~OwnPrograms() { ::setenv("PATH", path_.c_str(), 1); }
  OwnPrograms(const OwnPrograms&) = delete;
  OwnPrograms& operator=(const OwnPrograms&) = delete;
  void write(const std::string& name, const std::string& script) const {
    directory_.write("/bin/" + name, "#!/bin/sh\n" + script);
    std::filesystem::permissions(directory_.path() + "/bin/" + name, std::filesystem::perms::owner_all);
  }

 private:
  TestDirectory directory_;
  std::string path_ = ::getenv("PATH");
};

TEST(SamplerCommand, GpusAreAskedByTheProgramOfTheirDriver) {
  const OwnPrograms programs;
  programs.write("nvidia-smi",
                 "[ \"$2\" = --format=csv,noheader,nounits ] || exit 1\n"
                 "echo '0, 71.63, 43, 12, 3, 1024, 40960, 1410, GPU-5f1c'\n"
                 "echo '1, [N/A], 44, [N/A], 4, 2048, 40960, 1410, GPU-77aa'\n"
                 "echo '2, [Not Supported], 45, 12, 3, 1024, 40960, 1410, GPU-0b0b'\n");
  const TestDirectory directory;
  for (const char* gpu : {"0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0"})
    directory.write(fmt::format("/proc/driver/nvidia/gpus/{}/information", gpu), "Model: NVIDIA A100\n");
  CommandSources sources(directory.path());
  ofs_source_options options{};
  options.set = "nvidia";
  options.interval_ns = 20 * millisecond_ns;
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options)) << sources.all.why;
  ASSERT_EQ(sources.all.command_count, 1u);
  EXPECT_EQ(sources.all.commands[0]->interval_ns, 20 * millisecond_ns);
  EXPECT_EQ(sources.all.field_count, 21u);
  ASSERT_TRUE(sources.step_until([&] { return sources.has("gpu_power_watts{gpu=\"0\"}"); }));
  EXPECT_DOUBLE_EQ(sources.f64("gpu_power_watts{gpu=\"0\"}"), 71.63);
  EXPECT_DOUBLE_EQ(sources.f64("gpu_busy_ratio{gpu=\"0\"}"), 0.12);
  EXPECT_EQ(sources.u64("gpu_memory_used_bytes{gpu=\"0\"}"), 1ull << 30);
  EXPECT_DOUBLE_EQ(sources.f64("gpu_clock_hertz{gpu=\"0\"}"), 1.41e9);
  EXPECT_FALSE(sources.has("gpu_power_watts{gpu=\"1\"}"));
  EXPECT_FALSE(sources.has("gpu_busy_ratio{gpu=\"1\"}"));
  EXPECT_DOUBLE_EQ(sources.f64("gpu_temperature_celsius{gpu=\"1\"}"), 44);
  EXPECT_EQ(sources.u64("gpu_memory_used_bytes{gpu=\"1\"}"), 2ull << 30) << "behind what it does not have";
  for (const char* field : {"gpu_power_watts", "gpu_temperature_celsius", "gpu_memory_total_bytes"})
    EXPECT_FALSE(sources.has(fmt::format("{}{{gpu=\"2\"}}", field))) << field << ": which column is which is unknown";
}

TEST(SamplerCommand, TheBoardIsAskedForItsPower) {
  const OwnPrograms programs;
  programs.write("ipmitool",
                 "[ \"$*\" = 'dcmi power reading' ] || exit 1\n"
                 "echo\n"
                 "echo '    Instantaneous power reading:                   220 Watts'\n"
                 "echo '    Minimum during sampling period:                 98 Watts'\n"
                 "echo '    Average power reading over sample period:      205 Watts'\n");
  const TestDirectory directory;
  directory.write("/dev/ipmi0", "");
  CommandSources sources(directory.path());
  ASSERT_TRUE(ofs_add_set(&sources.all, "ipmi")) << sources.all.why;
  EXPECT_EQ(sources.all.command_count, 1u) << "one answer has both";
  ASSERT_TRUE(sources.step_until([&] { return sources.has("board_power_watts"); }));
  EXPECT_DOUBLE_EQ(sources.f64("board_power_watts"), 220);
  EXPECT_DOUBLE_EQ(sources.f64("board_power_mean_watts"), 205);
  EXPECT_EQ(sources.all.field_count, 2u);
}

TEST(SamplerCommand, WithoutSuchADeviceNoProgramIsStarted) {
  const TestDirectory directory;
  CommandSources sources(directory.path());
  for (const char* set : {"nvidia", "ipmi"}) {
    EXPECT_TRUE(ofs_set_runs_program(set));
    ASSERT_TRUE(ofs_add_set(&sources.all, set)) << sources.all.why;
  }
  EXPECT_FALSE(ofs_set_runs_program("power"));
  EXPECT_EQ(sources.all.command_count, 0u);
  EXPECT_EQ(sources.all.field_count, 0u);
}

TEST(SamplerCommand, OneThatIsNotThereFailsAndNothingElse) {
  CommandSources sources;
  ofs_source_options options{};
  options.command[0] = "/nonexistent/program";
  options.fields[0] = "none";
  options.interval_ns = millisecond_ns;
  ASSERT_TRUE(ofs_sources_add(&sources.all, &options));
  EXPECT_TRUE(sources.step_until([&] { return sources.all.commands[0]->failures > 2; }, options.interval_ns));
  EXPECT_FALSE(sources.has("none"));
}

}  // namespace
}  // namespace offpath::exchange
