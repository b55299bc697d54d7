#include "host/requests/members.h"

#include "host/connection.h"
#include "wire/messages/peer_messages.h"

namespace offpath::host {

Result<wire::EntryKind> MembersOperation::compose(std::vector<std::byte>& payload) {
  wire::encode(wire::GroupMembers{members.empty() ? std::string_view() : members.back().name}, payload);
  return wire::EntryKind::group_members;
}

Result<bool> MembersOperation::take(const channel::Reply& reply) {
  if (reply.kind != wire::ReplyKind::members)
    return fail(Error::protocol, "the agent answered a question for members with reply kind {}",
                static_cast<int>(reply.kind));
  wire::MemberTable table{};
  OFP_TRY(wire::decode(reply.payload, table));
  for (const wire::MemberEntry& entry : table.entries) {
    if (!members.empty() && entry.name <= members.back().name)
      return fail(Error::protocol, "the agent tells of member \"{}\" after \"{}\"", entry.name, members.back().name);
    members.push_back({std::string(entry.name), std::string(entry.host), std::string(entry.address),
                       std::string(entry.http), std::string(entry.flight), static_cast<int>(entry.state),
                       std::string(entry.rack), entry.role == wire::MemberEntry::Role::dpu});
  }
  return table.entries.size() >= table.members || table.entries.empty();
}

}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_group_members(ofp_channel* channel, int64_t wait_ns, ofp_members** members, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(members, "members"));
    *members = nullptr;
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(channel->connection->here());
    MembersOperation asked(channel->connection->deadline(wait_ns));
    OFP_TRY(run(channel->connection->end, asked));
    *members = new ofp_members{std::move(asked.members)};
    return {};
  });
}

uint64_t ofp_members_count(const ofp_members* members) { return members != nullptr ? members->members.size() : 0; }

int ofp_members_entry(const ofp_members* members, uint64_t index, ofp_member* member) {
  if (members == nullptr || member == nullptr || index >= members->members.size()) return OFP_INVALID;
  const GroupMember& from = members->members[index];
  *member = {from.name.c_str(), from.host.c_str(),   from.address.c_str(),
             from.http.c_str(), from.flight.c_str(), from.state};
  return OFP_OK;
}

const char* ofp_members_role(const ofp_members* members, uint64_t index) {
  if (members == nullptr || index >= members->members.size()) return nullptr;
  return members->members[index].is_dpu ? "dpu" : "host";
}

const char* ofp_members_rack(const ofp_members* members, uint64_t index) {
  if (members == nullptr || index >= members->members.size()) return nullptr;
  return members->members[index].rack.c_str();
}

void ofp_members_free(ofp_members* members) { delete members; }

}  // extern "C"
