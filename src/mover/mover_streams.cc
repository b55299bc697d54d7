// The mover's streams: opening, growing and closing.
#include <algorithm>
#include <utility>

#include "mover/mover.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

using wire::Compression;
using wire::Destination;

namespace {

std::uint64_t charge_base_of(const frame::Template* form) {
  if (form == nullptr) return page_bytes;
  std::uint64_t bytes = align_up(form->schema_message.size(), page_bytes) + page_bytes;
  for (const frame::Prototype& prototype : form->prototypes)
    bytes += align_up(prototype.metadata.size() + 64, page_bytes);
  return bytes;
}

}  // namespace

Status Mover::prepare_stream(const wire::OpenStream& open, const Channel& channel, Stream& stream, Effects& effects) {
  if (open.stream >= channel.streams.size())
    return fail(Error::invalid, "stream number {}; the channel has {}", open.stream, channel.streams.size());
  if (channel.streams[open.stream]) return fail(Error::exists, "stream number {} is open already", open.stream);
  if (counters_.streams_open >= options_.streams_max)
    return fail(Error::too_large, "{} streams are open on this agent, which is its limit", counters_.streams_open);
  if (const uid_t user = channel.client.user; credit_.streams_of(user) >= options_.user_streams_max)
    return fail(Error::too_large,
                "{} streams of user {} are open, which is the limit of each user (limits.user_streams_max)",
                credit_.streams_of(user), user);
  if (open.name.empty()) return fail(Error::invalid, "a stream needs a name");
  if (open.ranks > 0 && open.rank >= open.ranks)
    return fail(Error::invalid, "stream \"{}\": rank {} of {} ranks", open.name, open.rank, open.ranks);
  if (const auto taken = names_.find({channel.client.user, std::string(open.name), open.rank}); taken != names_.end()) {
    const Client& other = channels_.at(taken->second)->client;
    return fail(Error::exists, "stream \"{}\"{} is open already, by {} (process {})", open.name,
                open.ranks > 0 ? fmt::format(" of rank {}", open.rank) : "", other.program, other.pid);
  }
  stream.id = open.stream;
  stream.name = open.name;
  stream.destination = open.destination;
  stream.rows_max = open.rows_max;
  stream.keep = open.keep;
  stream.ranks = open.ranks;
  stream.rank = open.rank;
  if (open.compression != Compression::none && open.destination != Destination::ipc &&
      open.destination != Destination::ipc_page)
    return fail(Error::unsupported,
                "stream \"{}\": compression {} with destination {}; frames of ipc and ipc-page are compressed",
                open.name, wire::compression_name(open.compression), wire::destination_name(open.destination));
  OFP_ASSIGN(stream.pool, store_.admit(std::string(open.pool), channel.client.user, effects));
  if (open.destination == Destination::native || open.destination == Destination::serialised) {
    stream.charge_base = charge_base_of(nullptr);  // plain bytes: a schema would not describe them
    return {};
  }
  if (open.schema.empty())
    return fail(Error::schema, "stream \"{}\": destination {} needs a schema", open.name,
                wire::destination_name(open.destination));
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
    case Destination::arrays:
    case Destination::record_batch:
    case Destination::c_abi:
    case Destination::agent_serialise: {
      OFP_ASSIGN(stream.serialiser,
                 make_agent_serialiser(open.destination, stream.form,
                                       std::min(options_.memory_bytes_max, options_.user_bytes_max)));
      return {};
    }
    default:
      return {};
  }
}

Status Mover::open_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::OpenStream open{};
  auto stream = std::make_unique<Stream>();
  Status status = wire::decode(request.payload, open);
  if (status) status = prepare_stream(open, channel, *stream, effects);
  if (!status) {
    if (!stream->pool.empty()) store_.leave(stream->pool);
    return status;
  }
  stream->channel = &channel;
  stream->recent = RateRing(now);
  if (stream->ranks > 1) store_.rank_began(stream->pool, stream->rank);
  names_.emplace(Claim{channel.client.user, stream->name, stream->rank}, channel.number);
  ++counters_.streams_open;
  const std::uint64_t largest = stream->form ? planner_.largest_frame_bytes(*stream) : 0;
  effects.push_back(service::LineEffect{service::LineEffect::Word::reset, channel.number, stream->id, 0});
  credit_.open(*stream, largest, effects);
  effects.push_back(
      service::ReplyEffect{channel.number, request.ticket, wire::Opened{stream->id, stream->charge_base}});
  Stream& opened = *(channel.streams[stream->id] = std::move(stream));
  if (opened.form) prepare_buffer(opened, largest, effects);
  return {};
}

// Batches that wait to be planned are planned with the new limit. Those under way have their plans and buffers.
Status Mover::grow_stream(Channel& channel, const channel::Entry& request, Effects& effects) {
  wire::GrowStream grow{};
  OFP_TRY(wire::decode(request.payload, grow));
  Stream* stream = stream_of(channel, grow.stream, request.ticket, effects);
  if (stream == nullptr) return {};
  // Streams of plain bytes that were opened with rows_max 0 have no limit.
  if (stream->rows_max != 0 && grow.rows_max > stream->rows_max) {
    stream->rows_max = grow.rows_max;
    const std::uint64_t largest = stream->form ? planner_.largest_frame_bytes(*stream) : 0;
    credit_.widen(*stream, largest, effects);
    if (stream->form) prepare_buffer(*stream, largest, effects);
  }
  effects.push_back(service::ReplyEffect{channel.number, request.ticket, wire::Done{stream->rows_max}});
  return {};
}

// Makes the next batch's buffer in a job, before it is needed.
void Mover::prepare_buffer(Stream& stream, std::uint64_t bytes, Effects& effects) {
  const uid_t user = stream.channel->client.user;
  if (bytes == 0 || bytes > options_.prepared_bytes_max || stream.preparing || cache_->has_free(bytes, user)) return;
  stream.preparing = true;
  const std::uint64_t number = preparation_flag | next_preparation_++;
  preparing_.emplace(number, std::pair{stream.channel->number, stream.id});
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::mover, number),
                                       [cache = cache_, bytes, user] { return cache->prepare(bytes, user); }});
}

void Mover::drop_buffers(Effects& effects) {
  if (dropping_ || cache_->leaving_bytes() == 0) return;
  dropping_ = true;
  effects.push_back(
      service::JobEffect{service::token_of(service::ServiceId::mover, drop_number), [cache = cache_]() -> Status {
                           cache->drop_leaving();
                           return {};
                         }});
}

Status Mover::close_stream(Channel& channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::CloseStream close{};
  OFP_TRY(wire::decode(request.payload, close));
  Stream* stream = stream_of(channel, close.stream, request.ticket, effects);
  if (stream == nullptr) return {};
  Operation& operation = begin(*stream, request.ticket, now);
  operation.kind = Operation::Kind::close;
  operation.state = Operation::State::waiting;
  stream->closing = true;
  settle(*stream, now, effects);
  return {};
}

void Mover::release(Channel& channel, std::uint32_t number, TimeNs now) {
  Stream& stream = *channel.streams[number];
  for (Operation* operation : stream.operations) {
    credit_.end_claim(*operation);
    operation->stream = nullptr;
    if (operation->state != Operation::State::finishing) recycle(operation);  // otherwise its job still runs
  }
  for (const auto& set : stream.sets)
    if (set) channel.sets_bytes -= wire::set_bytes(set->buffers.size());
  names_.erase(Claim{channel.client.user, stream.name, stream.rank});
  if (stream.ranks > 1) store_.rank_ended(stream.pool, stream.rank, channel.client);
  store_.leave(stream.pool);
  credit_.close(stream, now);
  --counters_.streams_open;
  channel.streams[number].reset();
}

}  // namespace offpath::mover
