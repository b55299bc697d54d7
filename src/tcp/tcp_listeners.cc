// Programs' listeners, which all cores have: see core_message.h.
#include "tcp/tcp_service.h"

namespace offpath::tcp {

namespace {
using wire::TcpError;
namespace news = wire::tcp_news;
}  // namespace

void TcpService::listens(Program& program, std::uint32_t handle, const FlowOptions& options) {
  const Held& held = program.held[handle];
  if (cores_ == 1) return tell(program, handle, news::listening);
  ask_others(program, handle, {.kind = CoreMessage::Kind::listen, .program = program.number, .handle = handle, .port = held.port,
                               .receive_bytes = held.receive_bytes, .options = options});
}

void TcpService::stop(Program& program, std::uint32_t handle) {
  stop_here(program, handle);
  if (cores_ == 1) return tell(program, handle, news::gone);
  program.held[handle].is = Held::Is::stopping;
  ask_others(program, handle, {.kind = CoreMessage::Kind::stop, .program = program.number, .handle = handle});
}

void TcpService::stop_here(Program& program, std::uint32_t handle) {
  stack_->stop_listening(program.held[handle].port);
  while (!program.held[handle].seats.empty()) give_back(program, *program.held[handle].seats.begin());
  program.held[handle].is = Held::Is::free;
}

void TcpService::ask_others(Program& program, std::uint32_t handle, CoreMessage message) {
  program.held[handle].awaited += cores_ - 1;
  messages_.push_back(std::move(message));
}

void TcpService::on_message(const CoreMessage& message, TimeNs now) {
  Program* program = find(message.program);
  if (program == nullptr) return;  // it has ended here, and core 0 knows or will
  if (message.kind == CoreMessage::Kind::done) return on_done(*program, message.handle);
  if (message.handle >= program->held.size()) program->held.resize(message.handle + 1);
  if (message.kind == CoreMessage::Kind::listen) {
    Held& held = program->held[message.handle];
    if (held.is != Held::Is::free || held.listed) {
      end(*program, {Error::protocol, fmt::format("handle {} listens, and is in use on another core", message.handle)});
      return finish_ended(now);
    }
    held.is = Held::Is::listener;
    held.port = message.port;
    held.receive_bytes = message.receive_bytes;
    const Status listened = stack_->listen(message.port, tag_of(*program, message.handle), message.receive_bytes, message.options);
    OFP_ASSERT(listened);  // core 0 had it free, and this core has heard of all that happened before
  } else if (program->held[message.handle].is == Held::Is::listener) {
    stop_here(*program, message.handle);
  }
  messages_.push_back({.kind = CoreMessage::Kind::done, .program = message.program, .handle = message.handle});
}

void TcpService::on_done(Program& program, std::uint32_t handle) {
  OFP_ASSERT(handle < program.held.size() && program.held[handle].awaited > 0);  // each core that was asked answers once
  Held& held = program.held[handle];
  if (--held.awaited > 0) return;
  if (held.is == Held::Is::listener) return tell(program, handle, news::listening);
  OFP_ASSERT(held.is == Held::Is::stopping);
  held.is = Held::Is::free;
  tell(program, handle, news::gone);
}

}  // namespace offpath::tcp
