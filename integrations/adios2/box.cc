#include "box.h"

#include <algorithm>
#include <cstring>

namespace offpath::adios {

void copy_common(const Box& from, const Layout& from_layout, const std::byte* source, const Box& to,
                 const Layout& to_layout, std::byte* target, std::size_t element_bytes) {
  const std::size_t dimensions = from.start.size();
  Dims common(dimensions), from_at(dimensions), to_at(dimensions);
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::size_t begin = std::max(from.start[i], to.start[i]);
    const std::size_t end = std::min(from.start[i] + from.count[i], to.start[i] + to.count[i]);
    if (begin >= end) return;
    common[i] = end - begin;
    from_at[i] = from_layout.begin[i] + (begin - from.start[i]);
    to_at[i] = to_layout.begin[i] + (begin - to.start[i]);
  }
  // Inner dimensions that are whole in both arrays make one run with the next outer one.
  std::size_t run = element_bytes;
  std::size_t outer = dimensions;
  while (outer > 0) {
    --outer;
    run *= common[outer];
    if (common[outer] != from_layout.extent[outer] || common[outer] != to_layout.extent[outer]) break;
  }
  Dims index(outer, 0);
  for (;;) {
    std::size_t from_element = 0, to_element = 0;
    for (std::size_t i = 0; i < dimensions; ++i) {
      const std::size_t step = i < outer ? index[i] : 0;
      from_element = from_element * from_layout.extent[i] + from_at[i] + step;
      to_element = to_element * to_layout.extent[i] + to_at[i] + step;
    }
    std::memcpy(target + to_element * element_bytes, source + from_element * element_bytes, run);
    std::size_t i = outer;
    while (i > 0 && ++index[i - 1] == common[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace offpath::adios
