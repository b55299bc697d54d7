// The contents and the bytes of a query: wire/query/query.h. Its names are imported into this namespace.
//
// Read this first in src/pool/query, then wire/query/expression.h (what is computed for each row), query_run.h (how one
// member computes) and query_service.h (how the answer reaches the asker).
#pragma once

#include "wire/query/query.h"

namespace offpath::pool {

using wire::Aggregate;
using wire::AggregateFunction;
using wire::Expression;
using wire::Function;
using wire::HistogramAxis;
using wire::Literal;
using wire::Projection;
using wire::Query;
using wire::QueryPart;
using wire::Timestamp;
using wire::ValueType;

using wire::aggregate_name;
using wire::arrow_name;
using wire::call;
using wire::cells_of;
using wire::decode_query;
using wire::encode;
using wire::field;
using wire::fields_of;
using wire::function_name;
using wire::literal;
using wire::query_bytes_max;

}  // namespace offpath::pool
