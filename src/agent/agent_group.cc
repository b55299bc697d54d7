#include "agent/agent_group.h"

#include <poll.h>

#include <algorithm>

#include "base/log.h"
#include "channel/host_end.h"
#include "group/launcher.h"
#include "group/pmix_launcher.h"
#include "link/stream/stream_threads.h"
#include "wire/limits.h"

namespace offpath::agent {

namespace {

constexpr unsigned connecting_threads = 4;
constexpr TimeNs connecting_thread_ends_ns = 2 * second_ns;
constexpr TimeNs farewell_ns = 300 * millisecond_ns;
constexpr TimeNs launcher_patience_ns = 60 * second_ns;

// A wildcard address means nothing on another machine: it is announced with the machine's name.
std::string told_to_others(link::Address address, const std::string& machine) {
  if (address.host == "0.0.0.0" || address.host == "::") address.host = machine;
  return address.text();
}

}  // namespace

AgentGroup::AgentGroup(const AgentSettings& settings, std::uint64_t process, const CoreEnds* core,
                       std::shared_ptr<link::CardDevices> devices, loop::Loop& loop)
    : settings_(settings), process_(process), core_(core), devices_(std::move(devices)), loop_(loop) {}

group::Identity AgentGroup::identity() const {
  group::Identity self;
  self.name = settings_.name;
  self.process = process_;
  // A card's DMA engine reaches its own host, and no other agent.
  const auto network = std::ranges::find_if(settings_.listen, [](const link::Address& address) {
    return address.kind != link::Address::Kind::unix_socket && address.kind != link::Address::Kind::doca;
  });
  const link::Address& address = network != settings_.listen.end() ? *network : settings_.listen.front();
  self.address = settings_.group_address.empty() ? told_to_others(address, machine_name()) : settings_.group_address;
  // Of several cores the first one has the pages of all.
  if (const std::optional<link::Address>& pages = core_ != nullptr ? core_->agent_pages_at : settings_.http) {
    self.http = pages->kind == link::Address::Kind::unix_socket
                    ? pages->text()
                    : told_to_others(*pages, machine_name()).substr(std::string_view("tcp:").size());
  }
  self.host = machine_name();
  self.rack = settings_.rack;
  self.role = settings_.role;
  return self;
}

// The Unix sockets of this agent's other cores, by the addresses that they tell members on other machines.
std::map<std::string, std::string> AgentGroup::addresses_near() const {
  std::map<std::string, std::string> near;
  if (core_ == nullptr) return near;
  for (const std::vector<link::Address>& addresses : core_->of_cores) {
    const auto local = std::ranges::find(addresses, link::Address::Kind::unix_socket, &link::Address::kind);
    for (const link::Address& each : addresses)
      if (each.kind != link::Address::Kind::unix_socket && local != addresses.end())
        near.emplace(told_to_others(each, machine_name()), local->text());
  }
  return near;
}

Status AgentGroup::meet_launched() {
  const std::string own = identity().address;
  const TimeNs deadline = deadline_after(monotonic_ns(), launcher_patience_ns);
  std::vector<std::string> all;
  if (group::has_pmix_launcher()) {
    OFP_ASSIGN(all, group::exchange_by_pmix(own, deadline));
  } else {
    OFP_ASSIGN(group::Launcher launcher, group::Launcher::from_environment());
    OFP_ASSIGN(all, launcher.exchange(own, deadline));
  }
  log(LogLevel::info, "the launcher started {} agents", all.size());
  launched_ = std::move(all);
  return {};
}

void AgentGroup::make() {
  link::HostOptions host;
  host.name = fmt::format("agent {}", settings_.name).substr(0, wire::name_bytes_max);
  // An idle member takes 64 KiB here and less there: the rings with their lines. (Requests that are too large for them
  // go outside, and memory that was never written has no pages.)
  host.layout = {.request_slots = 512, .reply_slots = 256, .streams_max = 1};
  static_assert(wire::ChannelLayout{.request_slots = 512, .reply_slots = 256, .streams_max = 1}.outside() <= 64 << 10);
  host.key_file = settings_.key_file;
  host.tls_ca_file = settings_.group_tls_ca_file;
  host.devices = devices_;
  auto threads = link::StreamThreads::create();
  if (threads) host.stream_threads = std::move(*threads);  // without: a thread for each link
  group::Reach::Surroundings surroundings;
  surroundings.connect = [host, near = addresses_near()](const std::string& text,
                                                         TimeNs deadline) -> Result<std::unique_ptr<channel::HostEnd>> {
    const auto beside = near.find(text);
    OFP_ASSIGN(const link::Address address, link::Address::parse(beside != near.end() ? beside->second : text));
    OFP_ASSIGN(auto link, link::connect(address, host, deadline));
    return std::make_unique<channel::HostEnd>(std::move(link), host.layout);
  };
  surroundings.start_job = [this](loop::JobPool::Run run, loop::JobPool::Done done) {
    if (!connecting_)  // a single agent does not need the threads
      connecting_ = std::make_unique<loop::JobPool>(
          loop_, loop::JobPoolOptions{connecting_threads, 64, {}, connecting_thread_ends_ns});
    connecting_->start(std::move(run), std::move(done));
  };
  surroundings.watch = [this](int fd, std::function<void()> on_ready) {
    return loop_.watch(
        fd, EPOLLIN, [on_ready = std::move(on_ready)](std::uint32_t, TimeNs) { on_ready(); }, loop::Loop::After::sleep);
  };
  surroundings.unwatch = [this](int fd) { loop_.unwatch(fd); };
  group::GroupOptions options = settings_.group;
  std::vector<std::string>& seeds = options.membership.seeds;
  seeds.insert(seeds.end(), launched_.begin(), launched_.end());
  group_ = std::make_unique<group::Group>(identity(), options, std::move(surroundings), monotonic_ns());
}

void AgentGroup::leave() {
  const TimeNs until = monotonic_ns() + farewell_ns;
  group_->leave(monotonic_ns());
  while (!group_->has_told() && monotonic_ns() < until) {
    if (!loop_.round(monotonic_ns())) poll(nullptr, 0, 1);
  }
}

}  // namespace offpath::agent
