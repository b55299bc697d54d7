// The exports of the libarrow module for queries (mover/arrow_modules.h): the functions of query_run.h.
#pragma once

#include "pool/query/query_run.h"

namespace offpath::pool {

struct QueryTable {
  const char* version;
  decltype(&QueryThreads::make) make_threads;
  decltype(&QueryRun::make) make_run;
  decltype(&pool::merge) merge;
  decltype(&pool::combine) combine;
  decltype(&pool::same_schema) same_schema;
};
inline constexpr const char* query_table_name = "ofp_query";

}  // namespace offpath::pool
