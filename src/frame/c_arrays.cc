#include "frame/c_arrays.h"

#include <atomic>
#include <deque>
#include <string>

#include <fmt/ranges.h>

namespace offpath::frame {

namespace {

// All structs of one tree lie in one block, counted by how many of them are not yet released: a
// consumer may move any child out and release it after its parent, on any thread.
struct ArrayTree {
  std::atomic<std::size_t> alive{0};
  std::shared_ptr<const void> owner;
  std::vector<ArrowArray> arrays;  // as Layout::nodes
  std::vector<ArrowArray*> children;
  std::vector<const void*> buffers;  // as Layout::buffers, then the validity of the whole
};

struct SchemaTree {
  std::atomic<std::size_t> alive{0};
  std::deque<ArrowSchema> schemas;  // a deque, because the structs point at each other
  std::deque<std::vector<ArrowSchema*>> children;
  std::deque<std::string> texts;
};

template <class Tree, class Struct>
void release_struct(Struct* released) {
  for (std::int64_t i = 0; i < released->n_children; ++i) {
    Struct* child = released->children[i];
    if (child->release != nullptr) child->release(child);
  }
  if (released->dictionary != nullptr && released->dictionary->release != nullptr) {
    released->dictionary->release(released->dictionary);
  }
  auto* tree = static_cast<Tree*>(released->private_data);
  released->release = nullptr;
  if (tree->alive.fetch_sub(1, std::memory_order_acq_rel) == 1) delete tree;
}

std::string metadata_text(const std::vector<KeyValue>& metadata) {
  std::string text;
  const auto number = [&](std::size_t value) {
    const auto narrow = static_cast<std::int32_t>(value);
    text.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  };
  number(metadata.size());
  for (const KeyValue& entry : metadata) {
    for (const std::string* part : {&entry.key, &entry.value}) {
      number(part->size());
      text += *part;
    }
  }
  return text;
}

std::string format_of(const Field& field) {
  static constexpr std::string_view fixed[] = {"n", "b", "c", "s", "i", "l", "C", "S", "I", "L", "e", "f", "g"};
  static constexpr char units[] = {'s', 'm', 'u', 'n'};
  const char unit = units[static_cast<std::size_t>(field.unit) & 3];
  const auto decimal = [&](int bits) { return fmt::format("d:{},{},{}", field.precision, field.scale, bits); };
  switch (field.type) {
    case Type::decimal32:
      return decimal(32);
    case Type::decimal64:
      return decimal(64);
    case Type::decimal128:
      return fmt::format("d:{},{}", field.precision, field.scale);
    case Type::decimal256:
      return decimal(256);
    case Type::date32:
      return "tdD";
    case Type::date64:
      return "tdm";
    case Type::time32:
    case Type::time64:
      return std::string("tt") + unit;
    case Type::timestamp:
      return std::string("ts") + unit + ":" + field.timezone;
    case Type::duration:
      return std::string("tD") + unit;
    case Type::interval_months:
      return "tiM";
    case Type::interval_day_time:
      return "tiD";
    case Type::interval_month_day_nano:
      return "tin";
    case Type::fixed_binary:
      return fmt::format("w:{}", field.width);
    case Type::binary:
      return "z";
    case Type::utf8:
      return "u";
    case Type::large_binary:
      return "Z";
    case Type::large_utf8:
      return "U";
    case Type::list:
      return "+l";
    case Type::large_list:
      return "+L";
    case Type::fixed_list:
      return fmt::format("+w:{}", field.width);
    case Type::structure:
      return "+s";
    case Type::map:
      return "+m";
    case Type::sparse_union:
      return fmt::format("+us:{}", fmt::join(field.type_codes, ","));
    case Type::dense_union:
      return fmt::format("+ud:{}", fmt::join(field.type_codes, ","));
    default:
      return std::string(fixed[static_cast<std::size_t>(field.type)]);
  }
}

class SchemaExporter {
 public:
  explicit SchemaExporter(SchemaTree& tree) : tree_(tree) {}

  void fill(ArrowSchema& to, std::string format, const std::string& name, const std::vector<KeyValue>& metadata,
            const std::vector<Field>& children) {
    to = {};
    to.format = keep(std::move(format));
    to.name = keep(name);
    to.metadata = metadata.empty() ? nullptr : keep(metadata_text(metadata));
    std::vector<ArrowSchema*>& pointers = tree_.children.emplace_back();
    for (const Field& child : children) pointers.push_back(field(child));
    to.n_children = static_cast<std::int64_t>(pointers.size());
    to.children = pointers.empty() ? nullptr : pointers.data();
    to.release = release_struct<SchemaTree, ArrowSchema>;
    to.private_data = &tree_;
    tree_.alive.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  const char* keep(std::string text) { return tree_.texts.emplace_back(std::move(text)).c_str(); }

  ArrowSchema* field(const Field& field) {
    ArrowSchema& to = tree_.schemas.emplace_back();
    fill(to, format_of(field), field.name, field.metadata, field.children);
    to.flags = (field.nullable ? ARROW_FLAG_NULLABLE : 0) | (field.ordered ? ARROW_FLAG_DICTIONARY_ORDERED : 0) |
               (field.keys_sorted ? ARROW_FLAG_MAP_KEYS_SORTED : 0);
    if (!field.dictionary.empty()) to.dictionary = this->field(field.dictionary[0]);
    return &to;
  }

  SchemaTree& tree_;
};

}  // namespace

void export_schema(const Schema& schema, ArrowSchema* out) {
  auto tree = std::make_unique<SchemaTree>();
  SchemaExporter(*tree).fill(*out, "+s", "", schema.metadata, schema.fields);
  tree.release();  // owned by the structs' release from here on
}

void export_array(const Layout& layout, std::int64_t rows, std::span<const NodeShape> nodes,
                  std::span<const BufferPlace> buffers, const std::byte* base, std::shared_ptr<const void> owner,
                  ArrowArray* out) {
  OFP_ASSERT(nodes.size() == layout.nodes.size() && buffers.size() == layout.buffers.size());
  auto tree = std::make_unique<ArrayTree>();
  tree->owner = std::move(owner);
  tree->arrays.resize(layout.nodes.size());
  tree->children.reserve(layout.nodes.size());
  tree->buffers.reserve(layout.buffers.size() + 1);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const bool absent = layout.buffers[i].kind == BufferKind::validity && buffers[i].bytes == 0;
    tree->buffers.push_back(absent ? nullptr : base + buffers[i].offset);
  }
  tree->buffers.push_back(nullptr);
  tree->alive.store(layout.nodes.size() + 1, std::memory_order_relaxed);

  *out = {};
  out->length = rows;
  out->n_buffers = 1;
  out->buffers = tree->buffers.data() + layout.buffers.size();
  out->n_children = static_cast<std::int64_t>(layout.columns.size());
  out->children = tree->children.data();
  for (const std::uint32_t column : layout.columns) tree->children.push_back(&tree->arrays[column]);
  for (std::uint32_t index = 0; index < layout.nodes.size(); ++index) {
    const NodeLayout& node = layout.nodes[index];
    ArrowArray& array = tree->arrays[index];
    array.length = nodes[index].length;
    array.null_count = nodes[index].null_count;
    array.n_buffers = node.buffers;
    array.buffers = tree->buffers.data() + node.buffer;
    array.n_children = node.children;
    array.children = tree->children.data() + tree->children.size();
    for (std::uint32_t i = 0, at = index + 1; i < node.children; ++i, at = layout.nodes[at].end) {
      tree->children.push_back(&tree->arrays[at]);
    }
    if (node.dictionary != 0) array.dictionary = &tree->arrays[layout.parts[node.dictionary].node_begin];
    array.release = release_struct<ArrayTree, ArrowArray>;
    array.private_data = tree.get();
  }
  out->release = release_struct<ArrayTree, ArrowArray>;
  out->private_data = tree.release();
}

}  // namespace offpath::frame
