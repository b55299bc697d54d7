#include "pool/query/query_table.h"

extern "C" __attribute__((visibility("default"))) const offpath::pool::QueryTable ofp_query{
    OFFPATH_MODULE_ID,      offpath::pool::QueryThreads::make, offpath::pool::QueryRun::make, offpath::pool::merge,
    offpath::pool::combine, offpath::pool::same_schema};
