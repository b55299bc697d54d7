#include "pool/table/waiting_gets.h"

namespace offpath::pool {

void WaitingGets::add(Get get) {
  const Number number = ++last_;
  const Get& kept = gets_.emplace(number, std::move(get)).first->second;
  by_keys_.insert({&kept.pool, &kept.keys, number});
  if (kept.deadline != never) by_deadline_.emplace(kept.deadline, number);
  by_name_.insert(named(kept, number));
}

Get WaitingGets::extract(Number number) {
  const auto at = gets_.find(number);
  by_keys_.erase({&at->second.pool, &at->second.keys, number});
  by_deadline_.erase({at->second.deadline, number});
  by_name_.erase(named(at->second, number));
  Get taken = std::move(at->second);
  gets_.erase(at);
  return taken;
}

void WaitingGets::add_pools(std::set<std::string_view>& names) const {
  for (const Wanted& wanted : by_keys_) names.insert(*wanted.pool);
}

std::vector<Get> WaitingGets::take(const std::string& pool, const std::pair<std::string, std::string>& keys) {
  std::vector<Number> numbers;
  for (auto at = by_keys_.lower_bound({&pool, &keys, 0});
       at != by_keys_.end() && *at->pool == pool && *at->keys == keys; ++at)
    numbers.push_back(at->number);
  std::vector<Get> taken;
  for (const Number number : numbers) taken.push_back(extract(number));
  return taken;
}

std::vector<Get> WaitingGets::take_late(TimeNs now) {
  std::vector<Get> taken;
  while (next_deadline() <= now && !by_deadline_.empty()) taken.push_back(extract(by_deadline_.begin()->second));
  return taken;
}

std::vector<Get> WaitingGets::take(const Named& first, const Named& last) {
  std::vector<Get> taken;
  for (auto at = by_name_.lower_bound(first); at != by_name_.end() && *at <= last;)
    taken.push_back(extract(std::get<3>(*at++)));
  return taken;
}

std::vector<Get> WaitingGets::take(service::ChannelNumber channel, bool of_member, std::uint64_t name) {
  return take(Named{channel, of_member, name, 0}, Named{channel, of_member, name, UINT64_MAX});
}

std::vector<Get> WaitingGets::take(service::ChannelNumber channel) {
  return take(Named{channel, false, 0, 0}, Named{channel, true, UINT64_MAX, UINT64_MAX});
}

std::vector<Get> WaitingGets::take_if(const std::function<bool(const Get&)>& chosen) {
  std::vector<Number> numbers;
  for (const auto& [number, get] : gets_)
    if (chosen(get)) numbers.push_back(number);
  std::vector<Get> taken;
  for (const Number number : numbers) taken.push_back(extract(number));
  return taken;
}

}  // namespace offpath::pool
