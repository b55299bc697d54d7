// The Arrow C data interface, outwards: a schema, and the buffers of a frame, as C structs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "frame/c_data.h"
#include "frame/layout.h"
#include "frame/plan.h"

namespace offpath::frame {

// Fills `out` with a struct schema that owns copies of everything.
void export_schema(const Schema& schema, ArrowSchema* out);

// Fills `out` with a struct array over the buffers at `base` + BufferPlace::offset. No byte is copied; `owner`
// (whatever keeps `base` alive) is held until the array and every child moved out of it are released,
// on whichever thread that happens. `nodes` and `buffers` are as in the layout: of a Plan or of read_batch.
void export_array(const Layout& layout, std::int64_t rows, std::span<const NodeShape> nodes,
                  std::span<const BufferPlace> buffers, const std::byte* base, std::shared_ptr<const void> owner,
                  ArrowArray* out);

}  // namespace offpath::frame
