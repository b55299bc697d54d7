// Every message is a plain struct with an `encode` that appends it to bytes, and a `decode` for bytes from another
// process. decode checks lengths, counts and enumerations, but not the meaning. Strings and spans of a decoded struct
// point into the decoded bytes, which are the decoder's own copy.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

// For a list of messages, `#define OFFPATH_…_MESSAGES(X) X(One) X(Other)`. Declares their encode and decode, which
// message_fields.h defines.
#define OFFPATH_DECLARE_CODING(Message)                            \
  void encode(const Message& message, std::vector<std::byte>& to); \
  [[nodiscard]] Status decode(Bytes payload, Message& message);
