// Parts of queries: which rows of a pool are this member's to answer for, and what is asked of the others.
//
// A row's part is its first living owner's. That is one member for each row as long as all go by the same members, so
// who asks says which these are. After a change rows are under way for a while: a part is refused while one is that was
// to be here or there. So is it while a row that was lost here is asked of another owner.
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

  // The objects that a query on this machine reads. Error::unsupported: it lies on other members too.
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
