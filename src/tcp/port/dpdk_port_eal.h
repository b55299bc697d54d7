// DPDK's environment abstraction layer (EAL): its memory, its threads, its list of devices.
//
// A process has one EAL. It cannot be started a second time, not even after it was stopped, so it is never stopped: it
// starts with the first device and lasts as long as the process. Its memory is private to the process, so nothing is
// left behind.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace offpath::tcp {

// Starts EAL, or checks that it was started with the same arguments. Thread-safe.
[[nodiscard]] Status begin_eal(const std::vector<std::string>& arguments);

// DPDK's warnings and errors since the last call, or the meaning of the number `error` if there are none. The messages
// are the better explanation: drivers often return arbitrary numbers. All messages also go to the log.
[[nodiscard]] std::string what_eal_said(int error);

}  // namespace offpath::tcp
