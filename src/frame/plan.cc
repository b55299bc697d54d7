#include "frame/plan.h"

#include <algorithm>
#include <cstring>

#include "frame/adjust.h"

namespace offpath::frame {

namespace {

constexpr std::uint64_t plan_bytes_max = std::uint64_t{1} << 48;  // sums of a few thousand such numbers fit
constexpr std::size_t blocks_searched = 8;                        // columns of few record arrays, in any order
constexpr std::uint64_t shared_gap_bytes_max = 64;                // beyond a page, between lanes of one block

std::string path_of_buffer(const Layout& layout, std::uint32_t buffer) {
  static constexpr std::string_view kinds[] = {"validity", "bits", "values",     "offsets",
                                               "offsets",  "data", "type codes", "offsets"};
  const BufferLayout& of = layout.buffers[buffer];
  return fmt::format("'{}' ({})", path_of(layout, of.node), kinds[static_cast<std::size_t>(of.kind)]);
}

class Planner {
 public:
  Planner(const Template& form, const BatchView& view, const PlanLimits& limits, Plan& plan)
      : form_(form),
        layout_(form.layout),
        view_(view),
        plan_(plan),
        rows_max_(limits.rows_max),
        bytes_max_(std::min(limits.frame_bytes_max, plan_bytes_max)) {}

  Status run() {
    OFP_TRY(begin());
    for (std::uint32_t part = 0; part < layout_.parts.size(); ++part) OFP_TRY(check_nodes(part));
    // Dictionaries come first in the frame, the rows last.
    at_ = form_.schema_message.size();
    for (std::uint32_t part = 1; part < layout_.parts.size(); ++part) OFP_TRY(place(part));
    OFP_TRY(place(0));
    gap(at_, at_);  // ends the last one
    plan_.frame_bytes = at_ + end_marker_bytes;
    if (plan_.frame_bytes > bytes_max_) {
      return fail(Error::too_large, "the frame has {} bytes, at most {} are allowed", plan_.frame_bytes, bytes_max_);
    }
    for (Block& block : plan_.blocks) {
      block.scratch = plan_.scratch_bytes;
      plan_.scratch_bytes += align_up(block.bytes, 64);
      plan_.pulled_bytes += block.read_bytes(block.rows);
    }
    return {};
  }

 private:
  Status begin() {
    if (view_.nodes.size() != layout_.nodes.size() || view_.buffers.size() != layout_.buffers.size()) {
      return fail(Error::schema, "the batch has {} nodes and {} buffers, its schema {} and {}", view_.nodes.size(),
                  view_.buffers.size(), layout_.nodes.size(), layout_.buffers.size());
    }
    if (view_.rows < 0 || view_.rows > rows_max_) {
      return fail(view_.rows < 0 ? Error::schema : Error::too_large, "the batch has {} rows, 0 to {} are allowed",
                  view_.rows, rows_max_);
    }
    plan_.pulled_bytes = 0;
    plan_.scratch_bytes = 0;
    plan_.rows = view_.rows;
    plan_.parts.resize(layout_.parts.size());
    plan_.nodes.assign(view_.nodes.begin(), view_.nodes.end());
    plan_.buffers.resize(layout_.buffers.size());
    plan_.pulls.clear();
    plan_.blocks.clear();
    plan_.lanes.clear();
    plan_.steps.clear();
    plan_.gaps.clear();
    return {};
  }

  // Lengths and null counts, each against its parent's.
  Status check_nodes(std::uint32_t part) {
    const PartLayout& range = layout_.parts[part];
    for (std::uint32_t index = range.node_begin; index < range.node_end; ++index) {
      const NodeLayout& node = layout_.nodes[index];
      NodeShape& shape = plan_.nodes[index];
      std::int64_t expected = -1;  // any
      if (node.parent != none) {
        const NodeLayout& parent = layout_.nodes[node.parent];
        const std::int64_t length = plan_.nodes[node.parent].length;
        if (parent.type == Type::structure || parent.type == Type::sparse_union) expected = length;
        if (parent.type == Type::fixed_list &&
            __builtin_mul_overflow(length, static_cast<std::int64_t>(parent.list_size), &expected)) {
          return fail(Error::too_large, "'{}' has {} lists of {} values", path_of(layout_, node.parent), length,
                      parent.list_size);
        }
      } else if (part == 0) {
        expected = view_.rows;
      }
      if (shape.length < 0 || (expected >= 0 && shape.length != expected)) {
        return fail(Error::schema, "'{}' has length {}, expected {}", path_of(layout_, index), shape.length,
                    expected >= 0 ? expected : 0);
      }
      if (node.type == Type::null) shape.null_count = shape.length;
      if (shape.null_count < unknown_nulls || shape.null_count > shape.length) {
        return fail(Error::schema, "'{}' has {} nulls in {} values", path_of(layout_, index), shape.null_count,
                    shape.length);
      }
      if (is_union(node.type) && shape.null_count != 0) {
        return fail(Error::schema, "'{}' has {} nulls; those of a union are in its children", path_of(layout_, index),
                    shape.null_count);
      }
      if (shape.null_count > 0 && !node.nullable && node.type != Type::null) {
        return fail(Error::schema, "'{}' has {} nulls, its schema allows none", path_of(layout_, index),
                    shape.null_count);
      }
    }
    return {};
  }

  Status place(std::uint32_t part) {
    const PartLayout& range = layout_.parts[part];
    PartPlace& place = plan_.parts[part];
    gap(at_, at_);
    place.message = at_;
    place.body = align_up(at_ + message_prefix_bytes + form_.prototypes[part].metadata.size(), form_.alignment);
    at_ = place.body;
    filled_ = at_;
    for (std::uint32_t buffer = range.buffer_begin; buffer < range.buffer_end; ++buffer) {
      OFP_TRY(this->buffer(buffer, place.body));
    }
    at_ = align_up(at_, 8);
    place.body_bytes = at_ - place.body;
    return {};
  }

  Status buffer(std::uint32_t index, std::uint64_t body) {
    const BufferLayout& layout = layout_.buffers[index];
    const NodeLayout& node = layout_.nodes[layout.node];
    const BufferSource& source = view_.buffers[index];
    const auto length = static_cast<std::uint64_t>(plan_.nodes[layout.node].length);
    plan_.buffers[index] = {body, 0};
    if (source.bit_offset > 7 || source.zero[0] != 0 || source.zero[1] != 0 || source.zero[2] != 0) {
      return fail(Error::schema, "{} begins at bit {}, 0 to 7 are allowed, and reserved bytes are 0",
                  path_of_buffer(layout_, index), source.bit_offset);
    }
    switch (layout.kind) {
      case BufferKind::validity:
        return validity(index, layout.node, source, length);
      case BufferKind::bits:
        if (source.stride_bytes != 0) return lane(index, source, length, 0);
        return bits(index, source, length);
      case BufferKind::values:
        if (source.stride_bytes != 0 && source.stride_bytes != node.value_bytes) {
          return lane(index, source, length, node.value_bytes);
        }
        return values(index, source, length, node.value_bytes);
      case BufferKind::offsets32:
        return offsets(index, node, source, length, 4);
      case BufferKind::offsets64:
        return offsets(index, node, source, length, 8);
      case BufferKind::data:
        return data(index, source, length);
      case BufferKind::type_ids:
        OFP_TRY(expect_plain(index, source, false));
        OFP_TRY(values(index, source, length, 1));
        if (length > 0) plan_.steps.push_back({StepKind::union_codes, 0, index, length, 0});
        return {};
      case BufferKind::places:
        OFP_TRY(expect_plain(index, source, false));
        return values(index, source, length, 4);
    }
    return {};
  }

  Status expect_bytes(std::uint32_t index, const BufferSource& source, std::uint64_t expected,
                      std::uint64_t length) const {
    if (source.bytes == expected) return {};
    return fail(Error::schema, "{} has {} bytes, {} values need {}", path_of_buffer(layout_, index), source.bytes,
                length, expected);
  }

  Status expect_plain(std::uint32_t index, const BufferSource& source, bool bitmap) const {
    if (source.stride_bytes == 0 && (bitmap || source.bit_offset == 0)) return {};
    return fail(Error::schema, "{} has stride {} and bit offset {}, expected {}", path_of_buffer(layout_, index),
                source.stride_bytes, source.bit_offset, bitmap ? "stride 0" : "0 and 0");
  }

  Status validity(std::uint32_t index, std::uint32_t node, const BufferSource& source, std::uint64_t length) {
    NodeShape& shape = plan_.nodes[node];
    if (source.bytes == 0) {
      if (shape.null_count > 0) {
        return fail(Error::schema, "'{}' has {} nulls, but no validity bitmap", path_of(layout_, node),
                    shape.null_count);
      }
      shape.null_count = 0;
      return {};
    }
    OFP_TRY(expect_plain(index, source, true));
    OFP_TRY(expect_bitmap(index, source, length));
    if (shape.null_count == 0 || length == 0) return {};  // says nothing, so it is not read
    OFP_TRY(bits(index, source, length));
    if (shape.null_count == unknown_nulls) plan_.steps.push_back({StepKind::count_nulls, 0, index, length, 0});
    return {};
  }

  Status expect_bitmap(std::uint32_t index, const BufferSource& source, std::uint64_t length) const {
    return expect_bytes(index, source, length == 0 ? source.bytes : bitmap_bytes(length + source.bit_offset), length);
  }

  Status bits(std::uint32_t index, const BufferSource& source, std::uint64_t length) {
    if (length == 0) return {};
    OFP_TRY(expect_bitmap(index, source, length));
    OFP_TRY(pull(index, source, bitmap_bytes(length)));
    if (source.bit_offset != 0) {
      plan_.steps.push_back({StepKind::shift_bits, source.bit_offset, index, length, 0});
    }
    return {};
  }

  Status values(std::uint32_t index, const BufferSource& source, std::uint64_t length, std::uint64_t value_bytes) {
    if (source.bit_offset != 0) return expect_plain(index, {.bit_offset = source.bit_offset}, false);
    std::uint64_t expected = 0;
    if (!checked_mul(length, value_bytes, expected)) {
      return fail(Error::too_large, "{} has {} values of {} bytes", path_of_buffer(layout_, index), length,
                  value_bytes);
    }
    OFP_TRY(expect_bytes(index, source, expected, length));
    if (expected == 0) return {};
    return pull(index, source, expected);
  }

  Status offsets(std::uint32_t index, const NodeLayout& node, const BufferSource& source, std::uint64_t length,
                 std::uint64_t width) {
    OFP_TRY(expect_plain(index, source, false));
    // The last offset has to equal: the values of the child, or the bytes of the data.
    const bool list = node.children > 0;
    const auto last = list ? static_cast<std::uint64_t>(plan_.nodes[layout_.buffers[index].node + 1].length)
                           : view_.buffers[index + 1].bytes;
    if (length == 0) {
      if (last != 0) {
        return fail(Error::schema, "{}: no values, but {} {}, expected 0", path_of_buffer(layout_, index), last,
                    list ? "values in the child" : "bytes of data");
      }
      return room(index, width, width);  // the one offset there is; as a gap it becomes 0
    }
    std::uint64_t expected = 0;
    if (!checked_mul(length, width, expected) || !checked_add(expected, width, expected)) {
      return fail(Error::too_large, "{} has {} values", path_of_buffer(layout_, index), length);
    }
    OFP_TRY(expect_bytes(index, source, expected, length));
    OFP_TRY(pull(index, source, expected));
    plan_.steps.push_back({width == 4 ? StepKind::offsets32 : StepKind::offsets64, 0, index, length + 1, last});
    return {};
  }

  Status data(std::uint32_t index, const BufferSource& source, std::uint64_t length) {
    OFP_TRY(expect_plain(index, source, false));
    if (source.bytes == 0) return {};
    if (length == 0) return expect_bytes(index, source, 0, 0);
    return pull(index, source, source.bytes);
  }

  // A buffer read straight into its place.
  Status pull(std::uint32_t index, const BufferSource& source, std::uint64_t bytes) {
    OFP_TRY(readable(index, source));
    OFP_TRY(room(index, bytes, std::max(bytes, source.bytes)));
    const std::uint64_t target = plan_.buffers[index].offset;
    plan_.pulls.push_back({source.address, source.bytes, target, source.memory});
    plan_.pulled_bytes += source.bytes;
    filled_ = target + source.bytes;
    return {};
  }

  Status readable(std::uint32_t index, const BufferSource& source) const {
    std::uint64_t end = 0;
    if ((source.address != 0 || source.memory != 0) && source.bytes <= plan_bytes_max &&
        checked_add(source.address, source.bytes, end))
      return {};
    return fail(Error::schema, "{}: no memory has {} bytes at address {:#x}", path_of_buffer(layout_, index),
                source.bytes, source.address);
  }

  // Gives a buffer the next aligned place; `reserved` may be more than its bytes.
  Status room(std::uint32_t index, std::uint64_t bytes, std::uint64_t reserved) {
    const std::uint64_t offset = align_up(at_, form_.alignment);
    if (reserved > bytes_max_ || offset + reserved + 8 + end_marker_bytes > bytes_max_) {
      return fail(Error::too_large, "{}: the frame has {} bytes without its {}, at most {} in all are allowed",
                  path_of_buffer(layout_, index), offset, reserved, bytes_max_);
    }
    gap(offset, offset);
    plan_.buffers[index] = {offset, bytes};
    at_ = offset + reserved;
    return {};
  }

  // Everything from filled_ to `end` is padding; the next part begins at `next`.
  void gap(std::uint64_t end, std::uint64_t next) {
    if (end > filled_ && filled_ != 0) plan_.gaps.push_back({filled_, end - filled_});
    filled_ = next;
  }

  // A value in each row of an array of records.
  Status lane(std::uint32_t index, const BufferSource& source, std::uint64_t length, std::uint32_t value_bytes) {
    if (source.bit_offset != 0) return expect_plain(index, {.bit_offset = source.bit_offset}, false);
    const std::uint32_t width = value_bytes == 0 ? 1 : value_bytes;
    const bool boolean = layout_.buffers[index].kind == BufferKind::bits;
    if (source.stride_bytes < width || (value_bytes == 0 && !boolean)) {
      return fail(Error::schema, "{} has values of {} bytes, {} apart; at least their size is allowed",
                  path_of_buffer(layout_, index), value_bytes, source.stride_bytes);
    }
    if (length == 0) return expect_bytes(index, source, 0, 0);
    std::uint64_t expected = 0;
    if (!checked_mul(length - 1, source.stride_bytes, expected) || !checked_add(expected, width, expected)) {
      return fail(Error::too_large, "{} has {} values, {} bytes apart", path_of_buffer(layout_, index), length,
                  source.stride_bytes);
    }
    OFP_TRY(expect_bytes(index, source, expected, length));
    OFP_TRY(readable(index, source));
    const std::uint64_t bytes = boolean ? bitmap_bytes(length) : length * width;
    OFP_TRY(room(index, bytes, bytes));
    if (width > page_bytes) return pull_values(index, source, length, width);
    filled_ = at_;
    join_block(source, length, {plan_.buffers[index].offset, 0, value_bytes}, width);
    return {};
  }

  // Values of more than a page go straight to their places, one read for each.
  Status pull_values(std::uint32_t index, const BufferSource& source, std::uint64_t length, std::uint64_t width) {
    const std::uint64_t target = plan_.buffers[index].offset;
    for (std::uint64_t i = 0; i < length; ++i)
      plan_.pulls.push_back({source.address + i * source.stride_bytes, width, target + i * width, source.memory});
    plan_.pulled_bytes += length * width;
    filled_ = at_;
    return {};
  }

  // Lanes share a block's rows if reading the gaps between them costs little.
  static bool may_share(const Block& block, const BufferSource& source, std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t behind = source.address - std::min(source.address, block.address + block.row_bytes);
    const std::uint64_t before = block.address - std::min(block.address, source.address);
    if (end - begin > source.stride_bytes || end - begin > row_bytes_max) return false;
    return end - begin <= page_bytes || std::max(behind, before) <= shared_gap_bytes_max;
  }

  // Puts the lane into a block it shares rows with, or begins a new one.
  void join_block(const BufferSource& source, std::uint64_t rows, Lane lane, std::uint32_t width) {
    std::vector<Block>& blocks = plan_.blocks;
    const std::size_t first = blocks.size() > blocks_searched ? blocks.size() - blocks_searched : 0;
    for (std::size_t i = blocks.size(); i-- > first;) {
      Block& block = blocks[i];
      if (block.stride_bytes != source.stride_bytes || block.rows != rows || block.memory != source.memory) continue;
      const std::uint64_t begin = std::min(block.address, source.address);
      const std::uint64_t end = std::max(block.address + block.row_bytes, source.address + width);
      if (!may_share(block, source, begin, end)) continue;
      const auto moved = static_cast<std::uint32_t>(block.address - begin);
      for (std::uint32_t k = block.lane_begin; k < block.lane_end; ++k) plan_.lanes[k].offset_bytes += moved;
      block.address = begin;
      block.row_bytes = static_cast<std::uint32_t>(end - begin);
      block.bytes = (rows - 1) * block.stride_bytes + block.row_bytes;
      lane.offset_bytes = static_cast<std::uint32_t>(source.address - begin);
      plan_.lanes.insert(plan_.lanes.begin() + block.lane_end, lane);
      ++block.lane_end;
      for (std::size_t later = i + 1; later < blocks.size(); ++later) {
        ++blocks[later].lane_begin;
        ++blocks[later].lane_end;
      }
      return;
    }
    const auto at = static_cast<std::uint32_t>(plan_.lanes.size());
    plan_.lanes.push_back(lane);
    blocks.push_back({.address = source.address,
                      .bytes = source.bytes,
                      .rows = rows,
                      .memory = source.memory,
                      .stride_bytes = source.stride_bytes,
                      .row_bytes = width,
                      .lane_begin = at,
                      .lane_end = at + 1});
  }

  const Template& form_;
  const Layout& layout_;
  const BatchView& view_;
  Plan& plan_;
  const std::int64_t rows_max_;
  const std::uint64_t bytes_max_;
  std::uint64_t at_ = 0;      // the end of the layout so far
  std::uint64_t filled_ = 0;  // up to here a read or a message fills it; 0: nothing yet
};

}  // namespace

Status make_plan(const Template& form, const BatchView& view, const PlanLimits& limits, Plan& plan) {
  return Planner(form, view, limits, plan).run();
}

void write_head(const Template& form, const Plan& plan, MutableBytes frame) {
  OFP_ASSERT(frame.size() >= plan.frame_bytes);
  std::memcpy(frame.data(), form.schema_message.data(), form.schema_message.size());
  for (std::size_t part = 0; part < plan.parts.size(); ++part) {
    const Prototype& prototype = form.prototypes[part];
    const PartLayout& range = form.layout.parts[part];
    const PartPlace& place = plan.parts[part];
    std::byte* message = frame.data() + place.message;
    std::byte* metadata = message + message_prefix_bytes;
    const std::uint64_t metadata_bytes = place.body - place.message - message_prefix_bytes;
    store(message, std::uint32_t{0xFFFFFFFF});
    store(message + 4, static_cast<std::int32_t>(metadata_bytes));
    std::memcpy(metadata, prototype.metadata.data(), prototype.metadata.size());
    std::memset(metadata + prototype.metadata.size(), 0, metadata_bytes - prototype.metadata.size());

    store(metadata + prototype.body_bytes_at, place.body_bytes);
    // A dictionary's rows are its values.
    store(metadata + prototype.rows_at, part == 0 ? plan.rows : plan.nodes[range.node_begin].length);
    std::byte* at = metadata + prototype.nodes_at;
    for (std::uint32_t node = range.node_begin; node < range.node_end; ++node, at += sizeof(NodeShape)) {
      store(at, plan.nodes[node]);
    }
    at = metadata + prototype.buffers_at;
    for (std::uint32_t buffer = range.buffer_begin; buffer < range.buffer_end; ++buffer, at += 16) {
      store(at, plan.buffers[buffer].offset - place.body);
      store(at + 8, plan.buffers[buffer].bytes);
    }
  }
  for (const Gap& gap : plan.gaps) std::memset(frame.data() + gap.offset, 0, gap.bytes);
  store(frame.data() + plan.frame_bytes - end_marker_bytes, std::uint64_t{0xFFFFFFFF});
}

void split_rows(const Plan& plan, const Block& block, std::uint64_t row_begin, std::uint64_t row_end,
                const std::byte* rows, std::uint32_t stride_bytes, MutableBytes frame) {
  constexpr std::uint64_t chunk_bytes = 16 * 1024;  // stays in the first-level cache while lane after lane is taken
  const Lane* lanes = plan.lanes.data() + block.lane_begin;
  const std::uint32_t count = block.lane_end - block.lane_begin;
  const std::uint32_t width = lanes[0].value_bytes;
  if (count == 3 && (width == 4 || width == 8) && stride_bytes == 3 * width && block.row_bytes == 3 * width &&
      lanes[1].value_bytes == width && lanes[2].value_bytes == width) {
    std::byte* targets[3] = {};
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (lanes[i].offset_bytes % width == 0) {
        targets[lanes[i].offset_bytes / width] = frame.data() + lanes[i].target + row_begin * width;
      }
    }
    if (targets[0] != nullptr && targets[1] != nullptr && targets[2] != nullptr) {
      const auto split = width == 4 ? split3x4 : split3x8;
      return split(rows, row_end - row_begin, targets[0], targets[1], targets[2]);
    }
  }
  const std::uint64_t chunk_rows = align_up(chunk_bytes / stride_bytes + 1, 8);
  for (std::uint64_t row = row_begin; row < row_end; row += chunk_rows) {
    const std::uint64_t taken = std::min(chunk_rows, row_end - row);
    const std::byte* from = rows + (row - row_begin) * stride_bytes;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Lane& lane = lanes[i];
      std::byte* target = frame.data() + lane.target;
      if (lane.value_bytes == 0) {
        pack_bits(from + lane.offset_bytes, stride_bytes, taken, target + row / 8);
      } else {
        gather_lane(from + lane.offset_bytes, stride_bytes, lane.value_bytes, taken, target + row * lane.value_bytes);
      }
    }
  }
}

void split_blocks(const Plan& plan, Bytes scratch, MutableBytes frame) {
  OFP_ASSERT(scratch.size() >= plan.scratch_bytes && frame.size() >= plan.frame_bytes);
  for (const Block& block : plan.blocks) {
    split_rows(plan, block, 0, block.rows, scratch.data() + block.scratch, block.stride_bytes, frame);
  }
}

}  // namespace offpath::frame
