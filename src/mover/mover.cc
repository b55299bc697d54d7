#include "mover/mover.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "frame/parse.h"
#include "mover/operation.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::mover {

using wire::EntryKind;

namespace {

constexpr std::uint32_t used_mask = (1u << 31) - 1;

}  // namespace

Mover::Mover(const MoverOptions& options, std::shared_ptr<BufferCache> cache, Store& store)
    : options_(options), cache_(std::move(cache)), store_(store) {}

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
  waiting_bytes_ -= at->second->waiting_bytes;
  lacking_bytes_ -= at->second->lacking_bytes;
  channels_.erase(at);
  on_memory_freed(now, effects);
}

Mover::Stream* Mover::find_stream(Channel& channel, std::uint32_t stream) noexcept {
  return stream < channel.streams.size() ? channel.streams[stream].get() : nullptr;
}

Mover::Stream* Mover::stream_of(Channel& channel, std::uint32_t number, std::uint64_t ticket, Effects& effects) {
  Stream* stream = find_stream(channel, number);
  if (stream != nullptr && !stream->closing) return stream;
  effects.push_back(service::FailEffect{
      channel.number, ticket, number, {Error::closed, fmt::format("stream number {} is not open", number)}});
  return nullptr;
}

void Mover::on_request(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  const auto at = channels_.find(number);
  OFP_ASSERT(at != channels_.end());
  Channel& channel = *at->second;
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::open_stream:
      return open_stream(channel, request, now, effects);
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
  }
}

// ---- operations

Mover::Operation& Mover::begin(Stream& stream, std::uint64_t ticket, TimeNs now) {
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
  operation.began = now;
  stream.operations.push_back(&operation);
  ++counters_.operations;
  return operation;
}

Mover::Operation* Mover::find_operation(std::uint64_t token) noexcept {
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

void Mover::send(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  if (auto status = wire::decode(request.payload, send_); !status) {
    effects.push_back(service::FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, send_.stream, request.ticket, effects);
  if (stream == nullptr) return;
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::send;
  operation.row_key = send_.row_key;
  operation.column_key = send_.column_key;
  operation.rows = send_.rows;
  operation.charge = send_.charge;
  ++counters_.sends;
  ++stream->sent;
  queue(operation, take_set(*stream, operation), request.payload, now, effects);
}

// Buffer sets are remembered in ring order, even when a request is planned later.
Status Mover::take_set(Stream& stream, Operation& operation) {
  if (send_.set == 0) return {};
  stream.sets.resize(wire::sets_max);
  std::shared_ptr<BufferSet>& set = stream.sets[send_.set - 1];
  if (!send_.buffers.empty()) {
    std::uint64_t& taken = stream.channel->sets_bytes;
    const std::uint64_t without = taken - (set ? wire::set_bytes(set->buffers.size()) : 0);
    const std::uint64_t with = without + wire::set_bytes(send_.buffers.size());
    if (with > wire::sets_bytes_max)
      return fail(Error::too_large, "buffer sets of {} bytes on this channel, at most {} are allowed", with,
                  wire::sets_bytes_max);
    taken = with;
    set = std::make_shared<BufferSet>();
    set->rows = send_.rows;
    set->buffers = send_.buffers;
  }
  if (!set) return fail(Error::invalid, "buffer set {} is unknown", send_.set);
  if (set->rows != send_.rows)
    return fail(Error::invalid, "{} rows; buffer set {} has {}", send_.rows, send_.set, set->rows);
  operation.set = set;
  return {};
}

void Mover::move(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  if (auto status = wire::decode(request.payload, move_); !status) {
    effects.push_back(service::FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, move_.stream, request.ticket, effects);
  if (stream == nullptr) return;
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = move_.update ? Operation::Kind::update : Operation::Kind::create;
  operation.row_key = move_.row_key;
  operation.column_key = move_.column_key;
  operation.charge = move_.charge;
  ++counters_.moves;
  ++stream->sent;
  queue(operation, {}, request.payload, now, effects);
}

void Mover::step_end(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::StepEnd step{};
  if (auto status = wire::decode(request.payload, step); !status) {
    effects.push_back(service::FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, step.stream, request.ticket, effects);
  if (stream == nullptr) return;
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::step_end;
  operation.row_key = step.row_key;
  operation.state = Operation::State::waiting;
  settle(*stream, now, effects);
}

// Tickets are stored in order, so it waits for what the oldest remaining ticket waits for.
void Mover::why_waits(Channel& channel, const channel::Entry& request, Effects& effects) {
  wire::WhyWaits asked{};
  if (auto status = wire::decode(request.payload, asked); !status) {
    effects.push_back(service::FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  const Stream* stream = stream_of(channel, asked.stream, request.ticket, effects);
  if (stream == nullptr) return;
  std::string why;
  if (!stream->operations.empty() && stream->operations.front()->ticket <= asked.ticket) {
    const Operation& first = *stream->operations.front();
    if (!stream->lacking.empty() && stream->lacking.front() == &first)
      why = fmt::format(
          "the batch needs {} bytes of the agent's memory, {} more than are free; drop frames, or open "
          "the stream with `keep`",
          first.charge, lacking_of(*stream));
    else
      why = store_.why_waits(service::token_of(service::ServiceId::mover, first.number));
  }
  if (why.empty())
    effects.push_back(service::ReplyEffect{channel.number, request.ticket, wire::Done{0}});
  else
    effects.push_back(
        service::FailEffect{channel.number, request.ticket, wire::any_reply, {Error::timeout, std::move(why)}});
}

// send_ or move_ is decoded from `request`. Nothing is planned or taken before it may be pulled.
void Mover::queue(Operation& operation, Status taken, Bytes request, TimeNs now, Effects& effects) {
  Stream& stream = *operation.stream;
  Channel& channel = *stream.channel;
  auto has_memory = spend(operation);
  if (taken && !has_memory) taken = tl::unexpected(std::move(has_memory).error());
  if (!taken) {
    fail_operation(operation, std::move(taken).error(), effects);
    settle(stream, now, effects);
    return;
  }
  if (*has_memory && channel.waiting.empty() && channel.may_pull()) return start(operation, now, effects);
  operation.request.assign(request.begin(), request.end());
  const std::uint64_t cost = waiting_cost(request.size());
  stream.waiting += operation.charge;
  if (*has_memory) {
    claim(operation);
    channel.waiting_bytes += cost;
    waiting_bytes_ += cost;
    channel.waiting.push_back(&operation);
    return;
  }
  channel.lacking_bytes += cost;
  lacking_bytes_ += cost;
  stream.lacking.push_back(&operation);
  serve_or_queue(stream, now, effects);
  start_waiting(channel, now, effects);
}

void Mover::start_waiting(Channel& channel, TimeNs now, Effects& effects) {
  while (!channel.waiting.empty() && channel.may_pull()) {
    Operation& operation = *channel.waiting.front();
    channel.waiting.pop_front();
    channel.waiting_bytes -= waiting_cost(operation.request.size());
    waiting_bytes_ -= waiting_cost(operation.request.size());
    const Status decoded = operation.kind == Operation::Kind::send ? wire::decode(operation.request, send_)
                                                                   : wire::decode(operation.request, move_);
    OFP_ASSERT(decoded);  // it was decodable when it arrived
    operation.stream->waiting -= operation.charge;
    end_claim(operation);
    start(operation, now, effects);
  }
}

bool Mover::is_full(ChannelNumber number) const noexcept {
  const std::uint64_t lacking_max =
      options_.lacking_bytes_max / (lacking_bytes_ < options_.all_lacking_bytes_max ? 1 : 16);
  if (waiting_bytes_ < options_.waiting_bytes_max && lacking_bytes_ < lacking_max) return false;
  const auto at = channels_.find(number);
  return at != channels_.end() &&
         (at->second->waiting_bytes >= options_.waiting_bytes_max || at->second->lacking_bytes >= lacking_max);
}

Status Mover::plan_request(Stream& stream, Operation& operation) {
  const bool send = operation.kind == Operation::Kind::send;
  std::uint64_t& charge = send ? send_.charge : move_.charge;
  const std::uint64_t of_keys = wire::charge_of_keys(operation.row_key, operation.column_key);
  if (charge < of_keys)
    return fail(Error::invalid, "the batch's keys need {} bytes here, but it was charged {}", of_keys, charge);
  charge -= of_keys;  // the rest is for the object
  // Steps after the pull of other destinations use the plan of a batch, which a move does not have.
  if (!send && stream.destination != wire::Destination::native)
    return fail(Error::invalid, "destination {}: moves need a stream with destination native",
                wire::destination_name(stream.destination));
  if (!send) return plan_move(stream, operation);
  return stream.form ? plan_send(stream, operation) : plan_plain(stream, operation);
}

// Starts the request in send_ or move_.
void Mover::start(Operation& operation, TimeNs now, Effects& effects) {
  Stream& stream = *operation.stream;
  Status planned = plan_request(stream, operation);
  if (!stream.hungry) extend(stream, effects);
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
  std::uint64_t changed = operation.arrow ? operation.buffer.length() : 0;  // only the messages of Arrow bytes are read
  if (operation.kind == Operation::Kind::create)
    for (const frame::Gap& gap : operation.uncovered) changed += gap.bytes;
  if (operation.placed()) {
    for (const frame::Gap& gap : operation.plan().gaps) changed += gap.bytes;
    for (const Operation::Slice& slice : operation.slices)
      changed += operation.plan().blocks[slice.block].read_bytes(slice.row_end - slice.row_begin);
    for (const frame::Step& step : operation.plan().steps)
      changed += step.kind == frame::StepKind::shift_bits || step.kind == frame::StepKind::count_nulls ? step.count / 8
                                                                                                       : step.count * 8;
  }
  if (operation.serialiser == nullptr && operation.packing == nullptr && changed <= options_.inline_bytes_max) {
    finished(operation, finish_bytes(operation, *cache_), now, effects);
    return;
  }
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::mover, operation.number),
                                       [&operation, cache = cache_] { return finish_bytes(operation, *cache); }});
}

// Uses only the operation: it may run in a job.
Status Mover::finish_bytes(Operation& operation, BufferCache& cache) {
  if (operation.kind == Operation::Kind::update) return {};
  // Bytes of an earlier frame must not show where no piece was written.
  if (operation.kind == Operation::Kind::create)
    for (const frame::Gap& gap : operation.uncovered) std::memset(operation.buffer.data() + gap.offset, 0, gap.bytes);
  if (operation.placed()) {
    const MutableBytes frame = operation.buffer.bytes();
    const frame::Plan& plan = operation.plan();
    operation.split_slices();
    frame::write_head(*operation.form, plan, frame);
    if (&plan == &operation.own_plan) OFP_TRY(frame::finish(*operation.form, operation.own_plan, frame));
    operation.scratch = {};
  }
  if (operation.serialiser) {
    const auto buffer = std::make_shared<Buffer>(std::move(operation.buffer));
    OFP_ASSIGN(operation.frame, operation.serialiser->serialise(operation.plan(), buffer, cache, operation.user));
    return {};
  }
  operation.frame = std::make_shared<Frame>();
  operation.frame->bytes = operation.buffer.length();
  operation.frame->buffer = std::move(operation.buffer);
  operation.frame->arrow = operation.placed() || operation.arrow;
  // Plain rows of bytes have none, unless the bytes are Arrow, which has its own.
  if (operation.placed()) operation.frame->rows = operation.rows;
  if (operation.arrow) operation.frame->rows = frame::count_rows(operation.frame->buffer.bytes()).value_or(0);
  operation.frame->updatable = operation.kind == Operation::Kind::create;
  return operation.packing ? pack(operation, cache) : Status{};
}

// Moves the frame to memory of the size that it needs. A frame of which no buffer shrank keeps its pages; so does one
// that would become larger, so no frame outgrows its charge.
Status Mover::pack(Operation& operation, BufferCache& cache) {
  const Packing& packing = *operation.packing;
  const frame::Plan& plan = operation.plan();
  Frame& frame = *operation.frame;
  frame::PackedFrame packed;
  OFP_ASSIGN(const Buffer scratch, cache.take(frame::packing_bytes(*packing.compressor, plan), operation.user));
  OFP_TRY(frame::pack(*packing.form, *packing.compressor, plan, frame.buffer.bytes(), scratch.bytes(), packed));
  const std::uint64_t bytes = packed.plan.frame_bytes;
  if (packed.compressed == 0 || bytes >= frame.bytes) return {};
  OFP_ASSIGN(Buffer smaller, cache.take(bytes, operation.user));
  frame::write_packed(*packing.form, packed, smaller.bytes());
  frame.buffer = std::move(smaller);
  frame.bytes = bytes;
  return {};
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
                     .credit_lacking = stream->hungry ? required_of(*stream) : 0,
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
