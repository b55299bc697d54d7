// Configuration: TOML checked against a table of declared keys. A program declares its keys once,
//
//     constexpr ConfigKey keys[] = {
//         {"memory.frames_bytes_max", ConfigType::bytes, "4GiB", "Frames beyond this leave, the oldest first."},
//         {"loop.idle_after", ConfigType::duration, "50us", "A ring silent for so long is looked at less often."},
//     };
//
// and the same table reads files, takes values from the command line, prints the configuration in force and
// writes the reference in docs/. A key that is not in the table is an error naming the nearest one that is.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath {

enum class ConfigType {
  text,      // "words"
  integer,   // 16
  real,      // 0.5, or an integer
  boolean,   // true
  bytes,     // "4GiB", "100MB", or an integer of bytes
  duration,  // "250us"; always with a unit: ns us ms s min h
  texts,     // ["one", "two"]; outside TOML: one,two
};

[[nodiscard]] std::string_view config_type_name(ConfigType type) noexcept;

struct ConfigKey {
  std::string_view name;  // table and key: "memory.frames_bytes_max"
  ConfigType type;
  std::string_view value;  // default, written as on the command line: 4GiB, 50us, one,two
  std::string_view doc;    // one or more sentences, in one line
  // Allowed range of integer, bytes (bytes) and duration (nanoseconds), both ends included.
  std::int64_t minimum = 0;
  std::int64_t maximum = std::numeric_limits<std::int64_t>::max();
};

// Tables that may occur any number of times, such as [[plugin]]. Their keys are "plugin.name" and so on.
struct ConfigList {
  std::string_view name;
  std::string_view doc;  // describes one table of the list
  std::span<const ConfigKey> keys;
};

// Asking for an undeclared key, or for a key as another type, is a bug and asserted.
// `keys` and `lists` must outlive the Config.
class Config {
 public:
  // The defaults alone. A default that does not parse as its key's type is a bug and asserted.
  explicit Config(std::span<const ConfigKey> keys, std::span<const ConfigList> lists = {});

  // Defaults, then `toml`. `source` names the text in errors: a file's path.
  [[nodiscard]] static Result<Config> parse(std::span<const ConfigKey> keys, std::string_view toml,
                                            std::string_view source, std::span<const ConfigList> lists = {});
  [[nodiscard]] static Result<Config> load(std::span<const ConfigKey> keys, const std::string& path,
                                           std::span<const ConfigList> lists = {});

  // One value from outside TOML: an option "key=value" of the command line.
  [[nodiscard]] Status set(std::string_view name, std::string_view value, std::string_view source = "command line");

  [[nodiscard]] const std::string& text(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name) const;
  [[nodiscard]] double real(std::string_view name) const;
  [[nodiscard]] bool boolean(std::string_view name) const;
  [[nodiscard]] std::uint64_t bytes(std::string_view name) const;
  [[nodiscard]] TimeNs duration_ns(std::string_view name) const;
  [[nodiscard]] const std::vector<std::string>& texts(std::string_view name) const;

  // Each [[name]] of a list, in file order. Only files can contain lists.
  [[nodiscard]] const std::vector<Config>& list(std::string_view name) const;

  // Where the value comes from: "default", "agent.toml:12", "command line". A default in a list's table gives the line
  // where that table begins.
  [[nodiscard]] const std::string& source(std::string_view name) const;

  // The configuration in force as TOML that parse() reads back, with the description of every key.
  [[nodiscard]] std::string to_toml() const;

 private:
  using Value = std::variant<std::string, std::int64_t, double, bool, std::vector<std::string>>;
  struct Entry {
    Value value;
    std::string source;
  };
  friend struct ConfigReader;

  [[nodiscard]] const Value& value_of(std::string_view name, ConfigType type) const;

  [[nodiscard]] std::string table_toml(std::string_view table) const;

  std::span<const ConfigKey> keys_;
  std::vector<Entry> entries_;  // one for each key, in their order
  std::span<const ConfigList> lists_;
  std::vector<std::vector<Config>> listed_;  // one for each list, in their order
};

// An error about a value, with the value's source: "agent.toml:12: agent.listen: the mistake".
[[nodiscard, gnu::cold]] tl::unexpected<Failure> bad_value_formatted(const Config& config, std::string_view key,
                                                                     fmt::string_view format, fmt::format_args args);
template <class... Args>
[[nodiscard]] tl::unexpected<Failure> bad_value(const Config& config, std::string_view key,
                                                fmt::format_string<Args...> format, Args&&... args) {
  return bad_value_formatted(config, key, format, fmt::make_format_args(args...));
}

// A Markdown table of all keys, and one for each list, for docs/.
[[nodiscard]] std::string config_reference(std::span<const ConfigKey> keys, std::span<const ConfigList> lists = {});

// "4GiB" -> 4294967296. Units: none and B, KiB MiB GiB TiB, kB MB GB TB.
[[nodiscard]] Result<std::int64_t> parse_bytes(std::string_view text);
// "250us" -> 250000 ns. Units: ns us ms s min h; none is an error.
[[nodiscard]] Result<TimeNs> parse_duration_ns(std::string_view text);
// The largest unit that divides the value.
[[nodiscard]] std::string format_bytes(std::int64_t bytes);
[[nodiscard]] std::string format_duration(TimeNs duration_ns);

}  // namespace offpath
