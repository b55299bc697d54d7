// One member's objects of a row: listed for services and for other members, page by page.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/peers/pool_context.h"
#include "service/service.h"

namespace offpath::pool {

class Listings {
 public:
  using Listed = std::function<void(const Result<std::vector<FrameTable::Item>>& items, TimeNs now, Effects& effects)>;

  explicit Listings(PoolContext& context) : context_(context) {}

  // This agent knows the pool; the member may not. May call `listed` at once.
  void ask(const std::string& member, const std::string& pool, const std::string& row, Listed listed, TimeNs now,
           Effects& effects);
  void on_answer(std::uint64_t number, const std::string& member, Result<service::Answer> answer, TimeNs now,
                 Effects& effects);
  // A request of another member: lists this agent's objects.
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, Effects& effects) const;

  void add_pools(std::set<std::string_view>& names) const;

 private:
  struct Listing {
    std::string pool, row;
    std::vector<FrameTable::Item> items;
    Listed listed;
  };
  void ask_page(std::uint64_t number, const std::string& member, std::uint64_t after, TimeNs now, Effects& effects);

  PoolContext& context_;
  std::map<std::uint64_t, Listing> listings_;
};

}  // namespace offpath::pool
