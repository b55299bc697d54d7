// The question for the directory of the agent's group (group/resources.h).
#pragma once

#include <string>
#include <vector>

#include "host/connection.h"
#include "host/requests/operation.h"

namespace offpath::host {

struct Resource {
  std::string path, about, member;
};

// One agent's part, in pages. With a seen version, the first page waits for another one. The request is repeated until
// the deadline, because the agent bounds its wait.
class ResourcesOperation final : public Operation {
 public:
  ResourcesOperation(ConnectionPtr connection, std::string_view member, std::string_view path, std::uint64_t seen,
                     std::int64_t wait_ns);
  [[nodiscard]] Result<wire::EntryKind> compose(std::vector<std::byte>& payload) override;
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override;
  [[nodiscard]] bool cancellable() const override { return true; }

  std::vector<Resource> resources;
  std::uint64_t version = 0;  // of the first page, so that a change meanwhile is seen by the next question

 private:
  ConnectionPtr connection_;
  std::string member_, path_, after_;
  std::uint64_t seen_;
  TimeNs deadline_;
};

}  // namespace offpath::host

struct ofp_resources {
  std::vector<offpath::host::Resource> resources;
  std::uint64_t version;
};
