// Converts Arrow's statuses and results to this project's, for benchmarks that call libarrow.
#pragma once

#include <arrow/result.h>
#include <arrow/status.h>

#include "base/status.h"

namespace offpath::bench {

[[nodiscard]] inline Failure failure_of(const arrow::Status& status) {
  return {Error::io, "Arrow: " + status.ToString()};
}

#define ARROW_TRY(expression)                                                \
  if (const arrow::Status arrow_status_ = (expression); !arrow_status_.ok()) \
  return tl::unexpected(::offpath::bench::failure_of(arrow_status_))
#define ARROW_ASSIGN_(result, target, expression)                                         \
  auto result = (expression);                                                             \
  if (!result.ok()) return tl::unexpected(::offpath::bench::failure_of(result.status())); \
  target = std::move(result).ValueUnsafe()
#define ARROW_ASSIGN(target, expression) ARROW_ASSIGN_(OFP_CONCAT(arrow_result_, __LINE__), target, expression)

}  // namespace offpath::bench
