// Destinations that use libarrow: pulled bytes become Arrow objects, then an IPC stream, on the agent. Only
// agent_serialise*.cc include libarrow for them; this header does not. Everything runs in jobs.
//
// | destination     | pulled into                    | left to do here                         |
// |-----------------|--------------------------------|-----------------------------------------|
// | agent-serialise | native buffers                 | arrays (builders), schema, batch, IPC   |
// | arrays          | the buffers of arrow::Array    | schema, batch, IPC                      |
// | record-batch    | a RecordBatch of known schema  | IPC                                     |
// | c-abi           | ArrowArray structs             | import, IPC                             |
#pragma once

#include <memory>

#include "base/status.h"
#include "frame/plan.h"
#include "frame/template.h"
#include "service/frame.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

using service::Buffer;
using service::BufferCache;
using service::Frame;
using service::FramePtr;

class AgentSerialiser {
 public:
  virtual ~AgentSerialiser() = default;

  // `plan` of this serialiser's template (page aligned) has filled `placed`. Thread-safe.
  [[nodiscard]] virtual Result<FramePtr> serialise(const frame::Plan& plan, std::shared_ptr<const Buffer> placed,
                                                   BufferCache& cache, uid_t user) const = 0;
};

// `user_bytes_max` bounds all memory that libarrow holds for a user, over all batches and queries. Error::unsupported
// if the agent was built without libarrow.
[[nodiscard]] Result<std::shared_ptr<const AgentSerialiser>> make_agent_serialiser(
    wire::Destination destination, std::shared_ptr<const frame::Template> form, std::uint64_t user_bytes_max);

}  // namespace offpath::mover
