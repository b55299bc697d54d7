// Any bytes to every decoder of control.h: accepted bytes encode to the same bytes again.
#include <algorithm>

#include "wire/control.h"

using namespace offpath;

namespace {

template <class Message>
void same_again(const Result<Message>& message, Bytes bytes) {
  if (!message) {
    OFP_ASSERT(!message.error().message.empty());
    return;
  }
  std::vector<std::byte> again;
  wire::encode(*message, again);
  OFP_ASSERT(std::ranges::equal(again, bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 9) {
    case 0:
      same_again(wire::decode_hello(bytes), bytes);
      break;
    case 1:
      same_again(wire::decode_welcome(bytes), bytes);
      break;
    case 2:
      (void)wire::decode_refusal(bytes);
      break;  // an unknown code becomes `protocol`
    case 3:
      same_again(wire::decode_segment_notice(bytes), bytes);
      break;
    case 4: {
      const auto request = wire::decode_transfer(bytes);
      same_again(request, bytes);
      std::uint64_t sum = 0;  // reads every piece
      for (std::size_t i = 0; request && i < request->count(); ++i) sum += request->piece(i).length;
      [[maybe_unused]] static volatile std::uint64_t seen;
      seen = sum;
      break;
    }
    case 5:
      (void)wire::decode_outcome(bytes);
      break;  // an empty text is replaced
    case 6:
      same_again(wire::decode_withdrawal(bytes), bytes);
      break;
    case 7:
      same_again(wire::decode_memory_export(bytes), bytes);
      break;
    default:
      (void)wire::decode_number(bytes);
      (void)wire::decode_segment_number(bytes);
  }
  return 0;
}
