// The exchanges of one agent, and how they reach programs and other members: parcels by channel_carrier.h, records and
// views by wire/areas/exchange_area.h. Read exchange.h first. A state machine like the other services: members
// and rounds are in exchange_service.cc, programs' requests, records and views in exchange_programs.cc. Functions that
// decide have a class of their own (exchange_decisions.h).
//
//   a round begins --> the publisher's line, then its newest record, are pulled --> Exchange --> parcels --> agents a
//   view         --> pushed into every program's area, the slot first, then the line --> waiting programs are answered
//                --> Decision (decision.h) --> a function in a worker --> record, grants, settings of actuators
//
// The members are configured, or are all of the group. A tree with other members is another tree with other numbers, as
// its fingerprint shows. Grants need a configured member list: a majority of an unknown size is undefined.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "channel/ring.h"
#include "exchange/channel_carrier.h"
#include "exchange/decision/decision.h"
#include "exchange/exchange.h"
#include "exchange/exchange_settings.h"
#include "exchange/record_reader.h"
#include "service/service.h"
#include "wire/areas/exchange_area.h"
#include "wire/messages/exchange_messages.h"
#include "wire/region.h"

namespace offpath::exchange {

// A member of the group, as on_members reports it.
struct GroupMember {
  std::string name;
  std::string host;  // empty: unknown
  bool is_up;
  std::string rack{};  // likewise
};

// Answers carry the number of the opened exchange, the number of the newest view, the size of a description, or whether
// this agent may grant.
class ExchangeService final : public service::Service {
 public:
  static constexpr std::size_t subscribers_max = 64;  // programs of one exchange
  static constexpr std::size_t waiters_max = 256;     // of one program
  static constexpr std::size_t shown_grants_max = 256;

  // `clock` measures the cost of exchanging; null: not measured, as in a simulation. `suspended` returns how long the
  // machine was suspended in total, while `now` stopped; null: never.
  ExchangeService(std::vector<ExchangeSettings> settings, std::uint64_t nonce, TimeNs (*clock)() = nullptr,
                  TimeNs (*suspended)() = nullptr);
  ~ExchangeService() override;

  void set_self(std::string name, uid_t owner);
  // All members of the group that are expected to take part, this agent included.
  void on_members(const std::vector<GroupMember>& members, TimeNs now, service::Effects& effects);

  // `same_clock`: the program's CLOCK_MONOTONIC is this agent's.
  void on_channel_open(std::uint64_t channel, uid_t user, bool same_clock) { channels_[channel] = {user, same_clock}; }
  void on_channel_closed(std::uint64_t channel, TimeNs now, service::Effects& effects);
  void on_request(std::uint64_t channel, const channel::Entry& request, bool is_member, TimeNs now,
                  service::Effects& effects);
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects& effects) override;
  void on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;

  // ---- Service
  void on_opened(const service::OpenedChannel& channel) override {
    on_channel_open(channel.number, channel.client.user, channel.same_clock);
  }
  void on_closed(std::uint64_t channel, bool /*usual*/, TimeNs now, service::Effects& effects) override {
    on_channel_closed(channel, now, effects);
  }
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override {
    on_request(asked.channel, asked.entry, asked.is_member, now, effects);
  }

  // Sets the newest record of an exchange whose source is the agent. False: there is no such exchange.
  bool set_record(std::string_view name, Bytes record, TimeNs made_at);
  [[nodiscard]] bool is_any() const noexcept { return !exchanges_.empty(); }

  // Functions are called from then on. Where they see gauges, and how their settings are carried out: `set` calls back
  // exactly once, perhaps at once. `until` is of CLOCK_BOOTTIME; 0: the actuator is given up.
  using SetDone = std::function<void(Result<std::uint64_t> value, TimeNs now)>;
  using SetActuator = std::function<void(std::uint32_t actuator, std::uint64_t value, TimeNs until, SetDone done)>;
  void serve_decisions(GaugeVisit gauges, SetActuator set);

  struct ExchangeStatus {
    std::string name, topology;
    std::shared_ptr<const Topology> tree;  // null: it does not run here
    std::string failure;                   // the reason if it does not run; otherwise empty
    std::vector<std::string> members;
    MemberIndex self = nobody;
    ViewPtr view;  // the newest one; null: none
    std::vector<bool> up;
    ExchangeCounters counters;
    std::size_t programs = 0;
    bool has_publisher = false, leads = false, may_grant = false;
    Deciding deciding = Deciding::no;  // what is here, though it may not count in the exchange at once
    std::uint64_t granted = 0, grant_total = 0, held = 0;
    std::vector<Reduction> reductions;
    std::uint64_t views_pushed = 0, records_pulled = 0, torn = 0;
    TimeNs cost_ns = 0;
    TimeNs interval_held_ns = 0;  // the interval that could be held, if its own cannot; otherwise 0
    bool decides = false;         // a function does
    DecisionCounters decisions;
  };
  [[nodiscard]] std::vector<ExchangeStatus> status(TimeNs now) const;

  // For the directory.
  struct Known {
    std::string name, topology, failure;
    std::size_t members;
  };
  [[nodiscard]] std::vector<Known> known() const;
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }  // of these

 private:
  struct Channel {
    uid_t user;
    bool same_clock;
  };
  struct Waiter {
    std::uint64_t ticket, after;
    TimeNs until;
  };
  // A program that takes part in an exchange.
  struct Subscriber {
    Subscriber(std::uint64_t its_number, std::uint64_t its_channel, const wire::ExchangeOpen& asked, TimeNs now)
        : number(its_number),
          channel(its_channel),
          area(asked.area),
          record_bytes(asked.record_bytes),
          view_bytes(asked.view_bytes),
          publishes(asked.publishes),
          records(asked.record_bytes, now) {}

    std::uint64_t number, channel;
    wire::BufferRef area;
    std::uint64_t record_bytes, view_bytes;
    bool publishes, sets_targets = false;
    // views
    enum class Push : std::uint8_t { idle, slot, line } push = Push::idle;
    std::uint64_t view_number = 0, shown = 0;  // being pushed; in its area
    struct ShownGrant {
      std::uint64_t view, leader_nonce, number;
    };
    std::deque<ShownGrant> shown_grants{};  // of the newest views
    ViewPtr next{};                         // arrived while another was being pushed
    std::vector<Waiter> waiters{};
    RecordReader records;
  };
  struct One;
  class Decisions;
  struct Transfer {
    enum class Kind : std::uint8_t { read, push, describe } kind;
    std::uint64_t subscriber;  // its number
    std::uint64_t ticket = 0;
    std::shared_ptr<std::vector<std::byte>> bytes{};
  };

  struct Post {
    std::string member;
    group::Request request;
  };
  [[nodiscard]] std::uint64_t next_token() noexcept { return service::token_of(service::ServiceId::exchange, next_++); }
  void ask(Post post, service::Effects& effects);
  // `bytes` has to stay until on_transfer.
  static void push(service::Effects& effects, service::ChannelNumber channel, std::uint64_t token,
                   wire::RegionId region, std::uint64_t offset, Bytes bytes);
  void notice_suspend();
  [[nodiscard]] Status serve(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status open(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                            service::Effects& effects);
  [[nodiscard]] Status describe(std::uint64_t channel, const channel::Entry& request, service::Effects& effects);
  [[nodiscard]] Status wait(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                            service::Effects& effects);
  [[nodiscard]] Status grant(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status end(std::uint64_t channel, const channel::Entry& request, TimeNs now, service::Effects& effects);
  struct Found {
    One* one = nullptr;
    Subscriber* subscriber = nullptr;
  };
  [[nodiscard]] Found find(std::uint64_t number) const;
  [[nodiscard]] Result<Found> own(std::uint64_t channel, std::uint64_t number) const;
  static void remove(One& one, std::uint64_t number, TimeNs now, service::Effects& effects);
  void rebuild(One& one, const std::vector<GroupMember>& members, TimeNs now);
  void carry_out(One& one, ExchangeEffects& effects, TimeNs now, service::Effects& out);
  void take_arrived(TimeNs now, service::Effects& out);
  void answer_waiters(TimeNs now, service::Effects& out);
  void begin_read(One& one, TimeNs now, service::Effects& out);
  void on_read(One& one, Subscriber& subscriber, const Status& status, TimeNs now, service::Effects& out);
  void take_record(One& one, const Subscriber& subscriber, const RecordReader::Record& record, TimeNs now);
  void give_local(One& one, TimeNs now, service::Effects& out);
  void pull(const Subscriber& subscriber, const RecordReader::Pull& what, service::Effects& out);
  void watch_interval(One& one, const View& view, TimeNs now);
  void show(One& one, Subscriber& subscriber, ViewPtr view, TimeNs now, service::Effects& out);
  void on_push(One& one, Subscriber& subscriber, const Status& status, TimeNs now, service::Effects& out);
  [[nodiscard]] wire::ViewHead view_head(const One& one, const Subscriber& subscriber, const View& view,
                                         TimeNs now) const;

  std::uint64_t nonce_;
  TimeNs (*clock_)();
  TimeNs (*suspended_)();
  TimeNs suspended_before_;  // the part that the grants know
  std::string self_;
  uid_t owner_ = 0;
  std::vector<std::unique_ptr<One>> exchanges_;
  std::uint64_t changes_ = 0;
  std::map<std::uint64_t, Channel> channels_;
  std::map<std::uint64_t, Transfer> transfers_;  // by token
  std::unique_ptr<Decisions> decisions_;
  ParcelReader reader_;
  std::vector<std::pair<One*, SharedBytes>> arrived_;
  std::vector<Post> posts_;  // of carriers, within a call
  std::map<std::uint64_t, std::function<void(Result<service::Answer> answer, TimeNs now)>> asked_;  // by token
  TimeNs waiters_due_ = never;  // not later than the deadline of any waiter
  std::uint64_t next_ = 1;
};

}  // namespace offpath::exchange
