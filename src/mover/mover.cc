#include "mover/mover.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "frame/parse.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::mover {

using wire::EntryKind;

namespace {

constexpr std::uint32_t used_mask = (1u << 31) - 1;

}  // namespace

Mover::Mover(const MoverOptions& options, std::shared_ptr<BufferCache> cache, Store& store)
    : options_(options),
      cache_(std::move(cache)),
      store_(store),
      queues_(options_),
      credit_(options_, *cache_, queues_, counters_, latencies_.credit),
      planner_(options_, *cache_, store_, credit_) {}

Mover::~Mover() = default;

void Mover::on_channel_open(ChannelNumber number, const Client& client, std::uint32_t streams_max,
                            std::uint64_t pull_ahead_bytes) {
  auto channel = std::make_unique<Channel>();
  channel->number = number;
  channel->client = client;
  channel->streams.resize(streams_max);
  channel->pull_ahead_bytes = pull_ahead_bytes;
  channels_.emplace(number, std::move(channel));
}

void Mover::on_channel_closed(ChannelNumber number, TimeNs now, Effects& effects) {
  const auto at = channels_.find(number);
  if (at == channels_.end()) return;
  for (std::uint32_t stream = 0; stream < at->second->streams.size(); ++stream)
    if (at->second->streams[stream]) release(*at->second, stream, now);
  queues_.forget(*at->second);
  channels_.erase(at);
  on_memory_freed(now, effects);
}

Stream* Mover::find_stream(Channel& channel, std::uint32_t stream) noexcept {
  return stream < channel.streams.size() ? channel.streams[stream].get() : nullptr;
}

Stream* Mover::stream_of(Channel& channel, std::uint32_t number, std::uint64_t ticket, Effects& effects) {
  Stream* stream = find_stream(channel, number);
  if (stream != nullptr && !stream->closing) return stream;
  effects.push_back(service::FailEffect{
      channel.number, ticket, number, {Error::closed, fmt::format("stream number {} is not open", number)}});
  return nullptr;
}

void Mover::on_request(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  const auto at = channels_.find(number);
  OFP_ASSERT(at != channels_.end());
  if (Status served = serve(*at->second, request, now, effects); !served)
    effects.push_back(service::FailEffect{number, request.ticket, wire::any_reply, std::move(served).error()});
}

Status Mover::serve(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::open_stream:
      return open_stream(channel, request, now, effects);
    case EntryKind::grow_stream:
      return grow_stream(channel, request, effects);
    case EntryKind::close_stream:
      return close_stream(channel, request, now, effects);
    case EntryKind::send:
      return send(channel, request, now, effects);
    case EntryKind::move:
      return move(channel, request, now, effects);
    case EntryKind::step_end:
      return step_end(channel, request, now, effects);
    case EntryKind::need_credit:
      return need_credit(channel, request, now, effects);
    case EntryKind::why_waits:
      return why_waits(channel, request, effects);
    default:
      OFP_ASSERT(!"a request of another service");
      return {};
  }
}

// ---- operations

Operation& Mover::begin(Stream& stream, std::uint64_t ticket, TimeNs now) {
  if (spare_.empty()) {
    OFP_ASSERT(operations_.size() < 1u << place_bits);
    spare_.push_back(static_cast<std::uint32_t>(operations_.size()));
    operations_.push_back(std::make_unique<Operation>());
    operations_.back()->place = spare_.back();
  }
  Operation& operation = *operations_[spare_.back()];
  spare_.pop_back();
  operation.used = (operation.used + 1) & used_mask;
  operation.number = static_cast<std::uint64_t>(operation.used) << place_bits | operation.place;
  operation.stream = &stream;
  operation.ticket = ticket;
  operation.state = Operation::State::queued;
  operation.failed = operation.arrow = operation.is_claimed = false;
  operation.rows = operation.bytes = 0;
  operation.user = stream.channel->client.user;
  operation.form = stream.form;
  operation.serialiser = stream.serialiser;
  operation.packing = stream.packing;
  operation.planned_with_set = false;
  operation.began = now;
  stream.operations.push_back(&operation);
  ++counters_.operations;
  return operation;
}

Operation* Mover::find_operation(std::uint64_t token) noexcept {
  const std::uint64_t place = token & ((1u << place_bits) - 1);
  Operation* operation = place < operations_.size() ? operations_[place].get() : nullptr;
  return operation != nullptr && operation->number == (token & number_mask) ? operation : nullptr;
}

void Mover::recycle(Operation* operation) {
  --counters_.operations;
  operation->number = 0;
  operation->stream = nullptr;
  operation->buffer = {};
  operation->scratch = {};
  operation->frame = {};
  operation->form = {};
  operation->serialiser = {};
  operation->packing = {};
  operation->set = {};
  operation->pieces.clear();
  for (std::string* key : {&operation->row_key, &operation->column_key})
    if (key->capacity() > wire::short_keys_bytes) *key = {};  // the memory of a short one is kept for the next
  spare_.push_back(operation->place);
}

Status Mover::send(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  OFP_TRY(planner_.decode_send(request.payload));
  Stream* stream = stream_of(channel, planner_.send().stream, request.ticket, effects);
  if (stream == nullptr) return {};
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::send;
  operation.row_key = planner_.send().row_key;
  operation.column_key = planner_.send().column_key;
  operation.rows = planner_.send().rows;
  operation.charge = planner_.send().charge;
  ++counters_.sends;
  ++stream->sent;
  queue(operation, planner_.take_set(*stream, operation), request.payload, now, effects);
  return {};
}

Status Mover::move(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  OFP_TRY(planner_.decode_move(request.payload));
  Stream* stream = stream_of(channel, planner_.move().stream, request.ticket, effects);
  if (stream == nullptr) return {};
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = planner_.move().update ? Operation::Kind::update : Operation::Kind::create;
  operation.row_key = planner_.move().row_key;
  operation.column_key = planner_.move().column_key;
  operation.charge = planner_.move().charge;
  ++counters_.moves;
  ++stream->sent;
  queue(operation, {}, request.payload, now, effects);
  return {};
}

Status Mover::step_end(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::StepEnd step{};
  OFP_TRY(wire::decode(request.payload, step));
  Stream* stream = stream_of(channel, step.stream, request.ticket, effects);
  if (stream == nullptr) return {};
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::step_end;
  operation.row_key = step.row_key;
  operation.state = Operation::State::waiting;
  settle(*stream, now, effects);
  return {};
}

// Tickets are stored in order, so its reason is that of the oldest remaining ticket.
Status Mover::why_waits(Channel& channel, const channel::Entry& request, Effects& effects) {
  wire::WhyWaits asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  const Stream* stream = stream_of(channel, asked.stream, request.ticket, effects);
  if (stream == nullptr) return {};
  std::string why;
  if (!stream->operations.empty() && stream->operations.front()->ticket <= asked.ticket) {
    const Operation& first = *stream->operations.front();
    if (!stream->lacking.empty() && stream->lacking.front() == &first)
      why = fmt::format(
          "the batch needs {} bytes of the agent's memory, {} more than are free; drop frames, or open "
          "the stream with `keep`",
          first.charge, credit_.lacking_of(*stream));
    else
      why = store_.why_waits(service::token_of(service::ServiceId::mover, first.number));
  }
  if (why.empty())
    effects.push_back(service::ReplyEffect{channel.number, request.ticket, wire::Done{0}});
  else
    effects.push_back(
        service::FailEffect{channel.number, request.ticket, wire::any_reply, {Error::timeout, std::move(why)}});
  return {};
}

Status Mover::need_credit(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::NeedCredit need{};
  OFP_TRY(wire::decode(request.payload, need));
  Stream* stream = stream_of(channel, need.stream, request.ticket, effects);
  if (stream == nullptr) return {};
  const bool gives_up = credit_.ask(*stream, need.total, now, effects);
  start_waiting(channel, now, effects);
  if (gives_up) on_memory_freed(now, effects);  // others may have waited behind it
  return {};
}

// A batch that fails at once frees memory again: then the outermost call goes on, however many fail.
void Mover::on_memory_freed(TimeNs now, Effects& effects) {
  freed_again_ = true;
  if (std::exchange(is_serving_, true)) return;
  while (std::exchange(freed_again_, false))
    for (const ChannelNumber number : credit_.serve_queue(now, effects))
      if (const auto channel = channels_.find(number); channel != channels_.end())
        start_waiting(*channel->second, now, effects);
  is_serving_ = false;
}

void Mover::keep_for_members(std::uint64_t bytes, TimeNs now, Effects& effects) {
  if (credit_.keep_for_members(bytes)) on_memory_freed(now, effects);
}

// The planner has decoded `request`. Nothing is planned or taken before it may be pulled.
void Mover::queue(Operation& operation, Status taken, Bytes request, TimeNs now, Effects& effects) {
  Stream& stream = *operation.stream;
  Channel& channel = *stream.channel;
  auto has_memory = credit_.spend(operation);
  if (taken && !has_memory) taken = tl::unexpected(std::move(has_memory).error());
  if (!taken) {
    fail_operation(operation, std::move(taken).error(), effects);
    settle(stream, now, effects);
    return;
  }
  if (*has_memory && channel.waiting.empty() && channel.may_pull()) return start(operation, now, effects);
  operation.request.assign(request.begin(), request.end());
  stream.waiting += operation.charge;
  if (*has_memory) {
    credit_.claim(operation);
    queues_.wait_for_pull(operation);
    return;
  }
  queues_.wait_for_memory(operation);
  credit_.serve_or_queue(stream, now, effects);
  start_waiting(channel, now, effects);
}

void Mover::start_waiting(Channel& channel, TimeNs now, Effects& effects) {
  while (channel.may_pull()) {
    Operation* const next = queues_.next_pull(channel);
    if (next == nullptr) return;
    Operation& operation = *next;
    const Status decoded = operation.kind == Operation::Kind::send ? planner_.decode_send(operation.request)
                                                                   : planner_.decode_move(operation.request);
    OFP_ASSERT(decoded);  // it was decodable when it arrived
    operation.stream->waiting -= operation.charge;
    credit_.end_claim(operation);
    start(operation, now, effects);
  }
}

bool Mover::is_full(ChannelNumber number) const noexcept {
  if (!queues_.may_be_full()) return false;
  const auto at = channels_.find(number);
  return at != channels_.end() && queues_.are_full(*at->second);
}

// Starts the request that the planner has decoded.
void Mover::start(Operation& operation, TimeNs now, Effects& effects) {
  Stream& stream = *operation.stream;
  Status planned = planner_.plan(stream, operation);
  if (!stream.hungry) credit_.extend(stream, effects);
  if (!planned) {
    fail_operation(operation, std::move(planned).error(), effects);
    settle(stream, now, effects);
    return;
  }
  operation.state = Operation::State::pulling;
  stream.bytes += operation.bytes;
  stream.recent.add(operation.bytes, now);
  counters_.bytes += operation.bytes;
  recent_.add(operation.bytes, now);
  ++stream.channel->pulls;
  stream.channel->pulling_bytes += operation.bytes;
  effects.push_back(service::PullEffect{stream.channel->number,
                                        service::token_of(service::ServiceId::mover, operation.number),
                                        std::move(operation.pieces)});
  operation.pieces = {};
  if (operation.buffer) prepare_buffer(stream, operation.buffer.length(), effects);
}

void Mover::fail_operation(Operation& operation, Failure failure, Effects& effects) {
  operation.failed = true;
  operation.state = Operation::State::over;
  ++counters_.failures;
  if (operation.stream == nullptr) return;
  effects.push_back(service::FailEffect{
      operation.stream->channel->number,
      operation.ticket,
      operation.stream->id,
      {failure.code, fmt::format("stream \"{}\" ({}, {}): {}", operation.stream->name, brief(operation.row_key),
                                 brief(operation.column_key), failure.message)}});
}

void Mover::on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  Operation* const found = find_operation(token);
  if (found == nullptr || found->stream == nullptr) return;
  Operation& operation = *found;
  if (status && operation.has_more_rows()) {
    operation.split_slices();
    operation.next_slices();
    effects.push_back(
        service::PullEffect{operation.stream->channel->number, token, std::exchange(operation.pieces, {})});
    return;
  }
  // Measured here: a read that is done at once belongs to the round that took the request.
  operation.pulled_at = options_.clock != nullptr ? options_.clock() : now;
  counters_.pull_ns += static_cast<std::uint64_t>(operation.pulled_at - operation.began);
  Channel& channel = *operation.stream->channel;
  --channel.pulls;
  channel.pulling_bytes -= operation.bytes;
  if (status) {
    latencies_.pull.add(operation.pulled_at - operation.began, channel.number, operation.ticket);
    operation.state = Operation::State::finishing;
    // At once if the next request waits: it then gets the buffer that the finished frame releases.
    if (channel.waiting.empty())
      pulled_.push_back(token);
    else
      finish(operation, now, effects);
  } else {
    fail_operation(operation, std::move(status).error(), effects);
  }
  settle(*operation.stream, now, effects);
  start_waiting(channel, now, effects);
}

void Mover::finish_pulled(TimeNs now, Effects& effects) {
  for (std::size_t i = 0; i < pulled_.size(); ++i) {
    Operation* const operation = find_operation(pulled_[i]);
    if (operation == nullptr) continue;
    if (operation->stream == nullptr) {
      recycle(operation);
      continue;
    }
    finish(*operation, now, effects);
    settle(*operation->stream, now, effects);
  }
  pulled_.clear();
}

// The remaining work after the bytes have arrived: small work is done at once, large work in a job.
void Mover::finish(Operation& operation, TimeNs now, Effects& effects) {
  if (operation.serialiser == nullptr && operation.packing == nullptr &&
      operation.bytes_to_finish() <= options_.inline_bytes_max) {
    finished(operation, operation.finish(*cache_), now, effects);
    return;
  }
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::mover, operation.number),
                                       [&operation, cache = cache_] { return operation.finish(*cache); }});
}

void Mover::on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  const std::uint64_t number = token & number_mask;
  if (number == drop_number) {
    dropping_ = false;
    return;
  }
  if (const auto prepared = preparing_.find(number); prepared != preparing_.end()) {
    const auto [channel_number, stream_number] = prepared->second;
    preparing_.erase(prepared);
    if (const auto channel = channels_.find(channel_number); channel != channels_.end())
      if (Stream* stream = find_stream(*channel->second, stream_number)) stream->preparing = false;
    return;
  }
  Operation* const found = find_operation(token);
  if (found == nullptr) return;
  Operation& operation = *found;
  if (operation.stream == nullptr) return recycle(&operation);
  finished(operation, std::move(status), now, effects);
  settle(*operation.stream, now, effects);
}

void Mover::on_stored(std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  Operation* const operation = find_operation(token);
  if (operation == nullptr) return;
  if (operation->stream == nullptr) return recycle(operation);
  if (status) {
    latencies_.store.add(now - operation->pulled_at, operation->stream->channel->number, operation->ticket);
    operation->state = Operation::State::over;
  } else {
    fail_operation(*operation, std::move(status).error(), effects);
  }
  settle(*operation->stream, now, effects);
}

void Mover::finished(Operation& operation, Status status, TimeNs now, Effects& effects) {
  // Measured here: the pull and work that was done at once may belong to the same round as `now`.
  const TimeNs ended = options_.clock != nullptr ? options_.clock() : now;
  const auto spent_ns = static_cast<std::uint64_t>(ended - operation.pulled_at);
  counters_.finish_ns += spent_ns;
  Stream& stream = *operation.stream;
  if (status && operation.kind != Operation::Kind::update) {
    counters_.rows += operation.frame->rows;
    ++counters_.frames;
    if (operation.packing) {
      ++counters_.packed_frames;
      counters_.plain_bytes += operation.plan().frame_bytes;
      counters_.packed_bytes += operation.frame->bytes;
      counters_.pack_ns += spent_ns;
    }
    auto stored = store_.put(
        {stream.pool, operation.row_key, operation.column_key, operation.user, stream.keep, stream.ranks > 0},
        std::move(operation.frame), service::token_of(service::ServiceId::mover, operation.number), now, effects);
    if (stored && *stored == Stored::later) return;  // it stays unfinished until on_stored
    if (!stored) status = tl::unexpected(std::move(stored).error());
  }
  if (status) {
    latencies_.store.add(ended - operation.pulled_at, stream.channel->number, operation.ticket);
    operation.state = Operation::State::over;
  } else {
    fail_operation(operation, std::move(status).error(), effects);
  }
}

// Advances `pulled` over operations whose bytes have arrived, and `stored` over completed ones.
void Mover::settle(Stream& stream, TimeNs now, Effects& effects) {
  Channel& channel = *stream.channel;
  std::uint64_t pulled = stream.pulled, stored = stream.stored;
  bool memory_freed = false, close = false;
  std::uint64_t close_ticket = 0;
  for (const Operation* operation : stream.operations) {
    if (operation->state == Operation::State::queued || operation->state == Operation::State::pulling) break;
    pulled = operation->ticket;
  }
  while (!stream.operations.empty()) {
    Operation* first = stream.operations.front();
    if (first->state != Operation::State::waiting && first->state != Operation::State::over) break;
    if (first->kind == Operation::Kind::step_end) {
      Status ended =
          store_.end_step(stream.pool, first->row_key, stream.rank, std::max(stream.ranks, 1u), now, effects);
      if (!ended) fail_operation(*first, std::move(ended).error(), effects);
    }
    if (first->kind == Operation::Kind::close) {
      close = true;
      close_ticket = first->ticket;
    }
    stored = first->ticket;
    memory_freed |= first->failed;
    stream.operations.pop_front();
    recycle(first);
  }
  if (pulled != stream.pulled)
    effects.push_back(service::LineEffect{service::LineEffect::Word::pulled, channel.number, stream.id, pulled});
  if (stored != stream.stored)
    effects.push_back(service::LineEffect{service::LineEffect::Word::stored, channel.number, stream.id, stored});
  stream.pulled = pulled;
  stream.stored = stored;
  if (close) {
    effects.push_back(service::ReplyEffect{channel.number, close_ticket, wire::Done{0}});
    release(channel, stream.id, now);
    memory_freed = true;
  }
  if (memory_freed) on_memory_freed(now, effects);
}

std::vector<Mover::StreamStatus> Mover::streams(TimeNs now) const {
  std::vector<StreamStatus> all;
  std::vector<std::pair<const Stream*, std::size_t>> moving;  // with its place in `all`
  for (const auto& [number, channel] : channels_) {
    for (const auto& stream : channel->streams) {
      if (!stream) continue;
      if (stream->bytes > 0) moving.emplace_back(stream.get(), all.size());
      all.push_back({.name = stream->name,
                     .program = channel->client.program,
                     .pool = stream->pool,
                     .destination = stream->destination,
                     .compression = stream->packing ? stream->packing->form->compression : wire::Compression::none,
                     .rows_max = stream->rows_max,
                     .sent = stream->sent,
                     .bytes = stream->bytes,
                     .pulled = stream->pulled,
                     .stored = stream->stored,
                     .credit_left = stream->granted - stream->spent,
                     .pid = channel->client.pid,
                     .ranks = stream->ranks,
                     .rank = stream->rank,
                     .credit_lacking = stream->hungry ? Credit::required_of(*stream) : 0,
                     .lacking_since = stream->hungry_since,
                     .form = stream->form});
    }
  }
  const std::size_t told = std::min(moving.size(), recent_max);
  std::ranges::nth_element(moving, moving.begin() + static_cast<std::ptrdiff_t>(told), std::ranges::greater{},
                           [now](const auto& each) { return each.first->recent.bytes(now); });
  for (std::size_t i = 0; i < told; ++i) all[moving[i].second].recent = moving[i].first->recent.recent(now);
  return all;
}

}  // namespace offpath::mover
