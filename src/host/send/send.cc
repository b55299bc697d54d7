// Sending: from the program's arrays to a request that names them.
//
// send_columns with arrays that are announced is the way simulations take: no allocation, no system call, one lock.
// Everything else goes through post_sources.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "frame/gather.h"
#include "host/send/stream.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::host {

using wire::BufferRef;
using wire::EntryKind;

namespace {

constexpr std::uint64_t copy_alignment = StagedBytes::alignment;

std::uintptr_t address_of(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

std::uint64_t charge_of(std::uint64_t bytes) noexcept { return wire::charge_of_buffer(bytes); }

// HostEnd::post_data for a send that waits: the user gets the reason of the wait, and requested credit is left to
// others when the send gives up.
Result<std::uint64_t> post_waiting(HostEnd& end, HostEnd::Posting& posting, std::string_view stream, EntryKind kind,
                                   std::uint32_t number, Bytes payload, std::uint64_t charge, std::uint64_t bytes,
                                   std::span<const HostEnd::RangeName> uses, TimeNs deadline) {
  const TimeNs silent_until = std::min(deadline, end.now() + silent_ns);
  auto ticket = end.post_data(posting, kind, number, payload, charge, bytes, uses, silent_until);
  if (!ticket && ticket.error().code == Error::timeout && silent_until < deadline) {
    log(LogLevel::warning, "stream \"{}\": a send has waited {} s and still waits: {}", stream, silent_ns / second_ns,
        ticket.error().message);
    ticket = end.post_data(posting, kind, number, payload, charge, bytes, uses, deadline);
  }
  if (!ticket) end.give_up_credit(posting, number);
  return ticket;
}

}  // namespace

Status Stream::check(const SendRequest& request) const {
  const std::uint64_t rows_max = rows_max_.load(std::memory_order_relaxed);
  if (rows_max != 0 && request.rows > rows_max) [[unlikely]]
    return fail(Error::too_large, "{} rows; stream \"{}\" has rows_max {}, which may grow", request.rows, name_,
                rows_max);
  if (request.rows > wire::region_bytes_max) [[unlikely]]
    return fail(Error::too_large, "{} rows; a batch has at most {}", request.rows, wire::region_bytes_max);
  return {};
}

// ---- columns

Result<std::uint64_t> Stream::send_columns(const void* const* data, std::span<const std::uint32_t> strides,
                                           const SendRequest& request) {
  OFP_TRY(connection_->here());
  if (!not_plain_.empty()) [[unlikely]]
    return fail(Error::schema, "stream \"{}\": {}", name_, not_plain_);
  OFP_TRY(check(request));
  if (!strides.empty()) {
    OFP_TRY(check_strides(strides));
  } else {
    strides = strides_;
  }
  if (!copies(request.flags)) [[likely]]
    return post_columns(data, strides.data(), request);

  std::vector<Source> sources;
  std::uint64_t charge = charge_base_ + wire::charge_of_keys(request.row_key, request.column_key);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const ColumnShape& column = columns_[i];
    const std::uint32_t stride = strides[i] == column.row_bytes && !column.boolean ? 0 : strides[i];
    const std::uint64_t span = column.span_bytes(request.rows, stride);
    if (data[i] == nullptr && span > 0)
      return fail(Error::invalid, "column \"{}\" is NULL, for {} rows", column.name, request.rows);
    charge += charge_of(bytes_as_they_are() ? span : column.dense_bytes(request.rows));
    sources.push_back({data[i], span, stride, column.value_bytes, request.rows, 0});
  }
  const Build build = [&](std::span<const BufferRef> names, std::vector<std::byte>& payload) {
    wire::Send send{
        number_, charge, request.rows, request.row_key, request.column_key, {}, {names.begin(), names.end()}};
    wire::encode(send, payload);
  };
  return post_sources({EntryKind::send, sources, charge, request.flags, request.deadline}, build,
                      [&](std::size_t i) { return fmt::format("column \"{}\"", columns_[i].name); });
}

// Composes the payload from the columns as they lie. With Error::unannounced it names the first such column.
Result<Stream::Composed> Stream::name_columns(Posting& posting, const void* const* data, const std::uint32_t* strides,
                                              const SendRequest& request, std::uint32_t set, std::size_t& unannounced) {
  HostEnd& end = connection_->end;
  const std::size_t count = columns_.size();
  end.expect(posting,
             sizeof(wire::SendHead) + request.row_key.size() + request.column_key.size() + count * sizeof(BufferRef));
  const bool as_they_are = bytes_as_they_are();
  std::uint64_t charge = charge_base_, span_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const ColumnShape& column = columns_[i];
    const std::uint32_t stride = strides[i] == column.row_bytes && !column.boolean ? 0 : strides[i];
    const std::uint64_t span = column.span_bytes(request.rows, stride);
    if (span == 0) [[unlikely]] {
      scratch_.names[i] = {};
      continue;
    }
    if (data[i] == nullptr) [[unlikely]]
      return fail(Error::invalid, "column \"{}\" is NULL, for {} rows", column.name, request.rows);
    if (!end.name_again(posting, data[i], span, scratch_.hints[i], scratch_.names[i])) [[unlikely]] {
      auto named = end.name_memory(posting, data[i], span, scratch_.hints[i]);
      if (!named) {
        unannounced = i;
        return fail(named.error().code, "column \"{}\": {}", column.name, named.error().message);
      }
      scratch_.names[i] = *named;
    }
    scratch_.names[i].stride_bytes = stride;
    span_bytes += span;
    charge += charge_of(as_they_are ? span : column.dense_bytes(request.rows));
  }
  channel::find_uses(scratch_.names, scratch_.uses);
  return Composed{compose(request, scratch_.names, set, charge), scratch_.uses, charge, span_bytes};
}

Bytes Stream::compose(const SendRequest& request, std::span<const BufferRef> names, std::uint32_t set,
                      std::uint64_t charge) {
  const wire::SendHead head{static_cast<std::uint16_t>(number_),
                            0,
                            static_cast<std::uint16_t>(names.size()),
                            static_cast<std::uint16_t>(set),
                            static_cast<std::uint32_t>(request.row_key.size()),
                            static_cast<std::uint32_t>(request.column_key.size()),
                            charge + wire::charge_of_keys(request.row_key, request.column_key),
                            request.rows};
  const std::size_t bytes = sizeof head + request.row_key.size() + request.column_key.size() + names.size_bytes();
  std::vector<std::byte>& payload = scratch_.payload;
  if (bytes > payload.size()) [[unlikely]]
    payload.resize(bytes);
  wire::write_send(head, request.row_key, request.column_key, names, payload.data());
  return {payload.data(), bytes};
}

// Whether the channel has room for another set.
bool Stream::may_name(Posting& posting, std::size_t place) const {
  return connection_->end.sets_bytes(posting) - known_[place].set_bytes + wire::set_bytes(columns_.size()) <=
         wire::sets_bytes_max;
}

void Stream::remember(Posting& posting, std::size_t place, const KnownColumns::Arrays& arrays, const Composed& composed,
                      bool named) {
  KnownColumns::Record record{.epoch = connection_->end.memory_epoch(posting),
                              .rows = arrays.rows,
                              .charge = composed.charge,
                              .span_bytes = composed.span_bytes,
                              .set_bytes = known_[place].set_bytes,
                              .uses = 0,
                              .named = named};
  if (named) {
    connection_->end.sets_bytes(posting) += wire::set_bytes(columns_.size()) - record.set_bytes;
    record.set_bytes = static_cast<std::uint32_t>(wire::set_bytes(columns_.size()));
  }
  known_.remember(place, arrays, record, composed.uses);
}

// The range to announce for a column: it includes the columns that lie interleaved with it, like x, y and z of one
// array, so that the agent sees one range and reads the array once.
Stream::Extent Stream::extent_of(std::size_t column, const void* const* data, const std::uint32_t* strides,
                                 std::uint64_t rows) const {
  const auto begin_of = [&](std::size_t i) { return static_cast<const std::byte*>(data[i]); };
  const std::byte* begin = begin_of(column);
  const std::byte* end = begin + columns_[column].span_bytes(rows, strides[column]);
  for (bool grew = true; grew;) {
    grew = false;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::uint64_t span = columns_[i].span_bytes(rows, strides[i]);
      if (data[i] == nullptr || span == 0) continue;
      const std::byte* const other = begin_of(i);
      if (other >= end || other + span <= begin || (other >= begin && other + span <= end)) continue;
      begin = std::min(begin, other);
      end = std::max(end, other + span);
      grew = true;
    }
  }
  return {begin, static_cast<std::uint64_t>(end - begin)};
}

// Columns seen for the first time are named to the agent, for the second time as a set, from then on by its number:
// memory that is sent once only fills no set.
Result<std::uint64_t> Stream::post_columns(const void* const* data, const std::uint32_t* strides,
                                           const SendRequest& request) {
  HostEnd& end = connection_->end;
  Announced announced(*connection_);
  Result<std::uint64_t> ticket = 0;
  {
    Posting posting = end.begin();
    const KnownColumns::Arrays arrays{data, strides, request.rows};
    std::size_t at = known_.find(end.memory_epoch(posting), arrays);
    const bool seen = at != KnownColumns::nowhere;
    bool naming = false;
    Composed composed;
    if (seen && known_[at].named) [[likely]] {
      end.expect(posting, sizeof(wire::SendHead) + request.row_key.size() + request.column_key.size());
      const std::uint64_t charge = known_[at].charge;
      composed = {compose(request, {}, static_cast<std::uint32_t>(at + 1), charge), known_.uses(at), charge,
                  known_[at].span_bytes};
    } else {
      naming = seen && may_name(posting, at);
      OFP_ASSIGN(composed, name_announcing(posting, data, strides, request,
                                           naming ? static_cast<std::uint32_t>(at + 1) : 0, announced));
    }
    const std::uint64_t keys_charge = wire::charge_of_keys(request.row_key, request.column_key);
    ticket = end.post_data(posting, EntryKind::send, number_, composed.payload, composed.charge + keys_charge,
                           composed.span_bytes, composed.uses, 0);
    if (ticket && known_.keeps()) {
      // Only posted columns are remembered; ranges announced for this send were forgotten with the epoch before.
      if (!seen) at = known_.take_oldest();
      if (!seen || naming) remember(posting, at, arrays, composed, naming);
    }
    if (!ticket && ticket.error().code == Error::would_block && request.deadline != 0) {
      // While it waits another thread may send on this stream and give its sets to other memory: names and payload are
      // this send's own.
      OFP_ASSIGN(composed, name_announcing(posting, data, strides, request, 0, announced));
      const std::vector<std::byte> own_payload(composed.payload.begin(), composed.payload.end());
      const std::vector<HostEnd::RangeName> own_uses(composed.uses.begin(), composed.uses.end());
      ticket = post_waiting(end, posting, name_, EntryKind::send, number_, own_payload, composed.charge + keys_charge,
                            composed.span_bytes, own_uses, request.deadline);
    }
    if (ticket) note(*ticket, false);
  }
  return ticket;
}

Result<Stream::Composed> Stream::name_announcing(Posting& posting, const void* const* data,
                                                 const std::uint32_t* strides, const SendRequest& request,
                                                 std::uint32_t set, Announced& announced) {
  HostEnd& end = connection_->end;
  std::size_t unannounced = 0;
  Result<Composed> named = name_columns(posting, data, strides, request, set, unannounced);
  // Announcing may release the lock, and with it the scratch memory, so all columns are named again.
  while (!named && named.error().code == Error::unannounced && (request.flags & OFP_SEND_ANNOUNCE) != 0) {
    const Extent extent = extent_of(unannounced, data, strides, request.rows);
    std::uint32_t hint = 0;
    OFP_ASSIGN(const BufferRef name, end.name_or_announce(posting, extent.begin, extent.bytes, hint, request.deadline));
    announced.add({name.region, name.generation});
    named = name_columns(posting, data, strides, request, set, unannounced);
  }
  return named;
}

// ---- batches of any schema

std::string Stream::name_of_buffer(std::size_t index) const {
  return fmt::format("column \"{}\", buffer {}", frame::path_of(layout_, layout_.buffers[index].node),
                     index - layout_.nodes[layout_.buffers[index].node].buffer);
}

Result<std::uint64_t> Stream::send_batch(const ArrowArray& batch, const SendRequest& request) {
  OFP_TRY(connection_->here());
  const std::lock_guard lock(batch_mutex_);
  StagedBytes staged(connection_->staging);
  if (layout_.gathered)
    OFP_TRY(gather(batch, request, staged));
  else
    OFP_TRY(frame::flatten(layout_, batch, view_));
  SendRequest whole = request;
  whole.rows = static_cast<std::uint64_t>(view_.rows);
  OFP_TRY(check(whole));
  std::vector<Source> sources;
  std::uint64_t charge = charge_base_ + wire::charge_of_keys(whole.row_key, whole.column_key);
  for (std::size_t i = 0; i < view_.buffers.size(); ++i) {
    const frame::BufferSource& buffer = view_.buffers[i];
    sources.push_back({reinterpret_cast<const void*>(buffer.address), buffer.bytes, 0, 0, 0, buffer.bit_offset});
    const frame::BufferKind kind = layout_.buffers[i].kind;
    const bool offsets = kind == frame::BufferKind::offsets32 || kind == frame::BufferKind::offsets64;
    charge += charge_of(std::max<std::uint64_t>(buffer.bytes, offsets ? 8 : 0));  // an empty list still has one offset
  }
  const Build build = [&](std::span<const BufferRef> names, std::vector<std::byte>& payload) {
    wire::Send send{number_, charge, whole.rows, whole.row_key, whole.column_key, {}, {names.begin(), names.end()}};
    for (const frame::NodeShape& node : view_.nodes) send.nodes.push_back({node.length, node.null_count});
    wire::encode(send, payload);
  };
  return post_sources(
      {EntryKind::send, sources, charge, request.flags, request.deadline}, build,
      [this](std::size_t i) { return name_of_buffer(i); }, staged);
}

// Fills view_ from a batch with views or runs, which are laid out in staging memory. If the other buffers are to be
// copied, it has room for them too.
Status Stream::gather(const ArrowArray& batch, const SendRequest& request, StagedBytes& staged) {
  SendRequest whole = request;
  whole.rows = static_cast<std::uint64_t>(std::max<std::int64_t>(batch.length, 0));
  OFP_TRY(check(whole));
  frame::OwnMemory counted(connection_->staging.bytes_max());
  OFP_TRY(frame::flatten(layout_, batch, view_, counted));
  std::uint64_t copied = 0;
  for (const frame::BufferSource& buffer : view_.buffers)
    if (copies(request.flags) && buffer.address != 0) copied += align_up(buffer.bytes, copy_alignment) + copy_alignment;
  if (counted.bytes() + copied == 0) return {};
  OFP_TRY(staged.reserve(counted.bytes() + copied, request.deadline));
  const Staging::Place place = staged.take(counted.bytes());
  frame::OwnMemory own(MutableBytes(place.data, place.length));
  return frame::flatten(layout_, batch, view_, own);
}

Result<std::uint64_t> Stream::move(const MoveRequest& request) {
  OFP_TRY(connection_->here());
  if (destination_ != wire::Destination::native)
    return fail(Error::invalid, "stream \"{}\" has destination {}; moves need one opened with destination native",
                name_, wire::destination_name(destination_));
  constexpr std::size_t pieces_max = (wire::entry_bytes_max - 2 * wire::key_bytes_max - 1024) / sizeof(wire::MovePiece);
  if (request.pieces.size() > pieces_max)
    return fail(Error::too_large, "{} pieces; a move has at most {}", request.pieces.size(), pieces_max);
  std::vector<Source> sources;
  for (std::size_t i = 0; i < request.pieces.size(); ++i) {
    const ofp_piece& piece = request.pieces[i];
    std::uint64_t end = 0;
    if (piece.source == nullptr && piece.length_bytes > 0) return fail(Error::invalid, "pieces[{}].source is NULL", i);
    if (!checked_add(piece.target_offset, piece.length_bytes, end) || (!request.update && end > request.object_bytes))
      return fail(Error::too_large, "pieces[{}] ends at byte {} of the object, which has {}", i, end,
                  request.object_bytes);
    sources.push_back({piece.source, piece.length_bytes, 0, 0, 0, 0});
  }
  // An update takes no memory of the agent's, but for its keys.
  const std::uint64_t charge = (request.update ? 0 : charge_base_ + charge_of(request.object_bytes)) +
                               wire::charge_of_keys(request.row_key, request.column_key);
  const Build build = [&](std::span<const BufferRef> names, std::vector<std::byte>& payload) {
    wire::Move move{number_, request.update, charge, request.object_bytes, request.row_key, request.column_key, {}};
    for (std::size_t i = 0; i < names.size(); ++i) move.pieces.push_back({names[i], request.pieces[i].target_offset});
    wire::encode(move, payload);
  };
  return post_sources({EntryKind::move, sources, charge, request.flags, request.deadline}, build,
                      [](std::size_t i) { return fmt::format("pieces[{}]", i); });
}

Result<std::uint64_t> Stream::step_end(std::string_view row_key) {
  OFP_TRY(connection_->here());
  std::vector<std::byte> payload;
  wire::encode(wire::StepEnd{number_, row_key}, payload);
  Posting posting = connection_->end.begin();
  return connection_->end.post_data(posting, EntryKind::step_end, number_, payload, 0, 0, {}, never);
}

// ---- naming and copying

Result<BufferRef> Stream::name_source(Posting& posting, const Source& source, const Request& request,
                                      Announced& announced) {
  HostEnd& end = connection_->end;
  std::uint32_t hint = 0;
  auto named = end.name_memory(posting, source.address, source.bytes, hint);
  if (!named && named.error().code == Error::unannounced && (request.flags & OFP_SEND_ANNOUNCE) != 0) {
    named = end.name_or_announce(posting, source.address, source.bytes, hint, request.deadline);
    if (named) announced.add({named->region, named->generation});
  }
  if (!named) return named;
  named->stride_bytes = source.stride_bytes;
  named->bit_offset = source.bit_offset;
  return named;
}

// Copies the chosen sources side by side into staging memory and names them there. Memory that several sources
// share, like x, y and z of one array, is copied once; sources with wide gaps between their values are gathered.
Status Stream::copy(std::span<const Source> sources, const std::vector<bool>& chosen, TimeNs deadline,
                    std::span<BufferRef> names, StagedBytes& staged) {
  struct Span {
    std::uintptr_t begin, end;
    std::uint64_t offset;
  };
  std::vector<Span> spans;
  std::uint64_t dense = 0, total = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!chosen[i]) continue;
    const std::uintptr_t begin = address_of(sources[i].address);
    spans.push_back({begin, begin + sources[i].bytes, 0});
    dense += sources[i].stride_bytes != 0 ? sources[i].values * sources[i].value_bytes : sources[i].bytes;
  }
  std::ranges::sort(spans, {}, &Span::begin);
  std::size_t kept = 0;
  for (const Span& span : spans) {
    if (kept > 0 && span.begin <= spans[kept - 1].end)
      spans[kept - 1].end = std::max(spans[kept - 1].end, span.end);
    else
      spans[kept++] = span;
  }
  spans.resize(kept);
  for (Span& span : spans) {
    span.offset = align_up(total, copy_alignment);
    total = span.offset + (span.end - span.begin);
  }
  const bool gather = total > 2 * dense + spans.size() * copy_alignment;
  if (gather) total = dense + sources.size() * copy_alignment;
  if (!staged.reserved()) OFP_TRY(staged.reserve(total, deadline));
  const Staging::Place place = staged.take(total);

  if (!gather)
    for (const Span& span : spans)
      std::memcpy(place.data + span.offset, reinterpret_cast<const void*>(span.begin), span.end - span.begin);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!chosen[i]) continue;
    const Source& source = sources[i];
    BufferRef name{.region = place.region,
                   .length = source.bytes,
                   .stride_bytes = source.stride_bytes,
                   .bit_offset = source.bit_offset};
    if (!gather) {
      const auto span = std::ranges::find_if(spans, [begin = address_of(source.address)](const Span& each) {
        return each.begin <= begin && begin < each.end;
      });
      name.offset = place.offset + span->offset + (address_of(source.address) - span->begin);
    } else {
      at = align_up(at, copy_alignment);
      name.offset = place.offset + at;
      if (source.stride_bytes == 0) {
        std::memcpy(place.data + at, source.address, source.bytes);
      } else {
        const auto* from = static_cast<const std::byte*>(source.address);
        for (std::uint64_t value = 0; value < source.values; ++value)
          std::memcpy(place.data + at + value * source.value_bytes, from + value * source.stride_bytes,
                      source.value_bytes);
        name.length = source.values * source.value_bytes;
        name.stride_bytes = source.value_bytes == 1 ? 1 : 0;  // booleans stay bytes; for others 1 says the same as 0
      }
      at += name.length;
    }
    names[i] = name;
  }
  return {};
}

Result<std::uint64_t> Stream::post_sources(const Request& request, const Build& build, const Describe& describe) {
  StagedBytes staged(connection_->staging);
  return post_sources(request, build, describe, staged);
}

Result<std::uint64_t> Stream::post_sources(const Request& request, const Build& build, const Describe& describe,
                                           StagedBytes& staged) {
  HostEnd& end = connection_->end;
  std::vector<BufferRef> names(request.sources.size());
  std::vector<bool> to_copy(request.sources.size());
  Announced announced(*connection_);
  std::uint64_t bytes = 0;
  bool copying = false;
  const bool snapshot = (request.flags & OFP_SEND_SNAPSHOT) != 0;
  {
    Posting posting = end.begin();
    for (std::size_t i = 0; i < request.sources.size(); ++i) {
      const Source& source = request.sources[i];
      bytes += source.bytes;
      if (source.bytes == 0) continue;
      if (!snapshot || staged.holds(source.address)) {
        auto named = name_source(posting, source, request, announced);
        if (!named) return fail(named.error().code, "{}: {}", describe(i), named.error().message);
        names[i] = *named;
      }
      to_copy[i] =
          !staged.holds(source.address) && (snapshot || (end.traits().staged && !wire::is_segment(names[i].region)));
      copying |= to_copy[i];
    }
  }
  const bool gathered = staged.reserved();
  // A batch leases the program's memory unless every byte of it was copied.
  bool all_copied = copying || gathered;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Source& source = request.sources[i];
    all_copied = all_copied && (source.bytes == 0 || to_copy[i] || staged.holds(source.address));
  }
  if (copying) OFP_TRY(copy(request.sources, to_copy, request.deadline, names, staged));
  std::vector<std::byte> payload;
  build(names, payload);
  std::vector<HostEnd::RangeName> uses;
  channel::find_uses(names, uses);
  Result<std::uint64_t> ticket = 0;
  {
    Posting posting = end.begin();
    if (request.deadline != 0)
      ticket = post_waiting(end, posting, name_, request.kind, number_, payload, request.charge, bytes, uses,
                            request.deadline);
    else
      ticket = end.post_data(posting, request.kind, number_, payload, request.charge, bytes, uses, 0);
    if (ticket) note(*ticket, all_copied);
  }
  if (ticket) staged.commit(number_, *ticket);
  return ticket;
}

}  // namespace offpath::host
