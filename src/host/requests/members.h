// The question for the members of the agent's group.
#pragma once

#include <string>
#include <vector>

#include "host/requests/operation.h"

namespace offpath::host {

struct GroupMember {
  std::string name, host, address, http, flight;
  int state;  // OFP_MEMBER_…
  std::string rack;
  bool is_dpu;
};

// The agent lists as many members at a time as fit into a reply.
class MembersOperation final : public Operation {
 public:
  explicit MembersOperation(TimeNs deadline) { patience = deadline; }
  [[nodiscard]] Result<wire::EntryKind> compose(std::vector<std::byte>& payload) override;
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override;

  std::vector<GroupMember> members;
};

}  // namespace offpath::host

struct ofp_members {
  std::vector<offpath::host::GroupMember> members;
};
