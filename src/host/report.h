// From Result to the C interface: codes and messages. Nothing throws across it.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "base/status.h"
#include "offpath/offpath.h"

namespace offpath::host {

// Fills `error` if there is one, cutting a long message between characters; returns the code.
int report(const Failure& failure, ofp_error* error) noexcept;

// Runs the implementation of a call of the C interface. `call` returns a Status.
template <class Call>
int guarded(ofp_error* error, Call&& call) noexcept {
  try {
    const Status status = std::forward<Call>(call)();
    if (status) [[likely]]
      return OFP_OK;
    return report(status.error(), error);
  } catch (const std::bad_alloc&) {
    return report(Failure{Error::no_memory, {}}, error);
  } catch (const std::exception&) {
    // Library code we call (fmt, containers) may throw; none of it does on data another process sent.
    return report(Failure{Error::invalid, {}}, error);
  }
}

[[nodiscard]] inline Status required(const void* argument, const char* name) {
  if (argument == nullptr) [[unlikely]]
    return fail(Error::invalid, "{} is NULL", name);
  return {};
}

// Checks the size that a struct carries, of an older or newer program. `known` is our size.
[[nodiscard]] Status check_struct_bytes(std::uint32_t given, std::size_t known, const char* name);

}  // namespace offpath::host
