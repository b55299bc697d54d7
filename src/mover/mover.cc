#include "mover/mover.h"

#include <algorithm>
#include <utility>

#include "mover/operation.h"

namespace offpath::mover {

using wire::Compression;
using wire::Destination;
using wire::EntryKind;

namespace {

// A token's number: what its top byte leaves. Preparations have their own, which no operation's reaches.
constexpr std::uint64_t number_mask = (1ull << 56) - 1;
constexpr unsigned place_bits = 24;
constexpr std::uint64_t preparation_flag = 1ull << 55;
constexpr std::uint64_t drop_number = 1ull << 54;
constexpr std::uint32_t used_mask = (1u << 31) - 1;

std::uint64_t charge_base_of(const frame::Template* form) {
  if (form == nullptr) return page_bytes;
  std::uint64_t bytes = align_up(form->schema_message.size(), page_bytes) + page_bytes;
  for (const frame::Prototype& prototype : form->prototypes) bytes += align_up(prototype.metadata.size() + 64, page_bytes);
  return bytes;
}

constexpr std::uint64_t waiting_cost(std::uint64_t request_bytes) noexcept { return 1024 + request_bytes; }

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

void Mover::on_channel_closed(ChannelNumber number, TimeNs, Effects& effects) {
  const auto at = channels_.find(number);
  if (at == channels_.end()) return;
  for (std::uint32_t stream = 0; stream < at->second->streams.size(); ++stream)
    if (at->second->streams[stream]) release(*at->second, stream);
  waiting_bytes_ -= at->second->waiting_bytes;
  channels_.erase(at);
  on_memory_freed(effects);
}

Mover::Stream* Mover::find_stream(Channel& channel, std::uint32_t stream) noexcept {
  return stream < channel.streams.size() ? channel.streams[stream].get() : nullptr;
}

Mover::Stream* Mover::stream_of(Channel& channel, std::uint32_t number, std::uint64_t ticket, Effects& effects) {
  Stream* stream = find_stream(channel, number);
  if (stream != nullptr && !stream->closing) return stream;
  effects.push_back(FailEffect{channel.number, ticket, number,
                               {Error::closed, fmt::format("stream number {} is not open", number)}});
  return nullptr;
}

void Mover::on_request(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  const auto at = channels_.find(number);
  OFP_ASSERT(at != channels_.end());
  Channel& channel = *at->second;
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::open_stream: return open_stream(channel, request, effects);
    case EntryKind::close_stream: return close_stream(channel, request, now, effects);
    case EntryKind::send: return send(channel, request, now, effects);
    case EntryKind::move: return move(channel, request, now, effects);
    case EntryKind::step_end: return step_end(channel, request, now, effects);
    case EntryKind::need_credit: return need_credit(channel, request, effects);
    default: OFP_ASSERT(!"a request of another service");
  }
}

// ---- streams

Status Mover::prepare_stream(const wire::OpenStream& open, const Channel& channel, Stream& stream) {
  if (open.stream >= channel.streams.size())
    return fail(Error::invalid, "stream number {}; the channel has {}", open.stream, channel.streams.size());
  if (channel.streams[open.stream]) return fail(Error::exists, "stream number {} is open already", open.stream);
  if (counters_.streams_open >= options_.streams_max)
    return fail(Error::too_large, "{} streams are open on this agent, which is its limit", counters_.streams_open);
  if (const auto own = accounts_.find(channel.client.user); own != accounts_.end() && own->second.streams_open >= options_.user_streams_max)
    return fail(Error::too_large, "{} streams of user {} are open, which is the limit of each user (limits.user_streams_max)",
                own->second.streams_open, own->first);
  if (open.name.empty()) return fail(Error::invalid, "a stream needs a name");
  if (!open.pool.starts_with("local:/"))
    return fail(Error::unsupported, "pool \"{}\": this agent knows pools named local:/NAME", open.pool);
  if (open.ranks > 0 && open.rank >= open.ranks)
    return fail(Error::invalid, "stream \"{}\": rank {} of {} ranks", open.name, open.rank, open.ranks);
  if (const auto taken = names_.find({std::string(open.name), open.rank}); taken != names_.end()) {
    const Client& other = channels_.at(taken->second)->client;
    return fail(Error::exists, "stream \"{}\"{} is open already, by {} (process {})", open.name,
                open.ranks > 0 ? fmt::format(" of rank {}", open.rank) : "", other.program, other.pid);
  }
  stream.id = open.stream;
  stream.name = open.name;
  stream.pool = open.pool;
  stream.destination = open.destination;
  stream.rows_max = open.rows_max;
  stream.keep = open.keep;
  stream.ranks = open.ranks;
  stream.rank = open.rank;
  if (open.compression != Compression::none && open.destination != Destination::ipc && open.destination != Destination::ipc_page)
    return fail(Error::unsupported, "stream \"{}\": compression {} with destination {}; frames of ipc and ipc-page are compressed",
                open.name, wire::compression_name(open.compression), wire::destination_name(open.destination));
  OFP_TRY(store_.admit(stream.pool, channel.client.user));
  if (open.destination == Destination::native || open.destination == Destination::serialised) {
    stream.charge_base = charge_base_of(nullptr);  // bytes as they are: a schema would say nothing about them
    return {};
  }
  if (open.schema.empty())
    return fail(Error::schema, "stream \"{}\": destination {} needs a schema", open.name, wire::destination_name(open.destination));
  if (stream.rows_max == 0) return fail(Error::invalid, "stream \"{}\": rows_max is 0", open.name);
  OFP_ASSIGN(frame::Schema schema, frame::decode(open.schema));
  const auto alignment = open.destination == Destination::ipc ? frame::ipc_alignment : frame::page_alignment;
  OFP_ASSIGN(stream.form, frame::make_template(std::move(schema), alignment));
  stream.charge_base = charge_base_of(stream.form.get());
  if (open.compression != Compression::none) {
    auto packing = std::make_shared<Packing>();
    OFP_ASSIGN(packing->form, frame::make_template(stream.form->schema, frame::ipc_alignment, open.compression));
    packing->compressor = make_body_compressor(open.compression);
    stream.packing = std::move(packing);
  }
  switch (open.destination) {
    case Destination::arrays: case Destination::record_batch: case Destination::c_abi: case Destination::agent_serialise: {
      OFP_ASSIGN(stream.serialiser, make_agent_serialiser(open.destination, stream.form));
      return {};
    }
    default: return {};
  }
}

void Mover::open_stream(Channel& channel, const channel::Entry& request, Effects& effects) {
  wire::OpenStream open{};
  auto stream = std::make_unique<Stream>();
  Status status = wire::decode(request.payload, open);
  if (status) status = prepare_stream(open, channel, *stream);
  if (!status) {
    effects.push_back(FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  stream->channel = &channel;
  names_.emplace(Claim{stream->name, stream->rank}, channel.number);
  ++counters_.streams_open;
  stream->account = &accounts_[channel.client.user];
  ++stream->account->streams_open;
  // Room for two of its largest batches, but an eighth of what is free at most: later streams find room too, and who
  // needs more asks for it.
  const std::uint64_t largest = stream->form ? largest_frame_bytes(*stream) : 0;
  stream->window = std::min(std::max(options_.window_bytes, 2 * (largest + stream->charge_base)), memory_free_for(channel.client.user) / 8);
  effects.push_back(LineEffect{LineEffect::Word::reset, channel.number, stream->id, 0});
  grant(*stream, effects);
  effects.push_back(ReplyEffect{channel.number, request.ticket, wire::Opened{stream->id, stream->charge_base}});
  Stream& opened = *(channel.streams[stream->id] = std::move(stream));
  if (opened.form) prepare_buffer(opened, largest, effects);
}

// Of columns of fixed width; 0 where the rows do not tell.
std::uint64_t Mover::largest_frame_bytes(const Stream& stream) {
  const frame::Layout& layout = stream.form->layout;
  if (!layout.fixed || stream.rows_max > INT64_MAX) return 0;
  plain_.assign(layout.columns.size(), {.address = page_bytes});  // anywhere: only lengths matter here
  frame::Plan plan;
  if (!frame::flatten_plain(layout, static_cast<std::int64_t>(stream.rows_max), plain_, view_)) return 0;
  return frame::make_plan(*stream.form, view_, {}, plan) ? plan.frame_bytes : 0;
}

// The next batch's buffer is made while nobody waits for it.
void Mover::prepare_buffer(Stream& stream, std::uint64_t bytes, Effects& effects) {
  const uid_t user = stream.channel->client.user;
  if (bytes == 0 || bytes > options_.prepared_bytes_max || stream.preparing || cache_->has_free(bytes, user)) return;
  stream.preparing = true;
  const std::uint64_t number = preparation_flag | next_preparation_++;
  preparing_.emplace(number, std::pair{stream.channel->number, stream.id});
  effects.push_back(JobEffect{token_of(Service::mover, number), [cache = cache_, bytes, user] { return cache->prepare(bytes, user); }});
}

void Mover::close_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::CloseStream close{};
  if (auto status = wire::decode(request.payload, close); !status) {
    effects.push_back(FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, close.stream, request.ticket, effects);
  if (stream == nullptr) return;
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::close;
  operation.state = Operation::State::waiting;
  stream->closing = true;
  settle(*stream, now, effects);
}

void Mover::release(Channel& channel, std::uint32_t number) {
  Stream& stream = *channel.streams[number];
  for (Operation* operation : stream.operations) {
    operation->stream = nullptr;
    if (operation->state != Operation::State::finishing) recycle(operation);  // otherwise its job still runs
  }
  for (const auto& set : stream.sets)
    if (set) channel.sets_bytes -= wire::set_bytes(set->buffers.size());
  if (stream.hungry) std::erase(hungry_, &stream);
  names_.erase(Claim{stream.name, stream.rank});
  counters_.promised_bytes -= stream.granted - stream.spent;
  stream.account->promised_bytes -= stream.granted - stream.spent;
  --counters_.streams_open;
  if (--stream.account->streams_open == 0) accounts_.erase(channel.client.user);
  channel.streams[number].reset();
}

// ---- credit

std::uint64_t Mover::memory_free() const noexcept {
  const std::uint64_t taken = counters_.promised_bytes + cache_->used_bytes();
  return options_.memory_bytes_max - std::min(options_.memory_bytes_max, taken);
}

std::uint64_t Mover::memory_free_for(uid_t user) const {
  if (options_.user_bytes_max >= options_.memory_bytes_max) return memory_free();
  const auto own = accounts_.find(user);
  const std::uint64_t taken = cache_->used_bytes_of(user) + (own == accounts_.end() ? 0 : own->second.promised_bytes);
  return std::min(memory_free(), options_.user_bytes_max - std::min(options_.user_bytes_max, taken));
}

// Credit asked for comes whole or not at all; the window beyond it as far as there is room.
void Mover::grant(Stream& stream, Effects& effects) {
  const std::uint64_t free = memory_free_for(stream.channel->client.user);
  const std::uint64_t required = stream.wanted - std::min(stream.wanted, stream.granted);
  const std::uint64_t target = std::max(stream.wanted, stream.spent + stream.window);
  const std::uint64_t desired = target - std::min(target, stream.granted);
  if (required > free) {
    if (!stream.hungry) hungry_.push_back(&stream);
    stream.hungry = true;
    return;
  }
  if (stream.hungry) std::erase(hungry_, &stream);
  stream.hungry = false;
  // A window is topped up in quarters, so that not every batch moves the word.
  if (required == 0 && desired < stream.window / 4) return;
  const std::uint64_t granted = std::min(desired, std::max(required, free / 2));
  if (granted == 0) return;
  stream.granted += granted;
  counters_.promised_bytes += granted;
  stream.account->promised_bytes += granted;
  effects.push_back(LineEffect{LineEffect::Word::credit, stream.channel->number, stream.id, stream.granted});
}

void Mover::need_credit(Channel& channel, const channel::Entry& request, Effects& effects) {
  wire::NeedCredit need{};
  if (auto status = wire::decode(request.payload, need); !status) {
    effects.push_back(FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, need.stream, request.ticket, effects);
  if (stream == nullptr) return;
  stream->wanted = std::max(stream->wanted, need.total);
  grant(*stream, effects);
}

void Mover::on_memory_freed(Effects& effects) {
  const std::vector<Stream*> waiting = hungry_;
  for (Stream* stream : waiting) {
    grant(*stream, effects);
    // Who has waited longest comes first; but one whose own user has taken too much holds up nobody else.
    if (stream->hungry && stream->wanted - stream->granted > memory_free()) return;
  }
}

void Mover::drop_buffers(Effects& effects) {
  if (dropping_ || cache_->leaving_bytes() == 0) return;
  dropping_ = true;
  effects.push_back(JobEffect{token_of(Service::mover, drop_number), [cache = cache_]() -> Status {
                                cache->drop_leaving();
                                return {};
                              }});
}

Status Mover::spend(Stream& stream, std::uint64_t charge) {
  if (charge > stream.granted - stream.spent)
    return fail(Error::protocol, "the batch was charged {} bytes, the stream's credit is {}", charge,
                stream.granted - stream.spent);
  stream.spent += charge;
  counters_.promised_bytes -= charge;
  stream.account->promised_bytes -= charge;
  return {};
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
  operation.failed = operation.arrow = false;
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
  spare_.push_back(operation->place);
}

void Mover::send(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  if (auto status = wire::decode(request.payload, send_); !status) {
    effects.push_back(FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, send_.stream, request.ticket, effects);
  if (stream == nullptr) return;
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::send;
  operation.row_key = send_.row_key;
  operation.column_key = send_.column_key;
  operation.rows = send_.rows;
  ++counters_.sends;
  ++stream->sent;
  queue(operation, take_set(*stream, operation), request.payload, now, effects);
}

// What is remembered is what the ring's order says, whenever the request is planned.
Status Mover::take_set(Stream& stream, Operation& operation) {
  if (send_.set == 0) return {};
  stream.sets.resize(wire::sets_max);
  std::shared_ptr<BufferSet>& set = stream.sets[send_.set - 1];
  if (!send_.buffers.empty()) {
    std::uint64_t& taken = stream.channel->sets_bytes;
    const std::uint64_t without = taken - (set ? wire::set_bytes(set->buffers.size()) : 0);
    const std::uint64_t with = without + wire::set_bytes(send_.buffers.size());
    if (with > wire::sets_bytes_max)
      return fail(Error::too_large, "sets of buffers of {} bytes on this channel, at most {} are allowed", with, wire::sets_bytes_max);
    taken = with;
    set = std::make_shared<BufferSet>();
    set->rows = send_.rows;
    set->buffers = send_.buffers;
  }
  if (!set) return fail(Error::invalid, "set {} of buffers was never named", send_.set);
  if (set->rows != send_.rows) return fail(Error::invalid, "{} rows; set {} was named with {}", send_.rows, send_.set, set->rows);
  operation.set = set;
  return {};
}

void Mover::move(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  if (auto status = wire::decode(request.payload, move_); !status) {
    effects.push_back(FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
    return;
  }
  Stream* stream = stream_of(channel, move_.stream, request.ticket, effects);
  if (stream == nullptr) return;
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = move_.update ? Operation::Kind::update : Operation::Kind::create;
  operation.row_key = move_.row_key;
  operation.column_key = move_.column_key;
  ++counters_.moves;
  ++stream->sent;
  queue(operation, {}, request.payload, now, effects);
}

void Mover::step_end(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::StepEnd step{};
  if (auto status = wire::decode(request.payload, step); !status) {
    effects.push_back(FailEffect{channel.number, request.ticket, wire::any_reply, std::move(status).error()});
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

// send_ or move_ is what `request` says. Nothing is planned or taken before it may be pulled.
void Mover::queue(Operation& operation, Status taken, Bytes request, TimeNs now, Effects& effects) {
  Stream& stream = *operation.stream;
  Channel& channel = *stream.channel;
  if (!taken) {
    fail_operation(operation, std::move(taken).error(), effects);
    settle(stream, now, effects);
  } else if (channel.waiting.empty() && channel.may_pull()) {
    start(operation, now, effects);
  } else {
    operation.request.assign(request.begin(), request.end());
    channel.waiting_bytes += waiting_cost(request.size());
    waiting_bytes_ += waiting_cost(request.size());
    channel.waiting.push_back(&operation);
  }
}

void Mover::start_waiting(Channel& channel, TimeNs now, Effects& effects) {
  while (!channel.waiting.empty() && channel.may_pull()) {
    Operation& operation = *channel.waiting.front();
    channel.waiting.pop_front();
    channel.waiting_bytes -= waiting_cost(operation.request.size());
    waiting_bytes_ -= waiting_cost(operation.request.size());
    const Status decoded = operation.kind == Operation::Kind::send ? wire::decode(operation.request, send_)
                                                                   : wire::decode(operation.request, move_);
    OFP_ASSERT(decoded);  // as it did when it came
    start(operation, now, effects);
  }
}

bool Mover::is_full(ChannelNumber number) const noexcept {
  if (waiting_bytes_ < options_.waiting_bytes_max) return false;
  const auto at = channels_.find(number);
  return at != channels_.end() && at->second->waiting_bytes >= options_.waiting_bytes_max;
}

Status Mover::plan_request(Stream& stream, Operation& operation) {
  const bool send = operation.kind == Operation::Kind::send;
  OFP_TRY(spend(stream, send ? send_.charge : move_.charge));
  if (!send) return plan_move(stream, operation);
  return stream.form ? plan_send(stream, operation) : plan_plain(stream, operation);
}

// Of the request in send_ or move_.
void Mover::start(Operation& operation, TimeNs now, Effects& effects) {
  Stream& stream = *operation.stream;
  Status planned = plan_request(stream, operation);
  grant(stream, effects);
  if (!planned) {
    fail_operation(operation, std::move(planned).error(), effects);
    settle(stream, now, effects);
    return;
  }
  operation.state = Operation::State::pulling;
  stream.bytes += operation.bytes;
  counters_.bytes += operation.bytes;
  ++stream.channel->pulls;
  stream.channel->pulling_bytes += operation.bytes;
  effects.push_back(PullEffect{stream.channel->number, token_of(Service::mover, operation.number), std::move(operation.pieces)});
  operation.pieces = {};
  if (operation.buffer) prepare_buffer(stream, operation.buffer.length(), effects);
}

void Mover::fail_operation(Operation& operation, Failure failure, Effects& effects) {
  operation.failed = true;
  operation.state = Operation::State::over;
  ++counters_.failures;
  if (operation.stream == nullptr) return;
  effects.push_back(FailEffect{operation.stream->channel->number, operation.ticket, operation.stream->id,
                               {failure.code, fmt::format("stream \"{}\" ({}, {}): {}", operation.stream->name,
                                                          operation.row_key, operation.column_key, failure.message)}});
}

void Mover::on_transfer(ChannelNumber, std::uint64_t token, Status status, TimeNs now, Effects& effects) {
  Operation* const found = find_operation(token);
  if (found == nullptr || found->stream == nullptr) return;
  Operation& operation = *found;
  operation.pulled_at = now;
  counters_.pull_ns += static_cast<std::uint64_t>(now - operation.began);
  Channel& channel = *operation.stream->channel;
  --channel.pulls;
  channel.pulling_bytes -= operation.bytes;
  if (status) {
    operation.state = Operation::State::finishing;
    // At once where the next request waits: it is to have the buffer that the finished frame gives back.
    if (channel.waiting.empty()) pulled_.push_back(token);
    else finish(operation, now, effects);
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

// What is left to do when the bytes have arrived: at once if it is little, in a job if it is much.
void Mover::finish(Operation& operation, TimeNs now, Effects& effects) {
  std::uint64_t changed = 0;
  if (operation.placed()) {
    changed = operation.plan().scratch_bytes;
    for (const frame::Step& step : operation.plan().steps)
      changed += step.kind == frame::StepKind::shift_bits || step.kind == frame::StepKind::count_nulls ? step.count / 8
                                                                                                     : step.count * 8;
  }
  if (operation.serialiser == nullptr && operation.packing == nullptr && changed <= options_.inline_bytes_max) {
    finished(operation, finish_bytes(operation, *cache_), now, effects);
    return;
  }
  effects.push_back(JobEffect{token_of(Service::mover, operation.number),
                              [&operation, cache = cache_] { return finish_bytes(operation, *cache); }});
}

// Touches nothing but the operation: it may run in a job.
Status Mover::finish_bytes(Operation& operation, BufferCache& cache) {
  if (operation.kind == Operation::Kind::update) return {};
  if (operation.placed()) {
    const MutableBytes frame = operation.buffer.bytes();
    const frame::Plan& plan = operation.plan();
    if (plan.scratch_bytes > 0) frame::split_blocks(plan, operation.scratch.bytes(), frame);
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
  operation.frame->rows = operation.rows;
  operation.frame->arrow = operation.placed() || operation.arrow;
  return operation.packing ? pack(operation, cache) : Status{};
}

// The frame in memory of the size it needs. One of which nothing became smaller stays as it is, in its pages; so does one
// that would have more bytes than before, so none outgrows its charge.
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

void Mover::finished(Operation& operation, Status status, TimeNs now, Effects& effects) {
  counters_.finish_ns += static_cast<std::uint64_t>(now - operation.pulled_at);
  Stream& stream = *operation.stream;
  if (status && operation.kind != Operation::Kind::update) {
    counters_.rows += operation.rows;
    ++counters_.frames;
    if (operation.packing) {
      ++counters_.packed_frames;
      counters_.plain_bytes += operation.plan().frame_bytes;
      counters_.packed_bytes += operation.frame->bytes;
      counters_.pack_ns += static_cast<std::uint64_t>(now - operation.pulled_at);
    }
    status = store_.put({stream.pool, operation.row_key, operation.column_key, operation.user, stream.keep, stream.ranks > 0},
                        std::move(operation.frame), now, effects);
  }
  if (status) operation.state = Operation::State::over;
  else fail_operation(operation, std::move(status).error(), effects);
}

// Moves `pulled` over operations whose bytes have arrived, `stored` over those that are done.
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
    if (first->kind == Operation::Kind::step_end)
      store_.end_step(stream.pool, first->row_key, stream.rank, std::max(stream.ranks, 1u), now, effects);
    if (first->kind == Operation::Kind::close) {
      close = true;
      close_ticket = first->ticket;
    }
    stored = first->ticket;
    memory_freed |= first->failed;
    stream.operations.pop_front();
    recycle(first);
  }
  if (pulled != stream.pulled) effects.push_back(LineEffect{LineEffect::Word::pulled, channel.number, stream.id, pulled});
  if (stored != stream.stored) effects.push_back(LineEffect{LineEffect::Word::stored, channel.number, stream.id, stored});
  stream.pulled = pulled;
  stream.stored = stored;
  if (close) {
    effects.push_back(ReplyEffect{channel.number, close_ticket, wire::Done{0}});
    release(channel, stream.id);
    memory_freed = true;
  }
  if (memory_freed) on_memory_freed(effects);
}

std::vector<Mover::StreamStatus> Mover::streams() const {
  std::vector<StreamStatus> all;
  for (const auto& [number, channel] : channels_)
    for (const auto& stream : channel->streams)
      if (stream)
        all.push_back({stream->name, channel->client.program, stream->pool, stream->destination,
                       stream->packing ? stream->packing->form->compression : Compression::none, stream->rows_max,
                       stream->sent, stream->bytes, stream->pulled, stream->stored, stream->granted - stream->spent});
  return all;
}

}  // namespace offpath::mover
