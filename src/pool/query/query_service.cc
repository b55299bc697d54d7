#include "pool/query/query_service.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "pool/query/query_answer.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::ChannelNumber;
using service::Effects;
using service::FailEffect;
using service::ReplyEffect;
using wire::EntryKind;

namespace {

FrameTable::Get get_of(ChannelNumber channel, std::uint64_t ticket) {
  FrameTable::Get get;
  get.channel = channel;
  get.ticket = ticket;
  return get;
}

Failure time_over() { return {Error::timeout, "the query's deadline passed before its answer was complete"}; }

}  // namespace

QueryService::QueryService(const Limits& limits, std::shared_ptr<service::BufferCache> cache, QueryMembers& members)
    : limits_(limits), cache_(std::move(cache)), members_(members) {}
QueryService::~QueryService() = default;

void QueryService::on_channel_open(ChannelNumber channel, uid_t user) { channels_[channel].user = user; }

void QueryService::on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  std::vector<std::uint64_t> gone;
  for (const auto& [number, answer] : answers_)
    if (answer->channel == channel && answer->part_of == 0) gone.push_back(number);
  for (const std::uint64_t number : gone) forget(number, now, effects);
  channels_.erase(at);
  run_waiting(effects);
}

void QueryService::on_request(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                              Effects& effects) {
  const auto serve_it = [&]() -> Status {
    switch (static_cast<EntryKind>(request.kind)) {
      case EntryKind::pool_query: {
        wire::PoolQuery query{};
        if (auto status = wire::decode(request.payload, query); !status) {
          ++counters_.failed;
          return status;
        }
        return begin({channel, request.ticket}, query, channels_.at(channel).user, limits_.open_max, nullptr, now,
                     effects);
      }
      case EntryKind::query_next: {
        wire::QueryNext asked{};
        OFP_TRY(wire::decode(request.payload, asked));
        const auto at = answers_.find(asked.answer & ~wire::answer_flag);
        if (at == answers_.end() || at->second->channel != channel || at->second->part_of != 0 ||
            at->second->member_number != 0 || !at->second->begun)
          return fail(Error::not_found, "there is no answer {:#x}: it has ended or timed out", asked.answer);
        return next(*at->second, asked.index, get_of(channel, request.ticket), now, effects);
      }
      case EntryKind::release: {
        wire::Release release{};
        if (!wire::decode(request.payload, release)) return {};
        const auto answer = answers_.find(release.lease & ~wire::answer_flag);
        if (answer != answers_.end() && answer->second->channel == channel && answer->second->part_of == 0 &&
            answer->second->member_number == 0)
          give_up(*answer->second, now, effects);
        run_waiting(effects);
        return {};
      }
      case EntryKind::pool_cancel: {
        wire::PoolCancel cancel{};
        if (!wire::decode(request.payload, cancel)) return {};
        const auto answer = std::ranges::find_if(answers_, [&](const auto& each) {
          const Answer& of = *each.second;
          return of.channel == channel && of.part_of == 0 && of.member_number == 0 && of.asked &&
                 of.asked->ticket == cancel.ticket;
        });
        if (answer != answers_.end()) give_up(*answer->second, now, effects);
        run_waiting(effects);
        return {};
      }
      default:
        if (!is_member)
          return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
        return on_member_request(channel, request, now, effects);
    }
  };
  if (Status served = serve_it(); !served)
    effects.push_back(FailEffect{channel, request.ticket, wire::any_reply, std::move(served).error()});
}

Status QueryService::on_member_request(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                       Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::peer_query: {
      wire::PeerQuery asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      if (asked.number == 0 || of_members_.contains({channel, asked.number}))
        return fail(Error::invalid, "part {} of a query is 0, or there already", asked.number);
      return begin({channel, request.ticket},
                   {asked.pool, asked.row_glob, asked.column_glob, asked.wait_ns, asked.query},
                   static_cast<uid_t>(asked.user), limits_.open_of_member_max, &asked, now, effects);
    }
    case EntryKind::peer_query_next: {
      wire::PeerQueryNext asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      const auto at = of_members_.find({channel, asked.number});
      if (at == of_members_.end() || !answers_.at(at->second)->begun)
        return fail(Error::not_found, "there is no part {} of a query: it has ended or timed out", asked.number);
      FrameTable::Get get = get_of(channel, request.ticket);
      get.of_member = true;
      get.inbox = asked.inbox;
      get.reader = asked.reader;
      get.delivery = asked.delivery;
      return next(*answers_.at(at->second), asked.index, std::move(get), now, effects);
    }
    case EntryKind::peer_cancel: {
      wire::PeerCancel asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      if (const auto at = of_members_.find({channel, asked.number}); at != of_members_.end()) {
        give_up(*answers_.at(at->second), now, effects);
      }
      effects.push_back(ReplyEffect{channel, request.ticket, wire::Done{0}});
      run_waiting(effects);
      return {};
    }
    default:
      OFP_ASSERT(!"a request of another service");
  }
}

// ---- from the request to the first step

Status QueryService::begin(Place place, const wire::PoolQuery& query, uid_t user, std::size_t open_max,
                           const wire::PeerQuery* of_member, TimeNs now, Effects& effects) {
  Channel& channel = channels_.at(place.channel);
  const auto take = [&]() -> Result<service::Buffer> {
    if (query.query.length == 0 || query.query.length > query_bytes_max)
      return fail(Error::too_large, "a query of {} bytes, 1 to {} are allowed", query.query.length, query_bytes_max);
    if (channel.open >= open_max)
      return fail(Error::too_large, "the program has {} answers open, which is the limit", channel.open);
    return cache_->take(query.query.length, user);
  };
  auto buffer = take();
  if (!buffer) {
    ++counters_.failed;
    return tl::unexpected(std::move(buffer).error());
  }
  auto answer = std::make_unique<Answer>();
  answer->number = next_number_++;
  answer->channel = place.channel;
  answer->user = user;
  answer->pool = query.pool;
  answer->row_glob = query.row_glob;
  answer->column_glob = query.column_glob;
  answer->deadline = query.wait_ns < 0 ? never : deadline_after(now, query.wait_ns);
  answer->bytes = std::move(*buffer);
  answer->asked = get_of(place.channel, place.ticket);
  if (of_member != nullptr) {
    answer->member_number = of_member->number;
    answer->view = of_member->view;
    answer->owner = static_cast<uid_t>(of_member->owner);
    of_members_.emplace(std::pair(place.channel, of_member->number), answer->number);
  }
  ++channel.open;
  ++counters_.queries;
  ++counters_.open;
  std::vector<link::ReadPiece> pieces = {
      {query.query.region, query.query.generation, query.query.offset, answer->bytes.data(), query.query.length}};
  service::PullEffect pull{place.channel, service::token_of(service::ServiceId::query, answer->number),
                           std::move(pieces)};
  effects.push_back(std::move(pull));
  answers_.emplace(answer->number, std::move(answer));
  return {};
}

void QueryService::on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  const auto at = answers_.find(service::number_of(token));
  if (at == answers_.end()) return;
  if (!status) return fail_answer(*at->second, std::move(status).error(), now, effects);
  start(*at->second, now, effects);
}

namespace {

// A feed is computed while it is read, and has no frame.
bool is_bytes(const QuerySource& source) { return source.frame != nullptr && !source.frame->arrow; }

}  // namespace

void QueryService::start(Answer& answer, TimeNs now, Effects& effects) {
  auto query = decode_query(answer.bytes.bytes());
  answer.bytes = {};
  if (!query) return fail_answer(answer, std::move(query).error(), now, effects);
  // Each asked member reports lost members, because the asking member may have joined after the loss.
  if (const std::vector<std::string> lost = members_.lost(answer.pool); !lost.empty() && !query->without_lost)
    return fail_answer(
        answer,
        {Error::peer_lost,
         fmt::format("pool \"{}\": rows that only member{} {} had are missing; a partial answer leaves them out",
                     answer.pool.substr(0, answer.pool.find('?')), lost.size() == 1 ? "" : "s", fmt::join(lost, ", "))},
        now, effects);
  if (answer.member_number != 0) {
    auto part = members_.choose_part(
        {answer.pool, answer.row_glob, answer.column_glob, answer.user, answer.view, answer.owner}, effects);
    if (!part) return fail_answer(answer, std::move(part).error(), now, effects);
    if (query->arrow_only) std::erase_if(*part, is_bytes);
    if (part->empty()) return end(answer, 0, now, effects);
    return run(answer, std::move(*query), std::move(*part), now, effects);
  }
  auto over = members_of(answer.pool, query->part);
  if (!over) return fail_answer(answer, std::move(over).error(), now, effects);
  if (*over) return spread(answer, std::move(*query), std::move(**over), now, effects);
  auto sources = members_.choose(answer.pool, answer.row_glob, answer.column_glob, answer.user);
  if (!sources) return fail_answer(answer, std::move(sources).error(), now, effects);
  if (query->arrow_only && std::erase_if(*sources, is_bytes) > 0 && sources->empty())
    return fail_answer(answer,
                       {Error::not_found, fmt::format("pool \"{}\" has no Arrow objects whose keys match ({}, {})",
                                                      answer.pool, brief(answer.row_glob), brief(answer.column_glob))},
                       now, effects);
  run(answer, std::move(*query), std::move(*sources), now, effects);
}

void QueryService::run(Answer& answer, Query query, std::vector<QuerySource> sources, TimeNs now, Effects& effects) {
  if (threads_ == nullptr) threads_ = QueryThreads::make(limits_.query.threads);
  auto run = QueryRun::make(std::move(query), std::move(sources), limits_.query, threads_, cache_, answer.user);
  if (!run) return fail_answer(answer, std::move(run).error(), now, effects);
  answer.run = std::move(*run);
  want_step(answer, effects);
}

// ---- steps

void QueryService::want_step(Answer& answer, Effects& effects) {
  waiting_.push_back(answer.number);
  run_waiting(effects);
}

void QueryService::run_waiting(Effects& effects) {
  while (counters_.running < limits_.running_max && !waiting_.empty()) {
    const auto at = answers_.find(waiting_.front());
    waiting_.pop_front();
    if (at == answers_.end()) continue;
    Answer& answer = *at->second;
    answer.running = true;
    answer.result = std::make_shared<StepResult>();
    ++counters_.running;
    ++counters_.steps;
    std::function<Status()> run;
    if (answer.spread && answer.spread->ordered()) {
      run = merge_job(answer);
    } else if (answer.spread) {
      run = [query = answer.spread->query, partials = answer.spread->partials(),
             memory_max = limits_.query.memory_bytes_max, cache = cache_, user = answer.user,
             result = answer.result]() -> Status {
        OFP_ASSIGN(FramePtr combined, combine(query, partials, *cache, user, memory_max));
        result->step.frames.push_back(std::move(combined));
        result->step.finished = true;
        return {};
      };
    } else {
      run = [run = answer.run, result = answer.result, stop = answer.stop.get_token()]() -> Status {
        OFP_ASSIGN(result->step, run->step(stop));
        return {};
      };
    }
    service::JobEffect job{service::token_of(service::ServiceId::query, answer.number), std::move(run)};
    effects.push_back(std::move(job));
  }
}

void QueryService::on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  --counters_.running;
  const auto at = answers_.find(service::number_of(token));
  if (at == answers_.end()) return run_waiting(effects);
  Answer& answer = *at->second;
  answer.running = false;
  if (!status && answer.late) status = tl::unexpected(time_over());
  if (!status) {
    fail_answer(answer, std::move(status).error(), now, effects);
    return run_waiting(effects);
  }
  for (FramePtr& frame : answer.result->step.frames) {
    if (answer.part_of == 0) counters_.bytes_answered += frame->bytes;  // this member's own part: once, by its answer
    answer.ready.push_back(std::move(frame));
  }
  if (answer.spread && answer.spread->ordered()) {
    on_merged(answer, now, effects);
    return run_waiting(effects);
  }
  answer.finished = answer.result->step.finished;
  answer.result.reset();
  if (answer.finished && answer.run) {
    counters_.rows_read += answer.run->counters().rows_read;
    counters_.bytes_read += answer.run->counters().bytes_read;
    answer.run.reset();  // and what it read
  }
  if (!std::exchange(answer.begun, true))
    reply(answer, answer.member_number != 0 || answer.part_of != 0 ? 1 : answer.number | wire::answer_flag, now,
          effects);
  else if (answer.asked)
    serve(answer, now, effects);
  run_waiting(effects);
}

// ---- frames

Status QueryService::next(Answer& answer, std::uint64_t index, FrameTable::Get get, TimeNs now, Effects& effects) {
  if (answer.asked)
    return fail(Error::invalid, "answer {:#x} was asked for a frame that has not been given yet",
                answer.number | wire::answer_flag);
  if (index != answer.first && index != answer.first + 1)
    return fail(Error::invalid, "frame {} of an answer was asked for, it is at {}", index, answer.first);
  if (index == answer.first + 1) {
    if (answer.ready.empty()) return fail(Error::invalid, "frame {} of an answer was not given yet", answer.first);
    answer.ready.pop_front();
    ++answer.first;
  }
  answer.asked = std::move(get);
  if (answer.failure)
    fail_answer(answer, std::move(*answer.failure), now, effects);
  else
    serve(answer, now, effects);
  return {};
}

// May end the answer.
void QueryService::serve(Answer& answer, TimeNs now, Effects& effects) {
  if (answer.ready.empty()) {
    if (answer.finished) return end(answer, 0, now, effects);
    if (answer.spread) return pump(answer, now, effects);
    return answer.running ? void() : want_step(answer, effects);
  }
  const FrameTable::Get get = std::move(*answer.asked);
  answer.asked.reset();
  if (answer.part_of != 0)
    return on_part_reply(answer.part_of, answer.number, QueryMembers::Reply{answer.ready.front(), 0}, now, effects);
  members_.answer(get, answer.ready.front(), now, effects);
  if (answer.spread) pump(answer, now, effects);
}

// May end the answer: own parts report to the answer that they belong to.
void QueryService::reply(Answer& answer, std::uint64_t value, TimeNs now, Effects& effects) {
  const FrameTable::Get get = std::move(*answer.asked);
  answer.asked.reset();
  if (answer.part_of != 0)
    return on_part_reply(answer.part_of, answer.number, QueryMembers::Reply{nullptr, value}, now, effects);
  effects.push_back(ReplyEffect{get.channel, get.ticket, wire::Done{value}});
}

// ---- ends

void QueryService::end(Answer& answer, std::uint64_t value, TimeNs now, Effects& effects) {
  const FrameTable::Get get = std::move(*answer.asked);
  const std::uint64_t number = answer.number, part_of = answer.part_of;
  forget(number, now, effects);
  if (part_of != 0) return on_part_reply(part_of, number, QueryMembers::Reply{nullptr, value}, now, effects);
  effects.push_back(ReplyEffect{get.channel, get.ticket, wire::Done{value}});
}

void QueryService::fail_answer(Answer& answer, Failure failure, TimeNs now, Effects& effects) {
  // Without a waiting request, the next request gets the failure, because the answers so far are incomplete.
  if (answer.spread && answer.begun && !answer.asked && !answer.failure) {
    answer.failure = std::move(failure);
    answer.deadline = never;
    for (Part& part : answer.spread->parts) give_up(part, now, effects);
    return;
  }
  const std::optional<FrameTable::Get> asked = std::move(answer.asked);
  const std::uint64_t number = answer.number, part_of = answer.part_of;
  if (part_of == 0) ++counters_.failed;
  forget(number, now, effects);
  if (part_of != 0) return on_part_reply(part_of, number, tl::unexpected(std::move(failure)), now, effects);
  if (asked) effects.push_back(FailEffect{asked->channel, asked->ticket, wire::any_reply, std::move(failure)});
}

// It has no reader any more.
void QueryService::give_up(Answer& answer, TimeNs now, Effects& effects) {
  if (answer.asked)
    fail_answer(answer, {Error::cancelled, "the query is no longer wanted"}, now, effects);
  else
    forget(answer.number, now, effects);
}

// A running job continues until it sees the stop; its result is dropped.
void QueryService::forget(std::uint64_t number, TimeNs now, Effects& effects) {
  const std::unique_ptr<Answer> answer = std::move(answers_.extract(number).mapped());
  answer->stop.request_stop();
  if (answer->spread)
    for (Part& part : answer->spread->parts) give_up(part, now, effects);
  if (answer->part_of != 0) return;
  if (answer->member_number != 0) of_members_.erase({answer->channel, answer->member_number});
  if (const auto channel = channels_.find(answer->channel); channel != channels_.end()) --channel->second.open;
  --counters_.open;
}

void QueryService::on_time(TimeNs now, Effects& effects) {
  std::vector<std::uint64_t> over, again;
  for (const auto& [number, answer] : answers_) {
    if (answer->deadline > now) {
      if (answer->spread && answer->spread->retry_at <= now) again.push_back(number);
      continue;
    }
    if (answer->running) {  // its job ends soon
      answer->late = true;
      answer->deadline = never;
      answer->stop.request_stop();
    } else {
      over.push_back(number);
    }
  }
  for (const std::uint64_t number : over)
    if (const auto at = answers_.find(number); at != answers_.end()) {
      Failure why = time_over();
      if (const Spread* const spread = at->second->spread.get(); spread != nullptr && !spread->last.message.empty())
        why.message += ": " + spread->last.message;  // it was retried until now
      fail_answer(*at->second, std::move(why), now, effects);
    }
  for (const std::uint64_t number : again)
    if (const auto at = answers_.find(number); at != answers_.end()) retry_spread(*at->second, now, effects);
}

TimeNs QueryService::next_deadline() const noexcept {
  TimeNs soonest = never;
  for (const auto& [number, answer] : answers_) {
    soonest = std::min(soonest, answer->deadline);
    if (answer->spread) soonest = std::min(soonest, answer->spread->retry_at);
  }
  return soonest;
}

}  // namespace offpath::pool
