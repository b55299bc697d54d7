#include "pool/query_service.h"

#include <algorithm>
#include <utility>

namespace offpath::pool {

using mover::ChannelNumber;
using mover::Effects;
using mover::FailEffect;
using mover::ReplyEffect;
using wire::EntryKind;

namespace {

constexpr std::uint64_t own = 1ull << 63;  // in the numbers of answers, as programs see them

std::uint64_t number_of(std::uint64_t token) noexcept { return token & ((1ull << 56) - 1); }

// What a job leaves; held by it and by its answer, whichever is there longer.
struct StepResult {
  QueryStep step;
};

}  // namespace

struct QueryService::Answer {
  std::uint64_t number = 0;
  ChannelNumber channel = 0;
  uid_t user = 0;
  std::string pool, row_glob, column_glob;
  TimeNs deadline = never;
  mover::Buffer bytes;               // of the query, until it is decoded
  std::shared_ptr<QueryRun> run;     // a job's while one is running
  std::shared_ptr<StepResult> result;
  std::stop_source stop;
  bool running = false, finished = false, begun = false, late = false;
  std::deque<FramePtr> ready;        // the first of them is number `first`
  std::uint64_t first = 0;
  std::optional<std::uint64_t> asked;  // the ticket its channel waits for: of the beginning, or of a frame
};

QueryService::QueryService(const Limits& limits, std::shared_ptr<mover::BufferCache> cache, Choose choose, Give give)
    : limits_(limits), cache_(std::move(cache)), choose_(std::move(choose)), give_(std::move(give)) {}
QueryService::~QueryService() = default;

bool QueryService::is_own(const channel::Entry& release) noexcept {
  wire::Release said{};
  return wire::decode(release.payload, said) && (said.lease & own) != 0;
}

void QueryService::on_channel_open(ChannelNumber channel, uid_t user) { channels_[channel].user = user; }

void QueryService::on_channel_closed(ChannelNumber channel, Effects& effects) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  std::vector<std::uint64_t> gone;
  for (const auto& [number, answer] : answers_)
    if (answer->channel == channel) gone.push_back(number);
  for (const std::uint64_t number : gone) forget(number);
  channels_.erase(at);
  run_waiting(effects);
}

void QueryService::on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::pool_query: return begin(channel, request, now, effects);
    case EntryKind::query_next: return next(channel, request, effects);
    case EntryKind::release: {
      wire::Release release{};
      if (!wire::decode(request.payload, release)) return;
      const auto answer = answers_.find(release.lease & ~own);
      if (answer != answers_.end() && answer->second->channel == channel) forget(answer->first);
      return run_waiting(effects);
    }
    default: OFP_ASSERT(!"a request of another service");
  }
}

// ---- from the request to the first step

void QueryService::begin(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    ++counters_.failed;
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(failure)});
  };
  Channel& channel = channels_.at(number);
  wire::PoolQuery query{};
  if (auto status = wire::decode(request.payload, query); !status) return refuse(std::move(status).error());
  if (query.query.length == 0 || query.query.length > query_bytes_max)
    return refuse({Error::too_large, fmt::format("a query of {} bytes, 1 to {} are allowed", query.query.length, query_bytes_max)});
  if (channel.open >= limits_.open_max)
    return refuse({Error::too_large, fmt::format("the program has {} answers open, which is the limit", channel.open)});
  auto buffer = cache_->take(query.query.length, channel.user);
  if (!buffer) return refuse(std::move(buffer).error());
  auto answer = std::make_unique<Answer>();
  answer->number = next_number_++;
  answer->channel = number;
  answer->user = channel.user;
  answer->pool = query.pool;
  answer->row_glob = query.row_glob;
  answer->column_glob = query.column_glob;
  answer->deadline = query.wait_ns < 0 ? never : deadline_after(now, query.wait_ns);
  answer->bytes = std::move(*buffer);
  answer->asked = request.ticket;
  ++channel.open;
  ++counters_.queries;
  ++counters_.open;
  std::vector<link::ReadPiece> pieces = {{query.query.region, query.query.generation, query.query.offset, answer->bytes.data(),
                                          query.query.length}};
  mover::PullEffect pull{number, mover::token_of(mover::Service::query, answer->number), std::move(pieces)};
  effects.emplace_back(std::move(pull));
  answers_.emplace(answer->number, std::move(answer));
}

void QueryService::on_transfer(std::uint64_t token, Status status, Effects& effects) {
  const std::uint64_t number = number_of(token);
  const auto at = answers_.find(number);
  if (at == answers_.end()) return;
  if (!status) return fail_answer(*at->second, std::move(status).error(), effects);
  start(*at->second, effects);
}

void QueryService::start(Answer& answer, Effects& effects) {
  auto query = decode_query(answer.bytes.bytes());
  answer.bytes = {};
  if (!query) return fail_answer(answer, std::move(query).error(), effects);
  auto sources = choose_(answer.pool, answer.row_glob, answer.column_glob, answer.user);
  if (!sources) return fail_answer(answer, std::move(sources).error(), effects);
  if (threads_ == nullptr) threads_ = QueryThreads::make(limits_.query.threads);
  auto run = QueryRun::make(std::move(*query), std::move(*sources), limits_.query, threads_, cache_, answer.user);
  if (!run) return fail_answer(answer, std::move(run).error(), effects);
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
    std::function<Status()> run = [run = answer.run, result = answer.result, stop = answer.stop.get_token()]() -> Status {
      OFP_ASSIGN(result->step, run->step(stop));
      return {};
    };
    mover::JobEffect job{mover::token_of(mover::Service::query, answer.number), std::move(run)};
    effects.emplace_back(std::move(job));
  }
}

void QueryService::on_job(std::uint64_t token, Status status, Effects& effects) {
  --counters_.running;
  const auto at = answers_.find(number_of(token));
  if (at == answers_.end()) return run_waiting(effects);
  Answer& answer = *at->second;
  answer.running = false;
  if (!status && answer.late) status = fail(Error::timeout, "the query's time was over before its answer was there");
  if (!status) {
    fail_answer(answer, std::move(status).error(), effects);
    return run_waiting(effects);
  }
  for (FramePtr& frame : answer.result->step.frames) {
    counters_.bytes_answered += frame->bytes;
    answer.ready.push_back(std::move(frame));
  }
  answer.finished = answer.result->step.finished;
  answer.result.reset();
  if (answer.finished) {
    counters_.rows_read += answer.run->counters().rows_read;
    counters_.bytes_read += answer.run->counters().bytes_read;
    answer.run.reset();  // and what it read
  }
  if (!std::exchange(answer.begun, true)) {
    effects.push_back(ReplyEffect{answer.channel, *std::exchange(answer.asked, {}), wire::Done{answer.number | own}});
  } else if (answer.asked) {
    serve(answer, effects);
  }
  run_waiting(effects);
}

// ---- frames

void QueryService::next(ChannelNumber number, const channel::Entry& request, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(failure)});
  };
  wire::QueryNext next{};
  if (auto status = wire::decode(request.payload, next); !status) return refuse(std::move(status).error());
  const auto at = answers_.find(next.answer & ~own);
  if (at == answers_.end() || at->second->channel != number || !at->second->begun)
    return refuse({Error::not_found, fmt::format("there is no answer {:#x}: it has ended, or its time was over", next.answer)});
  Answer& answer = *at->second;
  if (answer.asked)
    return refuse({Error::invalid, fmt::format("answer {:#x} was asked for a frame that has not been given yet", next.answer)});
  if (next.index != answer.first && next.index != answer.first + 1)
    return refuse({Error::invalid, fmt::format("frame {} of an answer was asked for, it is at {}", next.index, answer.first)});
  if (next.index == answer.first + 1) {
    if (answer.ready.empty()) return refuse({Error::invalid, fmt::format("frame {} of an answer was not given yet", answer.first)});
    answer.ready.pop_front();
    ++answer.first;
  }
  answer.asked = request.ticket;
  serve(answer, effects);
}

void QueryService::serve(Answer& answer, Effects& effects) {
  if (!answer.ready.empty()) return give_(answer.channel, *std::exchange(answer.asked, {}), answer.ready.front(), effects);
  if (!answer.finished) return answer.running ? void() : want_step(answer, effects);
  effects.push_back(ReplyEffect{answer.channel, *answer.asked, wire::Done{0}});
  forget(answer.number);
}

// ---- ends

void QueryService::fail_answer(Answer& answer, Failure failure, Effects& effects) {
  ++counters_.failed;
  if (answer.asked) effects.push_back(FailEffect{answer.channel, *answer.asked, wire::any_reply, std::move(failure)});
  forget(answer.number);
}

// A job that runs for it goes on until it sees the stop, and its result is dropped.
void QueryService::forget(std::uint64_t number) {
  const auto at = answers_.find(number);
  at->second->stop.request_stop();
  if (const auto channel = channels_.find(at->second->channel); channel != channels_.end()) --channel->second.open;
  --counters_.open;
  answers_.erase(at);
}

void QueryService::on_time(TimeNs now, Effects& effects) {
  std::vector<std::uint64_t> over;
  for (const auto& [number, answer] : answers_) {
    if (answer->deadline > now) continue;
    if (answer->running) {  // its job says so soon
      answer->late = true;
      answer->deadline = never;
      answer->stop.request_stop();
    } else {
      over.push_back(number);
    }
  }
  for (const std::uint64_t number : over)
    fail_answer(*answers_.at(number), {Error::timeout, "the query's time was over before its answer was there"}, effects);
}

TimeNs QueryService::next_deadline() const noexcept {
  TimeNs soonest = never;
  for (const auto& [number, answer] : answers_) soonest = std::min(soonest, answer->deadline);
  return soonest;
}

}  // namespace offpath::pool
