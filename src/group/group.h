// The group as its agent sees it: membership, the tables others post, and channels to others, driven by one loop.
//
//   tables of others --> TableReader --> Membership --> changes --> services, log
//                                             | posts
//   services --> post() ------------------> Reach --> channels to other members
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "group/membership.h"
#include "group/reach.h"
#include "group/table_reader.h"
#include "loop/loop.h"
#include "wire/messages/peer_messages.h"

namespace offpath::group {

struct GroupOptions {
  MembershipOptions membership;
  ReachOptions reach;
};

struct GroupCounters {
  std::uint64_t tables_posted = 0, tables_failed = 0, tables_taken = 0, tables_refused = 0;
  std::uint64_t table_bytes_posted = 0;
  std::uint64_t suspicions = 0, deaths = 0;  // of other members, noticed here or elsewhere
};

class Group final : public loop::Poller {
 public:
  Group(Identity self, const GroupOptions& options, Reach::Surroundings surroundings, TimeNs now);

  // ---- for services
  // Asks a member by name. The answer is a failure that names the member if no process of that name is alive, if the
  // member dies or restarts before it has answered, and at the deadline.
  void post(const std::string& member, Request request);
  // Called when the state of a member changes, this member included.
  void on_change(std::function<void(const Change& change, TimeNs now)> tell) { listeners_.push_back(std::move(tell)); }
  [[nodiscard]] const Membership& membership() const noexcept { return membership_; }
  void set_flight(std::string address, TimeNs now) { membership_.set_flight(std::move(address), now); }

  // ---- for the owner of the channels on which others ask
  void on_request(std::uint64_t channel, const channel::Entry& request, bool may_post, TimeNs now,
                  service::Effects& effects);
  void on_transfer(std::uint64_t token, const Status& status, TimeNs now, service::Effects& effects) {
    reader_.on_transfer(token, status, now, effects);
  }
  void on_channel_closed(std::uint64_t channel) { reader_.on_channel_closed(channel); }

  // Announces that this member leaves. Keep polling until has_told().
  void leave(TimeNs now);
  [[nodiscard]] bool has_told() const noexcept;

  bool poll(TimeNs now) override;
  bool fall_asleep(TimeNs now) override;
  [[nodiscard]] TimeNs next_deadline() const override;
  [[nodiscard]] bool expects_more() const override { return expects_more_; }

  [[nodiscard]] const Reach& reach() const noexcept { return reach_; }
  [[nodiscard]] const GroupCounters& counters() const noexcept { return counters_; }

 private:
  [[nodiscard]] Status tell_members(std::uint64_t channel, const channel::Entry& request,
                                    service::Effects& effects) const;
  struct Refused {
    Request request;
    Failure why;
  };
  [[nodiscard]] Status take_table(const wire::MemberTable& table, TimeNs now);
  void carry_out(TimeNs now);
  using Table = std::shared_ptr<const std::vector<std::byte>>;
  void post_table(const MembershipEffects::Post& post, const Table& table, TimeNs now);
  void follow(const Change& change, TimeNs now);

  Membership membership_;
  Reach reach_;
  TableReader reader_;
  MembershipEffects effects_;
  // Addresses to which a table is under way, whether it may wait there, and whether the whole table has to follow it.
  std::map<std::pair<std::string, bool>, std::optional<MembershipEffects::Post>> posting_;
  std::map<std::string, std::uint64_t> processes_;  // processes that were found at addresses
  std::vector<Refused> refused_;                    // reported by the next poll
  std::vector<std::function<void(const Change&, TimeNs)>> listeners_;
  bool expects_more_ = false;
  TimeNs polled_before_ = 0;  // the round before this one
  GroupCounters counters_;
};

}  // namespace offpath::group
