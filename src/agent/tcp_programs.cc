#include "agent/tcp_programs.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "link/authentication.h"
#include "wire/message_kinds.h"
#include "wire/region.h"
#include "wire/replies.h"
#include "wire/tcp_messages.h"

namespace offpath::agent {

using wire::EntryKind;

Result<std::unique_ptr<TcpPrograms>> TcpPrograms::make(loop::Loop& loop, const TcpSettings& settings, TimeNs now) {
  std::unique_ptr<TcpPrograms> made(new TcpPrograms(loop, settings));
  OFP_TRY(made->prepare(now));
  return made;
}

Status TcpPrograms::prepare(TimeNs now) {
  if (settings_.tap) {
    const std::uint32_t address = settings_.stack.address.value;
    const auto byte = [address](unsigned shift) { return static_cast<std::uint8_t>(address >> shift); };
    OFP_ASSIGN(device_, tcp::PacketPort::open_tap(settings_.device, {2, 0, byte(24), byte(16), byte(8), byte(0)}));  // 2: given locally
  } else {
    OFP_ASSIGN(device_, tcp::PacketPort::open_interface(settings_.device));
  }
  OFP_ASSIGN(congestion_, tcp::congestion_control(settings_.congestion));
  tcp::PortCapabilities capabilities = device_->capabilities();
  if (settings_.mtu != 0) capabilities.mtu = std::min(capabilities.mtu, settings_.mtu);
  settings_.stack.secret = {link::random_number(), link::random_number()};
  stack_ = std::make_unique<tcp::Stack>(settings_.stack, capabilities, *congestion_, service_, now);
  service_.serve(*stack_);
  if (!settings_.trace_file.empty()) {
    OFP_ASSIGN(trace_, tcp::StageTrace::create(settings_.trace_file));
    traced_port_ = std::make_unique<tcp::TracedPort>(*device_, *trace_);
  }
  tcp::Port& port = traced_port_ ? static_cast<tcp::Port&>(*traced_port_) : *device_;
  station_ = std::make_unique<tcp::Station>(port, *stack_, [this](TimeNs at) { react(at); });
  return loop_.watch(device_->wait_descriptor(), EPOLLIN);
}

TcpPrograms::~TcpPrograms() {
  for (const auto& [channel, fd] : wakes_) loop_.unwatch(fd.get());
  if (device_ && device_->wait_descriptor() >= 0) loop_.unwatch(device_->wait_descriptor());
}

// ---- programs

void TcpPrograms::on_request(channel::AgentEnd& channel, const channel::Entry& request, bool privileged, TimeNs now) {
  Status done;
  if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_open) {
    done = open(channel, request, privileged);
  } else {
    wire::TcpClose close{};
    done = wire::decode(request.payload, close);
    if (done) leave(channel.number(), now);
  }
  if (done) channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{wire::tcp_area_version});
  else channel.reply_failure(request.ticket, wire::any_reply, done.error());
}

Status TcpPrograms::open(channel::AgentEnd& channel, const channel::Entry& request, bool privileged) {
  wire::TcpOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  if (asked.version != wire::tcp_area_version)
    return fail(Error::version, "connections: version {} of their memory, this agent has {}", asked.version, wire::tcp_area_version);
  const wire::RegionId region = asked.memory.region;
  if (!wire::is_segment(region) || region == wire::channel_segment || asked.memory.offset != 0)
    return fail(Error::invalid, "connections want a segment of their own, from its beginning; region {:#x} at {} was named", region, asked.memory.offset);
  const wire::TcpAreaLayout layout{asked.wish_slots, asked.news_slots, asked.flows, asked.memory.length};
  OFP_TRY(service_.open(channel.number(), layout, privileged, [&link = channel.link(), region] { return link.mapped(region); }));
  Status wakes = make_wakes(channel, request.ticket);
  if (!wakes) service_.close(channel.number(), 0);  // it has no flow yet
  return wakes;
}

Status TcpPrograms::make_wakes(channel::AgentEnd& channel, std::uint64_t ticket) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
  Fd own(ends[0]);
  const Fd theirs(ends[1]);
  OFP_TRY(channel.hand_over(ticket, theirs.get()));
  OFP_TRY(loop_.watch(own.get(), EPOLLIN, [this, number = channel.number()](std::uint32_t, TimeNs) { on_woken(number); }));
  wakes_.emplace(channel.number(), std::move(own));
  return {};
}

// The rings tell why.
void TcpPrograms::on_woken(std::uint64_t channel) {
  constexpr int datagrams_of_a_look = 16;
  const Fd& fd = wakes_.at(channel);
  char byte;
  for (int i = 0; i < datagrams_of_a_look; ++i) {
    const ssize_t got = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    if (got > 0) continue;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    loop_.unwatch(fd.get());  // every process of the program has closed its end
    return on_ended(channel, {Error::closed, "the program closed the descriptor by which its connections wake the agent"});
  }
}

void TcpPrograms::leave(std::uint64_t channel, TimeNs now) {
  service_.close(channel, now);
  const auto wakes = wakes_.extract(channel);
  if (wakes) loop_.unwatch(wakes.mapped().get());
}

void TcpPrograms::on_channel_closed(std::uint64_t channel, TimeNs now) { leave(channel, now); }

// ---- polling

void TcpPrograms::react(TimeNs now) {
  if (!trace_) return static_cast<void>(service_.react(now));
  const tcp::TcpServiceCounters before = service_.counters();
  service_.react(now);
  if (service_.counters().wishes != before.wishes) trace_->note(tcp::StageTrace::Stage::wished);
  if (service_.counters().news != before.news) trace_->note(tcp::StageTrace::Stage::told);
}

bool TcpPrograms::poll(TimeNs now) {
  service_.attach(now);
  const std::uint64_t wishes = service_.counters().wishes;
  const bool worked = station_->poll(now);
  for (const std::uint64_t program : service_.take_wakes())
    if (const auto wakes = wakes_.find(program); wakes != wakes_.end()) static_cast<void>(send(wakes->second.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  auto ended = service_.take_ended();
  for (auto& each : ended) on_ended(each.program, std::move(each.why));
  return worked || !ended.empty() || service_.counters().wishes != wishes;
}

bool TcpPrograms::fall_asleep(TimeNs now) {
  service_.attach(now);  // other pollers were asked before
  return station_->fall_asleep(now) && service_.fall_asleep();
}

namespace {
constexpr std::size_t connections_shown = 4096;
}

TcpStatus TcpPrograms::status() const {
  TcpStatus status;
  status.device = settings_.device;
  status.address = tcp::text_of(settings_.stack.address);
  status.flows = stack_->flows();
  status.half_open = stack_->half_open();
  status.stack = stack_->counters();
  status.port = device_->counters();
  status.service = service_.counters();
  status.programs = service_.programs();
  status.connections = service_.connections(connections_shown);
  return status;
}

}  // namespace offpath::agent
