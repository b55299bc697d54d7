// An agent without libarrow: it decodes queries, and refuses them.
#include "pool/query/query_run.h"

namespace offpath::pool {

std::shared_ptr<QueryThreads> QueryThreads::make(unsigned) { return nullptr; }

Result<std::unique_ptr<QueryRun>> QueryRun::make(Query, std::vector<QuerySource>, const QueryLimits&,
                                                 std::shared_ptr<QueryThreads>, std::shared_ptr<service::BufferCache>,
                                                 uid_t) {
  return fail(Error::unsupported, "this agent was built without Arrow's library and answers no queries");
}

Result<FramePtr> combine(const Query&, const std::vector<FramePtr>&, service::BufferCache&, uid_t, std::uint64_t) {
  return fail(Error::unsupported, "this agent was built without Arrow's library and answers no queries");
}

Result<Merged> merge(const std::vector<MergeHead>&, const MergeOrder&, std::uint64_t, service::BufferCache&, uid_t,
                     std::uint64_t) {
  return fail(Error::unsupported, "this agent was built without Arrow's library and answers no queries");
}

Status same_schema(const FramePtr&, const FramePtr&) {
  return fail(Error::unsupported, "this agent was built without Arrow's library and answers no queries");
}

}  // namespace offpath::pool
