// Agents of one group as the simulations need them: each has the real dispatcher, group and services; between them, and
// to programs, are loopback links of one fabric. Members are killed and started again, cut off from each other, and
// held up; jobs run at a later virtual time.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/services/dispatcher.h"
#include "group/core_name.h"
#include "group/group.h"
#include "testing/link/loopback_link.h"

namespace offpath::sim {

class SimCluster {
 public:
  struct Options {
    agent::DispatcherOptions dispatcher;
    group::GroupOptions group;
    link::LoopbackOptions links;
    std::size_t members = 4;
    // How often agents look: a member's channels to others have no descriptor to sleep on here, and are looked at with
    // every tick.
    TimeNs tick_ns = millisecond_ns, round_ns = 2 * microsecond_ns;
    TimeNs between_rounds_ns = 0;                             // 0: with every event of a link
    std::vector<std::shared_ptr<pool::ObjectStore>> disks{};  // one for each; they outlive kills. Empty: there are none
    bool one_agent = false;                                   // the members are the cores of one agent
    bool maps_programs = true;                                // as `links` say; false: programs are on another machine
    // The time that a member's processor took for the step it has just made; it makes none until then.
    std::function<TimeNs(std::size_t place)> cost{};
  };

  SimCluster(std::shared_ptr<link::LoopbackFabric> fabric, const Options& options)
      : fabric_(std::move(fabric)), options_(options) {
    options_.group.membership.seeds.clear();
    options_.dispatcher.channels.polled_channels = 1;  // few channels rest as many would
    options_.dispatcher.channels.idle_before_rest_ns = 2 * millisecond_ns;
    for (std::size_t place = 0; options.one_agent && place < options.members; ++place)
      options_.dispatcher.cores.push_back(name_at(place));
    std::ranges::sort(options_.dispatcher.cores);
    for (std::size_t place = 0; place < options.members; ++place)
      options_.group.membership.seeds.push_back(address_of(place));
    places_.resize(options.members);
    fabric_->set_stepper([this](TimeNs now) { return step(now); });
    for (std::size_t place = 0; place < options.members; ++place) start(place);
  }
  ~SimCluster() { fabric_->set_stepper({}); }

  [[nodiscard]] static std::string name_of(std::size_t place) { return fmt::format("dpu{:02}", place); }
  [[nodiscard]] std::string name_at(std::size_t place) const {
    return options_.one_agent ? group::core_name("dpu", static_cast<unsigned>(place)) : name_of(place);
  }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] bool runs(std::size_t place) const { return places_[place].member != nullptr; }
  [[nodiscard]] agent::Dispatcher& dispatcher(std::size_t place) { return places_[place].member->dispatcher; }
  [[nodiscard]] const group::Membership& membership(std::size_t place) {
    return places_[place].member->group.membership();
  }

  void start(std::size_t place) {
    places_[place].process = fabric_->split_random().next();  // a later one may be smaller, as in life
    places_[place].member = std::make_unique<Member>(*this, place, places_[place].process);
    Member& member = *places_[place].member;
    member.dispatcher.serve_group(member.group, user, fabric_->now());
    const Status recovered = member.dispatcher.recover(fabric_->now());
    OFP_ASSERT(recovered);
  }

  // The process is gone, with everything except its disk.
  void kill(std::size_t place) {
    for (const Link& link : links_) {
      const std::shared_ptr<link::LoopbackFate> fate = link.fate.lock();
      if (fate && link.host == static_cast<int>(place)) fate->kill_host();
      if (fate && link.agent == place) fate->kill_agent();
    }
    std::erase_if(links_,
                  [&](const Link& link) { return link.host == static_cast<int>(place) || link.agent == place; });
    places_[place].member.reset();
  }

  // Members of different sides do not reach each other until all sides are equal again. Programs reach their own
  // agents.
  void set_sides(const std::vector<unsigned>& sides) {
    for (std::size_t place = 0; place < size(); ++place) places_[place].side = sides[place];
    for (const Link& link : links_) {
      const std::shared_ptr<link::LoopbackFate> fate = link.fate.lock();
      if (link.host < 0 || !fate) continue;
      if (places_[static_cast<std::size_t>(link.host)].side == places_[link.agent].side)
        fate->heal();
      else
        fate->partition();
    }
  }
  // The agent does nothing until then; requests of others wait.
  void hold_up(std::size_t place, TimeNs until) { places_[place].held_until = until; }
  [[nodiscard]] bool is_held_up(std::size_t place) const { return places_[place].held_until > fabric_->now(); }

  struct Program {
    std::unique_ptr<link::HostLink> link;
    std::shared_ptr<link::LoopbackFate> fate;
  };
  [[nodiscard]] Result<Program> connect_program(std::size_t place, const std::string& name,
                                                const wire::ChannelLayout& layout) {
    OFP_ASSIGN(link::LoopbackPair pair, make_link(-1, place, name, layout));
    return Program{std::move(pair.host), std::move(pair.fate)};
  }

  void run_for(TimeNs duration) {
    fabric_->run_until(fabric_->now() + duration, [] { return false; });
  }

  // Whether all running members that reach each other, and no others, know each other as alive.
  [[nodiscard]] bool agrees() {
    for (std::size_t place = 0; place < size(); ++place) {
      if (!runs(place)) continue;
      std::vector<std::string> running;
      for (std::size_t other = 0; other < size(); ++other)
        if (runs(other) && places_[other].side == places_[place].side) running.push_back(name_at(other));
      std::vector<std::string> known{name_at(place)};
      for (const auto& [name, member] : membership(place).others()) {
        if (member.state == group::MemberState::suspect) return false;
        if (member.state == group::MemberState::alive) known.push_back(name);
        if (member.state == group::MemberState::alive && member.id.process != places_[place_of(name)].process)
          return false;
      }
      std::ranges::sort(known);
      if (known != running) return false;
    }
    return true;
  }
  [[nodiscard]] bool wait_for_agreement(TimeNs patience) {
    return fabric_->run_until(fabric_->now() + patience, [this] { return agrees(); });
  }

  static constexpr uid_t user = 1000;

 private:
  using Run = std::function<Status()>;
  using Done = std::function<void(Status, TimeNs)>;

  struct Member {
    Member(SimCluster& cluster, std::size_t place, std::uint64_t process)
        : fabric(*cluster.fabric_),
          options(cluster.options_),
          dispatcher(cluster.options_of(place),
                     [this](std::uint64_t token, Run run) {
                       jobs.emplace_back(std::move(run), [this, token](Status status, TimeNs now) {
                         dispatcher.on_job(token, std::move(status), now);
                       });
                     }),
          group({cluster.name_at(place), 0, process, address_of(place), "", "", ""}, cluster.options_.group,
                surroundings(cluster, place), cluster.fabric_->now()) {}

    group::Reach::Surroundings surroundings(SimCluster& cluster, std::size_t place) {
      group::Reach::Surroundings all;
      all.connect = [&cluster, place](const std::string& address, TimeNs) {
        return cluster.connect_members(place, address);
      };
      all.start_job = [this](Run run, Done done) { jobs.emplace_back(std::move(run), std::move(done)); };
      all.watch = [](int, std::function<void()>) -> Status { return fail(Error::unsupported, "virtual time polls"); };
      all.unwatch = [](int) {};
      return all;
    }

    TimeNs step(TimeNs now) {
      if (!jobs.empty()) {
        auto [run, done] = std::move(jobs.front());
        jobs.pop_front();
        Status status;
        {
          const link::LoopbackFabric::WaitsWithinStep waits(fabric);  // a job has a thread of its own in life
          status = run();
        }
        done(std::move(status), now);
      }
      const bool served = dispatcher.poll(now), met = group.poll(now);  // both have their turn
      if (!served && !met && jobs.empty() && dispatcher.fall_asleep(now))
        return std::min({dispatcher.next_deadline(), group.next_deadline(), now + options.tick_ns});
      return now + options.round_ns;
    }

    link::LoopbackFabric& fabric;
    const Options& options;
    std::deque<std::pair<Run, Done>> jobs;
    agent::Dispatcher dispatcher;
    group::Group group;
  };
  struct Place {
    std::unique_ptr<Member> member;
    std::uint64_t process = 0;
    unsigned side = 0;
    TimeNs held_until = 0;
  };
  struct Link {
    int host;  // a member; -1: a program
    std::size_t agent;
    std::weak_ptr<link::LoopbackFate> fate;  // over when both ends have gone
  };

  [[nodiscard]] agent::DispatcherOptions options_of(std::size_t place) const {
    agent::DispatcherOptions options = options_.dispatcher;
    if (!options_.disks.empty()) options.pools.store = options_.disks.at(place);
    return options;
  }

  [[nodiscard]] std::size_t place_of(const std::string& name) const {
    std::size_t place = 0;
    while (place + 1 < size() && name_at(place) != name) ++place;
    return place;
  }

  [[nodiscard]] static std::string address_of(std::size_t place) { return fmt::format("unix:/{}", name_of(place)); }

  Result<link::LoopbackPair> make_link(int host, std::size_t place, const std::string& name,
                                       const wire::ChannelLayout& layout) {
    if (!runs(place)) return fail(Error::peer_lost, "nobody listens at {}", address_of(place));
    link::LoopbackOptions options = options_.links;
    options.mapped = options.mapped && (host >= 0 || options_.maps_programs);
    options.welcome.incarnation = places_[place].process;
    const auto number = std::make_shared<std::uint64_t>(0);
    options.on_ready = [this, place, process = places_[place].process, number] {
      if (!runs(place) || places_[place].process != process) return;
      if (channel::AgentEnd* const end = dispatcher(place).find(*number)) end->end_rest();
    };
    OFP_ASSIGN(link::LoopbackPair pair, link::make_loopback(fabric_, options, layout));
    std::erase_if(links_, [](const Link& link) { return link.fate.expired(); });
    links_.push_back({host, place, pair.fate});
    *number = dispatcher(place).add_channel(std::move(pair.agent), layout, {name, user, 1}, fabric_->now());
    dispatcher(place).find(*number)->may_rest();
    return pair;
  }

  Result<std::unique_ptr<channel::HostEnd>> connect_members(std::size_t from, const std::string& address) {
    const wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 256, .streams_max = 1};
    const std::size_t to = std::stoul(address.substr(9));
    if (places_[from].side != places_[to].side) return fail(Error::timeout, "{} does not answer", address);
    OFP_ASSIGN(link::LoopbackPair pair, make_link(static_cast<int>(from), to, "agent " + name_of(from), layout));
    return std::make_unique<channel::HostEnd>(std::move(pair.host), layout, link::LoopbackFabric::clock, fabric_.get());
  }

  TimeNs step(Place& place, TimeNs now) {
    const TimeNs next = place.member->step(now);
    const TimeNs cost = options_.cost ? options_.cost(static_cast<std::size_t>(&place - places_.data())) : 0;
    if (cost > 0) place.held_until = now + cost;
    return std::max(next, place.held_until);
  }

  TimeNs step(TimeNs now) {
    if (now < next_round_) return next_round_;
    next_round_ = now + options_.between_rounds_ns;
    TimeNs next = never;
    for (Place& place : places_) {
      if (!place.member) continue;
      if (const TimeNs then = std::max(now, fabric_->now()); place.held_until > then)
        next = std::min(next, place.held_until);
      else
        next = std::min(next, step(place, then));
    }
    return next;
  }

  std::shared_ptr<link::LoopbackFabric> fabric_;
  Options options_;
  std::vector<Place> places_;
  std::vector<Link> links_;
  TimeNs next_round_ = 0;
};

}  // namespace offpath::sim
