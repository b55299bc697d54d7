// Parts of queries: the rows of a pool that this member answers for, and the requests to other members.
//
// A row belongs to the part of its first living owner. All members must use the same list of members for that, so the
// request contains it. A part is refused while rows move after a change, and while a row that was lost here is fetched
// from another owner.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "pool/peers/pool_context.h"
#include "pool/query/query_members.h"
#include "pool/rows/moves.h"
#include "pool/rows/repairs.h"

namespace offpath::pool {

class QueryParts {
 public:
  QueryParts(PoolContext& context, const Moves& moves, const Repairs& repairs)
      : context_(context), moves_(moves), repairs_(repairs) {}

  // The objects that a local query reads. Error::unsupported: the pool has other members too.
  [[nodiscard]] Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                        std::string_view column_glob, uid_t user) const;
  // See QueryMembers.
  [[nodiscard]] Result<std::optional<QueryMembers::Spread>> spread(const std::string& pool) const;
  [[nodiscard]] Result<std::vector<QuerySource>> choose_part(const QueryMembers::Part& part, TimeNs now,
                                                             Effects& effects);
  [[nodiscard]] std::vector<std::string> lost(const std::string& pool) const;

 private:
  [[nodiscard]] bool rows_come(const Definition& definition) const;

  PoolContext& context_;
  const Moves& moves_;
  const Repairs& repairs_;
};

}  // namespace offpath::pool
