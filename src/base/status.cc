#include "base/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace offpath {

std::string_view error_name(Error code) noexcept {
  switch (code) {
#define X(name, number, text) \
  case Error::name:           \
    return #name;
    OFFPATH_ERRORS(X)
#undef X
  }
  return "unknown";
}

std::string brief(std::string_view text) {
  constexpr std::size_t shown_bytes = 80;
  if (text.size() <= 2 * shown_bytes) return std::string(text);
  std::size_t end = shown_bytes;  // never cut within a UTF-8 character
  while (end > shown_bytes - 4 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80) --end;
  return fmt::format("{}… of {} bytes", text.substr(0, end), text.size());
}

std::string_view error_text(Error code) noexcept {
  switch (code) {
#define X(name, number, text) \
  case Error::name:           \
    return text;
    OFFPATH_ERRORS(X)
#undef X
  }
  return "unknown error";
}

namespace {

Error from_errno(int error_number) noexcept {
  switch (error_number) {
    case EAGAIN:
      return Error::would_block;
    case ETIMEDOUT:
      return Error::timeout;
    case ENOENT:
      return Error::not_found;
    case EEXIST:
    case EADDRINUSE:
      return Error::exists;
    case EFAULT:
      return Error::unreadable;
    case EPERM:
    case EACCES:
      return Error::denied;
    case ESRCH:
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
      return Error::peer_lost;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Error::no_memory;
    case ENOSPC:
    case EDQUOT:
      return Error::no_space;
    case ENOSYS:
    case EOPNOTSUPP:
      return Error::unsupported;
    case EINVAL:
      return Error::invalid;
    default:
      return Error::io;
  }
}

}  // namespace

tl::unexpected<Failure> fail_formatted(Error code, fmt::string_view format, fmt::format_args args) {
  return tl::unexpected<Failure>(Failure{code, fmt::vformat(format, args)});
}

tl::unexpected<Failure> fail_errno(int error_number, std::string_view call) {
  char text[128];
  const char* message = strerror_r(error_number, text, sizeof text);
  return fail(from_errno(error_number), "{}: {}", call, message);
}

void assertion_failed(const char* expression, const char* file, unsigned line) noexcept {
  std::fprintf(stderr, "offpath: bug: %s:%u: assertion failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace offpath
