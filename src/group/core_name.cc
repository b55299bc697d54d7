#include "group/core_name.h"

#include <set>

#include <fmt/format.h>

#include "base/text.h"

namespace offpath::group {

namespace {

constexpr char core_mark = '+';

}  // namespace

std::string core_name(std::string_view agent, unsigned core) {
  return core == 0 ? std::string(agent) : fmt::format("{}{}{}", agent, core_mark, core);
}

std::string_view agent_of(std::string_view member) noexcept {
  const std::size_t at = member.rfind(core_mark);
  if (at == std::string_view::npos || at == 0) return member;
  const std::string_view digits = member.substr(at + 1);
  if (digits.empty() || digits.front() == '0') return member;
  const auto core = number_of<unsigned>(digits);
  return core && *core < cores_max ? member.substr(0, at) : member;
}

std::size_t agents_among(std::span<const std::string> members) {
  std::set<std::string_view> agents;
  for (const std::string& member : members) agents.insert(agent_of(member));
  return agents.size();
}

}  // namespace offpath::group
