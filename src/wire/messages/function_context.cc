#include "wire/messages/function_context.h"

#include <cstddef>
#include <utility>

namespace offpath::wire {

static_assert(OFP_MESSAGE_TIMEOUT == static_cast<int>(Error::timeout) &&
              OFP_MESSAGE_INVALID == static_cast<int>(Error::invalid) &&
              OFP_MESSAGE_TAKEN == static_cast<int>(Error::exists) &&
              OFP_MESSAGE_TOO_LARGE == static_cast<int>(Error::too_large) &&
              OFP_MESSAGE_LOST == static_cast<int>(Error::peer_lost) &&
              OFP_MESSAGE_NO_MEMORY == static_cast<int>(Error::no_memory) &&
              OFP_MESSAGE_UNSUPPORTED == static_cast<int>(Error::unsupported) &&
              OFP_MESSAGE_CANCELLED == static_cast<int>(Error::cancelled));

// They must not throw.
struct FunctionContext::Calls {
  static FunctionContext& of(const ofp_context* context) noexcept {
    static_assert(offsetof(Visible, visible) == 0);
    return *reinterpret_cast<const Visible*>(context)->owner;
  }

  static void* output(ofp_context* context, const char* name, std::uint64_t bytes, std::uint32_t flags) {
    FunctionContext& self = of(context);
    const std::lock_guard lock(self.mutex_);
    constexpr std::uint32_t known = OFP_DATA_ARROW | OFP_DATA_UNSET;
    const std::string_view wanted = name != nullptr ? name : "";
    auto made = (flags & ~known) == 0
                    ? self.make_output(wanted, bytes, flags)
                    : fail(Error::invalid, "output '{}' has the flags {:#x}, known are {:#x}", wanted, flags, known);
    if (made) return *made;
    if (self.error_.empty()) self.error_ = made.error().message;
    return nullptr;
  }

  static std::int32_t shrink(ofp_context* context, void* output, std::uint64_t bytes) {
    FunctionContext& self = of(context);
    const std::lock_guard lock(self.mutex_);
    const std::optional<std::size_t> at = self.outputs_.shrink(output, bytes);
    if (!at) return -1;
    self.shrunk(*at, bytes);
    return 0;
  }

  static std::int64_t time_left(const ofp_context* context) { return wire::time_left(context->deadline_ns); }

  static std::int32_t cancelled(const ofp_context* context) {
    return of(context).is_cancelled() || time_left(context) == 0 ? 1 : 0;
  }

  static void set_error(ofp_context* context, const char* message) {
    of(context).set_error(message != nullptr ? message : "");
  }

  static void log(ofp_context* context, ofp_log_level level, const char* line) {
    FunctionContext& self = of(context);
    const std::lock_guard lock(self.mutex_);
    if (line != nullptr) self.log(level, line);
  }

  static std::int32_t code_of(FunctionContext& self, const Status& outcome) {
    if (outcome) return OFP_MESSAGE_OK;
    const std::lock_guard lock(self.mutex_);
    self.message_error_ = outcome.error().message.substr(0, function_error_bytes_max);
    return static_cast<std::int32_t>(outcome.error().code);
  }

  static std::int32_t send(ofp_context* context, std::uint32_t lane, std::uint32_t tag, const void* data,
                           std::uint64_t bytes) {
    FunctionContext& self = of(context);
    return code_of(self, self.send(lane, tag, {static_cast<const std::byte*>(data), bytes}));
  }

  static std::int32_t receive(ofp_context* context, std::uint32_t lane, std::uint32_t tag, void* into,
                              std::uint64_t room, std::uint64_t* bytes) {
    FunctionContext& self = of(context);
    std::uint64_t received = 0;
    const std::int32_t code = code_of(self, self.receive(lane, tag, {static_cast<std::byte*>(into), room}, received));
    if (bytes != nullptr) *bytes = received;
    return code;
  }
};

FunctionContext::FunctionContext() noexcept {
  context_.owner = this;
  ofp_context& visible = context_.visible;
  visible.struct_bytes = sizeof(ofp_context);
  visible.output = Calls::output;
  visible.shrink = Calls::shrink;
  visible.time_left_ns = Calls::time_left;
  visible.cancelled = Calls::cancelled;
  visible.set_error = Calls::set_error;
  visible.log = Calls::log;
  visible.send = Calls::send;
  visible.receive = Calls::receive;
}

void FunctionContext::show_inputs(std::vector<ofp_input> inputs) {
  inputs_ = std::move(inputs);
  for (const ofp_input& input : inputs_) input_pointers_.push_back(&input);
  context_.visible.input_count = input_pointers_.size();
  context_.visible.inputs = input_pointers_.data();
}

void FunctionContext::show_rooms(std::vector<ofp_room> rooms) {
  rooms_ = std::move(rooms);
  context_.visible.room_count = rooms_.size();
  context_.visible.rooms = rooms_.data();
}

std::int32_t FunctionContext::call(ofp_function_pointer function) {
  std::string thrown;
  const std::int32_t status = call_guarded([&] { return function(&context_.visible); }, thrown);
  if (!thrown.empty()) set_error(thrown);
  return status;
}

void FunctionContext::set_error(std::string_view message) {
  const std::lock_guard lock(mutex_);
  error_ = message.substr(0, function_error_bytes_max);
}

}  // namespace offpath::wire
