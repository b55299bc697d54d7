// Lists and drops of programs over pools of several members: sent to all members, and combined. A channel's last list
// is kept until the program has read all of its pages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/peers/drops.h"
#include "pool/peers/pool_context.h"
#include "service/service.h"

namespace offpath::pool {

class Gathers {
 public:
  Gathers(PoolContext& context, Drops& drops) : context_(context), drops_(drops) {}

  // A program's pool_list or, if it `drops`, its pool_drop.
  void begin(ChannelNumber channel, uid_t user, const channel::Entry& request, bool drops, TimeNs now,
             Effects& effects);
  void on_answer(std::uint64_t number, const std::string& member, Result<service::Answer> answer, TimeNs now,
                 Effects& effects);
  void on_channel_closed(ChannelNumber channel);
  void add_pools(std::set<std::string_view>& names) const;

 private:
  // Bytes of keys that listings of one user hold, until they have been sent.
  class ListedBytes {
   public:
    using OfUsers = std::map<uid_t, std::uint64_t>;
    ListedBytes(std::shared_ptr<OfUsers> all, uid_t user) : all_(std::move(all)), user_(user) {}
    ListedBytes(const ListedBytes&) = delete;
    ListedBytes& operator=(const ListedBytes&) = delete;
    ~ListedBytes() {
      if (const auto at = all_->find(user_); at != all_->end() && (at->second -= bytes_) == 0) all_->erase(at);
    }
    // The total of the user's listings then.
    std::uint64_t add(std::uint64_t bytes) {
      bytes_ += bytes;
      return (*all_)[user_] += bytes;
    }

   private:
    std::shared_ptr<OfUsers> all_;
    uid_t user_;
    std::uint64_t bytes_ = 0;
  };
  struct Gather {
    ChannelNumber channel;
    std::uint64_t ticket;
    uid_t user;
    bool drops;
    std::string pool{}, row_glob{}, column_glob{};
    std::size_t asked = 0;
    bool found = false;  // some member knows the pool
    std::map<FrameTable::Keys, FrameTable::Item> items{};
    std::shared_ptr<ListedBytes> listed{};  // of those
    std::uint64_t dropped = 0;
    WaitCharge charge{};
    std::optional<Failure> failure{};
  };
  struct Listing {  // whole, while its pages are read
    std::string pool, row_glob, column_glob;
    std::shared_ptr<std::vector<FrameTable::Item>> items;
    std::shared_ptr<ListedBytes> listed;
    std::uint64_t view;
  };

  void ask_drop(std::uint64_t number, const std::string& member, TimeNs now, Effects& effects);
  void ask_page(std::uint64_t number, const std::string& member, std::uint64_t after, TimeNs now, Effects& effects);
  void list_here(Gather& gather);
  void drop_here(std::uint64_t number, TimeNs now, Effects& effects);
  [[nodiscard]] static Status add_listed(Gather& gather, const service::Answer& answer, std::uint64_t& after);
  void answered(std::uint64_t number, Gather& gather, Effects& effects);
  void end(std::uint64_t number, Effects& effects);
  void answer_page(ChannelNumber channel, std::uint64_t ticket, std::uint64_t after, Effects& effects);

  PoolContext& context_;
  Drops& drops_;
  std::map<std::uint64_t, Gather> gathers_;
  std::unordered_map<ChannelNumber, Listing> listings_;
  std::shared_ptr<ListedBytes::OfUsers> listed_bytes_ = std::make_shared<ListedBytes::OfUsers>();
};

}  // namespace offpath::pool
