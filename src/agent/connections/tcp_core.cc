#include "agent/connections/tcp_core.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/log.h"
#include "base/memory_reserve.h"
#include "link/control/authentication.h"

namespace offpath::agent {

namespace {

Status pin_thread(pthread_t thread, unsigned core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (const int error = pthread_setaffinity_np(thread, sizeof cores, &cores); error != 0)
    return fail_errno(error, fmt::format("tcp.pin {}: pthread_setaffinity_np", core));
  return {};
}

}  // namespace

tcp::StackOptions stack_of_core(const TcpSettings& settings, std::uint32_t core) {
  tcp::StackOptions stack = settings.stack;
  stack.secret = {link::random_number(), link::random_number()};
  stack.core = core;
  stack.cores = settings.cores;
  for (std::uint32_t* bound : {&stack.flows_max, &stack.half_open_max, &stack.time_wait_max, &stack.orphans_max})
    *bound = (*bound + stack.cores - 1) / stack.cores;
  return stack;
}

tcp::PortCapabilities capabilities_of(const tcp::Port& port, const TcpSettings& settings) {
  tcp::PortCapabilities capabilities = port.capabilities();
  if (settings.mtu != 0) capabilities.mtu = std::min(capabilities.mtu, settings.mtu);
  return capabilities;
}

Result<std::unique_ptr<TcpCore>> TcpCore::make(std::uint32_t core, loop::Loop& core_0, const TcpSettings& settings,
                                               const tcp::CongestionControl& congestion,
                                               std::unique_ptr<tcp::Port> device, ToCore0 to, TimeNs now) {
  OFP_ASSIGN(auto loop, loop::Loop::make(settings.loop));
  std::unique_ptr<TcpCore> made(
      new TcpCore(core, std::move(loop), core_0, settings, congestion, std::move(device), std::move(to), now));
  OFP_TRY(made->loop_->watch(made->device_->wait_descriptor(), EPOLLIN));
  return made;
}

// The loop polls the orders from core 0 first: they announce programs' memory and its end.
TcpCore::TcpCore(std::uint32_t core, std::unique_ptr<loop::Loop> loop, loop::Loop& core_0, const TcpSettings& settings,
                 const tcp::CongestionControl& congestion, std::unique_ptr<tcp::Port> device, ToCore0 to, TimeNs now)
    : core_(core),
      to_(std::move(to)),
      loop_(std::move(loop)),
      orders_(*loop_),
      told_(core_0),
      device_(std::move(device)),
      service_(settings.limits, core, settings.cores),
      stack_(stack_of_core(settings, core), capabilities_of(*device_, settings), congestion, service_, now),
      station_(*device_, stack_, [this](TimeNs at) { static_cast<void>(service_.react(at)); }) {
  service_.serve(stack_);
  loop_->add(orders_.mailbox());
  loop_->add(*this);
}

// The thread gets its name and core before it does anything.
Status TcpCore::start(std::optional<unsigned> pin) {
  std::promise<void> go;
  thread_ = std::thread([this, may = go.get_future()] {
    MemoryReserve::protect_this_thread();
    may.wait();
    loop_->run();
  });
  pthread_setname_np(thread_.native_handle(), fmt::format("offpath-tcp-{}", core_).c_str());
  Status pinned = pin ? pin_thread(thread_.native_handle(), *pin) : Status{};
  go.set_value();
  return pinned;
}

TcpCore::~TcpCore() {
  if (!thread_.joinable()) return;
  orders_.post([this](TimeNs now) {
    poll(now);
    loop_->stop();
  });
  while (!orders_.flush()) std::this_thread::yield();
  thread_.join();
}

// ---- core 0's thread

void TcpCore::open(std::uint64_t program, const wire::TcpAreaLayout& layout, const tcp::TcpService::Who& who,
                   tcp::TcpService::Memory memory, std::shared_ptr<tcp::RingBlocks> blocks,
                   std::shared_ptr<const Fd> doorbell) {
  orders_.post([this, program, layout, who, memory = std::move(memory), blocks = std::move(blocks),
                doorbell = std::move(doorbell)](TimeNs) {
    Status opened = service_.open(program, layout, who, memory, blocks);
    // Nobody reads it, as the program can make a read block. Each write is an edge, unread ones or not.
    if (opened) opened = loop_->watch(doorbell->get(), EPOLLIN | EPOLLET);
    if (opened) return static_cast<void>(doorbells_.emplace(program, doorbell));
    auto why = std::make_shared<Failure>(std::move(opened).error());
    told_.post([this, program, why](TimeNs now) { to_.on_ended({program, *why}, now); });
  });
}

void TcpCore::close(std::uint64_t program) {
  orders_.post([this, program](TimeNs now) {
    service_.close(program, now);
    wakes_.erase(wakes_.lower_bound({program, 0}), wakes_.lower_bound({program + 1, 0}));
    // A close alone would not do: the program may have it open still, and would go on waking this core.
    if (const auto doorbell = doorbells_.extract(program)) loop_->unwatch(doorbell.mapped()->get());
  });
}

void TcpCore::add_process(std::uint64_t program, std::uint32_t process, std::shared_ptr<const Fd> wake) {
  orders_.post([this, program, process, wake = std::move(wake)](TimeNs) {
    // Core 0 has checked that it may join. A known process is not added again (a program's first process is known from
    // the start): it has another descriptor.
    static_cast<void>(service_.add_process(program, process));
    wakes_.insert_or_assign({program, process}, wake);
    // Has the process look once: an earlier wake from this core may have gone to its previous socket, or been lost.
    static_cast<void>(::send(wake->get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  });
}

void TcpCore::remove_process(std::uint64_t program, std::uint32_t process) {
  orders_.post([this, program, process](TimeNs) {
    service_.remove_process(program, process);
    wakes_.erase({program, process});
  });
}

void TcpCore::say(const tcp::CoreMessage& message) {
  orders_.post([this, message](TimeNs now) { service_.on_message(message, now); });
}

void TcpCore::settle_own(bool usable) {
  orders_.post([this, usable](TimeNs now) { stack_.settle_own(usable, now); });
}

void TcpCore::overhear(const tcp::NeighbourMessage& message) {
  static_cast<void>(orders_.post_if_room([this, message](TimeNs now) { stack_.overhear(message, now); }));
}

void TcpCore::ask_status(std::function<void(TcpStatus, TimeNs now)> answer) {
  orders_.post([this, answer = std::move(answer)](TimeNs) {
    auto status = std::make_shared<TcpStatus>(status_of(core_, stack_, *device_, service_, *loop_));
    told_.post([answer, status](TimeNs now) { answer(std::move(*status), now); });
  });
}

// ---- its own

void TcpCore::wake_programs() {
  service_.wake_threads();
  for (const auto& [program, process] : service_.take_wakes())
    if (const auto found = wakes_.find({program, process}); found != wakes_.end())
      static_cast<void>(::send(found->second->get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool TcpCore::poll(TimeNs now) {
  service_.attach(now);
  const std::uint64_t commands = service_.counters().commands;
  bool worked = station_.poll(now);
  wake_programs();
  for (tcp::TcpService::Ended& ended : service_.take_ended()) {
    auto what = std::make_shared<tcp::TcpService::Ended>(std::move(ended));
    told_.post([this, what](TimeNs at) { to_.on_ended(std::move(*what), at); });
    worked = true;
  }
  for (const tcp::CoreMessage& message : service_.take_messages()) {
    told_.post([this, message](TimeNs at) { to_.on_message(message, at); });
    worked = true;
  }
  told_.flush();
  return worked || service_.counters().commands != commands;
}

bool TcpCore::fall_asleep(TimeNs now) {
  service_.attach(now);
  return told_.flush() && station_.fall_asleep(now) && service_.fall_asleep();
}

}  // namespace offpath::agent
