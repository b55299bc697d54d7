#include "tcp/flow/orphans.h"

#include <algorithm>

namespace offpath::tcp {

std::uint64_t Orphans::add(const FlowShare& share, FlowId flow) {
  programs_.try_emplace(share.program, Program{share.user, {}}).first->second.flows.emplace(++last_, flow);
  ++size_;
  return last_;
}

void Orphans::remove(const FlowShare& share, std::uint64_t number) noexcept {
  const auto program = programs_.find(share.program);
  if (program == programs_.end()) return;
  size_ -= program->second.flows.erase(number);
  if (program->second.flows.empty()) programs_.erase(program);
}

std::optional<FlowId> Orphans::one_too_many(const FlowShare& share) const {
  const auto program = programs_.find(share.program);
  if (program != programs_.end() && program->second.flows.size() > share.orphans_max)
    return program->second.flows.begin()->second;
  if (size_ <= most_) return std::nullopt;
  std::map<std::uint32_t, std::size_t> of_users;
  for (const auto& [number, each] : programs_) of_users[each.user] += each.flows.size();
  const auto most = std::ranges::max_element(of_users, {}, [](const auto& each) { return each.second; });
  const std::pair<const std::uint64_t, FlowId>* oldest = nullptr;
  for (const auto& [number, each] : programs_) {
    const auto& first = *each.flows.begin();
    if (each.user == most->first && (oldest == nullptr || first.first < oldest->first)) oldest = &first;
  }
  return oldest->second;
}

}  // namespace offpath::tcp
