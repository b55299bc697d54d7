#include "mover/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "frame/parse.h"

namespace offpath::mover {

namespace {

constexpr std::size_t slice_pieces_max = 1024;  // the most that one vectored read takes

}  // namespace

void Operation::next_slices() {
  const frame::Plan& made = plan();
  const bool unshared = !scratch.is_shared();
  slices.clear();
  std::uint64_t at = 0;
  for (std::size_t read = 0; next_block < made.blocks.size();) {
    const frame::Block& block = made.blocks[next_block];
    const std::uint64_t left = block.rows - next_row, room = scratch.length() - std::min(at, scratch.length());
    if (room < block.row_bytes || read >= slice_pieces_max) break;
    std::uint64_t taken = std::min(left, (room - block.row_bytes) / block.read_stride() + 1);
    if (block.apart()) taken = std::min<std::uint64_t>(taken, slice_pieces_max - read);
    if (taken < left) taken &= ~std::uint64_t{7};
    if (taken == 0) break;
    const Source& source = sources[next_block];
    const std::uint64_t from = block.address + next_row * block.stride_bytes;
    if (block.apart()) {
      for (std::uint64_t row = 0; row < taken; ++row)
        pieces.push_back({source.region, source.generation, from + row * block.stride_bytes,
                          scratch.data() + at + row * block.row_bytes, block.row_bytes, unshared});
    } else {
      pieces.push_back(
          {source.region, source.generation, from, scratch.data() + at, block.read_bytes(taken), unshared});
    }
    if (block.apart()) read += taken;
    slices.push_back({next_block, next_row, next_row + taken, at});
    at += align_up(block.read_bytes(taken), plain_alignment);
    next_row += taken;
    if (next_row < block.rows) continue;
    ++next_block;
    next_row = 0;
  }
  OFP_ASSERT(!slices.empty());
}

void Operation::split_slices() {
  const frame::Plan& made = plan();
  for (const Slice& slice : slices) {
    const frame::Block& block = made.blocks[slice.block];
    frame::split_rows(made, block, slice.row_begin, slice.row_end, scratch.data() + slice.scratch, block.read_stride(),
                      buffer.bytes());
  }
  slices.clear();
}

std::uint64_t Operation::bytes_to_finish() const {
  std::uint64_t changed = arrow ? buffer.length() : 0;  // only the messages of Arrow bytes are read
  if (kind == Kind::create)
    for (const frame::Gap& gap : uncovered) changed += gap.bytes;
  if (!placed()) return changed;
  for (const frame::Gap& gap : plan().gaps) changed += gap.bytes;
  for (const Slice& slice : slices) changed += plan().blocks[slice.block].read_bytes(slice.row_end - slice.row_begin);
  for (const frame::Step& step : plan().steps)
    changed += step.kind == frame::StepKind::shift_bits || step.kind == frame::StepKind::count_nulls ? step.count / 8
                                                                                                     : step.count * 8;
  return changed;
}

Status Operation::finish(BufferCache& cache) {
  if (kind == Kind::update) return {};
  // Bytes of an earlier frame must not show where no piece was written.
  if (kind == Kind::create)
    for (const frame::Gap& gap : uncovered) std::memset(buffer.data() + gap.offset, 0, gap.bytes);
  if (placed()) {
    const MutableBytes bytes_of_frame = buffer.bytes();
    split_slices();
    frame::write_head(*form, plan(), bytes_of_frame);
    if (&plan() == &own_plan) OFP_TRY(frame::finish(*form, own_plan, bytes_of_frame));
    scratch = {};
  }
  if (serialiser) {
    const auto pulled = std::make_shared<Buffer>(std::move(buffer));
    OFP_ASSIGN(frame, serialiser->serialise(plan(), pulled, cache, user));
    return {};
  }
  auto made = std::make_shared<Frame>();
  made->bytes = buffer.length();
  made->buffer = std::move(buffer);
  made->arrow = placed() || arrow;
  // Plain rows of bytes have none, unless the bytes are Arrow, which has its own.
  if (placed()) made->rows = rows;
  if (arrow) made->rows = frame::count_rows(made->buffer.bytes()).value_or(0);
  made->updatable = kind == Kind::create;
  frame = std::move(made);
  return packing ? pack(cache) : Status{};
}

// Moves the frame to memory of the size that it needs. A frame of which no buffer shrank keeps its pages; so does one
// that would become larger, so no frame outgrows its charge.
Status Operation::pack(BufferCache& cache) {
  frame::PackedFrame packed;
  OFP_ASSIGN(const Buffer room, cache.take(frame::packing_bytes(*packing->compressor, plan()), user));
  OFP_TRY(frame::pack(*packing->form, *packing->compressor, plan(), frame->buffer.bytes(), room.bytes(), packed));
  const std::uint64_t smaller_bytes = packed.plan.frame_bytes;
  if (packed.compressed == 0 || smaller_bytes >= frame->bytes) return {};
  OFP_ASSIGN(Buffer smaller, cache.take(smaller_bytes, user));
  frame::write_packed(*packing->form, packed, smaller.bytes());
  frame->buffer = std::move(smaller);
  frame->bytes = smaller_bytes;
  return {};
}

}  // namespace offpath::mover
