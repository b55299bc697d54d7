#include "channel/reply.h"

#include <string>
#include <utility>

#include "wire/messages/replies.h"

namespace offpath::channel {

Result<Reply> unfailed(Reply reply) {
  wire::Failed failed{};
  if (reply.kind != wire::ReplyKind::failed) return reply;
  OFP_TRY(wire::decode(reply.payload, failed));
  return tl::unexpected(Failure{failed.code, std::string(failed.message)});
}

}  // namespace offpath::channel
