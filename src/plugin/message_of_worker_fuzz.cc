// Arbitrary bytes as a message of a worker: accepted messages keep to the limits, and encode to messages that are
// accepted.
#include <algorithm>

#include "plugin/message.h"

using namespace offpath;
using namespace offpath::plugin;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes = std::as_bytes(std::span(data, size)).subspan(1);
  std::vector<std::byte> again;
  if (data[0] % 4 == 1) {
    if (const auto packet = decode_from_agent(bytes)) {
      encode(*packet, again);
      OFP_ASSERT(std::ranges::equal(again, bytes));
    }
    return 0;
  }
  if (data[0] % 4 == 2) {
    if (const auto description = decode_description(bytes)) {
      encode(*description, again);
      OFP_ASSERT(again.size() <= bytes.size() && std::ranges::equal(again, bytes.first(again.size())));
    }
    return 0;
  }
  const auto message = decode_from_worker(bytes);
  if (!message) {
    OFP_ASSERT(!message.error().message.empty());
    return 0;
  }
  if (const auto* done = std::get_if<Done>(&*message)) {
    OFP_ASSERT(done->outputs.size() <= outputs_max && done->error.size() <= error_bytes_max);
    for (const OutputNotice& output : done->outputs) OFP_ASSERT(output.bytes <= output_bytes_limit);
  }
  if (const auto* ready = std::get_if<Ready>(&*message)) {
    if (ready->protocol != protocol_version) return 0;
    for (const FunctionInfo& function : ready->functions) OFP_ASSERT(is_function_name(function.name));
  }
  encode(*message, again);
  OFP_ASSERT(decode_from_worker(again).has_value());
  return 0;
}
