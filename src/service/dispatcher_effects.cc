// What services want done: by channels, members, jobs and plug-ins.
#include <new>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "service/dispatcher.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/task_messages.h"

namespace offpath::agent {

using channel::AgentEnd;
using mover::LineEffect;
using mover::Service;
using wire::EntryKind;
using wire::ReplyKind;

namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Error::unsupported: the program has to name a segment to which the object can be pushed.
Status hand_over(AgentEnd& end, std::uint64_t ticket, const mover::Buffer& object) {
  if (const int fd = object.share(); fd >= 0) return end.hand_over(ticket, fd);
  const Result<Fd> copy = object.copy();
  if (!copy) return fail(Error::unsupported, "{}", copy.error().message);
  return end.hand_over(ticket, copy->get());
}

}  // namespace

void Dispatcher::carry_out(TimeNs now) {
  // Carrying one out may cause others: they queue behind it.
  while (carried_out_ < effects_.size()) {
    mover::Effect effect = std::move(effects_[carried_out_++]);
    try {
      if (!carry_out_own(effect, now)) carry_out(effect, now);
    } catch (const std::bad_alloc&) {
      abandon(effect, now);
    }
  }
  effects_.clear();
  carried_out_ = 0;
}

// One that there was no memory for: the channel that it is for ends, a job fails. Where services would wait for its
// outcome without end, there is no going on.
void Dispatcher::abandon(mover::Effect& effect, TimeNs now) {
  std::visit(
      [&](auto& each) {
        if constexpr (requires { each.channel; }) {
          close_channel(each.channel, {Error::no_memory, "no memory"});
        } else if constexpr (std::is_same_v<decltype(each), mover::JobEffect&>) {
          pass_job(each.token, tl::unexpected(Failure{Error::no_memory, "out of memory"}), now);
        } else {
          throw;
        }
      },
      effect);
}

void Dispatcher::carry_out(mover::Effect& effect, TimeNs now) {
  std::visit(
      Overloaded{
          [this](mover::PullEffect& pull) {
            AgentEnd* end = find(pull.channel);
            OFP_ASSERT(end != nullptr);
            end->pull(pull.token, std::move(pull.pieces));
          },
          [this](mover::PushEffect& push) {
            AgentEnd* end = find(push.channel);
            OFP_ASSERT(end != nullptr);
            pushing_.emplace(push.token, std::move(push.source));
            end->push(push.token, std::move(push.pieces));
          },
          [this](const LineEffect& line) {
            AgentEnd* end = find(line.channel);
            if (end == nullptr || end->closed()) return;
            switch (line.word) {
              case LineEffect::Word::pulled:
                return end->set_pulled(line.stream, line.value);
              case LineEffect::Word::stored:
                return end->set_stored(line.stream, line.value);
              case LineEffect::Word::credit:
                return end->set_credit(line.stream, line.value);
              case LineEffect::Word::reset:
                return end->reset_line(line.stream);
            }
          },
          [this](const mover::ReplyEffect& reply) {
            AgentEnd* end = find(reply.channel);
            if (end == nullptr || end->closed()) return;
            std::visit(Overloaded{[&](const wire::Opened& m) { end->reply(ReplyKind::opened, reply.ticket, m); },
                                  [&](const wire::Probed& m) { end->reply(ReplyKind::probed, reply.ticket, m); },
                                  [&](const wire::Got& m) { end->reply(ReplyKind::got, reply.ticket, m); },
                                  [&](const wire::Done& m) { end->reply(ReplyKind::done, reply.ticket, m); },
                                  [&](const wire::TaskDone& m) { end->reply(ReplyKind::task_done, reply.ticket, m); }},
                       reply.message);
          },
          [this](const mover::ListedEffect& listed) {
            AgentEnd* end = find(listed.channel);
            if (end != nullptr && !end->closed()) end->reply(ReplyKind::listed, listed.ticket, listed.message);
          },
          [this](const mover::FailEffect& failed) {
            log(LogLevel::debug, "channel {}: ticket {}: {}", failed.channel, failed.ticket, failed.failure.message);
            AgentEnd* end = find(failed.channel);
            if (end != nullptr && !end->closed()) end->reply_failure(failed.ticket, failed.stream, failed.failure);
          },
          [this](const mover::HandOverEffect& over) {
            AgentEnd* end = find(over.channel);
            if (end == nullptr || end->closed()) return;
            wire::Got got = over.got;
            if (got.how == wire::Got::How::enclosed) {
              got.bytes = Bytes(over.frame->buffer.data(), over.frame->bytes);
              end->reply(ReplyKind::got, over.ticket, got);
            } else if (auto status = hand_over(*end, over.ticket, over.frame->buffer); status) {
              end->reply(ReplyKind::got, over.ticket, got);
            } else if (status.error().code == Error::unsupported) {
              got.how = wire::Got::How::needs_segment;  // the host names one in a PushLease
              end->reply(ReplyKind::got, over.ticket, got);
            } else {
              end->reply_failure(over.ticket, wire::any_reply, status.error());
            }
          },
          [this](mover::JobEffect& job) { start_job_(job.token, std::move(job.run)); },
          [this, now](mover::StoredEffect& stored) { on_stored(stored.token, std::move(stored.status), now); },
          [this](mover::AskEffect& ask) { ask_member(ask); },
          [this, now](mover::CallEffect& call) { call_function(call, now); },
          [this, now](const mover::CancelCallEffect& cancel) {
            if (const auto node = calling_.extract(cancel.token)) functions_.cancel(node.mapped(), now);
          },
          [this, now](const mover::AnswerOperationEffect& answer) {
            if (functions_.answer) functions_.answer(answer.worker, answer.call, answer.operation, *answer.answer, now);
          },
      },
      effect);
}

void Dispatcher::carry_out(exchange::ServiceEffects& effects) {
  carry_out(effects, Service::exchange);
  for (const auto& push : effects.pushes) {
    AgentEnd* end = find(push.channel);
    OFP_ASSERT(end != nullptr);
    end->push(mover::token_of(Service::exchange, push.token),
              {{push.region, push.offset, push.bytes.data(), push.bytes.size()}});
  }
  for (auto& post : effects.posts) group_->post(post.member, std::move(post.request));
}

void Dispatcher::carry_out(const channel::Effects& effects, Service service) {
  for (const channel::PullEffect& pull : effects.pulls) {
    AgentEnd* end = find(pull.channel);
    OFP_ASSERT(end != nullptr);
    end->pull(mover::token_of(service, pull.token),
              {{pull.from.region, pull.from.generation, pull.from.offset, pull.to, pull.from.length}});
  }
  for (const channel::AnswerEffect& answer : effects.answers) {
    AgentEnd* end = find(answer.channel);
    if (end == nullptr || end->closed()) continue;
    if (answer.number)
      end->reply(ReplyKind::done, answer.ticket, wire::Done{*answer.number});
    else
      end->reply_failure(answer.ticket, wire::any_reply, answer.number.error());
  }
}

void Dispatcher::ask_member(mover::AskEffect& ask) {
  group::Request request;
  request.kind = ask.kind;
  request.deadline = ask.deadline;
  request.inbox_bytes = ask.inbox_bytes;
  request.payload_bytes = ask.payload_bytes;
  request.body = std::move(ask.body);
  if (ask.object) {
    request.object = Bytes(ask.object->buffer.data(), ask.object->bytes);
    request.object_fd = [object = ask.object] { return object->buffer.share(); };
    request.owner = ask.object;
  }
  if (!ask.memory.empty()) {
    request.object = ask.memory;
    request.object_fd = [fd = ask.memory_fd] { return fd; };
    request.owner = std::move(ask.owner);
  }
  request.compose = [compose = std::move(ask.compose)](const group::Named& named, std::vector<std::byte>& payload) {
    compose({named.bytes, named.offer, named.inbox}, payload);
  };
  request.answer = [this, token = ask.token](Result<group::Answer> answer, TimeNs now) {
    if (mover::service_of(token) == Service::message) {
      tasks_.messages().on_answer(token, answer, now, effects_);
      return carry_out(now);
    }
    Result<pool::Answer> passed = tl::unexpected(Failure{});
    if (answer)
      passed = pool::Answer{answer->kind, std::move(answer->payload), answer->inbox};
    else
      passed = tl::unexpected(std::move(answer).error());
    if (mover::service_of(token) == Service::sift)
      sifts_.on_answer(token, passed, now, effects_);
    else
      pools_.on_answer(token, std::move(passed), now, effects_);
    carry_out(now);
  };
  OFP_ASSERT(group_ != nullptr);
  group_->post(ask.member, std::move(request));
}

void Dispatcher::call_function(mover::CallEffect& effect, TimeNs now) {
  const auto done = [this, token = effect.token](Result<plugin::Outputs> outcome, TimeNs at) {
    calling_.erase(token);
    on_called(token, std::move(outcome), at);
    carry_out(at);
  };
  Result<plugin::CallNumber> called = fail(Error::not_found, "there are no plug-ins here");
  if (functions_.call) called = functions_.call(std::move(*effect.call), now, done);
  if (called)
    calling_.emplace(effect.token, *called);
  else
    on_called(effect.token, tl::unexpected(std::move(called).error()), now);
}

bool Dispatcher::carry_out_own(mover::Effect& effect, TimeNs now) {
  if (const auto* const pull = std::get_if<mover::PullEffect>(&effect)) {
    if (!own_.has(pull->channel)) return false;
    queries_.on_transfer(pull->token, own_.copy(*pull), now, effects_);
    return true;
  }
  // The frame itself is what is handed over: it needs no lease.
  if (const auto* const over = std::get_if<mover::HandOverEffect>(&effect);
      over != nullptr && own_.has(over->channel) && over->got.lease != 0) {
    std::vector<std::byte> payload;
    wire::encode(wire::Release{over->got.lease}, payload);
    pools_.on_request(over->channel, {0, static_cast<std::uint8_t>(EntryKind::release), payload}, now, effects_);
  }
  return own_.reply(effect);
}

}  // namespace offpath::agent
