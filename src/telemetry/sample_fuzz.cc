// Arbitrary bytes as a schema and as a sample: refused by name, or encoded again to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "telemetry/sample.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  std::vector<std::byte> again;
  if (const auto schema = exchange::decode_schema(bytes)) {
    OFP_ASSERT(exchange::check(*schema) && schema->id() != 0);
    exchange::encode(*schema, again);
    OFP_ASSERT(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  } else {
    OFP_ASSERT(schema.error().code == Error::protocol && !schema.error().message.empty());
  }
  again.clear();
  if (const auto sample = exchange::decode_sample(bytes)) {
    exchange::encode(*sample, again);
    OFP_ASSERT(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  } else {
    OFP_ASSERT(sample.error().code == Error::protocol);
  }
  return 0;
}
