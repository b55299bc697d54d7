// Messages between functions that run for different lanes of one team, on any agents of the group. A state machine like
// the other services; it knows no process.
//
//   send     --> with the sender's lane, on its agent (bounded; waits for room)
//            --> until it is received, or the sender's session ends
//   receive  --> waits for a message of the lane: one that is here, or a PeerReceive to the lane's agent, which answers
//                by a PeerMessage; the receiver pulls what is not small. So bytes cross when the receiver has room for
//                them, and use the sender's memory until then
//
// A team is sessions of one user that name it with the same number of lanes. Agents tell each other which sessions have
// which lanes (PeerLanes). If two sessions claim a lane on two agents at the same time, the one on the agent whose name
// comes first keeps it; the other's operations fail.
//
// A message is dropped when its receiver has answered. If the answer was lost, the receiver names the message with its
// next PeerReceive, so that nothing is received twice.
#pragma once

#include <algorithm>
#include <compare>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/due_times.h"
#include "channel/ring.h"
#include "group/reach.h"
#include "plugin/call.h"
#include "service/service.h"
#include "task/task_limits.h"
#include "wire/messages/lane_messages.h"

namespace offpath::task {

struct MessageCounters {
  std::uint64_t sent = 0, sent_bytes = 0, received = 0, received_bytes = 0;
  std::uint64_t from_members = 0;                     // part of the received
  std::uint64_t failed = 0;                           // operations
  std::uint64_t lanes = 0, held = 0, held_bytes = 0;  // now
  TimeNs sending_ns = 0, receiving_ns = 0;            // total waits of functions
};

class LaneMessages final : public service::Service {
 public:
  using Limits = LaneLimits;
  // `room` returns whether that much memory may be taken.
  LaneMessages(Limits limits, std::shared_ptr<service::BufferCache> cache,
               std::function<bool(std::uint64_t bytes)> room);

  void set_self(std::string name, std::uint64_t process);
  void set_take_offer(std::function<Fd(service::ChannelNumber, std::uint64_t)> take) { take_offer_ = std::move(take); }

  // Claims a lane of a team for a session. Error::exists: another session has it.
  [[nodiscard]] Status open(std::uint64_t session, uid_t user, std::string_view team, std::uint32_t lane,
                            std::uint32_t lanes, TimeNs now, service::Effects& effects);
  void close(std::uint64_t session, TimeNs now, service::Effects& effects);  // also for a session without a team

  void on_operation(plugin::Operation operation, TimeNs now, service::Effects& effects);
  void on_taken(plugin::CallNumber call, plugin::OperationNumber operation) { reading_.erase({call, operation}); }
  void on_call_ended(plugin::CallNumber call, TimeNs now, service::Effects& effects);

  // ---- the group
  void on_peer_request(service::ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                       service::Effects& effects);
  void on_descriptor(TimeNs now, service::Effects& effects);  // a descriptor was offered
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects& effects) override;
  void on_channel_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects);
  // All living members, including this one; `anew`: name and previous process of members that restarted.
  void on_members(const std::vector<std::string>& alive,
                  const std::optional<std::pair<std::string, std::uint64_t>>& anew, TimeNs now,
                  service::Effects& effects);

  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override {
    return std::min({lane_times_.first(), offer_times_.first(), tell_at_});
  }
  // ---- Service
  void on_closed(service::ChannelNumber channel, bool /*usual*/, TimeNs now, service::Effects& effects) override {
    on_channel_closed(channel, now, effects);
  }
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override {
    on_peer_request(asked.channel, asked.entry, asked.is_member, now, effects);
  }
  void on_descriptor(service::ChannelNumber /*channel*/, std::uint64_t /*number*/, Result<Fd>&, TimeNs now,
                     service::Effects& effects) override {
    on_descriptor(now, effects);
  }

  [[nodiscard]] MessageCounters counters() const;

 private:
  struct Team {
    uid_t user = 0;
    std::uint32_t lanes = 0;
    std::string name;
    auto operator<=>(const Team&) const = default;
  };
  struct Message {
    std::uint64_t number = 0, bytes = 0;
    std::vector<std::byte> enclosed{};
    std::shared_ptr<const Fd> memory{};
    bool going = false;  // to a member
    bool taken = false;  // the member has confirmed it, but its answer is missing
  };
  using Slot = std::pair<std::uint32_t, std::uint32_t>;  // the other lane, tag
  using Sent = std::map<Slot, std::deque<Message>>;      // no queue is empty
  struct Pending {
    plugin::Operation operation;
    TimeNs since = 0;
    std::uint64_t asked = 0;  // of a member
    TimeNs ask_at = 0;
  };
  struct Want {  // of a member
    service::ChannelNumber channel;
    std::uint64_t ticket, number, room;
    std::string reader;
  };
  struct Lane {
    std::uint64_t session = 0;
    Team team;
    std::uint32_t lane = 0;
    Sent sent{};
    std::uint64_t bytes = 0, messages = 0, descriptors = 0, next_message = 1;
    std::list<Pending> sends{}, receives{};  // waiting
    std::map<Slot, std::deque<Want>> wants{};
    std::set<std::uint32_t> gone{};  // lanes that have ended since this one exists
  };
  struct Asked {
    std::uint64_t session;  // of the receiving lane
    plugin::CallNumber call;
    plugin::OperationNumber operation;
    std::string member;
    std::uint64_t from_session;  // on its agent
    std::uint32_t tag = 0;
    std::uint64_t got = 0;    // reported with it
    std::uint64_t taken = 0;  // the message that has arrived
    bool answered = false;    // no second answer: only the running pull is waited for
    // The arriving message:
    service::ChannelNumber channel = 0;
    std::uint64_t ticket = 0, message = 0, length = 0, offer = 0;
    TimeNs offer_until = never;  // set by await_offer
    std::vector<std::byte> small{};
    std::shared_ptr<service::Buffer> buffer{};
  };
  struct Delivery {
    std::uint64_t session;
    Slot slot;
    std::uint64_t message;
    service::ChannelNumber channel;
    std::uint64_t ticket;
  };
  using Claims = std::map<Team, std::map<std::uint32_t, std::uint64_t>>;  // sessions by lane
  struct Member {
    std::uint64_t process = 0, version = 0;
    Claims claims{};
    // The newest message that a session here has taken from a session there under a tag, as long as the sender may not
    // know it.
    std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>, std::uint64_t> taken{};
    std::uint64_t told = 0;  // the version of this agent's table that was sent
    std::uint64_t telling = 0;
    TimeNs tell_at = 0;
  };
  struct TableComing {
    service::ChannelNumber channel;
    std::uint64_t ticket, process, version;
    std::string sender;
    std::vector<std::byte> bytes;
  };
  struct Place {
    Lane* here = nullptr;  // exactly one of the two
    const std::string* member = nullptr;
    std::uint64_t session = 0;
  };

  [[nodiscard]] Place locate(const Team& team, std::uint32_t lane);
  [[nodiscard]] Lane* find(std::uint64_t session);
  [[nodiscard]] Lane* find(const Team& team, std::uint32_t lane);
  [[nodiscard]] static Pending* find(Lane& lane, plugin::CallNumber call, plugin::OperationNumber operation);
  [[nodiscard]] Status check(Lane& lane, const plugin::Operation& operation);
  [[nodiscard]] bool has_room(const Lane& lane, const plugin::Operation& operation) const noexcept;
  void touch(const Lane& lane) { dirty_.insert(lane.session); }
  void touch(const Team& team);
  void appear(const Team& team, std::uint32_t lane);
  void vanish(const Team& team, std::uint32_t lane);
  void forget(Member& member);
  void take_table(Member& member, const wire::LaneTable& table);

  // lane_messages.cc
  void settle(TimeNs now, service::Effects& effects);
  void admit(Lane& lane, TimeNs now, service::Effects& effects);
  void keep(Lane& lane, plugin::Operation& operation);
  void drop(Lane& lane, Sent::iterator queue, std::deque<Message>::iterator message);
  [[nodiscard]] bool receive(Lane& lane, Pending& pending, TimeNs now, service::Effects& effects);
  void answer(const Pending& pending, plugin::OperationAnswer answer, TimeNs now, service::Effects& effects);
  void end_late(TimeNs now, service::Effects& effects);
  void note_deadline(const Lane& lane);

  // lane_members.cc
  [[nodiscard]] Status serve(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status serve_table(service::ChannelNumber channel, const channel::Entry& request,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_receive(service::ChannelNumber channel, const channel::Entry& request);
  [[nodiscard]] Status serve_message(service::ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                     service::Effects& effects);
  void serve_cancel(service::ChannelNumber channel, const channel::Entry& request, service::Effects& effects);
  void serve_wants(Lane& lane, TimeNs now, service::Effects& effects);
  void deliver(Lane& lane, const Slot& slot, Message& message, const Want& want, TimeNs now, service::Effects& effects);
  void ask(Lane& lane, Pending& pending, const Place& place, service::Effects& effects);
  void cancel(Pending& pending, service::Effects& effects);
  [[nodiscard]] Status begin_arrival(std::uint64_t number, Asked& asked, const wire::PeerMessage& message, TimeNs now,
                                     service::Effects& effects);
  void arrived(std::uint64_t number, Asked& asked, plugin::OperationAnswer given, TimeNs now,
               service::Effects& effects);
  void await_offer(std::uint64_t number, Asked& asked, std::uint64_t offer, TimeNs until);
  void refuse_arrival(Asked& asked, Failure why, service::Effects& effects);
  void close_ask(std::uint64_t number, bool certain, TimeNs now);
  void end_ask(std::uint64_t number, const Result<service::Answer>& answer, TimeNs now, service::Effects& effects);
  void end_delivery(const Delivery& delivery, const Status& outcome, service::Effects& effects);
  void tell(TimeNs now, service::Effects& effects);

  Limits limits_;
  std::shared_ptr<service::BufferCache> cache_;
  std::function<bool(std::uint64_t)> room_;
  std::function<Fd(service::ChannelNumber, std::uint64_t)> take_offer_;
  std::string self_;
  std::uint64_t process_ = 0, version_ = 0;  // of this agent's table
  std::map<std::uint64_t, Lane> lanes_;      // by session
  Claims own_;
  std::map<std::string, Member> members_;
  std::map<std::uint64_t, Asked> asked_;
  std::map<std::uint64_t, Delivery> deliveries_;
  std::map<std::uint64_t, TableComing> tables_;
  std::map<std::uint64_t, std::string> telling_;
  std::map<std::pair<plugin::CallNumber, plugin::OperationNumber>, std::shared_ptr<const void>> reading_;
  std::set<std::uint64_t> dirty_;  // sessions
  std::uint64_t next_number_ = 1;
  DueTimes<std::uint64_t> lane_times_;   // of sessions: not after the earliest deadline or retry of their waiting
                                         // operations
  DueTimes<std::uint64_t> offer_times_;  // of asked_: those whose descriptor has not arrived
  TimeNs tell_at_ = never;
  std::uint64_t bytes_ = 0, descriptors_ = 0;  // of messages sent by lanes
  MessageCounters counters_;
};

}  // namespace offpath::task
