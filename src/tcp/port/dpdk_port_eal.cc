#include "tcp/port/dpdk_port_eal.h"

#include <linux/capability.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"

namespace offpath::tcp {
namespace {

// ---- DPDK's messages

class Said {
 public:
  // DPDK writes pieces of any size, from any thread.
  void write(std::string_view text, LogLevel level) {
    const std::lock_guard lock(mutex_);
    line_ += text;
    for (std::size_t end; (end = line_.find('\n')) != std::string::npos; line_.erase(0, end + 1)) {
      const std::string_view line = std::string_view(line_).substr(0, end);
      if (line.empty()) continue;
      log(level, "DPDK: {}", line);
      if (level < LogLevel::warning || kept_.size() + line.size() > kept_bytes_max) continue;
      if (!kept_.empty()) kept_ += "; ";
      kept_ += line;
    }
    if (line_.size() > kept_bytes_max) line_.clear();
  }
  std::string take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(kept_, {});
  }

 private:
  static constexpr std::size_t kept_bytes_max = 1024;
  std::mutex mutex_;
  std::string line_, kept_;
};

// Never destroyed: DPDK's threads may write until the process has ended.
Said& said() {
  static Said& made = *new Said;
  return made;
}

LogLevel level_of(int level) noexcept {
  if (level <= 0) return LogLevel::debug;  // written outside of any message
  if (level <= static_cast<int>(RTE_LOG_ERR)) return LogLevel::error;
  return level <= static_cast<int>(RTE_LOG_WARNING) ? LogLevel::warning : LogLevel::debug;
}

ssize_t take_text(void*, const char* text, std::size_t bytes) {
  said().write({text, bytes}, level_of(rte_log_cur_msg_loglevel()));
  return static_cast<ssize_t>(bytes);
}

void have_it_speak_to_the_log() {
  cookie_io_functions_t functions{};
  functions.write = take_text;
  std::FILE* const stream = ::fopencookie(nullptr, "w", functions);
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, 1024);
  rte_openlog_stream(stream);
}

// ---- starting

bool begins_with_any(const std::string& word, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return word.starts_with(beginning); });
}

Status check(const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    if (word.empty() || word.find('\0') != std::string::npos)
      return fail(Error::invalid, "DPDK's arguments: '{}' is empty or contains a zero byte", brief(word));
    if (begins_with_any(word, {"--help", "-h", "-v", "--version"}))  // EAL would print something and end the process
      return fail(Error::invalid, "DPDK's arguments: {} would end the agent", brief(word));
  }
  return {};
}

std::vector<std::string> words_for(const std::vector<std::string>& arguments) {
  const auto has = [&](std::initializer_list<std::string_view> beginnings) {
    return std::ranges::any_of(arguments, [&](const std::string& word) { return begins_with_any(word, beginnings); });
  };
  // EAL shall make no files and no sockets that others could open. Without huge pages that needs another argument: DPDK
  // 22.11 refuses "--in-memory" then.
  std::vector<std::string> words{"offpath", has({"--no-huge"}) ? "--no-shconf" : "--in-memory", "--no-telemetry"};
  if (!has({"-l", "-c", "--lcores"})) {
    // One core suffices: EAL's threads have nothing to do, because the agent's loop polls.
    cpu_set_t cores;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof cores, &cores);
    int first = 0;
    while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &cores)) ++first;
    words.push_back("--lcores=0@" + std::to_string(first));
  }
  // Devices are probed one by one, when they are named. This argument allows only a device that does not exist.
  if (!has({"--no-pci", "-a", "--allow", "-b", "--block"})) words.insert(words.end(), {"-a", "0000:00:00.0"});
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void give_up_capabilities() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  static_cast<void>(::syscall(SYS_capset, &header, none.data()));
}

}  // namespace

std::string what_eal_said(int error) {
  std::string text = said().take();
  return text.empty() ? rte_strerror(error) : text;
}

Status begin_eal(const std::vector<std::string>& arguments) {
  static std::mutex mutex;
  static std::optional<std::vector<std::string>> begun;  // the arguments of the first start
  static bool failed = false;
  const std::lock_guard lock(mutex);
  OFP_TRY(check(arguments));
  if (failed)
    return fail(Error::invalid, "DPDK failed to initialize in this process and cannot try again: restart the process");
  if (begun) {
    if (*begun == arguments) return {};
    return fail(Error::invalid, "DPDK initializes once per process and did so with '{}'; this device needs '{}'",
                fmt::join(*begun, " "), fmt::join(arguments, " "));
  }
  static std::vector<std::string> words;  // EAL keeps pointers to them
  words = words_for(arguments);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  have_it_speak_to_the_log();
  // Runs on a separate thread: EAL pins the thread that starts it to a core, and threads that it makes inherit that
  // thread's capabilities for good.
  int result = 0, error = 0;
  std::thread([&] {
    give_up_capabilities();
    result = rte_eal_init(static_cast<int>(pointers.size()), pointers.data());
    error = rte_errno;
  }).join();
  failed = result < 0;
  if (failed)
    return fail(Error::invalid, "DPDK failed to initialize with '{}': {}", fmt::join(arguments, " "),
                what_eal_said(error));
  begun = arguments;
  return {};
}

}  // namespace offpath::tcp
