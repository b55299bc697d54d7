// Any text as a configuration file and as values of options: it is taken, or refused with a reason. What was taken
// prints as a file that says the same.
#include <cstddef>
#include <cstdint>

#include "base/config.h"

using namespace offpath;

namespace {

constexpr ConfigKey keys[] = {
    {"a.text", ConfigType::text, "", "Words."},
    {"a.count", ConfigType::integer, "1", "A number.", -5, 1000},
    {"a.ratio", ConfigType::real, "0.5", "A share."},
    {"b.flag", ConfigType::boolean, "true", "Yes or no."},
    {"b.size", ConfigType::bytes, "4KiB", "Bytes."},
    {"b.time", ConfigType::duration, "5ms", "A while."},
    {"b.list", ConfigType::texts, "", "Several."},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto config = Config::parse(keys, text, "fuzzed")) {
    const std::string said = config->to_toml();
    const auto again = Config::parse(keys, said, "again");
    OFP_ASSERT(again && again->to_toml() == said);
  } else {
    OFP_ASSERT(!config.error().message.empty());
  }
  Config options(keys);
  for (const ConfigKey& key : keys) (void)options.set(key.name, text);
  (void)parse_bytes(text);
  (void)parse_duration_ns(text);
  return 0;
}
