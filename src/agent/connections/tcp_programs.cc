#include "agent/connections/tcp_programs.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "agent/connections/tcp_device.h"
#include "link/control/authentication.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/tcp_messages.h"
#include "wire/region.h"

namespace offpath::agent {

using wire::EntryKind;

Result<std::unique_ptr<TcpPrograms>> TcpPrograms::make(loop::Loop& loop, const TcpSettings& settings,
                                                       std::shared_ptr<ReceivedFds> received, TimeNs now) {
  std::unique_ptr<TcpPrograms> made(new TcpPrograms(loop, settings, std::move(received)));
  OFP_TRY(made->prepare(now));
  return made;
}

Status TcpPrograms::prepare(TimeNs now) {
  OFP_ASSIGN(shared_address_, settle_address(settings_));
  OFP_ASSIGN(auto devices, open_devices(settings_));
  device_ = std::move(devices.front());
  other_devices_.assign(std::make_move_iterator(devices.begin() + 1), std::make_move_iterator(devices.end()));
  OFP_ASSIGN(congestion_, tcp::congestion_control(settings_.congestion));
  stack_ = std::make_unique<tcp::Stack>(stack_of_core(settings_, 0), capabilities_of(*device_, settings_), *congestion_,
                                        service_, now);
  service_.serve(*stack_);
  tcp::Port* port = device_.get();
  if (!settings_.trace_file.empty()) {
    OFP_ASSIGN(trace_, tcp::StageTrace::create(settings_.trace_file));
    traced_port_ = std::make_unique<tcp::TracedPort>(*port, *trace_);
    port = traced_port_.get();
  }
  if (settings_.cores > 1) {
    OFP_TRY(make_cores(now));
    overheard_port_ = std::make_unique<tcp::OverheardPort>(*port, [this](const tcp::ArpMessage& message) {
      for (const auto& core : cores_) core->overhear(message);
    });
    port = overheard_port_.get();
  }
  station_ = std::make_unique<tcp::Station>(*port, *stack_, [this](TimeNs at) { react(at); });
  if (device_->wait_descriptor() < 0) return {};  // a device without a descriptor is polled, also when a timer ends the
                                                  // loop's sleep
  return loop_.watch(device_->wait_descriptor(), EPOLLIN);
}

TcpPrograms::~TcpPrograms() {
  cores_.clear();
  for (const auto& [number, program] : programs_)
    for (const auto& [process, sockets] : program.processes) loop_.unwatch(sockets.wake->get());
  if (device_ && device_->wait_descriptor() >= 0) loop_.unwatch(device_->wait_descriptor());
}

// ---- programs

void TcpPrograms::on_request(channel::AgentEnd& channel, const channel::Entry& request, const tcp::TcpService::Who& who,
                             TimeNs now) {
  Status done;
  if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_slow_path) {
    done = slow_path_.open(channel, request, who.privileged, *stack_, now);
  } else if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_open) {
    done = open(channel, request, who);
  } else {
    wire::TcpClose close{};
    done = wire::decode(request.payload, close);
    if (const auto number = done ? on_channel(channel.number()) : std::nullopt) leave(*number, now);
  }
  if (done)
    channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{wire::tcp_area_version});
  else
    channel.reply_failure(request.ticket, wire::any_reply, done.error());
}

Status TcpPrograms::open(channel::AgentEnd& channel, const channel::Entry& request, const tcp::TcpService::Who& who) {
  wire::TcpOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (on_channel(channel.number())) return fail(Error::exists, "this program has an area for its connections already");
  if (asked.version != wire::tcp_area_version)
    return fail(Error::version, "connections: their memory has version {}, this agent needs {}", asked.version,
                wire::tcp_area_version);
  const wire::RegionId region = asked.memory.region;
  if (!wire::is_segment(region) || region == wire::channel_segment || asked.memory.offset != 0)
    return fail(Error::invalid,
                "connections need a segment of their own, from offset 0; the request names region {:#x} at {}", region,
                asked.memory.offset);
  const wire::TcpAreaLayout layout{asked.command_slots, asked.event_slots, asked.flows, asked.memory.length};
  const MutableBytes mapped = channel.link().mapped(region);
  if (mapped.empty())
    return fail(Error::unsupported,
                "the agent cannot map the memory of this program: connections need an agent on the program's machine");
  OFP_ASSIGN(MappedAgain view, MappedAgain::of(mapped));
  const auto memory = std::make_shared<MappedAgain>(std::move(view));
  const tcp::TcpService::Memory view_of = [memory] { return memory->bytes(); };
  const std::uint64_t number = ++last_number_;
  OFP_TRY(service_.open(number, layout, who, view_of));
  for (const auto& core : cores_) core->open(number, layout, who, view_of);
  programs_[number].channel = channel.number();
  programs_[number].user = received_->of(who.user);
  Status wakes = make_wakes(channel, number, request.ticket);
  if (!wakes) leave(number, 0);  // it has no flow yet
  return wakes;
}

std::optional<std::uint64_t> TcpPrograms::on_channel(std::uint64_t channel) const {
  const auto found = std::ranges::find_if(
      programs_, [&](const auto& each) { return each.second.has_channel && each.second.channel == channel; });
  return found == programs_.end() ? std::nullopt : std::optional(found->first);
}

Status TcpPrograms::make_wakes(channel::AgentEnd& channel, std::uint64_t number, std::uint64_t ticket) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "socketpair");
  Fd own = programs_.at(number).user->own(ends[0]);  // the program accounts for the data in the socket
  const Fd theirs(ends[1]);
  OFP_TRY(channel.hand_over(ticket, theirs.get()));
  return watch(number, 0, {std::make_shared<const Fd>(std::move(own)), {}});
}

Status TcpPrograms::watch(std::uint64_t number, std::uint32_t process, Process sockets) {
  OFP_TRY(loop_.watch(sockets.wake->get(), EPOLLIN,
                      [this, number, process](std::uint32_t, TimeNs now) { on_woken(number, process, now); }));
  for (const auto& core : cores_) core->add_process(number, process, sockets.wake);
  programs_.at(number).processes.insert_or_assign(process, std::move(sockets));
  return {};
}

namespace {

struct Datagram {
  ssize_t length;
  wire::TcpJoin join;
  // For a wake: the number of the core to wake.
  [[nodiscard]] std::uint8_t core() const noexcept { return static_cast<std::uint8_t>(join.kind & 0xff); }
  std::array<Fd, 2> sockets;
};

// Takes the descriptors that came with it, but no more than a joining process sends.
Datagram receive_from(int fd, const std::shared_ptr<ReceivedFds::User>& user) {
  Datagram got{};
  const iovec part{&got.join, sizeof got.join};
  std::vector<Fd> descriptors;
  int said = 0;
  got.length = receive_with_descriptors(fd, {&part, 1}, MSG_DONTWAIT, user, descriptors, said);
  for (std::size_t i = 0; i < std::min(descriptors.size(), got.sockets.size()); ++i)
    got.sockets[i] = std::move(descriptors[i]);
  return got;
}

// Other descriptors might block the agent, or raise unexpected signals.
[[nodiscard]] bool is_socket_of_datagrams(const Fd& fd) {
  int domain = 0, type = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX &&
         getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

}  // namespace

// The datagram only wakes: the rings hold the work.
void TcpPrograms::on_woken(std::uint64_t number, std::uint32_t process, TimeNs now) {
  constexpr int datagrams_of_a_look = 16;
  for (int i = 0; i < datagrams_of_a_look; ++i) {
    const auto program = programs_.find(number);
    if (program == programs_.end() || !program->second.processes.contains(process)) return;
    Datagram got = receive_from(program->second.processes.at(process).wake->get(), program->second.user);
    if (got.length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // ECONNRESET: the other end closed with a wake unread. The kernel reports it once, before the datagrams that were
    // sent earlier, which may include a process's join.
    if (got.length < 0 && errno == ECONNRESET) continue;
    if (got.length <= 0) return on_process_ended(number, process, now);
    // Several datagrams were queued, so further ones may have been lost: every core may be meant.
    for (std::uint32_t core = 1; core <= cores_.size(); ++core)
      if (i > 0 || core == got.core()) cores_[core - 1]->wake();
    if (got.length != sizeof got.join || got.join.kind != wire::TcpJoin::join) continue;
    if (Status joined = join(number, process, got.join, std::move(got.sockets)); !joined)
      return refuse(number, std::move(joined).error(), now);
  }
}

Status TcpPrograms::join(std::uint64_t number, std::uint32_t from, const wire::TcpJoin& join,
                         std::array<Fd, 2> sockets) {
  if (!sockets[0] || !sockets[1])
    return fail(Error::protocol, "process {} joins without its two sockets, or there were no free descriptors for them",
                join.process);
  if (!is_socket_of_datagrams(sockets[0]) || !is_socket_of_datagrams(sockets[1]))
    return fail(Error::protocol, "process {} joins with descriptors that are not datagram sockets", join.process);
  OFP_TRY(programs_.at(number).user->may_take());
  if (join.process != from)
    OFP_TRY(service_.add_process(number, join.process));
  else
    loop_.unwatch(programs_.at(number).processes.at(from).wake->get());
  // Has the process look once: a wake may have gone to its previous socket, or been lost.
  static_cast<void>(send(sockets[0].get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  return watch(number, join.process, {std::make_shared<const Fd>(std::move(sockets[0])), std::move(sockets[1])});
}

// The program itself decides who takes over the ended process's connections: its remaining processes release them.
void TcpPrograms::on_process_ended(std::uint64_t number, std::uint32_t process, TimeNs now) {
  Program& program = programs_.at(number);
  loop_.unwatch(program.processes.at(process).wake->get());
  program.processes.erase(process);
  for (const auto& core : cores_) core->remove_process(number, process);
  if (!service_.remove_process(number, process) || program.processes.empty())
    return refuse(number,
                  {Error::closed,
                   "every process of the program has closed the descriptor by which its connections wake the agent"},
                  now);
  for (const auto& [other, sockets] : program.processes)
    if (sockets.notices) static_cast<void>(send(sockets.notices.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void TcpPrograms::refuse(std::uint64_t number, Failure why, TimeNs now) {
  const std::uint64_t channel = programs_.at(number).channel;
  const bool has_channel = programs_.at(number).has_channel;
  leave(number, now);
  if (has_channel) on_ended(channel, std::move(why));
}

void TcpPrograms::leave(std::uint64_t number, TimeNs now) {
  service_.close(number, now);
  for (const auto& core : cores_) core->close(number);
  const auto program = programs_.extract(number);
  for (const auto& [process, sockets] : program.mapped().processes) loop_.unwatch(sockets.wake->get());
}

void TcpPrograms::on_channel_closed(std::uint64_t channel, bool ended, TimeNs now) {
  slow_path_.on_channel_closed(channel);
  const auto number = on_channel(channel);
  if (!number) return;
  if (!ended || !service_.has(*number)) return leave(*number, now);
  programs_.at(*number).has_channel = false;
}

// ---- polling

void TcpPrograms::react(TimeNs now) {
  slow_path_worked_ |= slow_path_.poll(now);  // before programs' events are written: connections that it hands over are
                                              // announced in this round
  if (!trace_) return static_cast<void>(service_.react(now));
  const tcp::TcpServiceCounters before = service_.counters();
  service_.react(now);
  if (service_.counters().commands != before.commands) trace_->note(tcp::StageTrace::Stage::commanded);
  if (service_.counters().events != before.events) trace_->note(tcp::StageTrace::Stage::told);
}

void TcpPrograms::wake_programs() {
  for (const auto& [number, process] : service_.take_wakes())
    if (const auto program = programs_.find(number); program != programs_.end())
      if (const auto of = program->second.processes.find(process); of != program->second.processes.end())
        static_cast<void>(send(of->second.wake->get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool TcpPrograms::poll(TimeNs now) {
  bool worked = hear_cores(now);
  service_.attach(now);
  const std::uint64_t commands = service_.counters().commands;
  worked |= station_->poll(now);
  wake_programs();
  if (auto gone = slow_path_.finish_round()) on_ended(gone->channel, std::move(gone->why));
  auto ended = service_.take_ended();
  for (auto& each : ended)
    if (programs_.contains(each.program)) refuse(each.program, std::move(each.why), now);
  tell_cores();  // after ended programs: their ports may be given to others
  worked |= std::exchange(slow_path_worked_, false);
  return worked || !ended.empty() || service_.counters().commands != commands;
}

bool TcpPrograms::fall_asleep(TimeNs now) {
  service_.attach(now);  // after the other pollers
  for (const auto& core : cores_)
    if (!core->flush() || !core->told().fall_asleep(now)) return false;
  return station_->fall_asleep(now) && service_.fall_asleep() && slow_path_.fall_asleep();
}

// ---- other cores

Status TcpPrograms::make_cores(TimeNs now) {
  for (std::uint32_t number = 1; number < settings_.cores; ++number) {
    TcpCore::ToCore0 told{[this](const tcp::CoreMessage& message, TimeNs at) { service_.on_message(message, at); },
                          [this](tcp::TcpService::Ended ended, TimeNs at) {
                            if (programs_.contains(ended.program)) refuse(ended.program, std::move(ended.why), at);
                          }};
    OFP_ASSIGN(auto core, TcpCore::make(number, loop_, settings_, *congestion_, std::move(other_devices_[number - 1]),
                                        std::move(told), now));
    cores_.push_back(std::move(core));
  }
  other_devices_.clear();
  return {};
}

Status TcpPrograms::start() {
  for (std::size_t i = 0; i < cores_.size(); ++i)
    OFP_TRY(cores_[i]->start(settings_.pin.empty() ? std::nullopt : std::optional(settings_.pin[i])));
  return {};
}

bool TcpPrograms::hear_cores(TimeNs now) {
  bool heard = false;
  for (const auto& core : cores_) heard = core->told().poll(now) || heard;
  return heard;
}

void TcpPrograms::tell_cores() {
  for (const tcp::CoreMessage& message : service_.take_messages())
    for (const auto& core : cores_) core->say(message);
  for (const auto& core : cores_) core->flush();
}

// The status shows programs by their channels. State that other cores still have of a program that core 0 has closed is
// omitted.
TcpStatus TcpPrograms::with_channels(TcpStatus status) const {
  const auto put_channel = [&](std::uint64_t& program) {
    const auto found = programs_.find(program);
    if (found == programs_.end()) return false;
    program = found->second.channel;
    return true;
  };
  std::erase_if(status.programs, [&](auto& each) { return !put_channel(each.number); });
  std::erase_if(status.connections, [&](auto& each) { return !put_channel(each.program); });
  return status;
}

void TcpPrograms::ask_status(std::function<void(TcpStatus status, TimeNs now)> answer, TimeNs now) {
  struct Gathered {
    TcpStatus all;
    std::vector<TcpStatus> others;
  };
  auto gathered = std::make_shared<Gathered>(Gathered{status_of(0, *stack_, *device_, service_, loop_), {}});
  gathered->all.device = settings_.device;
  gathered->all.slow_path_is_there = slow_path_.is_there();
  gathered->all.slow_path = slow_path_.counters();
  if (cores_.empty()) return answer(with_channels(std::move(gathered->all)), now);
  for (const auto& core : cores_) {
    core->ask_status([this, gathered, answer](TcpStatus status, TimeNs at) {
      gathered->others.push_back(std::move(status));
      if (gathered->others.size() < cores_.size()) return;
      std::ranges::sort(gathered->others, {}, [](const TcpStatus& each) { return each.cores.front().core; });
      for (TcpStatus& each : gathered->others) add(gathered->all, std::move(each));
      answer(with_channels(std::move(gathered->all)), at);
    });
  }
}

}  // namespace offpath::agent
