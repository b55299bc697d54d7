#include "agent/config/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace offpath::agent {
namespace {

Result<AgentSettings> settings_of(std::string_view toml) {
  OFP_ASSIGN(const Config config, Config::parse(agent_keys(), toml, "agent.toml", agent_lists()));
  return read_settings(config);
}

std::string error_of(std::string_view toml) {
  auto settings = settings_of(toml);
  return settings ? "" : settings.error().message;
}

std::string file(const std::string& path) {
  std::ifstream stream(std::string(OFFPATH_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(SettingsTest, WithoutAFileEverythingHasItsDefault) {
  setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  auto settings = settings_of("");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  ASSERT_EQ(settings->listen.size(), 1u);
  EXPECT_EQ(settings->listen[0].text(),
            geteuid() == 0 ? "unix:/run/offpath/agent.sock" : "unix:/run/user/1000/offpath/agent.sock");
  const std::string& path = settings->listen[0].path;
  ASSERT_TRUE(settings->http.has_value());
  EXPECT_EQ(settings->http->path, path.substr(0, path.size() - 10) + "http.sock");
  EXPECT_FALSE(settings->pin.has_value());
  EXPECT_FALSE(settings->name.empty());
  EXPECT_EQ(settings->profile.name, "none");
  EXPECT_FALSE(settings->insecure_network);
  // The table's defaults equal the parts' own.
  EXPECT_EQ(settings->dispatcher.mover.memory_bytes_max, mover::MoverOptions{}.memory_bytes_max);
  EXPECT_EQ(settings->dispatcher.mover.window_bytes, mover::MoverOptions{}.window_bytes);
  EXPECT_EQ(settings->dispatcher.mover.prepared_bytes_max, mover::MoverOptions{}.prepared_bytes_max);
  EXPECT_EQ(settings->dispatcher.mover.streams_max, mover::MoverOptions{}.streams_max);
  EXPECT_EQ(settings->dispatcher.buffers.cached_bytes_max, service::BufferCacheOptions{}.cached_bytes_max);
  EXPECT_EQ(settings->dispatcher.buffers.huge_pages, service::BufferCacheOptions{}.huge_pages);
  EXPECT_EQ(settings->dispatcher.channels.pull_slice_bytes, channel::AgentEndOptions{}.pull_slice_bytes);
  EXPECT_EQ(settings->dispatcher.channels.asked_slice_bytes, channel::AgentEndOptions{}.asked_slice_bytes);
  EXPECT_EQ(settings->dispatcher.channels.idle_before_sleep_ns, channel::AgentEndOptions{}.idle_before_sleep_ns);
  EXPECT_EQ(settings->dispatcher.channels.look_out_percent, channel::AgentEndOptions{}.look_out_percent);
  EXPECT_TRUE(settings->batch);
  EXPECT_EQ(settings->loop.spin_ns, loop::LoopOptions{}.spin_ns);
  EXPECT_EQ(settings->jobs.threads, loop::JobPoolOptions{}.threads);
  EXPECT_EQ(settings->segments.count_max, link::SegmentLimits{}.count_max);
  EXPECT_EQ(settings->segments.bytes_max, link::SegmentLimits{}.bytes_max);
}

TEST(SettingsTest, ValuesArriveWhereTheyBelong) {
  auto settings = settings_of(R"(
[agent]
name = "node17"
listen = ["unix:/tmp/a.sock", "tcp:127.0.0.1:7411"]
http = "[::1]:9000"
pin = 1
profile = "bluefield2"
[memory]
bytes_max = "64MiB"
window = "1MiB"
prepared_max = 0
[loop]
spin = "250us"
look_out = 2
batch = false
pull_slice = "64KiB"
asked_slice = "1MiB"
[security]
allow_uids = ["root", "65534"]
key_file = "/etc/key"
[log]
level = "debug"
)");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_EQ(settings->name, "node17");
  ASSERT_EQ(settings->listen.size(), 2u);
  EXPECT_EQ(settings->listen[1].text(), "tcp:127.0.0.1:7411");
  EXPECT_EQ(settings->http->host, "::1");
  EXPECT_EQ(settings->http->port, 9000);
  EXPECT_EQ(settings->pin, 1u);
  EXPECT_GT(settings->profile.cores, 0u);
  EXPECT_EQ(settings->dispatcher.mover.memory_bytes_max, 64u << 20);
  EXPECT_EQ(settings->dispatcher.mover.prepared_bytes_max, 0u);
  EXPECT_EQ(settings->loop.spin_ns, 250 * microsecond_ns);
  EXPECT_EQ(settings->dispatcher.channels.pull_slice_bytes, 64u << 10);
  EXPECT_EQ(settings->dispatcher.channels.asked_slice_bytes, 1u << 20);
  EXPECT_EQ(settings->dispatcher.channels.idle_before_sleep_ns, 250 * microsecond_ns);
  EXPECT_EQ(settings->dispatcher.channels.look_out_percent, 2u);
  EXPECT_FALSE(settings->batch);
  EXPECT_EQ(settings->allow_uids, (std::vector<uid_t>{0, 65534}));
  EXPECT_EQ(settings->log_level, LogLevel::debug);
}

std::string pages_of(const std::string& agent) {
  auto settings = settings_of("[agent]\n" + agent);
  EXPECT_TRUE(settings.has_value());
  return settings && settings->http ? settings->http->text() : "nowhere";
}

TEST(SettingsTest, PagesAreBesideTheFirstUnixSocket) {
  EXPECT_EQ(pages_of("listen = ['tcp:127.0.0.1:0', 'unix:/tmp/agent.sock', 'unix:/run/b.sock']"),
            "unix:/tmp/http.sock");
  EXPECT_EQ(pages_of("listen = ['unix:/tmp/agent-3.sock']"), "unix:/tmp/http-3.sock");
  EXPECT_EQ(pages_of("listen = ['unix:/tmp/3.sock']"), "unix:/tmp/3-http.sock");
  EXPECT_EQ(pages_of("listen = ['unix:/tmp/agents']"), "unix:/tmp/agents-http.sock");
  EXPECT_EQ(pages_of("listen = ['unix:/tmp/a']\nhttp = 'off'"), "nowhere");
  EXPECT_EQ(pages_of("listen = ['tcp:127.0.0.1:0']"), "nowhere");
  const std::string longest = "/tmp/" + std::string(link::unix_path_bytes_max - 5, 'x');
  EXPECT_EQ(pages_of("listen = ['unix:" + longest + "']"), "nowhere");
}

TEST(SettingsTest, ErrorsNameTheKeyTheValueAndThePlace) {
  EXPECT_EQ(error_of("[memory]\nbytes_mx = 1\n"),
            "agent.toml:2: unknown key 'memory.bytes_mx'; the nearest known key is 'memory.bytes_max'");
  EXPECT_EQ(error_of("\n[log]\nlevel = 'loud'\n"),
            "agent.toml:3: log.level: 'loud' is not one of debug, info, warning, error, off");
  EXPECT_EQ(error_of("\n[log]\nformat = 'xml'\n"), "agent.toml:3: log.format: 'xml' is not one of text, json");
  EXPECT_EQ(error_of("[security]\nallow_uids = ['nobody-has-this-name']\n"),
            "agent.toml:2: security.allow_uids: there is no user 'nobody-has-this-name'");
  for (const char* wrong :
       {"[agent]\nlisten = ['tcp:host']", "[agent]\nhttp = 'somewhere'", "[agent]\nprofile = 'fast'",
        "[memory]\nbytes_max = '1 banana'", "[loop]\nspin = 5", "[loop]\nlook_out = 51", "[agent]\npin = -7"}) {
    EXPECT_NE(error_of(wrong).find("agent.toml:2"), std::string::npos) << error_of(wrong);
  }
  EXPECT_NE(error_of("[security]\ntls_key = '/k'").find("set both or none"), std::string::npos);
}

TEST(SettingsTest, LimitsOfConnectionsHaveOneDefault) {
  const auto settings = settings_of("[tcp]\ndevice = 'eth9'\naddress = '10.9.0.2/23'");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  const tcp::TcpServiceLimits& set = settings->tcp->limits;
  const tcp::TcpServiceLimits assumed;
  EXPECT_EQ(set.programs_max, assumed.programs_max);
  EXPECT_EQ(set.flows_of_program_max, assumed.flows_of_program_max);
  EXPECT_EQ(set.bytes_of_program_max, assumed.bytes_of_program_max);
  EXPECT_EQ(set.receive_bytes_of_user_max, assumed.receive_bytes_of_user_max);
  EXPECT_EQ(set.receive_bytes_max, assumed.receive_bytes_max);
}

TEST(SettingsTest, ConnectionsWantADeviceAndItsAddress) {
  EXPECT_FALSE(settings_of("[agent]\nlisten = ['unix:/tmp/a']")->tcp.has_value());
  const auto settings = settings_of(
      "[tcp]\ndevice = 'tap:offpath0'\naddress = '10.9.0.2/23'\ngateway = '10.9.1.1'\nflows_of_program = "
      "7\norphans_max = 20\norphan_time = '5s'\norphan_lifetime = '9s'\nrto_min = '5ms'\nreceive_memory_max = "
      "'4GiB'\nreceive_memory_of_user = '1GiB'");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  ASSERT_TRUE(settings->tcp.has_value());
  EXPECT_EQ(settings->tcp->device, "offpath0");
  EXPECT_EQ(settings->tcp->kind, TcpSettings::Kind::tap);
  EXPECT_EQ(settings->tcp->stack.v4.address, tcp::ipv4(0x0a090002));
  EXPECT_TRUE(settings->tcp->stack.v6.address.is_unspecified());
  EXPECT_EQ(settings->tcp->stack.v4.prefix_length, 23);
  EXPECT_EQ(settings->tcp->stack.v4.gateway, tcp::ipv4(0x0a090101));
  EXPECT_EQ(settings->tcp->limits.flows_of_program_max, 7u);
  EXPECT_EQ(settings->tcp->limits.receive_bytes_max, 4ull << 30);
  EXPECT_EQ(settings->tcp->limits.receive_bytes_of_user_max, 1ull << 30);
  EXPECT_EQ(settings->tcp->stack.orphans_max, 20u);
  EXPECT_EQ(settings->tcp->stack.orphan_ns, 5 * second_ns);
  EXPECT_EQ(settings->tcp->stack.orphan_lifetime_ns, 9 * second_ns);
  EXPECT_EQ(settings->tcp->stack.rto.minimum_ns, 5 * millisecond_ns);
  EXPECT_EQ(settings->tcp->stack.ecn, tcp::EcnUse::as_congestion_control_wants);
  EXPECT_EQ(settings->tcp->limits.congestions, tcp::TcpServiceLimits{}.congestions);
  EXPECT_EQ(settings_of("[tcp]\ndevice = 'eth9'\ncongestion_allowed = ['dctcp']")->tcp->limits.congestions,
            tcp_congestion_bit(wire::TcpCongestion::dctcp));
  EXPECT_EQ(settings_of("[tcp]\ndevice = 'eth9'\necn = 'accurate'")->tcp->stack.ecn, tcp::EcnUse::accurate);
  EXPECT_FALSE(settings->tcp->slow_path_on_host);
  EXPECT_TRUE(
      settings_of("[tcp]\ndevice = 'eth9'\naddress = '10.9.0.2/23'\nslow_path = 'host'")->tcp->slow_path_on_host);
  for (const char* wrong :
       {"address = '10.9.0.2'", "address = '10.9.0.2/32'", "address = '10.9.0.2/'", "address = '10.9.0/24'",
        "address = '127.0.0.1/8'", "address = '10.9.0.2/24'\ngateway = '10.9.1.1'",
        "address = '10.9.0.2/24'\ngateway = '10.9.0.2'", "address = '10.9.0.2/24'\nmtu = 100",
        "address = '10.9.0.2/24'\ncongestion = 'fast'",
        "address = '10.9.0.2/24'\ncongestion_allowed = ['cubic', 'fast']",
        "address = '10.9.0.2/24'\nslow_path = 'elsewhere'", "address = '10.9.0.2/24'\nslow_path = 'host'\ncores = 2",
        "address = '10.9.0.2/24'\necn = 'exact'", "address = '10.9.0.2/24'\nslow_path = 'host'\necn = 'accurate'"}) {
    const std::string error = error_of(fmt::format("[tcp]\ndevice = 'eth9'\n{}\n", wrong));
    EXPECT_NE(error.find("tcp."), std::string::npos) << wrong << ": " << error;
  }
  EXPECT_NE(error_of("[tcp]\naddress = '10.9.0.2/24'\n").find("tcp.device, which is not set"), std::string::npos);
  // An existing interface has an address of its own; a TAP device that the agent creates has none.
  EXPECT_TRUE(settings_of("[tcp]\ndevice = 'eth9'")->tcp->stack.v4.address.is_unspecified());
  EXPECT_NE(error_of("[tcp]\ndevice = 'eth9'\ngateway = '10.9.0.1'\n").find("tcp.gateway: it needs tcp.address"),
            std::string::npos);
  EXPECT_NE(error_of("[tcp]\ndevice = 'tap:offpath0'\n").find("tcp.address: '' is not an address"), std::string::npos);
}

TEST(SettingsTest, AnAddressOfIpv6StandsBesideTheOtherOneOrAlone) {
  for (const char* device : {"eth9", "tap:offpath0"}) {
    const auto alone = settings_of(
        fmt::format("[tcp]\ndevice = '{}'\naddress6 = '2001:db8::2/64'\ngateway6 = 'fe80::1'\nmtu = 1280", device));
    ASSERT_TRUE(alone.has_value()) << alone.error().message;
    EXPECT_TRUE(alone->tcp->stack.v4.address.is_unspecified());
    EXPECT_EQ(tcp::text_of(alone->tcp->stack.v6.address), "2001:db8::2");
    EXPECT_EQ(alone->tcp->stack.v6.prefix_length, 64);
    EXPECT_EQ(tcp::text_of(alone->tcp->stack.v6.gateway), "fe80::1");
  }
  const auto both = settings_of(
      "[tcp]\ndevice = 'eth9'\naddress = '10.9.0.2/24'\naddress6 = '2001:db8::2/64'\ngateway6 = '2001:db8::1'");
  ASSERT_TRUE(both.has_value()) << both.error().message;
  EXPECT_EQ(both->tcp->stack.v4.address, tcp::ipv4(0x0a090002));
  EXPECT_FALSE(both->tcp->stack.v6.address.is_unspecified());
  for (const char* wrong :
       {"address6 = '2001:db8::2'", "address6 = '2001:db8::2/129'", "address6 = '2001:db8::2/0'", "address6 = '::1/64'",
        "address6 = 'ff02::1/64'", "address6 = '::/64'", "address6 = '10.9.0.2/24'", "address6 = '::ffff:10.9.0.2/100'",
        "address = '2001:db8::2/24'", "gateway6 = 'fe80::1'", "address6 = '2001:db8::2/64'\ngateway6 = '2001:db9::1'",
        "address6 = '2001:db8::2/64'\ngateway6 = '2001:db8::2'", "address6 = '2001:db8::2/64'\ngateway6 = '10.9.0.1'",
        "address6 = '2001:db8::2/64'\nmtu = 1279"}) {
    const std::string error = error_of(fmt::format("[tcp]\ndevice = 'eth9'\n{}\n", wrong));
    EXPECT_NE(error.find("tcp."), std::string::npos) << wrong << ": " << error;
  }
  const auto with = [](const char* more) {
    return fmt::format("[tcp]\ndevice = 'eth9'\naddress6 = '2001:db8::2/64'\n{}\n", more);
  };
  EXPECT_NE(error_of(with("slow_path = 'host'")).find("only IPv4"), std::string::npos);
  EXPECT_NE(error_of(with("cores = 2")).find("tcp.gateway6"), std::string::npos);
  for (const char* gateway : {"none", "fe80::1"})
    EXPECT_FALSE(
        settings_of(with(fmt::format("cores = 2\ngateway6 = '{}'", gateway).c_str()))->tcp->stack.hears_routers);
  EXPECT_TRUE(settings_of(with(""))->tcp->stack.hears_routers);
  EXPECT_NE(error_of("[tcp]\ndevice = 'dpdk:0000:03:00.0'\naddress6 = '2001:db8::2/64'").find("only IPv4"),
            std::string::npos);
  EXPECT_NE(error_of("[tcp]\naddress6 = '2001:db8::2/64'\n").find("tcp.address6: it needs tcp.device"),
            std::string::npos);
}

TEST(SettingsTest, AnInterfaceIsTakenByXdpOrByWhatSuitsIt) {
  using Kind = TcpSettings::Kind;
  for (const auto& [prefix, kind] : {std::pair{"", Kind::interface}, {"xdp:", Kind::xdp}, {"auto:", Kind::best}}) {
    // The address may be the interface's own, and the kernel's program steers to several cores.
    const auto settings = settings_of(fmt::format("[tcp]\ndevice = '{}eth9'\ncores = 3", prefix));
    ASSERT_TRUE(settings.has_value()) << settings.error().message;
    EXPECT_EQ(settings->tcp->kind, kind);
    EXPECT_EQ(settings->tcp->device, "eth9");
    EXPECT_TRUE(settings->tcp->kernel_has_interface());
  }
  EXPECT_EQ(settings_of("[tcp]\ndevice = 'auto:xdp:9'")->tcp->device, "xdp:9");  // one prefix alone
}

TEST(SettingsTest, ADeviceOfDpdksIsNamedAsDpdkNamesIt) {
  const auto with = [](const std::string& more) { return "[tcp]\naddress = '10.9.0.2/24'\n" + more; };
  const auto settings =
      settings_of(with("device = 'dpdk:net_af_packet0,iface=eth0'\ndpdk_arguments = ['--no-huge', '-m', '64']"));
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_EQ(settings->tcp->kind, TcpSettings::Kind::dpdk);
  EXPECT_EQ(settings->tcp->device, "net_af_packet0,iface=eth0");
  EXPECT_EQ(settings->tcp->dpdk_arguments, (std::vector<std::string>{"--no-huge", "-m", "64"}));
  EXPECT_EQ(settings_of(with("device = 'dpdk:0000:03:00.0'"))->tcp->device, "0000:03:00.0");
  EXPECT_EQ(settings_of(with("device = 'dpdk:0000:03:00.0'\ncores = 4"))->tcp->cores, 4u);
  for (const char* wrong : {"dpdk:", "dpdk:--vdev=net_null0", "dpdk:net tap", "dpdk:a;b", "dpdk:eth0\\n"})
    EXPECT_NE(error_of(with(fmt::format("device = '{}'", wrong))).find("agent.toml:3: tcp.device: '"),
              std::string::npos)
        << wrong;
  EXPECT_NE(error_of(with("device = 'eth0'\ndpdk_arguments = ['--no-huge']")).find("agent.toml:4: tcp.dpdk_arguments"),
            std::string::npos);
}

TEST(CoresSettingsTest, ValuesArriveWhereTheyBelong) {
  const auto settings =
      settings_of("[agent]\ncores = 2\npins = [\"4-5\"]\nlisten = [\"unix:/run/a.sock\", \"tcp:127.0.0.1:7700\"]\n");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->cores, 2u);
  EXPECT_EQ(settings->pins, (std::vector<unsigned>{4, 5}));
  EXPECT_EQ(settings_of("[agent]\npins = [\"3\"]\n")->pin, 3u);
}

TEST(CoresSettingsTest, WhatSeveralCoresCannotHaveIsRefusedByName) {
  const auto refused = [](const std::string& agent, const std::string& rest = "") {
    return error_of("[agent]\ncores = 2\nlisten = [\"unix:/run/a.sock\"]\n" + agent + "\n" + rest);
  };
  EXPECT_EQ(refused(""), "");
  EXPECT_NE(refused("pin = 1").find("agent.pin: one core for 2 loops"), std::string::npos);
  EXPECT_NE(refused("pins = [\"1\"]").find("1 cores for 2 loops"), std::string::npos);
  EXPECT_NE(refused("profile = \"bluefield2\"").find("agent.profile"), std::string::npos);
  EXPECT_NE(refused("name = \"a+1\"").find("agent.name"), std::string::npos);
  EXPECT_NE(error_of("[agent]\ncores = 2\nlisten = [\"tcp:127.0.0.1:1\"]\n").find("to agent.listen"),
            std::string::npos);
  EXPECT_NE(error_of("[agent]\ncores = 2\nlisten = [\"unix:/a.sock\", \"verbs:10.0.0.1:1\"]\n")
                .find("not at verbs:10.0.0.1:1"),
            std::string::npos);
  EXPECT_NE(error_of("[agent]\ncores = 2\nlisten = [\"unix:/a.sock\", \"tcp:127.0.0.1:65534\"]\n")
                .find("too few higher ports"),
            std::string::npos);
  EXPECT_NE(error_of("[agent]\ncores = 2\nlisten = [\"unix:/" + std::string(100, 'a') + "\"]\n").find("longer names"),
            std::string::npos);
  EXPECT_NE(refused("", "[memory]\nbytes_max = \"1MiB\"\n").find("memory.bytes_max"), std::string::npos);
  EXPECT_NE(refused("", "[tcp]\ndevice = \"eth0\"\naddress = \"10.0.0.2/24\"\n").find("tcp.device"), std::string::npos);
  EXPECT_NE(refused("", "[group]\nfrom_launcher = true\n").find("group.from_launcher"), std::string::npos);
  EXPECT_NE(refused("", "[group]\naddress = \"tcp:127.0.0.1:1\"\n").find("group.address"), std::string::npos);
  const std::string exchange =
      "[[exchange]]\nname = \"power\"\ninterval = \"250ms\"\ndeadline = \"200ms\"\nfields = [\"power:f64:watts\"]\n";
  EXPECT_NE(refused("", exchange).find("cannot have [[exchange]]"), std::string::npos);
  const std::string source =
      "[[source]]\nfile = \"/proc/pressure/cpu\"\npattern = \"some avg10={} avg60={}\"\nfields = [\"a\", \"b\"]\n";
  EXPECT_NE(refused("", source).find("cannot have [[source]]"), std::string::npos);
}

TEST(PluginSettingsTest, ValuesArriveWhereTheyBelong) {
  EXPECT_TRUE(settings_of("")->plugins.empty());
  const auto settings = settings_of(R"(
[[plugin]]
name = "first"
path = "/opt/first.so"
[[plugin]]
name = "second"
path = "/opt/second.so"
workers = 3
memory = "64MiB"
deadline = "5s"
start_deadline = "1s"
waiting_max = 7
user = "root"
nice = 10
cores = ["1", "4-6"]
)");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  ASSERT_EQ(settings->plugins.size(), 2u);
  // The table's defaults equal the plug-ins' own.
  const plugin::PluginOptions &first = settings->plugins[0], &second = settings->plugins[1], defaults;
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.workers, defaults.workers);
  EXPECT_EQ(first.memory_bytes, defaults.memory_bytes);
  EXPECT_EQ(first.deadline_ns, defaults.deadline_ns);
  EXPECT_EQ(first.start_deadline_ns, defaults.start_deadline_ns);
  EXPECT_EQ(first.waiting_max, defaults.waiting_max);
  EXPECT_FALSE(first.user.has_value());
  EXPECT_EQ(second.path, "/opt/second.so");
  EXPECT_EQ(second.workers, 3u);
  EXPECT_EQ(second.memory_bytes, 64u << 20);
  EXPECT_EQ(second.deadline_ns, 5 * second_ns);
  EXPECT_EQ(second.start_deadline_ns, second_ns);
  EXPECT_EQ(second.waiting_max, 7u);
  EXPECT_EQ(second.user, 0u);
  EXPECT_EQ(second.nice, 10);
  EXPECT_EQ(second.cores, (std::vector<unsigned>{1, 4, 5, 6}));
}

TEST(PluginSettingsTest, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_EQ(error_of("[[plugin]]\npath = '/a.so'\n"),
            "agent.toml:1: plugin.name: '' is not 1 to 64 letters, digits, _ . -");
  EXPECT_EQ(error_of("[[plugin]]\nname = 'a'\n"), "agent.toml:1: plugin.path: '' is not an absolute path");
  EXPECT_EQ(error_of("[[plugin]]\nname = 'a'\npath = 'a.so'\n"),
            "agent.toml:3: plugin.path: 'a.so' is not an absolute path");
  EXPECT_EQ(error_of("[[plugin]]\nname = 'a'\npath = '/a'\n[[plugin]]\nname = 'a'\npath = '/b'\n"),
            "agent.toml:5: plugin.name: there are two plug-ins with the name 'a'");
  EXPECT_EQ(error_of("[[plugin]]\nworker = 2\n"),
            "agent.toml:2: unknown key 'plugin.worker'; the nearest known key is 'plugin.workers'");
  for (const char* wrong : {"user = 'nobody-has-this-name'", "cores = ['x']", "cores = ['7-4']", "cores = ['1-']",
                            "memory = '1MiB'", "workers = 0"})
    EXPECT_TRUE(error_of(std::string("[[plugin]]\nname = 'a'\npath = '/a'\n") + wrong).starts_with("agent.toml:4: "))
        << wrong;
}

// Variables that launchers set, during a test that may itself be a launcher's process.
class LaunchedAgent : public testing::Test {
 protected:
  static constexpr const char* local[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"};

  void SetUp() override {
    for (const char* variable : {local[0], local[1], local[2], "PMIX_RANK"}) {
      const char* text = std::getenv(variable);
      former_.emplace_back(variable, text == nullptr ? std::optional<std::string>() : std::string(text));
      unsetenv(variable);
    }
  }
  void TearDown() override {
    for (const auto& [variable, text] : former_) text ? setenv(variable, text->c_str(), 1) : unsetenv(variable);
  }
  static std::string name(const std::string& more = "") {
    const auto settings = settings_of("agent.name = 'dpu{index}'\nagent.listen = ['unix:/tmp/{index}.sock']\n" + more);
    EXPECT_TRUE(settings) << settings.error().message;
    EXPECT_EQ("unix:/tmp/" + settings->name.substr(3) + ".sock", settings->listen[0].text());
    return settings->name;
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> former_;
};

TEST_F(LaunchedAgent, TheIndexIsTheLocalRankOfAnyLauncher) {
  EXPECT_EQ(name(), "dpu0");
  for (const char* variable : local) {
    setenv(variable, "3", 1);
    EXPECT_EQ(name(), "dpu3") << variable;
    setenv("PMIX_RANK", "17", 1);
    EXPECT_EQ(name(), "dpu3") << variable << " beside the rank among all";
    EXPECT_EQ(name("group.index = 5"), "dpu5") << variable;
    unsetenv(variable);
    unsetenv("PMIX_RANK");
  }
}

TEST_F(LaunchedAgent, TheIndexIsTheRankWhereOnlyPmixGivesOne) {
  setenv("PMIX_RANK", "17", 1);
  EXPECT_EQ(name(), "dpu17");
  EXPECT_EQ(name("group.index = 5"), "dpu5");
}

TEST_F(LaunchedAgent, WhatIsNoNumberIsNoIndex) {
  for (const char* text : {"", "-1", "3rd", "99999999999"}) {
    for (const char* variable : local) setenv(variable, text, 1);
    setenv("PMIX_RANK", text, 1);
    EXPECT_EQ(name(), "dpu0") << text;
    setenv("PMIX_RANK", "2", 1);
    EXPECT_EQ(name(), "dpu2") << text;
  }
}

std::string exposure(std::string_view toml) {
  auto settings = settings_of(toml);
  if (!settings) return settings.error().message;
  auto warnings = check_exposure(*settings);
  if (!warnings) return "refused: " + warnings.error().message;
  return fmt::format("{}", fmt::join(*warnings, "; "));
}

TEST(DecisionSettingsTest, ValuesArriveWhereTheyBelong) {
  const std::string toml = R"(
    group.index = 3
    [actuators]
    cgroups = "/cg"
    [[plugin]]
    name = "budget"
    path = "/p.so"
    [[actuator]]
    name = "disk"
    kind = "io"
    where = "jobs"
    device = "8:0"
    limit = "wbps"
    min = 1
    max = 9
    [[actuator]]
    name = "cpu"
    kind = "cpu"
    where = "node-{index}"
    min = 100
    max = 2000
    lease = "3s"
    [[exchange]]
    name = "load"
    [[exchange]]
    name = "cpu"
    decide = "budget/share"
    arguments = "100"
    actuators = ["cpu"]
    )";
  const auto settings = settings_of(toml);
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->actuators.roots.cgroups, "/cg");
  EXPECT_EQ(settings->actuators.roots.sysfs, "/sys");
  ASSERT_EQ(settings->actuators.list.size(), 2u);
  EXPECT_EQ(settings->actuators.list[0].limit, "wbps");
  EXPECT_EQ(settings->actuators.list[1].where, "node-3");
  const auto& exchanges = settings->dispatcher.exchanges;
  EXPECT_FALSE(exchanges[0].decides);
  ASSERT_TRUE(exchanges[1].decides);
  EXPECT_EQ(exchanges[1].decides->plugin, "budget");
  EXPECT_EQ(exchanges[1].decides->function, "share");
  EXPECT_EQ(exchanges[1].decides->arguments, "100");
  ASSERT_EQ(exchanges[1].decides->actuators.size(), 1u);
  EXPECT_EQ(exchanges[1].decides->actuators[0].number, 1u);
  EXPECT_EQ(exchanges[1].decides->actuators[0].lease_ns, 3 * second_ns);
  const auto with = [&](std::string_view before, std::string_view after) {
    std::string changed = toml;
    changed.replace(changed.find(before), before.size(), after);
    return error_of(changed);
  };
  EXPECT_NE(with("budget/share", "share").find("is not PLUGIN/FUNCTION"), std::string::npos);
  EXPECT_NE(with("budget/share", "other/share").find("there is no [[plugin]] with the name 'other'"),
            std::string::npos);
  EXPECT_NE(with("\"cpu\"]", "\"fan\"]").find("there is no [[actuator]] with the name 'fan'"), std::string::npos);
  EXPECT_NE(with("\"cpu\"]", "\"cpu\", \"cpu\"]").find("named twice"), std::string::npos);
  EXPECT_NE(with("name = \"load\"", "name = \"load\"\ndecide = \"budget/share\"\nactuators = [\"cpu\"]")
                .find("another exchange sets cpu"),
            std::string::npos);
  EXPECT_NE(with("kind = \"io\"", "kind = \"fan\"").find("is not power, cpufreq, cpu or io"), std::string::npos);
}

TEST(ExposureTest, WhatOthersCouldReachIsRefusedOrSaidLoudly) {
  EXPECT_EQ(exposure("[agent]\nlisten = ['unix:/tmp/a']\nhttp = '127.0.0.1:0'"), "");
  EXPECT_EQ(exposure("[agent]\nlisten = ['tcp:localhost:0']\n[security]\nkey_file = '/k'"), "");
  EXPECT_NE(exposure("[agent]\nlisten = ['tcp:127.0.0.1:0']").find("refused: tcp:127.0.0.1:0: programs that connect"),
            std::string::npos);
  EXPECT_NE(exposure("[agent]\nlisten = ['tcp:0.0.0.0:0']\n[security]\nkey_file = '/k'")
                .find("refused: tcp:0.0.0.0:0 is reachable"),
            std::string::npos);
  EXPECT_NE(exposure("[agent]\nlisten = ['tcp:[::]:0']\n[security]\nkey_file = '/k'").find("refused"),
            std::string::npos);
  EXPECT_NE(exposure("[agent]\nlisten = ['tcp:0.0.0.0:0']\n[security]\nkey_file = '/k'\ninsecure_network = true")
                .find("INSECURE"),
            std::string::npos);
  EXPECT_NE(exposure("[agent]\nlisten = ['tls:0.0.0.0:0']\n[security]\nkey_file = '/k'")
                .find("refused: tls:0.0.0.0:0: TLS needs"),
            std::string::npos);
  EXPECT_EQ(
      exposure(
          "[agent]\nlisten = ['tls:0.0.0.0:0']\n[security]\nkey_file = '/k'\ntls_key = '/t'\ntls_certificate = '/c'"),
      "listening beyond this machine at tls:0.0.0.0:0");
  EXPECT_NE(exposure("[agent]\nlisten = ['verbs:0.0.0.0:0']\n[security]\nkey_file = '/k'")
                .find("refused: verbs:0.0.0.0:0 is reachable from other machines, and RDMA has no encryption"),
            std::string::npos);
  EXPECT_EQ(exposure("[agent]\nlisten = ['verbs:0.0.0.0:0']\n[security]\nkey_file = '/k'\ninsecure_network = true"),
            "INSECURE: at verbs:0.0.0.0:0 everybody on the network can read and change what programs send");
  EXPECT_NE(exposure("[agent]\nlisten = ['doca:0.0.0.0:0']\n[security]\nkey_file = '/k'")
                .find("refused: doca:0.0.0.0:0 is reachable from other machines, and the exports that say which "
                      "memory the card may reach"),
            std::string::npos);
  EXPECT_NE(exposure("[agent]\nlisten = ['unix:/tmp/a']\nhttp = '0.0.0.0:0'").find("refused: agent.http 0.0.0.0:0"),
            std::string::npos);
  EXPECT_NE(exposure("[agent]\nlisten = ['unix:/tmp/a']\nhttp = '0.0.0.0:0'\n[security]\ninsecure_network = true")
                .find("INSECURE"),
            std::string::npos);
}

TEST(ConfigurationFilesTest, TheSampleIsInOrder) {
  const std::string sample = file("packaging/offpath.toml");
  ASSERT_FALSE(sample.empty());
  auto settings = settings_of(sample);
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_TRUE(check_exposure(*settings).has_value());
}

// docs/reference/configuration.md ends with the output of `offpath-agent --config-reference`.
TEST(ConfigurationFilesTest, TheReferenceInTheDocsIsThisTable) {
  const std::string page = file("docs/reference/configuration.md");
  EXPECT_TRUE(page.ends_with(config_reference(agent_keys(), agent_lists())))
      << "write the output of `offpath-agent --config-reference` to the end of docs/reference/configuration.md";
}

}  // namespace
}  // namespace offpath::agent
