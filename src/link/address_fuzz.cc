// Any text as an address: an accepted address survives printing and parsing.
#include <cstddef>
#include <cstdint>

#include "link/address.h"

using namespace offpath;
using namespace offpath::link;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto address = Address::parse({reinterpret_cast<const char*>(data), size});
  if (!address) {
    OFP_ASSERT(!address.error().message.empty());
    return 0;
  }
  const std::string text = address->text();
  const auto again = Address::parse(text);
  OFP_ASSERT(again && again->kind == address->kind && again->text() == text);
  return 0;
}
