// DPDK's environment abstraction layer (EAL): its memory, its threads, its list of devices.
//
// There is one for a process. It cannot begin a second time, not even after an end, so it has none: it begins with the
// first device and lasts as the process does. Its memory is the process's own, and nothing of it is left afterwards.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace offpath::tcp {

// Begins it, or finds that it has begun with the same words. From any thread.
[[nodiscard]] Status begin_eal(const std::vector<std::string>& arguments);

// What DPDK has said since the last call, of warnings and errors; if nothing, what the number of an error means. Its
// words are better: drivers often return any number. All of it goes to the log besides.
[[nodiscard]] std::string what_eal_said(int error);

}  // namespace offpath::tcp
