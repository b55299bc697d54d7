#include "pool/rows/remote_gets.h"

#include "base/status.h"

namespace offpath::pool {

RemoteGet& RemoteGets::add(Number number, RemoteGet remote) {
  by_name_.emplace(remote.get.channel, remote.get.ticket, number);
  return gets_.emplace(number, std::move(remote)).first->second;
}

RemoteGet* RemoteGets::find(Number number) {
  const auto at = gets_.find(number);
  return at != gets_.end() ? &at->second : nullptr;
}

RemoteGet RemoteGets::take(Number number) {
  auto node = gets_.extract(number);
  OFP_ASSERT(node);
  const FrameTable::Get& get = node.mapped().get;
  by_name_.erase({get.channel, get.ticket, number});
  awaiting_pool_.erase({get.pool, number});
  times_.erase(number);
  return std::move(node.mapped());
}

std::vector<RemoteGets::Number> RemoteGets::between(const Named& first, const Named& last) const {
  std::vector<Number> numbers;
  for (auto at = by_name_.lower_bound(first); at != by_name_.end() && *at <= last; ++at)
    numbers.push_back(std::get<2>(*at));
  return numbers;
}

std::vector<RemoteGets::Number> RemoteGets::of_channel(ChannelNumber channel) const {
  return between({channel, 0, 0}, {channel, UINT64_MAX, UINT64_MAX});
}

std::vector<RemoteGets::Number> RemoteGets::of_request(ChannelNumber channel, std::uint64_t ticket) const {
  return between({channel, ticket, 0}, {channel, ticket, UINT64_MAX});
}

void RemoteGets::await_pool(Number number) {
  const FrameTable::Get& get = gets_.at(number).get;
  awaiting_pool_.emplace(get.pool, number);
  times_.set(number, get.deadline);
}

void RemoteGets::pool_made(const std::string& pool, TimeNs now) {
  for (auto at = awaiting_pool_.lower_bound({pool, 0}); at != awaiting_pool_.end() && at->first == pool;
       at = awaiting_pool_.erase(at))
    times_.set(at->second, now);
}

}  // namespace offpath::pool
