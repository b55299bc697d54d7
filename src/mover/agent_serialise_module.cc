#include <utility>

#include "base/module/border.h"
#include "mover/agent_serialise_table.h"

namespace offpath::mover {

namespace {

class SerialiserAtBorder final : public AgentSerialiser {
 public:
  explicit SerialiserAtBorder(std::shared_ptr<const AgentSerialiser> serialiser) : serialiser_(std::move(serialiser)) {}
  Result<FramePtr> serialise(const frame::Plan& plan, std::shared_ptr<const Buffer> placed, BufferCache& cache,
                             uid_t user) const override {
    return at_border([&] { return serialiser_->serialise(plan, std::move(placed), cache, user); });
  }

 private:
  std::shared_ptr<const AgentSerialiser> serialiser_;
};

Result<std::shared_ptr<const AgentSerialiser>> make(wire::Destination destination,
                                                    std::shared_ptr<const frame::Template> form,
                                                    std::uint64_t user_bytes_max) {
  return at_border([&]() -> Result<std::shared_ptr<const AgentSerialiser>> {
    OFP_ASSIGN(auto made, make_agent_serialiser(destination, std::move(form), user_bytes_max));
    return std::make_shared<const SerialiserAtBorder>(std::move(made));
  });
}

}  // namespace

}  // namespace offpath::mover

extern "C" __attribute__((visibility("default")))
const offpath::mover::SerialiseTable ofp_serialise{OFFPATH_MODULE_ID, offpath::mover::make};
