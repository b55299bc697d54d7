// Parts of queries: which rows of a pool are this member's to answer for, and what is asked of the others.
//
// A row's part is its first living owner's. That is one member for each row as long as all go by the same members, so
// who asks says which these are. After a change rows are under way for a while: a part is refused while one is that was
// to be here or there. So is it while a row that was lost here is asked of another owner.
#include <algorithm>
#include <utility>

#include "pool/directory/placement.h"
#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using wire::EntryKind;

Result<std::optional<QueryMembers::Spread>> Pools::spread(const std::string& pool) {
  OFP_TRY(check_not_reserved(pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(pool));
  if (definition == nullptr || !context_.directory.is_elsewhere(*definition)) return std::nullopt;
  if (definition->members.empty())
    return fail(Error::not_found, "pool \"{}\": no member that lives is one of its members", definition->text);
  return Spread{definition->text,
                Directory::view_of(*definition),
                definition->members,
                definition->name.options.replicas,
                {},
                context_.table.user_of(definition->name.name)};
}

Result<std::vector<QuerySource>> Pools::choose(const std::string& pool, std::string_view row_glob,
                                               std::string_view column_glob, uid_t user) {
  OFP_TRY(check_not_reserved(pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(pool));
  if (definition != nullptr && context_.directory.is_elsewhere(*definition))
    return fail(Error::unsupported, "pool \"{}\" lies on {} members: ask each of them, or read its objects",
                definition->name.name, definition->members.size());
  return context_.table.choose(definition != nullptr ? definition->name.name : pool, row_glob, column_glob, user);
}

// Rows that this member is to send, or is sending, to their first owners, or that it asks other owners for as their
// first. While it joins with rows from disk, it does not know yet which of them those are.
bool Pools::rows_come(const Definition& definition) const {
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

std::vector<std::string> Pools::lost(const std::string& pool) const {
  const Definition* const known = context_.directory.known(pool.substr(0, pool.find('?')));
  return known != nullptr ? known->lost : std::vector<std::string>{};
}

Result<std::vector<QuerySource>> Pools::choose_part(const Part& part, Effects& effects) {
  OFP_TRY(check_not_reserved(part.pool));
  OFP_TRY(check_not_local(part.pool));
  OFP_ASSIGN(const Definition* const definition,
             context_.directory.define_of_member(part.pool, part.owner, part.user, FrameTable::Access::read,
                                                 context_.now, effects));
  if (Directory::view_of(*definition) != part.view)
    return fail(Error::would_block, "member {} knows of {} members of pool \"{}\", and not of those that were asked",
                context_.directory.self(), definition->members.size(), definition->name.name);
  if (rows_come(*definition))
    return fail(Error::would_block, "member {} has rows of pool \"{}\" that are on their way between members",
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

void Pools::fetch_part(std::string member, uid_t user, EntryKind kind, TimeNs deadline, std::vector<std::byte> body,
                       Compose compose, Fetched fetched, TimeNs now, Effects& effects) {
  context_.now = now;
  gets_.fetch_part(std::move(member), user, kind, deadline, std::move(body), std::move(compose), std::move(fetched),
                   effects);
}

void Pools::cancel_part(const std::string& member, std::uint64_t number, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.requests.cancel(member, wire::PeerCancel::What::query, number, nullptr,
                           deadline_after(now, context_.options.ask_wait_ns), effects);
}

}  // namespace offpath::pool
