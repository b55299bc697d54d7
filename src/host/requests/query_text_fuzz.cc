// Any text as a filter (its first line), columns and aggregates (lines that begin with @): refused with the place, or a
// query that agents read and understand as it was meant.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "host/requests/query_text.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto line = [&] {
    const std::string_view taken = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(taken.size() < rest.size() ? taken.size() + 1 : rest.size());
    return taken;
  };
  host::QueryText text{.filter = line()};
  while (!rest.empty()) {
    const std::string_view each = line();
    if (each.starts_with('@'))
      text.aggregates.push_back(each.substr(1));
    else
      text.columns.push_back(each);
  }
  const auto query = host::parse_query(text);
  if (!query) {
    OFP_ASSERT(query.error().code == Error::invalid || query.error().code == Error::too_large);
    return 0;
  }
  const auto read = wire::decode_query(wire::encode(*query));
  if (read)
    OFP_ASSERT(*read == *query);
  else
    OFP_ASSERT(read.error().code == Error::invalid || read.error().code == Error::too_large);
  return 0;
}
