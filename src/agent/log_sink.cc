#include "agent/log_sink.h"

#include <cstdlib>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace offpath::agent {

namespace {

constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                spdlog::level::err, spdlog::level::off};
constexpr std::string_view priorities[] = {"<7>", "<6>", "<4>", "<3>", ""};  // sd-daemon(3)

}  // namespace

AgentLog::AgentLog(LogLevel level) : journal_(std::getenv("JOURNAL_STREAM") != nullptr) {
  logger_ = std::make_shared<spdlog::logger>("offpath-agent", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger_->set_level(spdlog::level::debug);  // base/log.h has chosen by then
  logger_->set_pattern(journal_ ? "%v" : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger_->flush_on(spdlog::level::debug);
  set_log(level, write, this);
}

AgentLog::~AgentLog() { set_log(LogLevel::warning, nullptr, nullptr); }

void AgentLog::write(LogLevel level, std::string_view line, void* self) {
  const auto& log = *static_cast<const AgentLog*>(self);
  const auto index = static_cast<std::size_t>(level);
  if (log.journal_) {
    log.logger_->log(levels[index], "{}{}", priorities[index], line);
  } else {
    log.logger_->log(levels[index], spdlog::string_view_t(line.data(), line.size()));
  }
}

}  // namespace offpath::agent
