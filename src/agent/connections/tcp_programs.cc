#include "agent/connections/tcp_programs.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "agent/connections/area_request.h"
#include "agent/connections/tcp_device.h"
#include "base/log.h"
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
  const std::uint16_t mtu = capabilities_of(*device_, settings_).mtu, least = mtu_least(settings_.stack);
  if (mtu < least)
    return fail(Error::unsupported, "tcp.address6: the MTU of {} is {}; IPv6 needs {}", settings_.device, mtu, least);
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
    overheard_port_ = std::make_unique<tcp::OverheardPort>(*port, [this](const tcp::NeighbourMessage& message) {
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
  } else if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_look) {
    if (const auto number = on_channel(channel.number())) linked_.look(*number, now);
    return;
  } else if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_process) {
    done = on_linked(channel, request);
  } else {
    wire::TcpClose close{};
    done = wire::decode(request.payload, close);
    const auto number = done ? on_channel(channel.number()) : std::nullopt;
    if (number && linked_.has(*number) && !programs_.at(*number).closing) {
      linked_.finish(*number);
      programs_.at(*number).closing = [&channel, ticket = request.ticket] {
        channel.reply(wire::ReplyKind::done, ticket, wire::Done{wire::tcp_area_version});
      };
      return;  // answered after the last read of the area
    }
    if (number) leave(*number, now);
  }
  if (done)
    channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{wire::tcp_area_version});
  else
    channel.reply_failure(request.ticket, wire::any_reply, done.error());
}

Status TcpPrograms::open(channel::AgentEnd& channel, const channel::Entry& request, const tcp::TcpService::Who& who) {
  wire::TcpOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (on_channel(channel.number())) return fail(Error::exists, "this program already has an area for its connections");
  OFP_TRY(check_area_request(asked));
  const wire::RegionId region = asked.memory.region;
  const wire::TcpAreaLayout layout{asked.command_slots, asked.event_slots, asked.flows, asked.memory.length};
  const MutableBytes mapped = channel.link().mapped(region);
  if (mapped.empty()) return open_linked(channel, asked, who);
  OFP_ASSIGN(MappedAgain view, MappedAgain::of(mapped));
  const auto memory = std::make_shared<MappedAgain>(std::move(view));
  const tcp::TcpService::Memory view_of = [memory] { return memory->bytes(); };
  const auto user = received_->of(who.user);
  OFP_ASSIGN(const auto doorbells, make_doorbells(*user));
  const std::uint64_t number = ++last_number_;
  OFP_TRY(service_.open(number, layout, who, view_of));
  for (std::size_t i = 0; i < cores_.size(); ++i)
    cores_[i]->open(number, layout, who, view_of, service_.blocks(number), doorbells[i]);
  programs_[number].channel = channel.number();
  Status handed = sockets_.open(number, channel, request.ticket, user);
  for (const auto& doorbell : doorbells)
    if (handed) handed = channel.hand_over(request.ticket, doorbell->get());
  if (!handed) leave(number, 0);  // it has no flow yet
  return handed;
}

// One for each further core. The program accounts for them.
Result<std::vector<std::shared_ptr<const Fd>>> TcpPrograms::make_doorbells(ReceivedFds::User& user) const {
  std::vector<std::shared_ptr<const Fd>> made;
  while (made.size() < cores_.size()) {
    OFP_TRY(user.may_take());
    Fd doorbell = user.own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!doorbell) return fail_errno(errno, "eventfd");
    made.push_back(std::make_shared<const Fd>(std::move(doorbell)));
  }
  return made;
}

// ---- programs on other machines

Status TcpPrograms::open_linked(channel::AgentEnd& channel, const wire::TcpOpen& asked, tcp::TcpService::Who who) {
  if (!cores_.empty())
    return fail(Error::unsupported,
                "programs on other machines need an agent with one core for TCP (tcp.cores); this one has {}",
                settings_.cores);
  const wire::TcpAreaLayout layout{asked.command_slots, asked.event_slots, asked.flows, asked.memory.length};
  // A relay of root or of the agent's own user states the program's rights; another one has its own user's rights.
  who.privileged = who.privileged && asked.privileged != 0;
  who.linked = true;
  who.user_there = asked.user;
  OFP_TRY(wire::check_tcp_area(layout));
  if (layout.bytes > settings_.limits.bytes_of_program_max)
    return fail(Error::too_large, "the area has {} bytes; a program may have {} (tcp.memory_of_program)", layout.bytes,
                settings_.limits.bytes_of_program_max);
  const std::uint64_t number = ++last_number_;
  OFP_ASSIGN(tcp::TcpService::Memory memory, linked_.open(number, channel, asked.memory.region, layout));
  if (Status opened = service_.open(number, layout, who, std::move(memory)); !opened) {
    linked_.close(number);
    return opened;
  }
  service_.measure_link(number, linked_.answer_ns(number));
  programs_[number].channel = channel.number();
  return {};
}

Status TcpPrograms::on_linked(channel::AgentEnd& channel, const channel::Entry& request) {
  wire::TcpProcess told{};
  OFP_TRY(wire::decode(request.payload, told));
  const auto number = on_channel(channel.number());
  if (!number || !linked_.has(*number))
    return fail(Error::invalid, "a process of a program that has no connections over a link");
  if (told.joins != 0) return service_.add_process(*number, told.process);
  // After the last process its relay closes the program, when its area has been fetched.
  static_cast<void>(service_.remove_process(*number, told.process));
  return {};
}

std::optional<std::uint64_t> TcpPrograms::on_channel(std::uint64_t channel) const {
  const auto found = std::ranges::find_if(
      programs_, [&](const auto& each) { return each.second.has_channel && each.second.channel == channel; });
  return found == programs_.end() ? std::nullopt : std::optional(found->first);
}

// ---- their processes on this machine

Status TcpPrograms::on_joined(std::uint64_t number, std::uint32_t process) {
  return service_.add_process(number, process);
}

void TcpPrograms::on_socket(std::uint64_t number, std::uint32_t process, std::shared_ptr<const Fd> wake) {
  for (const auto& core : cores_) core->add_process(number, process, wake);
}

bool TcpPrograms::on_process_ended(std::uint64_t number, std::uint32_t process) {
  for (const auto& core : cores_) core->remove_process(number, process);
  return service_.remove_process(number, process);
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
  sockets_.close(number);
  linked_.close(number);
  programs_.erase(number);
}

void TcpPrograms::on_channel_closed(std::uint64_t channel, bool ended, TimeNs now) {
  slow_path_.on_channel_closed(channel);
  const auto number = on_channel(channel);
  if (!number) return;
  if (!ended || !service_.has(*number) || linked_.has(*number)) return leave(*number, now);
  programs_.at(*number).has_channel = false;
}

// ---- polling

void TcpPrograms::react(TimeNs now) {
  if (!told_address6_ && (stack_->is_duplicate() || stack_->may_use_ipv6())) {
    told_address6_ = true;
    for (const auto& core : cores_) core->settle_own(!stack_->is_duplicate());
    if (stack_->is_duplicate())
      log(LogLevel::warning, "tcp.address6: another node of the link has {}, so the agent does not use it",
          tcp::text_of(stack_->options().v6.address));
  }
  slow_path_worked_ |= slow_path_.poll(now);  // before programs' events are written: connections that it hands over are
                                              // announced in this round
  if (!trace_) return static_cast<void>(service_.react(now));
  const tcp::TcpServiceCounters before = service_.counters();
  service_.react(now);
  if (service_.counters().commands != before.commands) trace_->note(tcp::StageTrace::Stage::commanded);
  if (service_.counters().events != before.events) trace_->note(tcp::StageTrace::Stage::told);
}

void TcpPrograms::wake_programs() {
  service_.wake_threads();
  for (const auto& [number, process] : service_.take_wakes()) {
    if (linked_.has(number))
      linked_.wake(number, process);
    else
      sockets_.wake(number, process);
  }
}

bool TcpPrograms::poll(TimeNs now) {
  bool worked = hear_cores(now);
  service_.attach(now);
  const std::uint64_t commands = service_.counters().commands;
  worked |= station_->poll(now);
  wake_programs();
  worked |= linked_.poll(now);
  for (const std::uint64_t number : linked_.take_finished()) {
    const auto answer = std::move(programs_.at(number).closing);
    leave(number, now);
    answer();
  }
  for (auto& broken : linked_.take_ended())
    if (programs_.contains(broken.program)) refuse(broken.program, std::move(broken.why), now);
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
  if (!linked_.may_sleep()) return false;
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
  gathered->all.link = linked_.counters();
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
