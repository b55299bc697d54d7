#include "agent/config/sampling_settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "telemetry/schema.h"

namespace offpath::agent {

namespace {

constexpr ConfigKey keys_of_host[] = {
    {"host.name", ConfigType::text, "",
     "The host's name in samples and metrics; unique. Empty: the address without its port."},
    {"host.address", ConfigType::text, "", "Address of its offpath-sampler: HOST:PORT. Required."},
    {"host.interval", ConfigType::duration, "0s", "How often it is sampled. 0s: sampling.interval.", 0,
     3600 * second_ns},
};

constexpr ConfigKey keys_of_source[] = {
    {"source.set", ConfigType::text, "",
     "A built-in set of sources: cpu, cpus (each core), memory, load, infiniband, network, power (energy of the "
     "processors, RAPL), sensors (hwmon), nvidia (GPUs, by nvidia-smi) or ipmi (power of the board, by ipmitool). It "
     "needs no other key."},
    {"source.file", ConfigType::text, "",
     "A file whose numbers are read. With * in its path, every file that matches at the start, in directories that "
     "exist."},
    {"source.log", ConfigType::text, "",
     "A file that others append to. New lines are searched, and rotation is followed. The values are those of the "
     "newest match."},
    {"source.command", ConfigType::texts, "",
     "A program and its arguments, whose output is read if it exits successfully. It runs without a shell."},
    {"source.pattern", ConfigType::text, "{}",
     "The numbers of a line: {} stands for a number, * for a word, a blank for any blanks, and \\\\ before a character "
     "for that character. It matches from the start of a line; in logs, anywhere. Without {}, matching lines of a "
     "log are counted."},
    {"source.fields", ConfigType::texts, "", "Names of the pattern's numbers, in their order."},
    {"source.label", ConfigType::text, "of",
     "With * in source.file, the label that distinguishes the matching files: its value is the text that * matched."},
    {"source.type", ConfigType::text, "u64", "u64, i64 or f64."},
    {"source.kind", ConfigType::text, "",
     "gauge, or counter for values that only grow. Empty: counter for counted lines, else gauge."},
    {"source.unit", ConfigType::text, "", "Such as bytes, seconds, celsius, joules."},
    {"source.description", ConfigType::text, "", "A sentence that explains the metric."},
    {"source.scale", ConfigType::real, "1",
     "Factor that numbers are multiplied by. A factor that is not a whole number needs type f64."},
    {"source.interval", ConfigType::duration, "10s",
     "Time from one start of a command to the next; also for the commands of a set.", millisecond_ns,
     86400 * second_ns},
    {"source.time_limit", ConfigType::duration, "5s",
     "After this time the command and all its child processes are killed.", millisecond_ns, 3600 * second_ns},
};

Result<std::vector<HostSettings>> read_hosts(const Config& config, TimeNs interval_ns) {
  std::vector<HostSettings> hosts;
  for (const Config& one : config.list("host")) {
    HostSettings host{one.text("host.name"), one.text("host.address"), one.duration_ns("host.interval")};
    const std::size_t colon = host.address.rfind(':');
    if (colon == std::string::npos || colon == 0)
      return bad_value(one, "host.address", "'{}' is not HOST:PORT", host.address);
    if (const auto port = std::string_view(host.address).substr(colon + 1);
        port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != port.npos)
      return bad_value(one, "host.address", "'{}' is not a port number", port);
    if (host.name.empty()) host.name = host.address.substr(0, colon);
    if (host.name.size() > exchange::name_bytes_max)
      return bad_value(one, "host.name", "{} bytes, at most {}", host.name.size(), exchange::name_bytes_max);
    if (std::ranges::find(hosts, host.name, &HostSettings::name) != hosts.end())
      return bad_value(one, "host.name", "there are two hosts with the name '{}'", host.name);
    if (host.interval_ns == 0) host.interval_ns = interval_ns;
    hosts.push_back(std::move(host));
  }
  return hosts;
}

const char* set_or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

std::span<const ConfigKey> host_keys() noexcept { return keys_of_host; }
std::span<const ConfigKey> source_keys() noexcept { return keys_of_source; }

std::int64_t real_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

ofs_source_options SourceSettings::options() const {
  ofs_source_options options{};
  options.set = set_or_null(set);
  options.file = set_or_null(file);
  options.log = set_or_null(log);
  for (std::size_t i = 0; i < command.size(); ++i) options.command[i] = command[i].c_str();
  for (std::size_t i = 0; i < fields.size(); ++i) options.fields[i] = fields[i].c_str();
  options.pattern = set_or_null(pattern);
  options.label = set_or_null(label);
  options.type = set_or_null(type);
  options.kind = set_or_null(kind);
  options.unit = set_or_null(unit);
  options.description = set_or_null(description);
  options.scale = scale;
  options.interval_ns = interval_ns;
  options.time_limit_ns = time_limit_ns;
  return options;
}

Result<SamplingSettings> read_sampling(const Config& config) {
  SamplingSettings settings;
  settings.interval_ns = config.duration_ns("sampling.interval");
  settings.deadline_ns = config.duration_ns("sampling.deadline");
  settings.key_file = config.text("sampling.key_file");
  OFP_ASSIGN(settings.hosts, read_hosts(config, settings.interval_ns));
  if (!settings.hosts.empty() && settings.key_file.empty())
    return fail(Error::invalid, "[[host]] needs the key that its sampler has: set sampling.key_file");
  std::array<char, 256> name{};
  settings.own_name = gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "agent";
  for (const Config& one : config.list("source")) {
    auto source = std::make_shared<SourceSettings>();
    source->set = one.text("source.set");
    source->file = one.text("source.file");
    source->log = one.text("source.log");
    source->pattern = one.text("source.pattern");
    source->label = one.text("source.label");
    source->type = one.text("source.type");
    source->kind = one.text("source.kind");
    source->unit = one.text("source.unit");
    source->description = one.text("source.description");
    source->command = one.texts("source.command");
    source->fields = one.texts("source.fields");
    source->scale = one.real("source.scale");
    source->interval_ns = one.duration_ns("source.interval");
    source->time_limit_ns = one.duration_ns("source.time_limit");
    source->where = one.source("source.set");
    if (source->command.size() > OFS_ARGUMENTS_MAX)
      return bad_value(one, "source.command", "{} texts, at most {}", source->command.size(), int{OFS_ARGUMENTS_MAX});
    if (source->fields.size() > OFS_CAPTURES_MAX)
      return bad_value(one, "source.fields", "{} names, at most {}", source->fields.size(), int{OFS_CAPTURES_MAX});
    settings.sources.push_back(std::move(source));
  }
  return settings;
}

}  // namespace offpath::agent
