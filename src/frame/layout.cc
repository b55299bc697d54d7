#include "frame/layout.h"

#include <unordered_map>

namespace offpath::frame {

namespace {

void collect(const Field& field, std::vector<const Field*>& values) {
  for (const Field& child : field.children) collect(child, values);
  if (field.dictionary.empty()) return;
  collect(field.dictionary[0], values);
  values.push_back(&field.dictionary[0]);
}

// The buffers after the validity.
int content_buffers(Type type, BufferKind (&kinds)[2]) noexcept {
  switch (type) {
    case Type::sparse_union:
      kinds[0] = BufferKind::type_ids;
      return 1;
    case Type::dense_union:
      kinds[0] = BufferKind::type_ids;
      kinds[1] = BufferKind::places;
      return 2;
    case Type::boolean:
      kinds[0] = BufferKind::bits;
      return 1;
    case Type::binary:
    case Type::utf8:
      kinds[0] = BufferKind::offsets32;
      kinds[1] = BufferKind::data;
      return 2;
    case Type::large_binary:
    case Type::large_utf8:
      kinds[0] = BufferKind::offsets64;
      kinds[1] = BufferKind::data;
      return 2;
    case Type::list:
    case Type::map:
      kinds[0] = BufferKind::offsets32;
      return 1;
    case Type::large_list:
      kinds[0] = BufferKind::offsets64;
      return 1;
    case Type::fixed_list:
    case Type::structure:
      return 0;
    default:
      kinds[0] = BufferKind::values;
      return 1;
  }
}

class Builder {
 public:
  Layout build(const Schema& schema) {
    const std::vector<const Field*> dictionaries = dictionaries_of(schema);
    for (std::size_t i = 0; i < dictionaries.size(); ++i) part_of_[dictionaries[i]] = static_cast<std::uint32_t>(i + 1);

    begin_part();
    for (const Field& field : schema.fields) layout_.columns.push_back(add(field, none, field.name));
    end_part();
    for (const Field* values : dictionaries) {
      begin_part();
      // Errors name the dictionary's use, which is clearer than a number.
      const std::uint32_t node = add(*values, none, "dictionary");
      layout_.nodes[node].nullable = true;
      end_part();
    }
    name_dictionaries();
    layout_.fixed = fixed_;
    return std::move(layout_);
  }

 private:
  void begin_part() {
    layout_.parts.push_back(
        {.node_begin = nodes_count(), .buffer_begin = static_cast<std::uint32_t>(layout_.buffers.size())});
  }
  void end_part() {
    layout_.parts.back().node_end = nodes_count();
    layout_.parts.back().buffer_end = static_cast<std::uint32_t>(layout_.buffers.size());
  }
  [[nodiscard]] std::uint32_t nodes_count() const { return static_cast<std::uint32_t>(layout_.nodes.size()); }

  std::uint32_t add(const Field& field, std::uint32_t parent, const std::string& name) {
    const std::uint32_t index = nodes_count();
    NodeLayout& node = layout_.nodes.emplace_back();
    layout_.names.push_back(name);
    node.parent = parent;
    node.children = static_cast<std::uint32_t>(field.children.size());
    node.value_bytes = value_bytes_of(field);
    node.list_size = field.type == Type::fixed_list ? static_cast<std::uint32_t>(field.width) : 0;
    node.dictionary = field.dictionary.empty() ? 0 : part_of_.at(&field.dictionary[0]);
    node.type = field.type;
    node.nullable = field.nullable;
    for (std::size_t i = 0; i < field.type_codes.size(); ++i) {
      const auto code = static_cast<std::size_t>(field.type_codes[i]);
      if (code >= node.child_of_code.size()) node.child_of_code.resize(code + 1, -1);
      node.child_of_code[code] = static_cast<std::int8_t>(i);
    }
    node.view = field.view;
    node.run_ends = field.run_ends;
    layout_.gathered = layout_.gathered || field.view || !field.run_ends.empty();
    node.buffer = static_cast<std::uint32_t>(layout_.buffers.size());
    if (field.type != Type::null) {
      if (!is_union(field.type)) layout_.buffers.push_back({index, BufferKind::validity});
      BufferKind kinds[2];
      const int count = content_buffers(field.type, kinds);
      for (int i = 0; i < count; ++i) layout_.buffers.push_back({index, kinds[i]});
      node.buffers = static_cast<std::uint32_t>(layout_.buffers.size()) - node.buffer;
      const bool fixed_values = count == 1 && kinds[0] == BufferKind::values && field.dictionary.empty();
      fixed_ = fixed_ && (fixed_values || field.type == Type::fixed_list);
    } else {
      fixed_ = false;
    }
    for (const Field& child : field.children) add(child, index, child.name);
    layout_.nodes[index].end = nodes_count();
    return index;
  }

  void name_dictionaries() {
    for (std::uint32_t node = 0; node < nodes_count(); ++node) {
      const std::uint32_t part = layout_.nodes[node].dictionary;
      if (part != 0) layout_.names[layout_.parts[part].node_begin] = "dictionary of " + layout_.names[node];
    }
  }

  Layout layout_;
  std::unordered_map<const Field*, std::uint32_t> part_of_;
  bool fixed_ = true;
};

}  // namespace

std::vector<const Field*> dictionaries_of(const Schema& schema) {
  std::vector<const Field*> values;
  for (const Field& field : schema.fields) collect(field, values);
  return values;
}

Result<Layout> make_layout(const Schema& schema) {
  OFP_TRY(check(schema));
  return Builder().build(schema);
}

std::string path_of(const Layout& layout, std::uint32_t node) {
  std::string path = layout.names[node];
  for (std::uint32_t up = layout.nodes[node].parent; up != none; up = layout.nodes[up].parent) {
    path.insert(0, layout.names[up] + ".");
  }
  return path;
}

std::string place_of(const Layout& layout, std::uint32_t node, std::uint64_t value) {
  return fmt::format("'{}', {} {}", path_of(layout, node), layout.nodes[node].parent == none ? "row" : "value", value);
}

}  // namespace offpath::frame
