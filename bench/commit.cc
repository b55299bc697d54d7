#include "commit.h"

#include <cstdio>

#include <fmt/format.h>

namespace offpath::bench {
namespace {

// Quotes a word of a shell command.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The closest folder above `program` that is a clone of this project. Another repository with an environment in which
// Offpath is installed does not count.
std::filesystem::path clone_above(const std::filesystem::path& program) {
  std::error_code ignored;
  for (std::filesystem::path folder = program.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (!std::filesystem::exists(folder / ".git", ignored)) continue;
    return std::filesystem::exists(folder / "include/offpath/offpath.h", ignored) ? folder : std::filesystem::path();
  }
  return {};
}

}  // namespace

std::string commit_of(const std::filesystem::path& program, std::string_view built_in) {
  const std::filesystem::path clone = clone_above(program);
  if (clone.empty()) return std::string(built_in);
  const std::string command =
      fmt::format("git --no-optional-locks -C {} describe --always --exclude='*' --abbrev=7 --dirty 2>/dev/null",
                  quoted(clone.string()));
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::string(built_in);
  std::string said;
  for (char buffer[128]; std::fgets(buffer, sizeof buffer, pipe) != nullptr;) said += buffer;
  const bool known = pclose(pipe) == 0;
  said.erase(said.find_last_not_of('\n') + 1);
  return known && !said.empty() ? said : std::string(built_in);
}

}  // namespace offpath::bench
