#include "agent/connections/tcp_relay.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "agent/connections/area_request.h"
#include "agent/connections/mapped_again.h"
#include "base/log.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/tcp_messages.h"
#include "wire/region.h"

namespace offpath::agent {

using wire::EntryKind;

namespace {

constexpr unsigned connecting_threads = 2;
constexpr std::size_t connecting_queue = 256;
constexpr TimeNs close_within_ns = 2 * second_ns;

std::atomic_ref<std::uint64_t> word(MutableBytes area, std::uint64_t offset) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(area.data() + offset));
}

}  // namespace

TcpRelay::TcpRelay(loop::Loop& loop, TcpRelayOptions options, std::shared_ptr<ReceivedFds> received)
    : loop_(loop), options_(std::move(options)), received_(std::move(received)), sockets_(loop, *this) {
  connecting_ = std::make_unique<loop::JobPool>(loop_, loop::JobPoolOptions{connecting_threads, connecting_queue});
}

TcpRelay::~TcpRelay() {
  while (!programs_.empty()) leave(programs_.begin()->first);
  for (const auto& [number, closing] : closing_) loop_.unwatch(closing.far->end->event_fd());
}

// ---- requests of programs

void TcpRelay::on_request(channel::AgentEnd& channel, const channel::Entry& request, uid_t user, bool privileged,
                          TimeNs now) {
  Status done;
  if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_open) {
    done = open(channel, request, user, privileged);
    if (done) return;  // answered when the other agent has answered
  } else if (static_cast<EntryKind>(request.kind) == EntryKind::tcp_close) {
    wire::TcpClose close{};
    done = wire::decode(request.payload, close);
    std::uint64_t number = 0;
    if (done && on_channel(channel.number(), number) != nullptr) finish(number, now);
  } else {
    done = fail(Error::unsupported, "this agent relays TCP connections to {}; it has no stack of its own",
                options_.agent.text());
  }
  if (done)
    channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{wire::tcp_area_version});
  else
    channel.reply_failure(request.ticket, wire::any_reply, done.error());
}

Status TcpRelay::open(channel::AgentEnd& channel, const channel::Entry& request, uid_t user, bool privileged) {
  wire::TcpOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  std::uint64_t other = 0;
  if (on_channel(channel.number(), other) != nullptr)
    return fail(Error::exists, "this program already has an area for its connections");
  if (programs_.size() + closing_.size() >= options_.programs_max)
    return fail(Error::too_large, "{} programs have connections, which is the limit (tcp.programs_max)",
                programs_.size() + closing_.size());
  OFP_TRY(check_area_request(asked));
  const wire::RegionId region = asked.memory.region;
  const wire::TcpAreaLayout layout{asked.command_slots, asked.event_slots, asked.flows, asked.memory.length};
  OFP_TRY(wire::check_tcp_area(layout));
  const MutableBytes mapped = channel.link().mapped(region);
  if (mapped.size() < layout.bytes)
    return fail(Error::unsupported,
                "the agent cannot map the memory of this program: connections need a relay on the "
                "program's machine");
  OFP_ASSIGN(MappedAgain view, MappedAgain::of(mapped));
  const std::uint64_t number = ++last_number_;
  Program& program = programs_[number];
  program.channel = &channel;
  program.channel_number = channel.number();
  program.ticket = request.ticket;
  program.user = received_->of(user);

  struct Opening {
    MappedAgain view;
    std::unique_ptr<Far> far = std::make_unique<Far>();
  };
  const auto opening = std::make_shared<Opening>(Opening{std::move(view)});
  asked.privileged = privileged ? 1 : 0;
  asked.user = user;
  link::HostOptions host = options_.host;
  host.name = channel.program();
  connecting_->start(
      [opening, asked, host, options = options_]() mutable -> Status {
        const TimeNs deadline = deadline_after(monotonic_ns(), options.open_within_ns);
        OFP_ASSIGN(auto link, link::connect(options.agent, host, deadline));
        Far& far = *opening->far;
        far.end = std::make_unique<channel::HostEnd>(std::move(link), host.layout);
        const MutableBytes area = opening->view.release();
        OFP_ASSIGN(far.region, far.end->adopt(link::SegmentMemory(area.data(), area.size(), Fd()), deadline));
        asked.memory.region = far.region;
        std::vector<std::byte> payload;
        wire::encode(asked, payload);
        OFP_TRY(far.end->call(EntryKind::tcp_open, payload, deadline));
        return {};
      },
      [this, number, opening](Status status, TimeNs now) {
        on_opened(number, std::move(opening->far), std::move(status), now);
      });
  return {};
}

void TcpRelay::on_opened(std::uint64_t number, std::unique_ptr<Far> far, Status status, TimeNs) {
  const auto at = programs_.find(number);
  if (at == programs_.end()) return;  // it has ended meanwhile
  Program& program = at->second;
  channel::AgentEnd* const channel = program.channel;
  if (channel == nullptr) return leave(number);
  const std::uint64_t ticket = program.ticket;
  program.far = std::move(far);
  if (status) status = serve(number, program);
  if (status) return channel->reply(wire::ReplyKind::done, ticket, wire::Done{wire::tcp_area_version});
  leave(number);
  const Failure why{status.error().code, fmt::format("the agent at {}, which has the connections: {}",
                                                     options_.agent.text(), status.error().message)};
  channel->reply_failure(ticket, wire::any_reply, why);
}

Status TcpRelay::serve(std::uint64_t number, Program& program) {
  const MutableBytes area = program.far->end->segment(program.far->region);
  if (area.empty()) return fail(Error::peer_lost, "the channel ended");
  word(area, wire::tcp_word::cores).store(1, std::memory_order_relaxed);
  using Kind = link::Address::Kind;
  const bool pins = options_.agent.kind == Kind::verbs || options_.agent.kind == Kind::doca;
  word(area, wire::tcp_word::linked).store(pins ? wire::tcp_link_pins : 1, std::memory_order_release);
  program.woken.try_emplace(0, 0);
  OFP_TRY(loop_.watch(program.far->end->event_fd(), EPOLLIN,
                      [this, number](std::uint32_t, TimeNs now) { on_far(number, now); }));
  return sockets_.open(number, *program.channel, program.ticket, program.user);
}

TcpRelay::Program* TcpRelay::on_channel(std::uint64_t channel, std::uint64_t& number) {
  for (auto& [each, program] : programs_)
    if (program.channel != nullptr && program.channel_number == channel) {
      number = each;
      return &program;
    }
  return nullptr;
}

void TcpRelay::on_channel_closed(std::uint64_t channel, bool ended, TimeNs now) {
  std::uint64_t number = 0;
  Program* const program = on_channel(channel, number);
  if (program == nullptr) return;
  if (program->far == nullptr) return leave(number);
  if (!ended) return finish(number, now);
  program->channel = nullptr;  // other processes of the program may live
}

void TcpRelay::leave(std::uint64_t number) {
  sockets_.close(number);
  auto program = programs_.extract(number);
  if (program && program.mapped().far && program.mapped().far->end)
    loop_.unwatch(program.mapped().far->end->event_fd());
}

void TcpRelay::finish(std::uint64_t number, TimeNs now) {
  Program& program = programs_.at(number);
  if (program.far == nullptr) return leave(number);
  sockets_.close(number);
  closing_.emplace(number, Closing{std::move(program.far), deadline_after(now, close_within_ns)});
  programs_.erase(number);
  look_at_closing(now);
}

bool TcpRelay::is_over(Closing& closing, TimeNs now) const {
  channel::HostEnd& end = *closing.far->end;
  if (now >= closing.until) return true;
  while (end.poll()) {
    if (closing.ticket == 0) {
      std::vector<std::byte> payload;
      wire::encode(wire::TcpClose{wire::tcp_area_version}, payload);
      const auto asked = end.ask(EntryKind::tcp_close, payload);
      if (!asked) {
        end.arm_room();
        return false;
      }
      closing.ticket = *asked;
    }
    if (end.take_reply(closing.ticket)) return true;
    if (end.arm_replies()) return false;
  }
  return true;
}

void TcpRelay::look_at_closing(TimeNs now) {
  for (auto at = closing_.begin(); at != closing_.end();) {
    if (!is_over(at->second, now)) {
      ++at;
      continue;
    }
    loop_.unwatch(at->second.far->end->event_fd());
    at = closing_.erase(at);
  }
}

// ---- the other agent

void TcpRelay::on_far(std::uint64_t number, TimeNs now) {
  const auto at = programs_.find(number);
  if (at == programs_.end()) return look_at_closing(now);
  Program& program = at->second;
  if (Status here = program.far->end->poll(); !here) return refuse(number, std::move(here).error(), now);
  wake_processes(number, program);
  settle(program);
}

void TcpRelay::wake_processes(std::uint64_t number, Program& program) {
  const MutableBytes area = program.far->end->segment(program.far->region);
  if (area.empty()) return;
  for (auto& [process, before] : program.woken) {
    const std::uint64_t woken = word(area, wire::tcp_word::process_woken(process)).load(std::memory_order_acquire);
    if (std::exchange(before, woken) != woken) sockets_.wake(number, process);
  }
}

// True: every notice has reached the other agent.
bool TcpRelay::settle(Program& program) {
  if (program.far == nullptr) return true;
  channel::HostEnd& end = *program.far->end;
  for (; !program.owed.empty(); program.owed.pop()) {
    std::vector<std::byte> payload;
    wire::encode(program.owed.first(), payload);
    if (!end.post(EntryKind::tcp_process, payload, 0)) break;
  }
  if (program.look_owed && program.owed.empty()) {
    std::vector<std::byte> payload;
    wire::encode(wire::TcpLook{}, payload);
    program.look_owed = !end.post(EntryKind::tcp_look, payload, 0);
  }
  const bool all = program.owed.empty() && !program.look_owed;
  if (!all) end.arm_room();
  return all;
}

bool TcpRelay::poll(TimeNs now) {
  for (auto& each : programs_) settle(each.second);
  if (next_deadline() <= now) look_at_closing(now);
  return false;
}

bool TcpRelay::fall_asleep(TimeNs) { return true; }

TimeNs TcpRelay::next_deadline() const {
  TimeNs first = never;
  for (const auto& [number, closing] : closing_) first = std::min(first, closing.until);
  return first;
}

// ---- processes

void TcpRelay::on_woken(std::uint64_t number) {
  Program& program = programs_.at(number);
  program.look_owed = true;
  settle(program);
}

Status TcpRelay::on_joined(std::uint64_t number, std::uint32_t process) {
  if (process >= wire::tcp_processes_max)
    return fail(Error::protocol, "process {} joins, but only {} processes may", process, wire::tcp_processes_max);
  if (sockets_.has(number, process)) return fail(Error::protocol, "process {} joins, but has joined already", process);
  Program& program = programs_.at(number);
  OFP_TRY(program.owed.joins(process));
  program.woken.try_emplace(process, 0);
  settle(program);
  return {};
}

bool TcpRelay::on_process_ended(std::uint64_t number, std::uint32_t process) {
  Program& program = programs_.at(number);
  program.owed.ends(process);
  settle(program);
  return true;
}

void TcpRelay::refuse(std::uint64_t number, Failure why, TimeNs now) {
  const Program& program = programs_.at(number);
  const bool has_channel = program.channel != nullptr;
  const std::uint64_t channel = program.channel_number;
  finish(number, now);
  if (has_channel) on_ended(channel, std::move(why));
}

}  // namespace offpath::agent
