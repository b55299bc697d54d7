// Any bytes as any message: decoding checks, and never reads out of bounds.
#include <cstddef>
#include <cstdint>

#include "wire/messages/message.h"

using namespace offpath;

#define X(Message) +1
static constexpr int messages = OFFPATH_MESSAGES(X);
#undef X

template <class Message>
static void decode_one(Bytes bytes) {
  Message message{};
  if (!wire::decode(bytes, message)) return;
  std::vector<std::byte> again;
  wire::encode(message, again);  // accepted messages can be encoded again
  Message back{};
  OFP_ASSERT(wire::decode(again, back));
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes = std::as_bytes(std::span(data + 1, size - 1));
  int number = 0;
  const int chosen = data[0] % messages;
#define X(Message) \
  if (number++ == chosen) decode_one<wire::Message>(bytes);
  OFFPATH_MESSAGES(X)
#undef X
  return 0;
}
