// The second half of plan.h: what happens to a frame's bytes once they have arrived.
#include <cstring>
#include <vector>

#include "frame/adjust.h"
#include "frame/plan.h"

namespace offpath::frame {

namespace {

Status offsets_differ(const Layout& layout, std::uint32_t buffer, std::int64_t first, std::int64_t last,
                      std::uint64_t expected) {
  return fail(Error::schema, "the offsets of '{}' run from {} to {}, but {} {} were announced: the memory has changed",
              path_of(layout, layout.buffers[buffer].node), first, last, expected,
              layout.nodes[layout.buffers[buffer].node].children > 0 ? "values" : "bytes");
}

// Offsets begin at 0 afterwards, and end where the data or the child ends.
template <class Offset>
Status finish_offsets(const Layout& layout, const Step& step, std::byte* offsets) {
  const auto first = load<Offset>(offsets);
  const auto last = load<Offset>(offsets + (step.count - 1) * sizeof(Offset));
  if (first < 0 || last < first || static_cast<std::uint64_t>(last - first) != step.last) {
    return offsets_differ(layout, step.buffer, first, last, step.last);
  }
  if (first == 0) return {};
  if constexpr (sizeof(Offset) == 4) {
    rebase32(offsets, step.count, static_cast<std::uint32_t>(first));
  } else {
    rebase64(offsets, step.count, static_cast<std::uint64_t>(first));
  }
  return {};
}

std::uint32_t part_of(const Layout& layout, std::uint32_t node) noexcept {
  std::uint32_t part = 0;
  while (node >= layout.parts[part].node_end) ++part;
  return part;
}

Status finish_null_count(const Template& form, Plan& plan, const Step& step, MutableBytes frame) {
  const std::uint32_t node = form.layout.buffers[step.buffer].node;
  const std::uint64_t nulls = count_zero_bits(frame.data() + plan.buffers[step.buffer].offset, step.count);
  if (nulls > 0 && !form.layout.nodes[node].nullable) {
    return fail(Error::schema, "'{}' has {} nulls, its schema allows none", path_of(form.layout, node), nulls);
  }
  plan.nodes[node].null_count = static_cast<std::int64_t>(nulls);
  const std::uint32_t part = part_of(form.layout, node);
  const std::uint64_t nodes_at = plan.parts[part].message + message_prefix_bytes + form.prototypes[part].nodes_at;
  const std::uint64_t index = node - form.layout.parts[part].node_begin;
  store(frame.data() + nodes_at + index * sizeof(NodeShape) + 8, nulls);
  return {};
}

// Every index of a value that is not null names a value of the dictionary.
template <class Index>
bool indices_below(const std::byte* indices, const std::byte* validity, std::uint64_t count,
                   std::uint64_t limit) noexcept {
  bool wrong = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    // A negative index becomes a large one.
    const bool outside =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(load<Index>(indices + i * sizeof(Index)))) >= limit;
    const bool valid = validity == nullptr || (std::to_integer<unsigned>(validity[i / 8]) >> (i % 8) & 1) != 0;
    wrong |= outside && valid;
  }
  return !wrong;
}

Status check_indices(const Layout& layout, const Plan& plan, std::uint32_t index, Bytes frame) {
  const NodeLayout& node = layout.nodes[index];
  const BufferPlace& bitmap = plan.buffers[node.buffer];
  const std::byte* validity = bitmap.bytes > 0 ? frame.data() + bitmap.offset : nullptr;
  const std::byte* indices = frame.data() + plan.buffers[node.buffer + 1].offset;
  const auto count = static_cast<std::uint64_t>(plan.nodes[index].length);
  const auto limit = static_cast<std::uint64_t>(plan.nodes[layout.parts[node.dictionary].node_begin].length);
  bool right = true;
  switch (node.type) {
    case Type::int8:
      right = indices_below<std::int8_t>(indices, validity, count, limit);
      break;
    case Type::int16:
      right = indices_below<std::int16_t>(indices, validity, count, limit);
      break;
    case Type::int32:
      right = indices_below<std::int32_t>(indices, validity, count, limit);
      break;
    case Type::int64:
      right = indices_below<std::int64_t>(indices, validity, count, limit);
      break;
    case Type::uint8:
      right = indices_below<std::uint8_t>(indices, validity, count, limit);
      break;
    case Type::uint16:
      right = indices_below<std::uint16_t>(indices, validity, count, limit);
      break;
    case Type::uint32:
      right = indices_below<std::uint32_t>(indices, validity, count, limit);
      break;
    default:
      right = indices_below<std::uint64_t>(indices, validity, count, limit);
      break;
  }
  if (right) return {};
  return fail(Error::schema, "'{}' has an index outside its dictionary of {} values", path_of(layout, index), limit);
}

// Every code is one of the union's. In a dense one every value lies within its child, behind those before it or with
// them, as Arrow has it.
Status check_union(const Layout& layout, const Plan& plan, const Step& step, Bytes frame) {
  const std::uint32_t index = layout.buffers[step.buffer].node;
  const NodeLayout& node = layout.nodes[index];
  const bool dense = node.type == Type::dense_union;
  struct Child {
    std::int64_t length;
    std::int32_t lowest = 0;  // the least place that its next value may have
  };
  std::vector<Child> children;
  for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout.nodes[at].end)
    children.push_back({plan.nodes[at].length});
  const std::byte* const codes = frame.data() + plan.buffers[step.buffer].offset;
  const std::byte* const places = dense ? frame.data() + plan.buffers[step.buffer + 1].offset : nullptr;
  for (std::uint64_t i = 0; i < step.count; ++i) {
    const auto code = std::to_integer<std::int8_t>(codes[i]);
    const int number = node.child_of(code);
    if (number < 0)
      return fail(Error::schema, "{}: the type code {}, which none of its types has", place_of(layout, index, i), code);
    if (!dense) continue;
    const auto place = load<std::int32_t>(places + i * sizeof(std::int32_t));
    Child& child = children[static_cast<std::size_t>(number)];
    if (place < 0 || place >= child.length)
      return fail(Error::schema, "{}: the offset {} in a child of {} values", place_of(layout, index, i), place,
                  child.length);
    if (place < child.lowest)
      return fail(Error::schema, "{}: the offset {} behind {} in the same child, whose offsets must not fall",
                  place_of(layout, index, i), place, child.lowest);
    child.lowest = place;
  }
  return {};
}

}  // namespace

Status finish(const Template& form, Plan& plan, MutableBytes frame) {
  OFP_ASSERT(frame.size() >= plan.frame_bytes);
  for (const Step& step : plan.steps) {
    std::byte* at = frame.data() + plan.buffers[step.buffer].offset;
    switch (step.kind) {
      case StepKind::shift_bits:
        shift_bits(at, step.bit_offset, step.count);
        break;
      case StepKind::count_nulls:
        OFP_TRY(finish_null_count(form, plan, step, frame));
        break;
      case StepKind::offsets32:
        OFP_TRY(finish_offsets<std::int32_t>(form.layout, step, at));
        break;
      case StepKind::offsets64:
        OFP_TRY(finish_offsets<std::int64_t>(form.layout, step, at));
        break;
      case StepKind::union_codes:
        OFP_TRY(check_union(form.layout, plan, step, frame));
        break;
    }
  }
  return {};
}

Status check_contents(const Template& form, const Plan& plan, Bytes frame) {
  OFP_ASSERT(frame.size() >= plan.frame_bytes);
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::offsets32 && step.kind != StepKind::offsets64) continue;
    const std::byte* at = frame.data() + plan.buffers[step.buffer].offset;
    const bool ascend =
        step.kind == StepKind::offsets32 ? offsets_ascend32(at, step.count) : offsets_ascend64(at, step.count);
    if (!ascend) {
      return fail(Error::schema, "the offsets of '{}' do not ascend from 0 to {}",
                  path_of(form.layout, form.layout.buffers[step.buffer].node), step.last);
    }
  }
  for (std::uint32_t node = 0; node < form.layout.nodes.size(); ++node) {
    if (form.layout.nodes[node].dictionary != 0) OFP_TRY(check_indices(form.layout, plan, node, frame));
  }
  return {};
}

}  // namespace offpath::frame
