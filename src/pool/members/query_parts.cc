#include "pool/members/query_parts.h"

#include <algorithm>
#include <utility>

namespace offpath::pool {

Result<std::optional<QueryMembers::Spread>> QueryParts::spread(const std::string& pool) const {
  OFP_TRY(check_not_reserved(pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(pool));
  if (definition == nullptr || !context_.directory.is_elsewhere(*definition)) return std::nullopt;
  if (definition->members.empty())
    return fail(Error::not_found, "pool \"{}\": none of its members is alive", definition->text);
  return QueryMembers::Spread{definition->text,
                              Directory::view_of(*definition),
                              definition->members,
                              definition->name.options.replicas,
                              {},
                              context_.table.user_of(definition->name.name)};
}

Result<std::vector<QuerySource>> QueryParts::choose(const std::string& pool, std::string_view row_glob,
                                                    std::string_view column_glob, uid_t user) const {
  OFP_TRY(check_not_reserved(pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(pool));
  if (definition != nullptr && context_.directory.is_elsewhere(*definition))
    return fail(Error::unsupported, "pool \"{}\" lies on {} members: ask each of them, or read its objects",
                definition->name.name, definition->members.size());
  return context_.table.choose(definition != nullptr ? definition->name.name : pool, row_glob, column_glob, user);
}

// Rows that this member has to send to their first owners, is sending, or asks other owners for as their first owner.
// While it joins with rows from disk, the set is not known yet.
bool QueryParts::rows_come(const Definition& definition) const {
  if (context_.directory.is_joining() && definition.members.size() > 1 &&
      !context_.table.is_empty(definition.name.name))
    return true;
  const auto concerns = [&](const std::string& row, const std::vector<std::string>& to) {
    const std::vector<std::string> all = Directory::owners(definition, row);
    return !all.empty() && std::ranges::find(to, all.front()) != to.end();
  };
  const std::string& name = definition.name.name;
  if (repairs_.any(name, [&](const std::string& row) { return context_.directory.is_first_owner(definition, row); }))
    return true;
  return moves_.any(name, concerns);
}

std::vector<std::string> QueryParts::lost(const std::string& pool) const {
  const Definition* const known = context_.directory.known(pool.substr(0, pool.find('?')));
  return known != nullptr ? known->lost : std::vector<std::string>{};
}

Result<std::vector<QuerySource>> QueryParts::choose_part(const QueryMembers::Part& part, TimeNs now, Effects& effects) {
  OFP_TRY(check_not_reserved(part.pool));
  OFP_TRY(context_.directory.may_be_named(part.pool));
  OFP_ASSIGN(
      const Definition* const definition,
      context_.directory.define_of_member(part.pool, part.owner, part.user, FrameTable::Access::read, now, effects));
  if (Directory::view_of(*definition) != part.view)
    return fail(Error::would_block, "member {} knows {} members of pool \"{}\", which are not the ones that were asked",
                context_.directory.self(), definition->members.size(), definition->name.name);
  if (rows_come(*definition))
    return fail(Error::would_block, "member {} has rows of pool \"{}\" that are being moved between members",
                context_.directory.self(), definition->name.name);
  auto chosen = context_.table.choose(definition->name.name, part.row_glob, part.column_glob, part.user);
  if (!chosen && chosen.error().code == Error::not_found) return std::vector<QuerySource>{};
  if (!chosen) return chosen;
  std::erase_if(*chosen, [&](const QuerySource& source) {
    const std::vector<std::string> all = Directory::owners(*definition, source.row_key);
    return all.empty() || all.front() != context_.directory.self();
  });
  return chosen;
}

}  // namespace offpath::pool
