// Any text as a pool's name: an accepted name, written out again, means the same.
#include <cstddef>
#include <cstdint>

#include "pool/directory/placement.h"
#include "pool/directory/pool_name.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = pool::parse_pool_name(text);
  if (!parsed) {
    OFP_ASSERT(!parsed.error().message.empty());
    return 0;
  }
  const auto again = pool::parse_pool_name(parsed->text());
  // A budget or a time to live may be written with more digits than it had.
  if (again)
    OFP_ASSERT(again->name == parsed->name && again->options == parsed->options);
  else
    OFP_ASSERT(again.error().code == Error::too_large);
  const std::vector<std::string> members{"dpu0", "dpu1", "dpu2"};
  const auto owners =
      pool::owners_of(parsed->policy, parsed->options.replicas, text, pool::members_of(parsed->options, members));
  OFP_ASSERT(owners.size() <= parsed->options.replicas);
  return 0;
}
