// An object that a query or a function reads.
#pragma once

#include <memory>
#include <string>

#include "service/frame.h"

namespace offpath::pool {

using service::FramePtr;
class QueryFeed;  // pool/query/query_run.h

struct QuerySource {
  FramePtr frame;
  std::string row_key, column_key;    // for errors
  std::shared_ptr<QueryFeed> feed{};  // instead of a frame; it is then the only source
};

}  // namespace offpath::pool
