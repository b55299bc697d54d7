// Random schemas and batches over real memory, for tests and fuzzers, and the invariants of any plan.
// `pick(low, high)` gives the randomness: a number of that range, both ends included.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "frame/plan.h"

namespace offpath::frame {

template <class Pick>
Field random_field(Pick& pick, int depth) {
  Field field;
  field.name = fmt::format("f{}", pick(0, 99));
  field.type = static_cast<Type>(pick(0, static_cast<std::uint64_t>(types_count - 1)));
  field.nullable = pick(0, 3) != 0;
  if (field.type >= Type::decimal32 && field.type <= Type::decimal256) field.precision = 5;
  if (field.type == Type::time64) field.unit = Unit::microsecond;
  const bool nests = field.type >= Type::list;
  if (nests && depth >= 4) field.type = Type::int32;
  if (field.type == Type::fixed_binary) field.width = static_cast<std::int32_t>(pick(0, 20));
  if (field.type == Type::fixed_list) field.width = static_cast<std::int32_t>(pick(0, 4));
  switch (field.type) {
    case Type::list:
    case Type::large_list:
    case Type::fixed_list:
      field.children.push_back(random_field(pick, depth + 1));
      break;
    case Type::structure:
      for (std::uint64_t i = pick(0, 3); i > 0; --i) field.children.push_back(random_field(pick, depth + 1));
      break;
    case Type::map:
      field.children.push_back({.name = "entries", .type = Type::structure, .nullable = false});
      for (int i = 0; i < 2; ++i) field.children[0].children.push_back(random_field(pick, depth + 1));
      break;
    case Type::sparse_union:
    case Type::dense_union:
      for (std::uint64_t i = pick(1, 3); i > 0; --i) {
        field.children.push_back(random_field(pick, depth + 1));
        field.type_codes.push_back(static_cast<std::int8_t>(i * 40 + pick(0, 7)));
      }
      break;
    default:
      break;
  }
  if (field.type >= Type::int8 && field.type <= Type::uint64 && depth < 4 && pick(0, 3) == 0) {
    Field values = random_field(pick, depth + 1);
    values.name.clear();
    values.nullable = true;
    if (values.dictionary.empty()) field.dictionary.push_back(std::move(values));
  }
  return field;
}

template <class Pick>
Schema random_schema(Pick& pick) {
  Schema schema;
  for (std::uint64_t i = pick(0, 5); i > 0; --i) schema.fields.push_back(random_field(pick, 1));
  return schema;
}

// A view, and exactly the memory it points into: a read beyond it is an error to the address sanitizer.
struct RandomBatch {
  BatchView view;
  std::deque<std::vector<std::byte>> memory;
};

template <class Pick>
class BatchMaker {
 public:
  BatchMaker(const Layout& layout, Pick& pick) : layout_(layout), pick_(pick) {}

  RandomBatch make(std::int64_t rows) {
    batch_.view.rows = rows;
    batch_.view.nodes.resize(layout_.nodes.size());
    batch_.view.buffers.resize(layout_.buffers.size());
    for (std::uint32_t part = 0; part < layout_.parts.size(); ++part) {
      const PartLayout& range = layout_.parts[part];
      const auto length = part == 0 ? rows : static_cast<std::int64_t>(pick_(1, 9));
      for (std::uint32_t node = range.node_begin; node < range.node_end; node = layout_.nodes[node].end) {
        fill(node, length);
      }
    }
    return std::move(batch_);
  }

 private:
  std::byte* allocate(BufferSource& source, std::uint64_t bytes) {
    std::vector<std::byte>& memory = batch_.memory.emplace_back(bytes);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(seed_ = seed_ * 5 + 3);
    source.address = reinterpret_cast<std::uint64_t>(memory.data());
    source.bytes = bytes;
    return memory.data();
  }

  void bitmap(BufferSource& source, std::uint64_t bits) {
    source.bit_offset = static_cast<std::uint8_t>(pick_(0, 7));
    allocate(source, (bits + source.bit_offset + 7) / 8);
  }

  void fill(std::uint32_t index, std::int64_t length) {
    const NodeLayout& node = layout_.nodes[index];
    const auto count = static_cast<std::uint64_t>(length);
    batch_.view.nodes[index] = {length, node.type == Type::null ? length : 0};
    if (node.buffers > 0 && length > 0 && node.nullable && !is_union(node.type) && pick_(0, 1) != 0) {
      bitmap(batch_.view.buffers[node.buffer], count);
      batch_.view.nodes[index].null_count =
          pick_(0, 1) != 0 ? unknown_nulls : static_cast<std::int64_t>(pick_(0, count));
    }
    if (is_union(node.type)) return fill_union(index, count);
    if (node.buffers > 1) content(node, count);
    for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout_.nodes[at].end) {
      fill(at, node.type == Type::structure    ? length
               : node.type == Type::fixed_list ? length * static_cast<std::int64_t>(node.list_size)
                                               : static_cast<std::int64_t>(last_));
    }
  }

  // Children of a dense one have a value more than it shows.
  void fill_union(std::uint32_t index, std::uint64_t count) {
    const NodeLayout& node = layout_.nodes[index];
    const bool dense = node.type == Type::dense_union;
    std::vector<std::uint64_t> lengths(node.children, dense ? 1 : count);
    if (count > 0) {
      std::byte* const codes = allocate(batch_.view.buffers[node.buffer], count);
      std::byte* const places = dense ? allocate(batch_.view.buffers[node.buffer + 1], count * 4) : nullptr;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t child = count > 50 ? i % node.children : pick_(0, node.children - 1);
        codes[i] = static_cast<std::byte>(std::ranges::find(node.child_of_code, static_cast<std::int8_t>(child)) -
                                          node.child_of_code.begin());
        if (dense) store(places + i * 4, static_cast<std::int32_t>(lengths[child]++));
      }
    }
    for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout_.nodes[at].end)
      fill(at, static_cast<std::int64_t>(lengths[i]));
  }

  void content(const NodeLayout& node, std::uint64_t count) {
    BufferSource& source = batch_.view.buffers[node.buffer + 1];
    last_ = 0;
    switch (layout_.buffers[node.buffer + 1].kind) {
      case BufferKind::bits:
        if (count > 0 && pick_(0, 3) == 0) return strided(source, count, 1);
        if (count > 0) bitmap(source, count);
        return;
      case BufferKind::values:
        if (count == 0 || node.value_bytes == 0) return;
        if (node.dictionary != 0) return indices(source, node, count);
        if (pick_(0, 3) == 0) return strided(source, count, node.value_bytes);
        allocate(source, count * node.value_bytes);
        return;
      case BufferKind::offsets32:
        offsets<std::int32_t>(source, count);
        break;
      case BufferKind::offsets64:
        offsets<std::int64_t>(source, count);
        break;
      default:
        return;
    }
    if (node.buffers == 3 && last_ > 0) allocate(batch_.view.buffers[node.buffer + 2], last_);
  }

  void indices(BufferSource& source, const NodeLayout& node, std::uint64_t count) {
    std::byte* at = allocate(source, count * node.value_bytes);
    std::memset(at, 0, source.bytes);  // every dictionary has a value 0
  }

  // Now and then a lane beside the one before it.
  void strided(BufferSource& source, std::uint64_t count, std::uint32_t width) {
    if (rows_count_ == count && rows_used_ + width <= rows_stride_) {
      source.address = rows_address_ + rows_used_;
      source.stride_bytes = rows_stride_;
      source.bytes = (count - 1) * rows_stride_ + width;
      rows_used_ += width;
      return;
    }
    rows_stride_ = width + static_cast<std::uint32_t>(pick_(0, 40));
    rows_count_ = count;
    rows_used_ = width;
    allocate(source, count * rows_stride_);
    rows_address_ = source.address;
    source.stride_bytes = rows_stride_;
    source.bytes = (count - 1) * rows_stride_ + width;
  }

  template <class Offset>
  void offsets(BufferSource& source, std::uint64_t count) {
    if (count == 0) return;
    std::byte* at = allocate(source, (count + 1) * sizeof(Offset));
    const std::uint64_t first = pick_(0, 2);
    std::uint64_t offset = first;
    for (std::uint64_t i = 0; i <= count; ++i) {
      store(at + i * sizeof(Offset), static_cast<Offset>(offset));
      if (i < count) offset += count > 50 ? i % 3 : pick_(0, 3);
    }
    last_ = offset - first;
  }

  const Layout& layout_;
  Pick& pick_;
  RandomBatch batch_;
  unsigned seed_ = 1;
  std::uint64_t last_ = 0;  // where the offsets just made end, counted from their first
  std::uint64_t rows_count_ = 0, rows_address_ = 0;
  std::uint32_t rows_stride_ = 0, rows_used_ = 0;
};

struct Extent {
  std::uint64_t begin, end;
  std::string what;
};

// The ranges touch one another and cover [0, bytes): "" if so.
inline std::string not_tiled(std::vector<Extent> extents, std::uint64_t bytes) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::uint64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != at)
      return fmt::format("{} begins at {}, what is before it ends at {}", extent.what, extent.begin, at);
    at = extent.end;
  }
  return at == bytes ? "" : fmt::format("the last range ends at {} of {}", at, bytes);
}

// "" if the plan is sound: every byte of the frame has exactly one writer, everything is aligned and
// in its body, blocks hold their lanes. Otherwise the error.
inline std::string unsound(const Template& form, const Plan& plan) {
  std::vector<Extent> extents{{0, form.schema_message.size(), "schema"}};
  for (std::size_t part = 0; part < plan.parts.size(); ++part) {
    const PartPlace& place = plan.parts[part];
    if (place.body % form.alignment != 0 || place.body_bytes % 8 != 0)
      return fmt::format("body {} is not aligned", part);
    if (place.body - place.message < message_prefix_bytes + form.prototypes[part].metadata.size())
      return "no room for a message";
    extents.push_back({place.message, place.body, fmt::format("message {}", part)});
    const PartLayout& range = form.layout.parts[part];
    for (std::uint32_t i = range.buffer_begin; i < range.buffer_end; ++i) {
      const BufferPlace& buffer = plan.buffers[i];
      if (buffer.bytes > 0 && buffer.offset % form.alignment != 0) return fmt::format("buffer {} is not aligned", i);
      if (buffer.offset < place.body || buffer.offset + buffer.bytes > place.body + place.body_bytes) {
        return fmt::format("buffer {} lies outside its body", i);
      }
    }
  }
  std::uint64_t pulled = 0;
  for (const Pull& pull : plan.pulls) {
    extents.push_back({pull.target, pull.target + pull.bytes, "pull"});
    pulled += pull.bytes;
  }
  std::uint64_t scratch = 0;
  std::uint32_t lanes = 0;
  for (const Block& block : plan.blocks) {
    if (block.lane_begin != lanes || block.lane_end <= lanes) return "lanes are not shared out in order";
    lanes = block.lane_end;
    if (block.row_bytes > block.stride_bytes ||
        block.bytes != (block.rows - 1) * block.stride_bytes + block.row_bytes) {
      return "a block has the wrong size";
    }
    if (block.scratch < scratch) return "scratch places overlap";
    scratch = block.scratch + block.bytes;
    if (block.row_bytes > row_bytes_max) return "a row is too long";
    pulled += block.read_bytes(block.rows);
    for (std::uint32_t i = block.lane_begin; i < block.lane_end; ++i) {
      const Lane& lane = plan.lanes[i];
      if (lane.offset_bytes + std::max(lane.value_bytes, 1U) > block.row_bytes) return "a lane lies outside its row";
      const std::uint64_t bytes = lane.value_bytes > 0 ? block.rows * lane.value_bytes : (block.rows + 7) / 8;
      extents.push_back({lane.target, lane.target + bytes, "lane"});
    }
  }
  if (lanes != plan.lanes.size() || scratch > plan.scratch_bytes) return "lanes or scratch bytes are left over";
  if (pulled != plan.pulled_bytes) return "pulled bytes are not what the reads move";
  for (const Gap& gap : plan.gaps) extents.push_back({gap.offset, gap.offset + gap.bytes, "gap"});
  extents.push_back({plan.frame_bytes - end_marker_bytes, plan.frame_bytes, "end marker"});
  return not_tiled(std::move(extents), plan.frame_bytes);
}

// The mover's work, with memcpy for the link.
inline Status build_frame(const Template& form, Plan& plan, MutableBytes frame) {
  std::vector<std::byte> scratch(plan.scratch_bytes);
  const auto read = [](std::byte* to, std::uint64_t address, std::uint64_t bytes) {
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
  };
  for (const Pull& pull : plan.pulls) read(frame.data() + pull.target, pull.address, pull.bytes);
  for (const Block& block : plan.blocks) read(scratch.data() + block.scratch, block.address, block.bytes);
  write_head(form, plan, frame);
  split_blocks(plan, scratch, frame);
  return finish(form, plan, frame);
}

}  // namespace offpath::frame
