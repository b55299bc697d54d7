#include "exchange_carrier_suite.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

namespace offpath::conformance {

using namespace exchange;

namespace {

constexpr TimeNs patience_ns = 60 * second_ns;
constexpr TimeNs interval_ns = 100 * millisecond_ns, deadline_ns = 90 * millisecond_ns;
constexpr std::uint64_t rounds_after = 3;  // of a case that has what it waited for

std::byte pattern(MemberIndex from, std::uint64_t at) { return static_cast<std::byte>(from * 31 + at * 7 + at / 4096); }

SharedBytes parcel_of(MemberIndex from, std::uint64_t bytes) {
  auto parcel = std::make_shared<std::vector<std::byte>>(std::max<std::uint64_t>(bytes, sizeof(ParcelHeader)));
  for (std::uint64_t i = 0; i < parcel->size(); ++i) (*parcel)[i] = pattern(from, i);
  ParcelHeader header{};
  header.from = from;
  store(parcel->data(), header);
  return parcel;
}

constexpr std::size_t number_at = sizeof(ParcelHeader);

std::uint32_t number_of(const std::vector<std::byte>& parcel) {
  return parcel.size() < number_at + sizeof(std::uint32_t) ? 0 : load<std::uint32_t>(parcel.data() + number_at);
}

SharedBytes numbered_parcel(MemberIndex from, std::uint32_t number, std::uint64_t bytes) {
  auto parcel = std::make_shared<std::vector<std::byte>>(bytes, static_cast<std::byte>(from * 31 + number * 7));
  ParcelHeader header{};
  header.from = from;
  store(parcel->data(), header);
  store(parcel->data() + number_at, number);
  return parcel;
}

std::uint64_t record_size(MemberIndex member, std::uint64_t bytes, bool variable) {
  return variable ? std::max<std::uint64_t>(bytes / (1 + member % 4), 8) : bytes;
}

std::vector<std::byte> record_of(MemberIndex member, std::uint64_t bytes, bool variable) {
  std::vector<std::byte> record(record_size(member, bytes, variable));
  for (std::uint64_t i = 0; i < record.size(); ++i) record[i] = pattern(member, i);
  return record;
}

// The members that run here, with an exchange each over their carriers.
class Running {
 public:
  Running(CarrierMembers& members, const std::string& shape, std::uint64_t record_bytes, bool variable)
      : members_(members), bytes_(record_bytes), variable_(variable) {
    ExchangeOptions options;
    options.name = "conformance";
    options.interval_ns = interval_ns;
    options.deadline_ns = deadline_ns;
    std::vector<Place> places;
    for (std::size_t i = 0; i < members.size(); ++i) places.push_back({fmt::format("m{}", i)});
    for (const MemberIndex i : members.here())
      exchanges_.emplace(i, std::make_unique<Exchange>(options, *Topology::make(*parse_shape(shape), places), i, i + 1,
                                                       members.now()));
  }

  // One turn of all members here but `except`.
  Status turn(MemberIndex except = nobody) {
    for (auto& [i, one] : exchanges_) {
      if (i == except) continue;
      ExchangeEffects effects;
      one->on_time(members_.now(), effects);
      carry_out(i, effects);
      OFP_TRY(members_.carrier(i).poll(members_.now(), [&, member = i](MemberIndex, const SharedBytes& parcel) {
        ExchangeEffects more;
        const Status taken = exchanges_.at(member)->on_parcel(parcel, members_.now(), more);
        // Under MPI a parcel of the case before may be late; it is of another tree.
        if (!taken && taken.error().code != Error::stale) wrong = taken.error().message;
        carry_out(member, more);
      }));
    }
    members_.pause();
    return {};
  }
  // Both return the error, or an empty text.
  std::string run_for(TimeNs time, MemberIndex except = nobody) {
    for (const TimeNs until = members_.now() + time; members_.now() < until;)
      if (const Status turned = turn(except); !turned) return turned.error().message;
    return {};
  }
  std::string run_until_all_are_here(MemberIndex except = nobody) {
    std::string failed;
    members_.meet_after([&] {
      if (const Status turned = turn(except); !turned && failed.empty()) failed = turned.error().message;
    });
    return failed;
  }
  [[nodiscard]] const ViewPtr& view(MemberIndex i) { return views_[i]; }
  // The most members that a view of this one lacked since begin_to_count.
  [[nodiscard]] std::size_t lacked(MemberIndex i) { return lacked_[i]; }
  void begin_to_count() { lacked_.clear(); }
  // Whether the newest views of all here, but of `except`, are of everybody.
  bool all_complete() {
    return std::ranges::all_of(members_.here(),
                               [&](MemberIndex i) { return views_[i] && views_[i]->present == members_.size(); });
  }
  std::string wrong;

 private:
  void carry_out(MemberIndex i, ExchangeEffects& effects) {
    while (std::exchange(effects.wants_local, false)) {
      auto record = std::make_shared<const std::vector<std::byte>>(record_of(i, bytes_, variable_));
      exchanges_.at(i)->on_local({record, *record}, 0, members_.now(), effects);
    }
    for (auto& view : effects.views) {
      lacked_[i] = std::max(lacked_[i], members_.size() - view->present);
      views_[i] = std::move(view);
    }
    for (auto& send : effects.sends)
      members_.carrier(i).send(send.to, std::move(send.parcel), send.deadline, members_.now());
    effects = {};
  }

  CarrierMembers& members_;
  std::uint64_t bytes_;
  bool variable_;
  std::map<MemberIndex, std::unique_ptr<Exchange>> exchanges_;
  std::map<MemberIndex, ViewPtr> views_;
  std::map<MemberIndex, std::size_t> lacked_;
};

}  // namespace

std::string parcels_arrive_whole(CarrierMembers& members, std::uint64_t bytes) {
  std::map<MemberIndex, std::set<MemberIndex>> arrived;
  for (const MemberIndex i : members.here())
    for (MemberIndex to = 0; to < members.size(); ++to)
      if (to != i) members.carrier(i).send(to, parcel_of(i, bytes), members.now() + patience_ns, members.now());
  std::string wrong;
  const auto all_there = [&] {
    return std::ranges::all_of(members.here(), [&](MemberIndex i) { return arrived[i].size() + 1 == members.size(); });
  };
  for (const TimeNs until = members.now() + patience_ns; !all_there() && members.now() < until;) {
    for (const MemberIndex i : members.here()) {
      const Status polled = members.carrier(i).poll(members.now(), [&](MemberIndex from, const SharedBytes& parcel) {
        arrived[i].insert(from);
        if (*parcel != *parcel_of(from, bytes))
          wrong = fmt::format("a parcel of {} bytes from {} to {} is not what was sent", parcel->size(), from, i);
      });
      if (!polled) return polled.error().message;
    }
    members.pause();
  }
  if (!all_there()) return fmt::format("parcels of {} bytes did not arrive", bytes);
  members.meet();
  return wrong;
}

std::string parcels_sent_while_taking_arrive_whole(CarrierMembers& members, std::uint64_t bytes) {
  constexpr std::uint32_t last = 0;
  constexpr std::uint64_t enough = 1000;
  std::map<MemberIndex, std::uint64_t> taken;
  std::map<MemberIndex, std::set<MemberIndex>> ended;
  std::uint32_t sent = last;
  std::string wrong;
  const auto send = [&](MemberIndex from, MemberIndex to, std::uint32_t number) {
    members.carrier(from).send(to, numbered_parcel(from, number, bytes), members.now() + patience_ns, members.now());
  };
  // No two in a row are alike, so that overwriting or releasing a parcel in transit is detected.
  const auto turn = [&](bool sending) -> Status {
    for (const MemberIndex i : members.here()) {
      for (MemberIndex to = 0; sending && to < members.size(); ++to)
        if (to != i) send(i, to, ++sent);
      OFP_TRY(members.carrier(i).poll(members.now(), [&](MemberIndex from, const SharedBytes& parcel) {
        const std::uint32_t number = number_of(*parcel);
        if (*parcel != *numbered_parcel(from, number, bytes))
          wrong =
              fmt::format("parcel {} of {} bytes from {} to {} is not what was sent", number, parcel->size(), from, i);
        ++taken[i];
        if (number == last)
          ended[i].insert(from);
        else if (sending)
          send(i, from, ++sent);
      }));
    }
    members.pause();
    return {};
  };
  const auto all_took_enough = [&] {
    return std::ranges::all_of(members.here(), [&](MemberIndex i) { return taken[i] >= enough; });
  };
  for (const TimeNs until = members.now() + second_ns; members.now() < until && !all_took_enough();)
    if (const Status turned = turn(true); !turned) return turned.error().message;
  // The last ones come after all others.
  for (const MemberIndex i : members.here())
    for (MemberIndex to = 0; to < members.size(); ++to)
      if (to != i) send(i, to, last);
  const auto all_ended = [&] {
    return std::ranges::all_of(members.here(), [&](MemberIndex i) { return ended[i].size() + 1 == members.size(); });
  };
  for (const TimeNs until = members.now() + patience_ns; !all_ended() && members.now() < until;)
    if (const Status turned = turn(false); !turned) return turned.error().message;
  if (!all_ended()) return fmt::format("the last parcels of {} bytes did not arrive", bytes);
  members.meet();
  return wrong;
}

std::string views_become_complete(CarrierMembers& members, const std::string& shape, std::uint64_t record_bytes,
                                  bool variable) {
  Running running(members, shape, record_bytes, variable);
  for (const TimeNs until = members.now() + patience_ns; !running.all_complete();) {
    if (members.now() >= until)
      return fmt::format("{}: no complete view of {} members with records of {} bytes", shape, members.size(),
                         record_bytes);
    if (const Status turned = running.turn(); !turned) return turned.error().message;
  }
  for (const MemberIndex i : members.here()) {
    for (const ViewEntry& entry : running.view(i)->entries) {
      const auto expected = record_of(entry.member, record_bytes, variable);
      if (!entry.has_value || !std::ranges::equal(entry.record.bytes, expected))
        return fmt::format("{}: member {} has another record of {}", shape, i, entry.member);
    }
  }
  // Others may still need this member's records, and the rounds after it are as good.
  if (std::string failed = running.run_for(rounds_after * interval_ns); !failed.empty()) return failed;
  if (std::string failed = running.run_until_all_are_here(); !failed.empty()) return failed;
  members.meet();
  return running.wrong;
}

std::string a_stopped_member_is_survived(CarrierMembers& members, const std::string& shape) {
  const auto stopped = static_cast<MemberIndex>(members.size() - 1);
  Running running(members, shape, 48, false);
  std::string wrong = running.run_for(rounds_after * interval_ns);
  // All go on from here at the same time, so all are there while the member is stopped.
  if (std::string failed = running.run_until_all_are_here(); wrong.empty()) wrong = std::move(failed);
  // Not the last view counts: ranks come to the end of a time one after another, and the member that was stopped may be
  // among the first.
  running.begin_to_count();
  const auto all_lack_somebody = [&] {
    return std::ranges::all_of(members.here(), [&](MemberIndex i) { return i == stopped || running.lacked(i) > 0; });
  };
  for (const TimeNs until = members.now() + patience_ns; wrong.empty() && !all_lack_somebody();) {
    if (members.now() >= until) break;
    if (const Status turned = running.turn(stopped); !turned) wrong = turned.error().message;
  }
  // It is stopped until all others have noticed.
  if (std::string failed = running.run_until_all_are_here(stopped); wrong.empty()) wrong = std::move(failed);
  for (const MemberIndex i : members.here()) {
    if (!wrong.empty() || i == stopped) continue;
    if (!running.view(i))
      wrong = fmt::format("{}: member {} has no view", shape, i);
    else if (running.lacked(i) == 0)
      wrong = fmt::format("{}: member {} saw everybody all the time, one was stopped", shape, i);
  }
  for (const TimeNs until = members.now() + patience_ns; wrong.empty() && !running.all_complete();) {
    if (members.now() >= until)
      wrong = fmt::format("{}: the member that was stopped is not taken back", shape);
    else if (const Status turned = running.turn(); !turned)
      wrong = turned.error().message;
  }
  if (wrong.empty()) wrong = running.run_for(rounds_after * interval_ns);
  if (std::string failed = running.run_until_all_are_here(); wrong.empty()) wrong = std::move(failed);
  members.meet();
  return wrong;
}

}  // namespace offpath::conformance
