// Memory with a descriptor, so that another process can map it, and its seals: operations that no process can perform
// on it any more (memfd_create(2), F_ADD_SEALS).
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath {

// Creates an empty memfd that can be sealed, and that is never executable where the kernel supports it (Linux 6.3).
// /proc shows it as `name`.
[[nodiscard]] Result<Fd> memory_file(const char* name);

// Adds `seals` and F_SEAL_SEAL, so that no process can add more. `what` names the memory in the error.
[[nodiscard]] Status add_seals(int fd, int seals, std::string_view what);

// A memfd with these bytes that no process can change any more. Written, not mapped, so that the kernel fills each page
// once.
[[nodiscard]] Result<Fd> sealed_copy(const char* name, Bytes bytes);

// The seals of a descriptor from another process. Fails with `code` unless the descriptor is an ordinary memfd with all
// of `required`: then F_GET_SEALS and fstat stay true. Asks for the seals first, because they prove that the file is
// memory: fstatfs and fstat ask the file system, and a FUSE file system or a lost server would block the caller.
[[nodiscard]] Result<int> check_seals(int fd, int required, Error code, std::string_view what);

// "SHRINK, GROW"
[[nodiscard]] std::string seal_names(int seals);

}  // namespace offpath
