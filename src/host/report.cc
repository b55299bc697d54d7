#include "host/report.h"

#include <algorithm>
#include <cstring>

namespace offpath::host {

#define X(name, number, text)                                                             \
  static_assert(static_cast<int>(Error::name) == number && number <= OFP_FUNCTION_FAILED, \
                "offpath.h has the same numbers");
OFFPATH_ERRORS(X)
#undef X
static_assert(OFP_WOULD_BLOCK == static_cast<int>(Error::would_block) &&
              OFP_TIMEOUT == static_cast<int>(Error::timeout));
static_assert(OFP_INVALID == static_cast<int>(Error::invalid) && OFP_NOT_FOUND == static_cast<int>(Error::not_found));
static_assert(OFP_EXISTS == static_cast<int>(Error::exists) && OFP_SCHEMA == static_cast<int>(Error::schema));
static_assert(OFP_TOO_LARGE == static_cast<int>(Error::too_large) && OFP_STALE == static_cast<int>(Error::stale));
static_assert(OFP_UNANNOUNCED == static_cast<int>(Error::unannounced));
static_assert(OFP_UNREADABLE == static_cast<int>(Error::unreadable) && OFP_DENIED == static_cast<int>(Error::denied));
static_assert(OFP_VERSION == static_cast<int>(Error::version) && OFP_PEER_LOST == static_cast<int>(Error::peer_lost));
static_assert(OFP_PROTOCOL == static_cast<int>(Error::protocol) && OFP_FORKED == static_cast<int>(Error::forked));
static_assert(OFP_NO_MEMORY == static_cast<int>(Error::no_memory) && OFP_NO_SPACE == static_cast<int>(Error::no_space));
static_assert(OFP_IO == static_cast<int>(Error::io) && OFP_UNSUPPORTED == static_cast<int>(Error::unsupported));
static_assert(OFP_CLOSED == static_cast<int>(Error::closed) && OFP_CANCELLED == static_cast<int>(Error::cancelled));
static_assert(OFP_FUNCTION_FAILED == static_cast<int>(Error::function_failed));

int report(const Failure& failure, ofp_error* error) noexcept {
  const int code = static_cast<int>(failure.code);
  if (error == nullptr) return code;
  error->code = code;
  std::string_view text = failure.message;
  if (text.empty()) text = error_text(failure.code);
  std::size_t length = std::min(text.size(), sizeof error->message - 1);
  if (length < text.size())
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  std::memcpy(error->message, text.data(), length);
  error->message[length] = '\0';
  return code;
}

Status check_struct_bytes(std::uint32_t given, std::size_t known, const char* name) {
  // Fields have eight bytes each: a size that cuts one is invalid.
  if (given < 8 || given % 8 != 0)
    return fail(Error::invalid, "{}.struct_bytes is {}; set it to sizeof({}), {} in this version", name, given, name,
                known);
  return {};
}

}  // namespace offpath::host
