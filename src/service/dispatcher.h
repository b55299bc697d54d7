// Joins channels and services: receives the channels' events, calls the services, and carries out their effects. It
// knows no service by name: request_table.h and the token of a completion give the service of an event, and
// src/agent/services makes the services and registers them. It has no socket, thread or clock, so tests/sim runs
// hundreds of dispatchers in one process. Read service.h first.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/measure/latency.h"
#include "base/queue.h"
#include "channel/agent_end.h"
#include "plugin/call.h"
#include "service/own_channels.h"
#include "service/recent_failures.h"
#include "service/request_table.h"
#include "service/service.h"

namespace offpath::service {

// Runs work off the loop and reports its result by Dispatcher::on_job, on the loop's thread, never from within the call
// itself.
using StartJob = std::function<void(std::uint64_t token, std::function<Status()> run)>;

// Calls functions of plug-ins in the same way; an immediate error becomes the call's result.
struct CallFunctions {
  using Done = std::function<void(Result<plugin::Outputs> outcome, TimeNs now)>;
  std::function<Result<plugin::CallNumber>(plugin::Call call, TimeNs now, Done done)> call;
  std::function<void(plugin::CallNumber number, TimeNs now)> cancel;
  // Answers an operation that a function requested. May be empty if functions request none.
  std::function<void(std::uint64_t worker, plugin::CallNumber call, plugin::OperationNumber operation,
                     const plugin::OperationAnswer& answer, TimeNs now)>
      answer{};
};

// From the arrival of a program's request to its answer, failures included.
struct RequestLatencies {
  LatencyHistogram get, query;
};

// Sends a request to a member; its answer arrives by Dispatcher::on_answer.
using AskMember = std::function<void(AskEffect ask)>;

class Dispatcher : public channel::AgentEvents {
 public:
  // `memory_is_there`: false: channels postpone new requests; null: always true.
  Dispatcher(const channel::AgentEndOptions& channels, bool (*memory_is_there)(), StartJob start_job);
  ~Dispatcher() override;

  // ---- setup, before the first channel. All arguments outlive this.
  // Events that are for all services are delivered in the order of these calls. A service may have several numbers.
  void serve(ServiceId id, Service& service);
  // While one of these is full, channels postpone requests.
  void hold_by(std::vector<Service*> bounded) { bounded_ = std::move(bounded); }
  // Latencies end when this says; without it at the time of their round, which most answers belong to.
  void measure_by(TimeNs (*clock)()) { clock_ = clock; }
  // `free` returns the free bytes. When they increase, these services are told in this order.
  void watch_memory(std::function<std::uint64_t()> free, std::vector<Service*> in_order);
  // Agents of user `owner` and of root are accepted as members.
  void serve_members(uid_t owner, AskMember ask);
  // Without this call every computation fails.
  void serve_plugins(CallFunctions functions) { functions_ = std::move(functions); }

  // ---- channels
  // Returns the channel's number. The channel belongs to this until it is closed.
  std::uint64_t add_channel(std::unique_ptr<link::AgentLink> link, const wire::ChannelLayout& layout,
                            const Client& client, TimeNs now);
  void close_channel(std::uint64_t number, Failure why, bool tells = false);  // as AgentEnd::close
  [[nodiscard]] channel::AgentEnd* find(std::uint64_t number) noexcept;
  // Called after a channel was added, and before its descriptors are closed, so that a loop can watch them.
  std::function<void(const channel::AgentEnd&)> on_added, on_closing_channel;
  [[nodiscard]] const channel::LookCounters& look_outs() const noexcept { return look_budget_.counters; }

  // One round over all channels that do not rest. True if anything was done.
  bool poll(TimeNs now);
  // Puts channels that have been idle long enough to sleep. True if all sleep: wait on their descriptors.
  [[nodiscard]] bool fall_asleep(TimeNs now);
  // Whether the last poll did something after which more is likely to follow soon.
  [[nodiscard]] bool expects_more() const noexcept { return expects_more_; }
  // The time at which poll has to be called even without an event.
  [[nodiscard]] TimeNs next_deadline() const;

  // ---- completions, on the loop's thread
  void on_job(std::uint64_t token, Status status, TimeNs now);
  void on_answer(std::uint64_t token, Result<Answer> answer, TimeNs now);

  // ---- for parts of this agent, on the loop's thread and not from within an event
  // Effects of direct calls to a service go here, and are then carried out.
  [[nodiscard]] Effects& effects() noexcept { return effects_; }
  void carry_out(TimeNs now);
  // Opens a channel for one of these parts, whose requests are like those of this user's programs.
  [[nodiscard]] std::uint64_t open_own(uid_t user);
  void close_own(std::uint64_t channel, TimeNs now);
  // `replied` may be called within the call, but never after close_own. `body` are the bytes that the request names for
  // pulling.
  void ask_own(std::uint64_t channel, wire::EntryKind kind, Bytes payload, std::vector<std::byte> body, TimeNs now,
               OwnChannels::Replied replied);

  struct ChannelStatus {
    std::uint64_t number;
    Client client;
    link::LinkTraits traits;
    channel::AgentEndCounters counters;
    bool asleep;
    FullRing requests_full{}, replies_full{};
    std::string_view why_requests_wait{};
  };
  [[nodiscard]] std::vector<ChannelStatus> channels() const;
  [[nodiscard]] const RecentFailures& failures() const noexcept { return failures_; }
  [[nodiscard]] const RequestLatencies& latencies() const noexcept { return latencies_; }
  [[nodiscard]] std::size_t channels_of(uid_t user) const noexcept;

  // ---- AgentEvents
  [[nodiscard]] Status check(const channel::Entry& request) const override;
  void on_request(channel::AgentEnd& channel, const channel::Entry& request, TimeNs now) override;
  void on_transfer(channel::AgentEnd& channel, std::uint64_t token, Status status, TimeNs now) override;
  void on_rest_ended(channel::AgentEnd& channel) noexcept override;
  void on_offer(channel::AgentEnd& channel, std::uint64_t number, Result<Fd> fd, TimeNs now) override;
  void on_closing(channel::AgentEnd& channel) override;
  void on_closed(channel::AgentEnd& channel, const Failure& why, TimeNs now) override;

 protected:
  // Channels end without messages: at the end, before the services are destroyed.
  void drop_channels() {
    polled_.clear();
    members_.clear();
  }

 private:
  struct Timed {  // a request whose latency is measured
    std::uint64_t ticket;
    LatencyHistogram* histogram;
    TimeNs began;
  };
  static constexpr std::size_t timed_max = 4096;  // beyond it the oldest is not measured
  struct Member {
    std::unique_ptr<channel::AgentEnd> end;
    Client client;
    TimeNs opened_at;
    Queue<Timed> timed{};  // ordered by ticket
  };
  [[nodiscard]] std::span<Service* const> services() const noexcept { return {in_turn_.data(), count_}; }
  [[nodiscard]] Service* service(ServiceId id) const noexcept;
  [[nodiscard]] Status check(const RequestRow& row, const Request& request) const;
  [[nodiscard]] Status without_service(const RequestRow& row) const;
  void route(const Request& request, TimeNs now);
  [[nodiscard]] LatencyHistogram* latency_of(wire::EntryKind kind) noexcept;
  void note_answer(const Effect& effect, TimeNs now);
  [[nodiscard]] bool is_held(std::uint64_t channel) const;
  [[nodiscard]] bool carry_out_own(Effect& effect, TimeNs now);
  void carry_out(Effect& effect, TimeNs now);
  void call_function(CallEffect& effect, TimeNs now);
  void on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now);
  void remove_closed();
  bool serve(Member& member, TimeNs now);
  // With few channels a post that a round finds is faster than one that waits for the loop's look at descriptors.
  [[nodiscard]] bool may_rest() const noexcept { return polled_.size() > channel_options_.polled_channels; }
  bool rest(std::size_t place, TimeNs now);
  void look_for_memory();
  void abandon(Effect& effect, TimeNs now);
  void pass_job(std::uint64_t token, Status status, TimeNs now);

  channel::LookBudget look_budget_;  // of all channels
  channel::AgentEndOptions channel_options_;
  bool (*memory_is_there_now_)();
  StartJob start_job_;
  std::array<Service*, services_max> by_id_{}, in_turn_{};
  std::size_t count_ = 0;  // of in_turn_
  std::vector<Service*> bounded_, want_memory_;
  std::function<std::uint64_t()> memory_free_;
  std::optional<uid_t> owner_;
  AskMember ask_;
  CallFunctions functions_;

  std::map<std::uint64_t, Member> members_;
  // Those that do not rest; there is room for all. A round costs nothing for the others.
  std::vector<Member*> polled_;
  std::set<std::pair<TimeNs, std::uint64_t>> look_outs_;  // of those that rest: when, and the channel
  OwnChannels own_;
  std::vector<std::uint64_t> closed_;
  std::map<std::uint64_t, FramePtr> pushing_;  // sources of pushes under way, by token
  std::uint64_t next_channel_ = 1;
  std::vector<Service*> to_tell_;  // services with finished transfers whose programs have still to be told
  Effects effects_;
  std::size_t carried_out_ = 0;  // of effects_
  bool memory_is_there_ = true, expects_more_ = false;
  std::map<std::uint64_t, plugin::CallNumber> calling_;  // by token
  std::uint64_t free_bytes_before_ = 0;                  // at the last poll
  RecentFailures failures_;
  RequestLatencies latencies_;
  std::size_t timed_ = 0;        // of all channels
  TimeNs (*clock_)() = nullptr;  // when a measured request is answered; null: the round's time
};

}  // namespace offpath::service
