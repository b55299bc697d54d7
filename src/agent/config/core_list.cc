#include "agent/config/core_list.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace offpath::agent {

Result<std::vector<unsigned>> read_core_list(const Config& config, std::string_view key) {
  constexpr unsigned core_max = 4095;
  std::vector<unsigned> cores;
  for (const std::string& text : config.texts(key)) {
    const std::size_t dash = text.find('-');
    unsigned first = 0, last = 0;
    const char *middle = text.data() + std::min(dash, text.size()), *end = text.data() + text.size();
    auto read = std::from_chars(text.data(), middle, first);
    bool whole = read.ec == std::errc() && read.ptr == middle;
    last = first;
    if (dash != std::string::npos) {
      read = std::from_chars(middle + 1, end, last);
      whole = whole && read.ec == std::errc() && read.ptr == end;
    }
    if (!whole || last < first || last > core_max)
      return bad_value(config, key, "'{}' is neither a core such as 2 nor a range such as 4-7", text);
    for (unsigned core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

}  // namespace offpath::agent
