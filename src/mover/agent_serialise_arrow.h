// What agent_serialise.cc needs of libarrow: schemas, and what was pulled as arrays. Only agent_serialise*.cc include
// this.
#pragma once

#include <memory>

#include <arrow/api.h>

#include "frame/plan.h"
#include "frame/template.h"
#include "service/buffer_cache.h"

namespace offpath::mover {

// libarrow's errors, mapped once.
[[nodiscard]] tl::unexpected<Failure> fail_arrow(const arrow::Status& status, std::string_view step);

// Extension types stay what they are stored as; their names are in the metadata of the fields.
[[nodiscard]] Result<std::shared_ptr<arrow::Schema>> arrow_schema(const frame::Schema& schema);

// The columns of a batch over the buffers `plan` placed: no byte is copied, `placed` is held.
[[nodiscard]] arrow::ArrayVector placed_arrays(const frame::Layout& layout, const frame::Plan& plan,
                                               const std::shared_ptr<const service::Buffer>& placed,
                                               const arrow::Schema& schema);

}  // namespace offpath::mover
