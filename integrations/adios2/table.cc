#include "table.h"

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "frame/layout.h"
#include "frame/parse.h"

namespace offpath::adios {
namespace {

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace

std::map<std::string, std::span<const std::byte>, std::less<>> read_table(std::span<const std::byte> bytes) {
  const frame::FrameView view = value_of(frame::parse_frame(bytes));
  const frame::Schema schema = value_of(frame::read_schema(bytes, view));
  const frame::Layout layout = value_of(frame::make_layout(schema));
  if (!layout.fixed) throw std::runtime_error("it has columns of other than a fixed width");
  std::int64_t rows = 0;
  std::vector<frame::NodeShape> nodes;
  std::vector<frame::BufferPlace> places;
  if (const Status read = frame::read_batch(layout, bytes, view, rows, nodes, places); !read)
    throw std::runtime_error(read.error().message);
  std::map<std::string, std::span<const std::byte>, std::less<>> columns;
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    // A list of a fixed size has its values in its child, which follows it.
    std::uint32_t node = layout.columns[i];
    while (layout.nodes[node].children != 0) ++node;
    const frame::NodeLayout& values = layout.nodes[node];
    const frame::BufferPlace& place = places[values.buffer + values.buffers - 1];
    columns.emplace(schema.fields[i].name, bytes.subspan(place.offset, place.bytes));
  }
  return columns;
}

}  // namespace offpath::adios
