// Any bytes as the description of an exchange's fields and members.
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/areas/exchange_area.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  (void)wire::decode_fields(bytes);
  (void)wire::decode_description(bytes);
  return 0;
}
