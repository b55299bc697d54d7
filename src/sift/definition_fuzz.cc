// Arbitrary bytes as the definition of a sift pool that another member sends, and arbitrary options in one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "sift/definition.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace offpath;
  if (size == 0) return 0;
  const Bytes rest = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> object(rest.begin(), rest.end());
  if (data[0] % 2 == 0) object = sift::encode_definition(fmt::format("sift:/t?key=id&{}", text_of(rest)));
  const auto text = sift::decode_definition(object);
  if (!text) {
    OFP_ASSERT(!text.error().message.empty());
    return 0;
  }
  OFP_ASSERT(std::ranges::equal(sift::encode_definition(*text), object));
  const auto settings = sift::parse_settings(*text);
  OFP_ASSERT(settings && settings->wait == 0 && !settings->samples_ranges);
  OFP_ASSERT(sift::check_same(*text, *settings, *text));
  OFP_ASSERT(sift::is_reference(sift::reference_to(*text)) && !sift::is_reference(*text));
  return 0;
}
