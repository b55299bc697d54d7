#include "host/requests/resources.h"

#include <algorithm>

#include "host/requests/pool.h"
#include "host/send/stream.h"
#include "wire/limits.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::host {

namespace {

constexpr TimeNs wait_max_ns = 30 * second_ns;
constexpr TimeNs grace_ns = 5 * second_ns;  // for the answer when the wait is over

}  // namespace

ResourcesOperation::ResourcesOperation(ConnectionPtr connection, std::string_view member, std::string_view path,
                                       std::uint64_t seen, std::int64_t wait_ns)
    : connection_(std::move(connection)),
      member_(member),
      path_(path),
      seen_(seen),
      deadline_(connection_->deadline(wait_ns)) {
  patience = seen_ != 0 ? deadline_after(deadline_, grace_ns) : deadline_;
}

Result<wire::EntryKind> ResourcesOperation::compose(std::vector<std::byte>& payload) {
  const TimeNs left = std::max<TimeNs>(deadline_ - connection_->end.now(), 0);
  wire::encode(wire::ListResources{member_, path_, after_, seen_, seen_ != 0 ? std::min(left, wait_max_ns) : 0},
               payload);
  return wire::EntryKind::list_resources;
}

Result<bool> ResourcesOperation::take(const channel::Reply& reply) {
  if (reply.kind != wire::ReplyKind::listed)
    return fail(Error::protocol, "the agent answered a question for the directory with reply kind {}",
                static_cast<int>(reply.kind));
  wire::Listed listed{};
  OFP_TRY(wire::decode(reply.payload, listed));
  if (version == 0) version = listed.view;
  if (seen_ != 0 && version == seen_) {
    version = 0;
    if (connection_->end.now() < deadline_) return false;
    version = seen_;
    return true;
  }
  seen_ = 0;  // further pages do not wait
  for (const wire::ListedEntry& entry : listed.entries) {
    if (entry.row_key <= after_)
      return fail(Error::protocol, "the agent lists resource \"{}\" after \"{}\"", entry.row_key, after_);
    after_ = entry.row_key;
    resources.push_back({after_, std::string(entry.column_key), std::string(entry.member)});
  }
  return !listed.more || listed.entries.empty();
}

namespace {

Result<std::unique_ptr<ResourcesOperation>> operation_of(const ofp_channel* channel, const char* member,
                                                         const char* path, std::uint64_t seen, std::int64_t wait_ns) {
  OFP_TRY(required(channel, "channel"));
  OFP_TRY(channel->connection->here());
  OFP_ASSIGN(const std::string_view who, checked_key(member, "the member's name", wire::name_bytes_max));
  OFP_ASSIGN(const std::string_view where, checked_key(path, "the path", wire::resource_path_bytes_max));
  return std::make_unique<ResourcesOperation>(channel->connection, who, where, seen, wait_ns);
}

}  // namespace
}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_resources_list(ofp_channel* channel, const char* member, const char* path, uint64_t seen, int64_t wait_ns,
                       ofp_resources** resources, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(resources, "resources"));
    *resources = nullptr;
    OFP_ASSIGN(const auto asked, operation_of(channel, member, path, seen, wait_ns));
    OFP_TRY(run(channel->connection->end, *asked));
    *resources = new ofp_resources{std::move(asked->resources), asked->version};
    return {};
  });
}

int ofp_resources_start(ofp_channel* channel, const char* member, const char* path, uint64_t seen, int64_t wait_ns,
                        ofp_request** request, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(request, "request"));
    *request = nullptr;
    OFP_ASSIGN(auto asked, operation_of(channel, member, path, seen, wait_ns));
    return start_request(channel->connection, std::move(asked), request);
  });
}

int ofp_request_resources(ofp_request* request, ofp_resources** resources, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(resources, "resources"));
    *resources = nullptr;
    OFP_ASSIGN(const ResourcesOperation* const asked, ended_as<ResourcesOperation>(request, "one for resources"));
    *resources = new ofp_resources{asked->resources, asked->version};
    return {};
  });
}

uint64_t ofp_resources_count(const ofp_resources* resources) {
  return resources != nullptr ? resources->resources.size() : 0;
}

uint64_t ofp_resources_version(const ofp_resources* resources) { return resources != nullptr ? resources->version : 0; }

int ofp_resources_entry(const ofp_resources* resources, uint64_t index, ofp_resource* resource) {
  if (resources == nullptr || resource == nullptr || index >= resources->resources.size()) return OFP_INVALID;
  const Resource& from = resources->resources[index];
  *resource = {from.path.c_str(), from.about.c_str(), from.member.c_str()};
  return OFP_OK;
}

void ofp_resources_free(ofp_resources* resources) { delete resources; }

}  // extern "C"
