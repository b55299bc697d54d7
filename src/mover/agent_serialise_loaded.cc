// Implements agent_serialise.h by the module of libarrow, which the first batch of such a stream loads, in its job.
#include <mutex>
#include <utility>

#include "mover/agent_serialise_table.h"
#include "mover/arrow_modules.h"

namespace offpath::mover {

namespace {

class LoadedSerialiser final : public AgentSerialiser {
 public:
  LoadedSerialiser(wire::Destination destination, std::shared_ptr<const frame::Template> form,
                   std::uint64_t user_bytes_max)
      : destination_(destination), form_(std::move(form)), user_bytes_max_(user_bytes_max) {}

  Result<FramePtr> serialise(const frame::Plan& plan, std::shared_ptr<const Buffer> placed, BufferCache& cache,
                             uid_t user) const override {
    OFP_ASSIGN(const std::shared_ptr<const AgentSerialiser> loaded, load());
    return loaded->serialise(plan, std::move(placed), cache, user);
  }

 private:
  Result<std::shared_ptr<const AgentSerialiser>> load() const {
    const std::lock_guard lock(mutex_);
    if (loaded_ == nullptr) {
      const std::string purpose = fmt::format("destination {} needs Arrow", wire::destination_name(destination_));
      OFP_ASSIGN(const SerialiseTable* table, load_table<SerialiseTable>(arrow_module(purpose), serialise_table_name));
      OFP_ASSIGN(loaded_, table->make(destination_, form_, user_bytes_max_));
    }
    return loaded_;
  }

  wire::Destination destination_;
  std::shared_ptr<const frame::Template> form_;
  std::uint64_t user_bytes_max_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const AgentSerialiser> loaded_;
};

}  // namespace

Result<std::shared_ptr<const AgentSerialiser>> make_agent_serialiser(wire::Destination destination,
                                                                     std::shared_ptr<const frame::Template> form,
                                                                     std::uint64_t user_bytes_max) {
  return std::make_shared<const LoadedSerialiser>(destination, std::move(form), user_bytes_max);
}

}  // namespace offpath::mover
