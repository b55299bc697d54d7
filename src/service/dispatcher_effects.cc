// Carries out effects: on channels, members, jobs and plug-ins.
#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "service/dispatcher.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/task_messages.h"

namespace offpath::service {

using channel::AgentEnd;
using channel::Entry;
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
Status hand_over(AgentEnd& end, std::uint64_t ticket, const Buffer& object) {
  if (const int fd = object.share(); fd >= 0) return end.hand_over(ticket, fd);
  const Result<Fd> copy = object.copy();
  if (!copy) return fail(Error::unsupported, "{}", copy.error().message);
  return end.hand_over(ticket, copy->get());
}

}  // namespace

void Dispatcher::carry_out(TimeNs now) {
  // Carrying one out may add others at the end.
  while (carried_out_ < effects_.size()) {
    Effect effect = std::move(effects_[carried_out_++]);
    try {
      if (!carry_out_own(effect, now)) carry_out(effect, now);
    } catch (const std::bad_alloc&) {
      abandon(effect, now);
    }
  }
  effects_.clear();
  carried_out_ = 0;
}

// For an effect that found no memory: its channel ends, or its job fails. If services would wait forever for its
// outcome, the process ends.
void Dispatcher::abandon(Effect& effect, TimeNs now) {
  std::visit(
      [&](auto& each) {
        if constexpr (requires { each.channel; }) {
          close_channel(each.channel, {Error::no_memory, "no memory"});
        } else if constexpr (std::is_same_v<decltype(each), JobEffect&>) {
          pass_job(each.token, tl::unexpected(Failure{Error::no_memory, "out of memory"}), now);
        } else {
          throw;
        }
      },
      effect);
}

// Ends the measurement of the request that the effect answers, if it is one that is measured.
void Dispatcher::note_answer(const Effect& effect, TimeNs now) {
  std::visit(
      [&](const auto& each) {
        if constexpr (requires { each.ticket; }) {
          const auto member = members_.find(each.channel);
          if (member == members_.end()) return;
          Queue<Timed>& timed = member->second.timed;
          const auto at = std::ranges::lower_bound(timed, each.ticket, {}, &Timed::ticket);
          if (at == timed.end() || at->ticket != each.ticket) return;
          const TimeNs answered = clock_ != nullptr ? clock_() : now;
          at->histogram->add(answered - at->began, each.channel, each.ticket);
          timed.erase(at);
          --timed_;
        }
      },
      effect);
}

void Dispatcher::carry_out(Effect& effect, TimeNs now) {
  if (timed_ > 0) note_answer(effect, now);
  std::visit(
      Overloaded{
          [this](PullEffect& pull) {
            AgentEnd* end = find(pull.channel);
            OFP_ASSERT(end != nullptr);
            end->pull(pull.token, std::move(pull.pieces));
          },
          [this](PushEffect& push) {
            AgentEnd* end = find(push.channel);
            OFP_ASSERT(end != nullptr);
            pushing_.emplace(push.token, std::move(push.source));
            end->push(push.token, push.pieces);
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
          [this](const ReplyEffect& reply) {
            AgentEnd* end = find(reply.channel);
            if (end == nullptr || end->closed()) return;
            std::visit(Overloaded{[&](const wire::Opened& m) { end->reply(ReplyKind::opened, reply.ticket, m); },
                                  [&](const wire::Probed& m) { end->reply(ReplyKind::probed, reply.ticket, m); },
                                  [&](const wire::Got& m) { end->reply(ReplyKind::got, reply.ticket, m); },
                                  [&](const wire::Done& m) { end->reply(ReplyKind::done, reply.ticket, m); },
                                  [&](const wire::TaskDone& m) { end->reply(ReplyKind::task_done, reply.ticket, m); },
                                  [&](const wire::Written& m) { end->reply(ReplyKind::written, reply.ticket, m); }},
                       reply.message);
          },
          [this](const ListedEffect& listed) {
            AgentEnd* end = find(listed.channel);
            if (end != nullptr && !end->closed()) end->reply(ReplyKind::listed, listed.ticket, listed.message);
          },
          [this](const MembersEffect& members) {
            AgentEnd* end = find(members.channel);
            if (end != nullptr && !end->closed()) end->reply(ReplyKind::members, members.ticket, members.message);
          },
          [this, now](const FailEffect& failed) {
            log(LogLevel::debug, "channel {}: ticket {}: {}", failed.channel, failed.ticket, failed.failure.message);
            AgentEnd* end = find(failed.channel);
            if (end == nullptr || end->closed()) return;
            if (!channel::is_miss(failed.stream, failed.failure.code))
              failures_.note(now, failed.channel, end->program(), failed.failure);
            end->reply_failure(failed.ticket, failed.stream, failed.failure);
          },
          [this](const HandOverEffect& over) {
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
          [this](JobEffect& job) { start_job_(job.token, std::move(job.run)); },
          [this, now](StoredEffect& stored) {
            if (Service* one = service(service_of(stored.token)); one != nullptr)
              one->on_stored(stored.token, std::move(stored.status), now, effects_);
          },
          [this](AskEffect& ask) {
            OFP_ASSERT(ask_);
            ask_(std::move(ask));
          },
          [this, now](CallEffect& call) { call_function(call, now); },
          [this, now](const CancelCallEffect& cancel) {
            if (const auto node = calling_.extract(cancel.token)) functions_.cancel(node.mapped(), now);
          },
          [this, now](const AnswerOperationEffect& answer) {
            if (functions_.answer) functions_.answer(answer.worker, answer.call, answer.operation, *answer.answer, now);
          },
      },
      effect);
}

void Dispatcher::call_function(CallEffect& effect, TimeNs now) {
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

bool Dispatcher::carry_out_own(Effect& effect, TimeNs now) {
  if (const auto* const pull = std::get_if<PullEffect>(&effect)) {
    if (!own_.has(pull->channel)) return false;
    if (Service* one = service(service_of(pull->token)); one != nullptr)
      one->on_transfer(pull->token, own_.copy(*pull), now, effects_);
    return true;
  }
  // The frame itself is handed over: it needs no lease.
  if (const auto* const over = std::get_if<HandOverEffect>(&effect);
      over != nullptr && own_.has(over->channel) && over->got.lease != 0) {
    std::vector<std::byte> payload;
    wire::encode(wire::Release{over->got.lease}, payload);
    const Entry entry{0, static_cast<std::uint8_t>(EntryKind::release), payload};
    const Client& client = own_.client(over->channel);
    route({over->channel, entry, client.program, client.user, false}, now);
  }
  return own_.reply(effect);
}

}  // namespace offpath::service
