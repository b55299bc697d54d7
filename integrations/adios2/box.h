// Boxes of arrays in row-major order: copies the intersection of a selection and a block.
#pragma once

#include <cstddef>

#include "types.h"

namespace offpath::adios {

struct Box {
  Dims start{}, count{};
};

// A dense array in memory, and which of its elements are the box: `begin` is the box's first element in it. Both have a
// number for each dimension.
struct Layout {
  Dims extent{}, begin{};
};

// Copies the elements that `from` and `to` have in common, both in the same coordinates. Each box lies in memory as its
// layout says.
void copy_common(const Box& from, const Layout& from_layout, const std::byte* source, const Box& to,
                 const Layout& to_layout, std::byte* target, std::size_t element_bytes);

}  // namespace offpath::adios
