// Arbitrary bytes as a piece's header, and arbitrary text as a sift pool's name: accepted ones keep to the limits, and
// a header encodes to the same bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "sift/piece.h"
#include "sift/settings.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if (data[0] % 2 == 0) {
    const std::string text = "sift:/t?" + std::string(reinterpret_cast<const char*>(data + 1), size - 1);
    const auto settings = sift::parse_settings(text);
    OFP_ASSERT(settings ? sift::check(*settings).has_value() : !settings.error().message.empty());
    return 0;
  }
  const Bytes bytes = std::as_bytes(std::span(data + 1, size - 1));
  const auto header = sift::decode_piece_header(bytes);
  if (!header) {
    OFP_ASSERT(!header.error().message.empty());
    return 0;
  }
  OFP_ASSERT(std::ranges::equal(sift::encode(*header), bytes));
  (void)sift::step_of(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
