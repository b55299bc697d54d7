#include "base/config.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

#define TOML_HEADER_ONLY 1  // Debian compiles it with exceptions
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// toml++ asserts on some texts that are merely invalid ("[" and a newline). Without the assertion it reports an error.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include "base/fd.h"
#include "base/text.h"

namespace offpath {

namespace {

constexpr std::size_t file_bytes_max = 1 << 20;

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

// Largest first, so that formatting finds the largest that divides.
constexpr std::array bytes_units{Unit{"TiB", 1LL << 40},
                                 Unit{"GiB", 1LL << 30},
                                 Unit{"MiB", 1LL << 20},
                                 Unit{"KiB", 1LL << 10},
                                 Unit{"TB", 1'000'000'000'000},
                                 Unit{"GB", 1'000'000'000},
                                 Unit{"MB", 1'000'000},
                                 Unit{"kB", 1'000},
                                 Unit{"B", 1}};
constexpr std::array duration_units{Unit{"h", 3600 * second_ns}, Unit{"min", 60 * second_ns}, Unit{"s", second_ns},
                                    Unit{"ms", millisecond_ns},  Unit{"us", microsecond_ns},  Unit{"ns", 1}};

// A whole number, then optional blanks, then a unit.
Result<std::int64_t> parse_quantity(std::string_view text, std::span<const Unit> units, std::string_view example) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) return fail(Error::invalid, "'{}' is too large", text);
  if (error != std::errc()) return fail(Error::invalid, "'{}' is not a number with a unit, such as {}", text, example);
  while (rest != end && *rest == ' ') ++rest;
  std::string_view name(rest, static_cast<std::size_t>(end - rest));
  auto unit = std::ranges::find(units, name, &Unit::name);
  if (unit == units.end()) {
    std::string names;
    for (const Unit& known : units) names.insert(0, fmt::format(" {}", known.name));
    return fail(Error::invalid, "'{}' has the unit '{}'; units are{}", text, name, names);
  }
  std::int64_t product = 0;
  if (__builtin_mul_overflow(number, unit->factor, &product)) return fail(Error::invalid, "'{}' is too large", text);
  return product;
}

std::string format_quantity(std::int64_t value, std::span<const Unit> units) {
  if (value != 0) {
    for (const Unit& unit : units) {
      if (value % unit.factor == 0) return fmt::format("{}{}", value / unit.factor, unit.name);
    }
  }
  return fmt::format("{}{}", value, units.back().name);
}

// Levenshtein distance with transpositions (optimal string alignment): it counts inserted, removed and changed letters
// and exchanges of two neighbouring letters.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view table_of(std::string_view name) {
  std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

tl::unexpected<Failure> unknown_name(std::span<const ConfigKey> keys, std::span<const ConfigList> lists,
                                     std::string_view name, bool is_table, std::string_view source) {
  const std::string_view kind = is_table ? "table" : "key";
  if (keys.empty() && lists.empty())
    return fail(Error::invalid, "{}: unknown {} '{}'; there are none", source, kind, name);
  std::string_view nearest;
  std::size_t distance =
      name.size() / 2 + 1;  // a name with more than half of its letters wrong is not taken for a typing error
  const auto try_name = [&](std::string_view known, std::string_view as_written) {
    if (const std::size_t found = edit_distance(as_written, name); !known.empty() && found < distance) {
      nearest = known;
      distance = found;
    }
  };
  for (const ConfigKey& key : keys) {
    const std::string_view table = table_of(key.name);
    try_name(is_table ? table : key.name, is_table ? table : key.name);
    // The table may be left out by mistake.
    if (!is_table && !table.empty()) try_name(key.name, key.name.substr(table.size() + 1));
  }
  for (const ConfigList& list : lists)
    if (is_table) try_name(list.name, list.name);
  if (nearest.empty())
    return fail(Error::invalid, "{}: unknown {} '{}', and no known {} is like it", source, kind, name, kind);
  return fail(Error::invalid, "{}: unknown {} '{}'; the nearest known {} is '{}'", source, kind, name, kind, nearest);
}

const ConfigKey* find_key(std::span<const ConfigKey> keys, std::string_view name) {
  auto found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char letter : text) {
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (is_control(letter)) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(letter)));
    } else {
      out += letter;
    }
  }
  return out + '"';
}

std::string in_quotes(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out += (out.size() > 1 ? ", " : "") + in_quotes(text);
  return out + "]";
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::string_view toml_type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a real number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

std::string_view with_example(ConfigType type) {
  switch (type) {
    case ConfigType::text:
      return "text, such as \"words\"";
    case ConfigType::integer:
      return "an integer, such as 16";
    case ConfigType::real:
      return "a real number, such as 0.5";
    case ConfigType::boolean:
      return "a boolean, true or false";
    case ConfigType::bytes:
      return "a size in bytes, such as \"4GiB\"";
    case ConfigType::duration:
      return "a duration, such as \"250us\"";
    case ConfigType::texts:
      return "a list of text, such as [\"one\", \"two\"]";
  }
  return "";
}

}  // namespace

// Turns text and TOML nodes into values of declared keys.
struct ConfigReader {
  using Value = Config::Value;

  // Text as it stands on the command line or as a default in the table.
  static Result<Value> from_text(ConfigType type, std::string_view text) {
    switch (type) {
      case ConfigType::text:
        return Value(std::string(text));
      case ConfigType::texts:
        return Value(split(text));
      case ConfigType::integer:
        return number<std::int64_t>(type, text);
      case ConfigType::real:
        return number<double>(type, text);
      case ConfigType::boolean:
        if (text != "true" && text != "false") return mismatch(type, text);
        return Value(text == "true");
      case ConfigType::bytes:
        return parse_bytes(text).map([](std::int64_t value) { return Value(value); });
      case ConfigType::duration:
        return parse_duration_ns(text).map([](TimeNs value) { return Value(value); });
    }
    return mismatch(type, text);
  }

  // nullopt: the node is of another type.
  static Result<std::optional<Value>> from_node(ConfigType type, const toml::node& node) {
    switch (type) {
      case ConfigType::text:
        return optional_of(node.value_exact<std::string>());
      case ConfigType::integer:
        return optional_of(node.value_exact<std::int64_t>());
      case ConfigType::boolean:
        return optional_of(node.value_exact<bool>());
      case ConfigType::real:
        if (auto whole = node.value_exact<std::int64_t>()) return optional_of(std::optional(double(*whole)));
        return optional_of(node.value_exact<double>());
      case ConfigType::bytes:
        if (auto count = node.value_exact<std::int64_t>()) return optional_of(count);
        [[fallthrough]];
      case ConfigType::duration: {
        auto text = node.value_exact<std::string>();
        if (!text) return std::nullopt;
        return from_text(type, *text).map([](Value value) { return std::optional(std::move(value)); });
      }
      case ConfigType::texts: {
        const toml::array* array = node.as_array();
        if (array == nullptr) return std::nullopt;
        std::vector<std::string> texts;
        for (const toml::node& element : *array) {
          auto text = element.value_exact<std::string>();
          if (!text)
            return fail(Error::invalid, "the list holds {} where only text may stand", toml_type_name(element));
          texts.push_back(std::move(*text));
        }
        return std::optional(Value(std::move(texts)));
      }
    }
    return std::nullopt;
  }

  static Status check_range(const ConfigKey& key, const Value& value) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (number == nullptr || (*number >= key.minimum && *number <= key.maximum)) return {};
    bool above = *number > key.maximum;
    return fail(Error::invalid, "{} is {} than the {}, {}", written(key.type, value), above ? "larger" : "smaller",
                above ? "maximum" : "minimum", written(key.type, Value(above ? key.maximum : key.minimum)));
  }

  // Visits all keys of a table and of those inside it. `prefix` is "" or "table.".
  static Status read_table(Config& config, const toml::table& table, const std::string& prefix,
                           std::string_view source) {
    for (auto&& [key, node] : table) {
      std::string name = prefix + std::string(key.str());
      std::string place = fmt::format("{}:{}", source, static_cast<unsigned>(key.source().begin.line));
      if (const ConfigKey* known = find_key(config.keys_, name)) {
        OFP_TRY(read_value(config, *known, node, place));
      } else if (const auto list = std::ranges::find(config.lists_, name, &ConfigList::name);
                 list != config.lists_.end()) {
        OFP_TRY(read_list(config, *list, node, place, source));
      } else if (!is_table_name(config.keys_, name)) {
        return unknown_name(config.keys_, config.lists_, name, node.is_table() || node.is_array_of_tables(), place);
      } else if (!node.is_table()) {
        return fail(Error::invalid, "{}: '{}' is a table of keys, but {} stands there", place, name,
                    toml_type_name(node));
      } else {
        OFP_TRY(read_table(config, *node.as_table(), name + ".", source));
      }
    }
    return {};
  }

  static Status read_list(Config& config, const ConfigList& list, const toml::node& node, const std::string& place,
                          std::string_view source) {
    if (!node.is_array_of_tables())
      return fail(Error::invalid, "{}: '{}' is written [[{}]], once for each, but {} stands there", place, list.name,
                  list.name, toml_type_name(node));
    auto& listed = config.listed_[static_cast<std::size_t>(&list - config.lists_.data())];
    for (const toml::node& element : *node.as_array()) {
      Config one(list.keys);
      const std::string begin = fmt::format("{}:{}", source, static_cast<unsigned>(element.source().begin.line));
      for (Config::Entry& entry : one.entries_) entry.source = begin;
      OFP_TRY(read_table(one, *element.as_table(), std::string(list.name) + ".", source));
      listed.push_back(std::move(one));
    }
    return {};
  }

  static std::string written(ConfigType type, const Value& value) {
    switch (type) {
      case ConfigType::text:
        return in_quotes(std::get<std::string>(value));
      case ConfigType::integer:
        return fmt::format("{}", std::get<std::int64_t>(value));
      case ConfigType::real:
        return fmt::format("{}", std::get<double>(value));
      case ConfigType::boolean:
        return fmt::format("{}", std::get<bool>(value));
      case ConfigType::bytes:
        return in_quotes(format_bytes(std::get<std::int64_t>(value)));
      case ConfigType::duration:
        return in_quotes(format_duration(std::get<std::int64_t>(value)));
      case ConfigType::texts:
        return in_quotes(std::get<std::vector<std::string>>(value));
    }
    return {};
  }

 private:
  template <class T>
  static Result<Value> number(ConfigType type, std::string_view text) {
    const auto value = number_of<T>(text);
    return value ? Value(*value) : Result<Value>(mismatch(type, text));
  }

  static tl::unexpected<Failure> mismatch(ConfigType type, std::string_view text) {
    return fail(Error::invalid, "'{}' is not {}", text, with_example(type));
  }

  template <class T>
  static std::optional<Value> optional_of(std::optional<T> value) {
    if (!value) return std::nullopt;
    return Value(std::move(*value));
  }

  static bool is_table_name(std::span<const ConfigKey> keys, std::string_view name) {
    return std::ranges::any_of(keys, [&](const ConfigKey& key) {
      return key.name.size() > name.size() && key.name.starts_with(name) && key.name[name.size()] == '.';
    });
  }

  static Status read_value(Config& config, const ConfigKey& key, const toml::node& node, const std::string& place) {
    auto value = from_node(key.type, node);
    if (value && !*value) {
      return fail(Error::invalid, "{}: '{}' is {}, but {} stands there", place, key.name, with_example(key.type),
                  toml_type_name(node));
    }
    Status in_range = value ? check_range(key, **value) : tl::unexpected(value.error());
    if (!in_range) return fail(Error::invalid, "{}: '{}': {}", place, key.name, in_range.error().message);
    config.entries_[static_cast<std::size_t>(&key - config.keys_.data())] = {std::move(**value), place};
    return {};
  }
};

std::string_view config_type_name(ConfigType type) noexcept {
  switch (type) {
    case ConfigType::text:
      return "text";
    case ConfigType::integer:
      return "integer";
    case ConfigType::real:
      return "real";
    case ConfigType::boolean:
      return "boolean";
    case ConfigType::bytes:
      return "bytes";
    case ConfigType::duration:
      return "duration";
    case ConfigType::texts:
      return "list of text";
  }
  return "";
}

Config::Config(std::span<const ConfigKey> keys, std::span<const ConfigList> lists)
    : keys_(keys), lists_(lists), listed_(lists.size()) {
  for (const ConfigKey& key : keys) {
    auto value = ConfigReader::from_text(key.type, key.value);
    OFP_ASSERT(value && ConfigReader::check_range(key, *value));
    entries_.push_back({std::move(*value), "default"});
  }
}

Result<Config> Config::parse(std::span<const ConfigKey> keys, std::string_view toml, std::string_view source,
                             std::span<const ConfigList> lists) {
  toml::parse_result parsed = toml::parse(toml);
  if (!parsed) {
    return fail(Error::invalid, "{}:{}: {}", source, static_cast<unsigned>(parsed.error().source().begin.line),
                parsed.error().description());
  }
  Config config(keys, lists);
  OFP_TRY(ConfigReader::read_table(config, parsed.table(), "", source));
  return config;
}

Result<Config> Config::load(std::span<const ConfigKey> keys, const std::string& path,
                            std::span<const ConfigList> lists) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(errno, "open " + path);
  std::string toml(file_bytes_max + 1, '\0');
  std::size_t length = 0;
  while (length < toml.size()) {
    ssize_t count = ::read(file.get(), toml.data() + length, toml.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read " + path);
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  if (length > file_bytes_max) {
    return fail(Error::too_large, "{}: larger than the {} bytes a configuration may have", path, file_bytes_max);
  }
  return parse(keys, std::string_view(toml).substr(0, length), path, lists);
}

Status Config::set(std::string_view name, std::string_view value, std::string_view source) {
  const ConfigKey* key = find_key(keys_, name);
  if (key == nullptr) return unknown_name(keys_, lists_, name, false, source);
  auto parsed = ConfigReader::from_text(key->type, value);
  Status in_range = parsed ? ConfigReader::check_range(*key, *parsed) : tl::unexpected(parsed.error());
  if (!in_range) return fail(Error::invalid, "{}: '{}': {}", source, name, in_range.error().message);
  entries_[static_cast<std::size_t>(key - keys_.data())] = {std::move(*parsed), std::string(source)};
  return {};
}

const Config::Value& Config::value_of(std::string_view name, ConfigType type) const {
  const ConfigKey* key = find_key(keys_, name);
  OFP_ASSERT(key != nullptr && key->type == type);
  return entries_[static_cast<std::size_t>(key - keys_.data())].value;
}

const std::string& Config::text(std::string_view name) const {
  return std::get<std::string>(value_of(name, ConfigType::text));
}
std::int64_t Config::integer(std::string_view name) const {
  return std::get<std::int64_t>(value_of(name, ConfigType::integer));
}
double Config::real(std::string_view name) const { return std::get<double>(value_of(name, ConfigType::real)); }
bool Config::boolean(std::string_view name) const { return std::get<bool>(value_of(name, ConfigType::boolean)); }
std::uint64_t Config::bytes(std::string_view name) const {
  return static_cast<std::uint64_t>(std::get<std::int64_t>(value_of(name, ConfigType::bytes)));
}
TimeNs Config::duration_ns(std::string_view name) const {
  return std::get<std::int64_t>(value_of(name, ConfigType::duration));
}
const std::vector<std::string>& Config::texts(std::string_view name) const {
  return std::get<std::vector<std::string>>(value_of(name, ConfigType::texts));
}

const std::string& Config::source(std::string_view name) const {
  const ConfigKey* key = find_key(keys_, name);
  OFP_ASSERT(key != nullptr);
  return entries_[static_cast<std::size_t>(key - keys_.data())].source;
}

const std::vector<Config>& Config::list(std::string_view name) const {
  const auto found = std::ranges::find(lists_, name, &ConfigList::name);
  OFP_ASSERT(found != lists_.end());
  return listed_[static_cast<std::size_t>(found - lists_.begin())];
}

// The keys of one table, without its name.
std::string Config::table_toml(std::string_view table) const {
  std::string out;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const ConfigKey& key = keys_[i];
    if (table_of(key.name) != table) continue;
    std::string_view last = key.name.substr(table.empty() ? 0 : table.size() + 1);
    out += fmt::format("# {}\n{} = {}\n", key.doc, last, ConfigReader::written(key.type, entries_[i].value));
  }
  return out;
}

std::string Config::to_toml() const {
  // TOML wants the keys without a table first, and each table once.
  std::vector<std::string_view> tables{""};
  for (const ConfigKey& key : keys_) {
    if (std::ranges::find(tables, table_of(key.name)) == tables.end()) tables.push_back(table_of(key.name));
  }
  std::string out;
  for (std::string_view table : tables) {
    if (!table.empty()) out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", table);
    out += table_toml(table);
  }
  for (std::size_t i = 0; i < lists_.size(); ++i) {
    for (const Config& one : listed_[i])
      out += fmt::format("{}[[{}]]\n{}", out.empty() ? "" : "\n", lists_[i].name, one.table_toml(lists_[i].name));
  }
  return out;
}

namespace {

std::string reference_table(std::span<const ConfigKey> keys) {
  std::string out = "| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const ConfigKey& key : keys) {
    std::string value(key.value);
    out += fmt::format("| `{}` | {} | {} | {} |\n", key.name, config_type_name(key.type),
                       value.empty() ? "none" : "`" + value + "`", key.doc);
  }
  return out;
}

}  // namespace

tl::unexpected<Failure> bad_value_formatted(const Config& config, std::string_view key, fmt::string_view format,
                                            fmt::format_args args) {
  return fail(Error::invalid, "{}: {}: {}", config.source(key), key, fmt::vformat(format, args));
}

std::string config_reference(std::span<const ConfigKey> keys, std::span<const ConfigList> lists) {
  std::string out = reference_table(keys);
  for (const ConfigList& list : lists)
    out += fmt::format("\n`[[{}]]`, any number of times: {}\n\n{}", list.name, list.doc, reference_table(list.keys));
  return out;
}

Result<std::int64_t> parse_bytes(std::string_view text) {
  bool digits_only = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  return parse_quantity(digits_only ? std::string(text) + "B" : std::string(text), bytes_units, "4GiB");
}

Result<TimeNs> parse_duration_ns(std::string_view text) { return parse_quantity(text, duration_units, "250us"); }

std::string format_bytes(std::int64_t bytes) { return format_quantity(bytes, bytes_units); }

std::string format_duration(TimeNs duration_ns) { return format_quantity(duration_ns, duration_units); }

}  // namespace offpath
