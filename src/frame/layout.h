// A schema flattened the way Arrow IPC stores a batch: nodes and buffers, depth first.
//
// A frame has one part for the rows and one for every dictionary column's values. Part 0 is the
// rows; the dictionaries follow in the order in which they are written, the inner ones first, and
// the dictionary in part p has the id p - 1. Nodes and buffers are numbered through all parts.
//
//   schema                         nodes                        buffers
//   id   int64                     0 id        part 0           0 validity  1 values
//   pos  fixed_list[3]<float64>    1 pos                        2 validity
//                                  2 pos.item                   3 validity  4 values
//   kind dictionary<int8, utf8>    3 kind                       5 validity  6 values
//                                  4 kind (its values)  part 1  7 validity  8 offsets32  9 data
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frame/schema.h"

namespace offpath::frame {

enum class BufferKind : std::uint8_t {
  validity,   // a bit for every value, set if it is not null; absent (no bytes) without nulls
  bits,       // a bit for every value of a boolean
  values,     // value_bytes for every value
  offsets32,  // length + 1 offsets into the data or the child
  offsets64,
  data,      // the bytes of binary and utf8 values
  type_ids,  // unions: a type code for every value
  places,    // dense unions: where each value is in its child, 32 bits each
};

inline constexpr std::uint32_t none = 0xFFFFFFFF;

struct NodeLayout {
  std::uint32_t parent = none;    // node, or none for a column or a dictionary's values
  std::uint32_t children = 0;     // direct ones; the first is the next node
  std::uint32_t end = 0;          // one past the last descendant: the next sibling, if there is one
  std::uint32_t buffer = 0;       // the first of its buffers
  std::uint32_t buffers = 0;      // how many; the first is the validity, but unions have none
  std::uint32_t value_bytes = 0;  // fixed-width types; 0 otherwise
  std::uint32_t list_size = 0;    // fixed_list
  std::uint32_t dictionary = 0;   // the part that holds its dictionary; 0: no dictionary column
  Type type = Type::null;
  bool nullable = true;
  std::vector<std::int8_t> child_of_code{};  // unions: for each type code from 0 on, -1 where no child has it
  bool view = false;                         // as in Field
  std::vector<std::uint8_t> run_ends{};      // as in Field

  // The number of a union's child by its type code; -1 if there is none.
  [[nodiscard]] int child_of(std::int8_t code) const noexcept {
    const auto at = static_cast<std::size_t>(static_cast<std::uint8_t>(code));
    return at < child_of_code.size() ? child_of_code[at] : -1;
  }
};

struct BufferLayout {
  std::uint32_t node = 0;
  BufferKind kind = BufferKind::validity;
};

struct PartLayout {
  std::uint32_t node_begin = 0, node_end = 0;
  std::uint32_t buffer_begin = 0, buffer_end = 0;
};

struct Layout {
  std::vector<NodeLayout> nodes;
  std::vector<BufferLayout> buffers;
  std::vector<PartLayout> parts;       // [0] the rows, then the dictionaries as written
  std::vector<std::uint32_t> columns;  // the node of each top-level field
  std::vector<std::string> names;      // of each node, for errors

  // Every column is of a fixed width, or a fixed_list of such, so the number of rows alone tells
  // the size of every buffer.
  bool fixed = false;

  // Programs give some columns as views or runs (gather.h).
  bool gathered = false;
};

// The values of every dictionary of the schema, in the order of their parts: [0] is in part 1.
[[nodiscard]] std::vector<const Field*> dictionaries_of(const Schema& schema);

[[nodiscard]] Result<Layout> make_layout(const Schema& schema);

// "pos.item": the name of a node in errors.
[[nodiscard]] std::string path_of(const Layout& layout, std::uint32_t node);

// "'pos', row 3", or "'pos.item', value 7": the name of a value in errors.
[[nodiscard]] std::string place_of(const Layout& layout, std::uint32_t node, std::uint64_t value);

}  // namespace offpath::frame
