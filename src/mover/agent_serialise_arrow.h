// The libarrow part of agent_serialise.cc: schemas, and pulled bytes as arrays. Included only by agent_serialise*.cc.
#pragma once

#include <memory>

#include <arrow/api.h>

#include "frame/plan.h"
#include "frame/template.h"
#include "service/buffer_cache.h"

namespace offpath::mover {

// Turns libarrow's errors into failures.
[[nodiscard]] tl::unexpected<Failure> fail_arrow(const arrow::Status& status, std::string_view step);

// Extension types become their storage types; the metadata of the fields has their names.
[[nodiscard]] Result<std::shared_ptr<arrow::Schema>> arrow_schema(const frame::Schema& schema);

// The columns of a batch over the buffers that `plan` placed: nothing is copied, and they keep `placed` alive.
[[nodiscard]] arrow::ArrayVector placed_arrays(const frame::Layout& layout, const frame::Plan& plan,
                                               const std::shared_ptr<const service::Buffer>& placed,
                                               const arrow::Schema& schema);

}  // namespace offpath::mover
