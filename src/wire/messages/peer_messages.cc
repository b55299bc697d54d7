#include "wire/messages/peer_messages.h"

#include "wire/limits.h"
#include "wire/messages/message_fields.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<PeerPut> auto& m) {
  way.begins("put of a member");
  way(m.user, m.owner, m.writer, m.number, m.rows, m.keep, m.wait_ns, m.arrow, m.hidden, m.moved, m.offer);
  object_at(way, m.object);
  keys(way, m);
  way(m.counter);
  way.bytes(m.over);
}

void fields(auto& way, Is<PeerGet> auto& m) {
  way.begins("get of a member");
  way(m.user, m.owner, m.wait_ns, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
  keys(way, m);
}

void fields(auto& way, Is<PeerCompute> auto& m) {
  way.begins("computation of a member");
  way(m.user, m.owner, m.wait_ns, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
  keys(way, m);
  function(way, m);
}
Status check(const PeerCompute& m) { return check_arguments(m.arguments); }

void fields(auto& way, Is<PeerQuery> auto& m) {
  way.begins("query of a member");
  way(m.user, m.owner, m.wait_ns, m.number, m.view);
  object_at(way, m.query);
  globs(way, m);
}

void fields(auto& way, Is<PeerQueryNext> auto& m) {
  way.begins("request of a member for an answer's frame");
  way(m.number, m.index, m.delivery);
  object_at(way, m.inbox);
  way.text(m.reader, name_bytes_max, "the reader");
}

void fields(auto& way, Is<PeerCancel> auto& m) {
  way.begins("cancellation of a member");
  way.choice(m.what, PeerCancel::What::resources, "what");
  way(m.number);
}

void fields(auto& way, Is<PeerDeliver> auto& m) {
  way.begins("delivery of a member");
  way(m.delivery, m.rows, m.arrow, m.offer);
  object_at(way, m.object);
}

void fields(auto& way, Is<PeerList> auto& m) {
  way.begins("list of a member");
  way(m.user, m.after);
  globs(way, m);
}

void fields(auto& way, Is<PeerDrop> auto& m) {
  way.begins("drop of a member");
  way(m.user);
  globs(way, m);
}

void fields(auto& way, Is<PeerStepEnd> auto& m) {
  way.begins("end of step of a member");
  way(m.user, m.rank, m.ranks);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_key, key_bytes_max, the_row_key);
}

void fields(auto& way, Is<PeerDefine> auto& m) {
  way.begins("definition of a member");
  way(m.user);
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.bytes(m.definition);
}
Status check(const PeerDefine& m) {
  if (m.definition.size() <= definition_bytes_max) return {};
  return fail(Error::too_large, "definition of a member: it has {} bytes, at most {} are allowed", m.definition.size(),
              definition_bytes_max);
}

void fields(auto& way, Is<PeerCompare> auto& m) {
  way.begins("comparison of a member");
  way(m.user, m.view);
  way.text(m.reader, name_bytes_max, "the reader");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.bytes(m.digests);
}
Status check(const PeerCompare& m) {
  if (m.digests.size() == compared_parts * 8) return {};
  return fail(Error::protocol, "comparison of a member: digests of {} bytes, there are {} of 8", m.digests.size(),
              compared_parts);
}

void fields(auto& way, Is<PostTable> auto& m) {
  way.begins("table post");
  way(m.table.region, m.table.generation, m.table.offset, m.table.length);
  way.bytes(m.enclosed);
}
Status check(const PostTable& m) {
  if (m.enclosed.size() > enclosed_bytes_max)
    return fail(Error::too_large, "a table of members encloses {} bytes, at most {} are allowed", m.enclosed.size(),
                enclosed_bytes_max);
  if (m.table.length > member_table_bytes_max)
    return fail(Error::too_large, "a table of members of {} bytes, at most {} are allowed", m.table.length,
                member_table_bytes_max);
  return {};
}

void fields(auto& way, Is<MemberTable> auto& m) {
  way.begins("table of members");
  way.text(m.sender, name_bytes_max, "the sender's name");
  way(m.digest, m.members);
  way.each(m.entries, [&way](auto& entry) {
    way.choice(entry.state, MemberEntry::State::dead, "state");
    way(entry.incarnation, entry.process, entry.refuted);
    way.text(entry.name, name_bytes_max, "a member's name");
    way.text(entry.address, name_bytes_max, "a member's address");
    way.text(entry.http, name_bytes_max, "a member's HTTP address");
    way.text(entry.flight, name_bytes_max, "a member's Flight address");
    way.text(entry.host, name_bytes_max, "a member's host");
    way.text(entry.rack, name_bytes_max, "a member's rack");
    way.choice(entry.role, MemberEntry::Role::dpu, "role");
  });
}
void fields(auto& way, Is<GroupMembers> auto& m) {
  way.begins("question for members");
  way.text(m.after, name_bytes_max, "a member's name");
}

void fields(auto& way, Is<ListResources> auto& m) {
  way.begins("question for the directory");
  way.text(m.member, name_bytes_max, "a member's name");
  way.text(m.path, resource_path_bytes_max, "the path");
  way.text(m.after, resource_path_bytes_max, "the path before");
  way(m.seen, m.wait_ns);
}

void fields(auto& way, Is<PeerResources> auto& m) {
  way.begins("question of a member for the directory");
  way(m.user, m.number);
  way.text(m.path, resource_path_bytes_max, "the path");
  way.text(m.after, resource_path_bytes_max, "the path before");
  way(m.seen, m.wait_ns);
}

Status check(const MemberTable& m) {
  if (m.entries.size() > members_max)
    return fail(Error::too_large, "a table of {} members, at most {} are allowed", m.entries.size(), members_max);
  for (const MemberEntry& entry : m.entries) {
    if (entry.name.empty()) return fail(Error::protocol, "table of members: one has no name");
    if (!is_rack(entry.rack)) return fail(Error::protocol, "table of members: one is in no rack that has a name");
  }
  return {};
}

}  // namespace

bool is_rack(std::string_view name) noexcept {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return name.size() <= rack_bytes_max && name.find_first_not_of(allowed) == std::string_view::npos;
}

OFFPATH_PEER_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
