#include "agent/log_sink.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "agent/status/json.h"

namespace offpath::agent {

namespace {

constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                spdlog::level::err, spdlog::level::off};
constexpr std::string_view priorities[] = {"<7>", "<6>", "<4>", "<3>", ""};  // sd-daemon(3)
constexpr const char* text_pattern = "%Y-%m-%dT%H:%M:%S.%e%z %l %v";
constexpr const char* journal_pattern = "%v";
constexpr const char* json_pattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","process":%P,"message":%v})";
constexpr TimeNs last_lines_ns = 200 * millisecond_ns;

void write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Used by the handler of SIGABRT: an assertion's own line is written at once, and it waits for the lines before it.
constinit std::atomic<std::uint64_t> bytes_taken = 0, bytes_written = 0;

void await_last_lines(int) {
  const std::uint64_t all = bytes_taken.load();
  constexpr timespec nap{0, millisecond_ns};
  for (TimeNs waited = 0; waited < last_lines_ns && bytes_written.load() < all; waited += millisecond_ns)
    nanosleep(&nap, nullptr);
}

}  // namespace

// State shared by the writing thread and the log; it outlives both.
class AgentLog::Lines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  Lines(const AgentLogOptions& options, std::string prefix)
      : fd_(options.fd), bytes_max_(options.waiting_bytes_max), format_(options.format), prefix_(std::move(prefix)) {
    waiting_.reserve(bytes_max_);
    leaving_.reserve(bytes_max_);
  }

  void drop_one() noexcept {
    const std::lock_guard lock(lines_mutex_);
    ++dropped_;
  }
  void set_thread(bool is_there) noexcept {
    const std::lock_guard lock(lines_mutex_);
    has_thread_ = is_there;
  }
  void end(TimeNs within) {
    std::unique_lock lock(lines_mutex_);
    ends_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::nanoseconds(within), [this] { return !has_thread_; });
  }

  void write_lines() {
    std::unique_lock lock(lines_mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty() || dropped_ > 0; });
      if (waiting_.empty() && dropped_ == 0) break;
      leaving_.swap(waiting_);
      const std::uint64_t dropped = std::exchange(dropped_, 0);
      lock.unlock();
      write_all(fd_, leaving_);
      bytes_written.fetch_add(leaving_.size());
      leaving_.clear();
      if (dropped > 0) tell_dropped(dropped);
      lock.lock();
    }
    has_thread_ = false;
    changed_.notify_all();
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::lock_guard lock(lines_mutex_);
    if (!has_thread_) return write_all(fd_, {line.data(), line.size()});
    if (dropped_ > 0 || waiting_.size() + line.size() > bytes_max_) {
      ++dropped_;
    } else {
      waiting_.append(line.data(), line.size());
      bytes_taken.fetch_add(line.size());
    }
    changed_.notify_all();
  }
  void flush_() override {}

  // Writes the note about dropped lines: after the lines that were queued, before any later line.
  void tell_dropped(std::uint64_t dropped) {
    spdlog::memory_buf_t line;
    const std::lock_guard lock(mutex_);  // the formatter's
    const std::string told = fmt::format("{}{} lines were dropped: standard error was not read", prefix_, dropped);
    const std::string text = format_ == LogFormat::json ? Json().value(told).text() : told;
    formatter_->format({"offpath-agent", spdlog::level::warn, {text.data(), text.size()}}, line);
    write_all(fd_, {line.data(), line.size()});
  }

  int fd_;
  std::size_t bytes_max_;
  LogFormat format_;
  std::string prefix_;  // of the note
  std::mutex lines_mutex_;
  std::condition_variable changed_;
  std::string waiting_, leaving_;  // reserved at their full size from the start
  std::uint64_t dropped_ = 0;      // since waiting_ was full
  bool has_thread_ = false, ends_ = false;
};

AgentLog::AgentLog(LogLevel level, const AgentLogOptions& options)
    : options_(options),
      level_(level),
      journal_(options.format == LogFormat::text && std::getenv("JOURNAL_STREAM") != nullptr) {
  lines_ = std::make_shared<Lines>(
      options_, journal_ ? std::string(priorities[static_cast<std::size_t>(LogLevel::warning)]) : std::string());
  logger_ = std::make_shared<spdlog::logger>("offpath-agent", lines_);
  logger_->set_level(spdlog::level::debug);  // write() has already filtered by level
  logger_->set_pattern(options_.format == LogFormat::json ? json_pattern : journal_ ? journal_pattern : text_pattern);
  logger_->set_error_handler([lines = lines_.get()](const std::string&) { lines->drop_one(); });  // no memory
  set_log(std::min(level, LogLevel::info), write, this);
}

AgentLog::~AgentLog() {
  set_log(LogLevel::warning, nullptr, nullptr);
  (void)std::signal(SIGABRT, SIG_DFL);
  lines_->end(options_.end_within_ns);
}

void AgentLog::set_level(LogLevel level) noexcept {
  level_.store(level, std::memory_order_relaxed);
  set_log_level(std::min(level, LogLevel::info));
}

Status AgentLog::begin_thread() {
  lines_->set_thread(true);
  try {
    std::thread([lines = lines_] { lines->write_lines(); }).detach();
  } catch (const std::system_error& error) {
    lines_->set_thread(false);
    return fail(Error::no_memory, "no thread for the log: {}", error.what());
  }
  (void)std::signal(SIGABRT, await_last_lines);
  return {};
}

void AgentLog::write(LogLevel level, std::string_view line, void* self) {
  auto& log = *static_cast<AgentLog*>(self);
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  log.recent_.note(level, time.tv_sec * second_ns + time.tv_nsec, line);
  if (level < log.level_.load(std::memory_order_relaxed)) return;
  const auto index = static_cast<std::size_t>(level);
  if (log.options_.format == LogFormat::json) {
    log.logger_->log(levels[index], "{}", Json().value(line).text());
  } else if (log.journal_) {
    log.logger_->log(levels[index], "{}{}{}", priorities[index], log.options_.label, line);
  } else if (!log.options_.label.empty()) {
    log.logger_->log(levels[index], "{}{}", log.options_.label, line);
  } else {
    log.logger_->log(levels[index], spdlog::string_view_t(line.data(), line.size()));
  }
}

}  // namespace offpath::agent
