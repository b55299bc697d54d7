// The seccomp filter of a supervised program: it stops the calls that make and name connections, and hands them to the
// supervisor (seccomp_unotify(2)). Calls that move bytes are not among them.
#pragma once

#include <array>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::supervise {

// Sets the filter for this thread and everything that it starts, and returns the supervisor's end. `counts_all`: every
// socket() is handed over, so that a report can count sockets that are left to the kernel; otherwise only those of TCP.
// A process without CAP_SYS_ADMIN gives up setuid programs for it (PR_SET_NO_NEW_PRIVS).
[[nodiscard]] Result<Fd> set_filter(bool counts_all);

}  // namespace offpath::supervise
