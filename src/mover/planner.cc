#include "mover/planner.h"

#include <algorithm>

#include "mover/credit.h"
#include "mover/operation.h"
#include "wire/limits.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"
#include "wire/stale_range.h"

namespace offpath::mover {

using wire::BufferRef;
using wire::RegionId;

namespace {

constexpr std::uint64_t slice_bytes = 256 << 10;  // of records that are not read at once; split by the loop itself
constexpr std::uint64_t whole_ratio_max = 4;      // largest ratio of records that are read at once to the frame made of
                                                  // them
static_assert(8 * (frame::row_bytes_max + page_bytes) <= slice_bytes, "a slice makes progress, by 8 rows for booleans");

Status check_ref(const BufferRef& ref, std::size_t index) {
  std::uint64_t end = 0;
  if ((ref.region & ~wire::segment_flag) >= wire::regions_max || !checked_add(ref.offset, ref.length, end) ||
      end > wire::region_bytes_max)
    return fail(Error::invalid, "buffer {}: region {:#x}, offset {}, length {} is out of bounds", index, ref.region,
                ref.offset, ref.length);
  return {};
}

}  // namespace

Planner::Planner(const MoverOptions& options, BufferCache& cache, Store& store, const Credit& credit)
    : options_(options), cache_(cache), store_(store), credit_(credit) {}

// Buffer sets are remembered in ring order, even when a request is planned later.
Status Planner::take_set(Stream& stream, Operation& operation) {
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

Status Planner::plan(const Stream& stream, Operation& operation) {
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

Status Planner::take_buffer(const Stream& stream, Operation& operation, std::uint64_t bytes, std::uint64_t charge) {
  if (bytes > charge) return fail(Error::invalid, "the batch needs {} bytes here, but was charged {}", bytes, charge);
  const uid_t user = stream.channel->client.user;
  // Readers that map an object made by a create of bytes see its updates; readers that get it enclosed have a copy.
  const bool mapped = operation.kind == Operation::Kind::create && bytes > wire::enclosed_bytes_max;
  OFP_ASSIGN(operation.buffer, mapped ? cache_.take_file(bytes, user) : cache_.take(bytes, user));
  return {};
}

// Fills view_ with the request's description of the batch, in the form that frame::make_plan needs.
//
// frame::make_plan works on addresses. A buffer of another process has none here: the plan uses its region as the
// memory, and its offset as the address.
Status Planner::view_of(const Stream& stream) {
  const frame::Layout& layout = stream.form->layout;
  const auto rows = static_cast<std::int64_t>(send_.rows);
  if (send_.rows > stream.rows_max)
    return fail(Error::too_large, "{} rows; the stream has rows_max {}", send_.rows, stream.rows_max);
  for (std::size_t i = 0; i < send_.buffers.size(); ++i) OFP_TRY(check_ref(send_.buffers[i], i));
  if (!send_.nodes.empty()) {
    view_.rows = rows;
    view_.nodes.clear();
    for (const wire::Node& node : send_.nodes) view_.nodes.push_back({node.length, node.null_count});
    view_.buffers.clear();
    for (const BufferRef& ref : send_.buffers) {
      frame::BufferSource source{.address = ref.offset,
                                 .bytes = ref.length,
                                 .stride_bytes = ref.stride_bytes,
                                 .bit_offset = ref.bit_offset,
                                 .memory = ref.region};
      std::copy(std::begin(ref.zero), std::end(ref.zero), std::begin(source.zero));
      view_.buffers.push_back(source);
    }
    return {};
  }
  if (send_.buffers.size() != layout.columns.size())
    return fail(Error::schema, "{} columns; the schema has {}", send_.buffers.size(), layout.columns.size());
  plain_.clear();
  for (const BufferRef& ref : send_.buffers)
    plain_.push_back({.address = ref.offset, .stride_bytes = ref.stride_bytes, .memory = ref.region});
  OFP_TRY(frame::flatten_plain(layout, rows, plain_, view_));
  // The number of rows gives the length of each column; the request must agree.
  std::size_t column = 0;
  for (const frame::BufferSource& source : view_.buffers) {
    if (source.bytes == 0) continue;
    while (column < send_.buffers.size() && send_.buffers[column].length == 0) ++column;
    if (column == send_.buffers.size() || send_.buffers[column].length != source.bytes)
      return fail(Error::schema, "a column of {} rows has {} bytes, but the request says {}", rows, source.bytes,
                  column < send_.buffers.size() ? send_.buffers[column].length : 0);
    ++column;
  }
  return {};
}

// Pulls and blocks of the plan as pieces of a read, each with the region and generation from the request.
Status Planner::pieces_of(Operation& operation, std::span<const BufferRef> refs) {
  const frame::Plan& plan = operation.plan();
  std::size_t at = 0;  // pulls come in the order of the buffers: the search continues where the last one ended
  const auto generation_of = [&](RegionId region) {
    for (std::size_t tried = 0; tried < refs.size(); ++tried, at = at + 1 < refs.size() ? at + 1 : 0)
      if (refs[at].region == region && refs[at].length != 0) return refs[at].generation;
    OFP_ASSERT(!"a plan names only regions of its request");
    return 0u;
  };
  operation.pieces.clear();
  const bool unshared = !operation.buffer.is_shared();
  for (const frame::Pull& pull : plan.pulls) {
    operation.pieces.push_back({pull.memory, generation_of(pull.memory), pull.address,
                                operation.buffer.data() + pull.target, pull.bytes, unshared});
  }
  operation.sources.clear();
  operation.slices.clear();
  operation.next_block = 0;
  operation.next_row = 0;
  for (const frame::Block& block : plan.blocks) {
    const RegionId region = block.memory;
    const std::uint32_t generation = generation_of(region);
    // A block stands for several buffers, which must all name the same memory.
    for (const BufferRef& ref : refs)
      if (ref.stride_bytes != 0 && ref.region == region && ref.generation != generation)
        return wire::two_generations(region, generation, ref.generation);
    operation.sources.push_back({region, generation});
  }
  if (plan.blocks.empty()) return {};
  OFP_ASSIGN(operation.scratch, cache_.take(scratch_bytes_for(operation), operation.user));
  operation.next_slices();
  return {};
}

// All records at once if they are about as large as the resulting frame and there is memory for both: then the program
// has its arrays back before they are split. Otherwise slice by slice, so that scratch is small for any stride.
// Scattered records are packed there, so they never take their whole span.
std::uint64_t Planner::scratch_bytes_for(const Operation& operation) const {
  const frame::Plan& plan = operation.plan();
  const bool apart = std::ranges::any_of(plan.blocks, &frame::Block::apart);
  const bool small = plan.scratch_bytes <= slice_bytes;
  const bool whole = !apart && (small || (plan.scratch_bytes / whole_ratio_max <= plan.frame_bytes &&
                                          plan.scratch_bytes <= credit_.memory_free_for(operation.user)));
  if (whole) return plan.scratch_bytes;
  std::uint64_t read = 0;
  for (const frame::Block& block : plan.blocks) read += align_up(block.read_bytes(block.rows), plain_alignment);
  return std::min(read, slice_bytes);
}

Status Planner::plan_send(const Stream& stream, Operation& operation) {
  if (BufferSet* set = operation.set.get(); set == nullptr || !set->planned) {
    if (set != nullptr) send_.buffers = set->buffers;
    OFP_TRY(view_of(stream));
    const frame::PlanLimits limits{
        .rows_max = static_cast<std::int64_t>(std::min<std::uint64_t>(stream.rows_max, INT64_MAX)),
        .frame_bytes_max = options_.memory_bytes_max};
    OFP_TRY(frame::make_plan(*stream.form, view_, limits, operation.own_plan));
    if (set != nullptr && operation.own_plan.steps.empty()) {
      set->plan = operation.own_plan;
      set->planned = true;
    }
  }
  operation.planned_with_set = operation.set != nullptr && operation.set->planned;
  operation.bytes = operation.plan().pulled_bytes;
  OFP_TRY(take_buffer(stream, operation, operation.plan().frame_bytes, send_.charge));
  return pieces_of(operation, operation.set ? operation.set->buffers : send_.buffers);
}

// Plain bytes, one buffer after another at multiples of 64.
Status Planner::plan_plain(const Stream& stream, Operation& operation) {
  if (operation.set) send_.buffers = operation.set->buffers;
  if (stream.rows_max > 0 && send_.rows > stream.rows_max)
    return fail(Error::too_large, "{} rows; the stream has rows_max {}", send_.rows, stream.rows_max);
  if (stream.destination == wire::Destination::serialised && send_.buffers.size() != 1)
    return fail(Error::invalid, "destination serialised takes one buffer, not {}", send_.buffers.size());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < send_.buffers.size(); ++i) {
    const BufferRef& ref = send_.buffers[i];
    OFP_TRY(check_ref(ref, i));
    bytes = align_up(bytes, plain_alignment) + ref.length;
    operation.bytes += ref.length;
    if (bytes > options_.memory_bytes_max)
      return fail(Error::too_large,
                  "the batch has more than {} bytes, which is all of the agent's memory for frames (memory.bytes_max)",
                  options_.memory_bytes_max);
  }
  OFP_TRY(take_buffer(stream, operation, bytes, send_.charge));
  operation.arrow = stream.destination == wire::Destination::serialised;
  operation.pieces.clear();
  std::uint64_t at = 0;
  for (const BufferRef& ref : send_.buffers) {
    const std::uint64_t aligned = align_up(at, plain_alignment);
    std::memset(operation.buffer.data() + at, 0, aligned - at);  // hides bytes of an earlier frame
    operation.pieces.push_back({ref.region, ref.generation, ref.offset, operation.buffer.data() + aligned, ref.length,
                                !operation.buffer.is_shared()});
    at = aligned + ref.length;
  }
  return {};
}

Status Planner::plan_move(const Stream& stream, Operation& operation) {
  std::byte* target = nullptr;
  std::uint64_t object_bytes = move_.object_bytes;
  if (move_.update) {
    OFP_ASSIGN(operation.frame, store_.find(stream.pool, operation.row_key, operation.column_key, operation.user));
    if (!operation.frame->updatable)
      return fail(Error::unsupported,
                  "object ({}, {}) was not made by a create of bytes (OFP_MOVE_CREATE), and only such objects are "
                  "updated in place; "
                  "put it again",
                  brief(operation.row_key), brief(operation.column_key));
    target = operation.frame->buffer.data();
    object_bytes = operation.frame->bytes;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (std::size_t i = 0; i < move_.pieces.size(); ++i) {
    const wire::MovePiece& piece = move_.pieces[i];
    OFP_TRY(check_ref(piece.source, i));
    std::uint64_t end = 0;
    if (!checked_add(piece.target_offset, piece.source.length, end) || end > object_bytes)
      return fail(Error::too_large, "piece {}: offset {} and {} bytes reach beyond the object's {} bytes", i,
                  piece.target_offset, piece.source.length, object_bytes);
    spans.emplace_back(piece.target_offset, end);
    operation.bytes += piece.source.length;
  }
  std::ranges::sort(spans);
  for (std::size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second)
      return fail(Error::invalid, "two pieces overlap at byte {} of the object", spans[i].first);
  if (!move_.update) {
    OFP_TRY(take_buffer(stream, operation, object_bytes, move_.charge));
    target = operation.buffer.data();
    operation.uncovered.clear();
    std::uint64_t at = 0;
    for (const auto& [begin, end] : spans) {
      if (begin > at) operation.uncovered.push_back({at, begin - at});
      at = end;
    }
    if (at < object_bytes) operation.uncovered.push_back({at, object_bytes - at});
  }
  operation.pieces.clear();
  const bool unshared = !move_.update && !operation.buffer.is_shared();
  for (const wire::MovePiece& piece : move_.pieces)
    operation.pieces.push_back({piece.source.region, piece.source.generation, piece.source.offset,
                                target + piece.target_offset, piece.source.length, unshared});
  return {};
}

// For columns of fixed width; 0 if the number of rows does not give the size.
std::uint64_t Planner::largest_frame_bytes(const Stream& stream) {
  const frame::Layout& layout = stream.form->layout;
  if (!layout.fixed || stream.rows_max > INT64_MAX) return 0;
  plain_.assign(layout.columns.size(), {.address = page_bytes});  // any address: only lengths matter here
  frame::Plan plan;
  if (!frame::flatten_plain(layout, static_cast<std::int64_t>(stream.rows_max), plain_, view_)) return 0;
  return frame::make_plan(*stream.form, view_, {}, plan) ? plan.frame_bytes : 0;
}

}  // namespace offpath::mover
