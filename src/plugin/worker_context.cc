#include "plugin/worker_context.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace offpath::plugin {

namespace {

static_assert(OFP_LOG_DEBUG == static_cast<int>(LogLevel::debug) && OFP_LOG_ERROR == static_cast<int>(LogLevel::error));

}  // namespace

// ---- inputs

Result<InputMapping> InputMapping::map(int fd, std::uint64_t offset, std::uint64_t bytes) {
  // Private: a descriptor sealed against writing cannot be mapped shared before Linux 6.7. Nobody writes, so no page is copied.
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of an input of {} bytes", bytes));
  return InputMapping(static_cast<std::byte*>(data), bytes);
}

InputMapping::InputMapping(InputMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

InputMapping::~InputMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

WorkerContext::WorkerContext(CallNumber call, const WorkerLimits& limits, const std::atomic<CallNumber>& cancelled,
                             SendLog send_log)
    : call_(call), limits_(limits), cancelled_(cancelled), send_log_(std::move(send_log)) {}

Result<std::unique_ptr<WorkerContext>> WorkerContext::make(CallNumber call, const std::vector<Fd>& descriptors,
                                                           std::uint64_t description_bytes, const WorkerLimits& limits,
                                                           const std::atomic<CallNumber>& cancelled, SendLog send_log) {
  std::unique_ptr<WorkerContext> context(new WorkerContext(call, limits, cancelled, std::move(send_log)));
  OFP_TRY(context->map_inputs(descriptors, description_bytes));
  context->fill_context();
  return context;
}

Status WorkerContext::map_inputs(const std::vector<Fd>& descriptors, std::uint64_t description_bytes) {
  OFP_ASSIGN(InputMapping whole, InputMapping::map(descriptors.front().get(), 0, description_bytes));
  OFP_ASSIGN(description_, decode_description(Bytes(whole.data(), description_bytes)));
  if (description_.arguments_at > description_bytes || description_.arguments_bytes > description_bytes - description_.arguments_at)
    return fail(Error::protocol, "arguments of {} bytes at {} of {}", description_.arguments_bytes, description_.arguments_at,
                description_bytes);
  limits_.output_bytes_max = std::min(limits_.output_bytes_max, description_.output_bytes_max);
  const std::byte* const start = whole.data();
  mappings_.push_back(std::move(whole));
  context_.visible.arguments = start + description_.arguments_at;
  for (const InputNotice& notice : description_.inputs) {
    const std::byte* data = start;
    if (notice.bytes != 0) {
      if (notice.descriptor >= descriptors.size()) return fail(Error::protocol, "an input of descriptor {} of {}", notice.descriptor, descriptors.size());
      OFP_ASSIGN(InputMapping mapping, InputMapping::map(descriptors[notice.descriptor].get(), notice.offset, notice.bytes));
      data = mapping.data();
      mappings_.push_back(std::move(mapping));
    }
    inputs_.push_back({sizeof(ofp_input), notice.flags, notice.row.data(), notice.column.data(), notice.row.size(),
                       notice.column.size(), data, notice.bytes});
  }
  return {};
}

void WorkerContext::fill_context() {
  for (const ofp_input& input : inputs_) input_pointers_.push_back(&input);
  ofp_context& visible = context_.visible;
  context_.owner = this;
  visible.struct_bytes = sizeof(ofp_context);
  visible.function = description_.function.c_str();
  visible.arguments_bytes = description_.arguments_bytes;
  visible.input_count = input_pointers_.size();
  visible.inputs = input_pointers_.data();
  visible.deadline_ns = description_.deadline_ns;
  visible.output = output;
  visible.shrink = shrink;
  visible.time_left_ns = time_left;
  visible.cancelled = is_cancelled;
  visible.set_error = set_error_of;
  visible.log = log_line_of;
}

// ---- what a function calls. Nothing may be thrown across this border.

WorkerContext& WorkerContext::of(const ofp_context* context) noexcept {
  static_assert(offsetof(Visible, visible) == 0);
  return *reinterpret_cast<const Visible*>(context)->owner;
}

Result<void*> WorkerContext::make_output(std::string_view name, std::uint64_t bytes, std::uint32_t flags) {
  if (name.size() > output_name_bytes_max)
    return fail(Error::too_large, "an output's name has {} bytes, at most {}", name.size(), output_name_bytes_max);
  if ((flags & ~OFP_DATA_ARROW) != 0) return fail(Error::invalid, "output '{}' has the flags {:#x}, known are {:#x}", name, flags, OFP_DATA_ARROW);
  if (outputs_.size() == outputs_max) return fail(Error::too_large, "output '{}' would be one more than {}", name, outputs_max);
  if (std::ranges::find(outputs_, name, &Made::name) != outputs_.end()) return fail(Error::exists, "there is an output '{}' already", name);
  if (bytes > limits_.output_bytes_max - output_bytes_)
    return fail(Error::too_large, "output '{}' of {} bytes: the outputs of this call may have {} bytes together, {} are left", name,
                bytes, limits_.output_bytes_max, limits_.output_bytes_max - output_bytes_);
  OFP_ASSIGN(OutputMemory memory, OutputMemory::make(bytes));
  void* data = memory.data();
  outputs_.push_back({std::string(name), flags, std::move(memory)});
  output_bytes_ += bytes;
  return data;
}

void* WorkerContext::output(ofp_context* context, const char* name, std::uint64_t bytes, std::uint32_t flags) {
  WorkerContext& self = of(context);
  const std::lock_guard lock(self.mutex_);
  auto made = self.make_output(name == nullptr ? "" : name, bytes, flags);
  if (made) return *made;
  if (self.error_.empty()) self.error_ = made.error().message;
  return nullptr;
}

std::int32_t WorkerContext::shrink(ofp_context* context, void* output, std::uint64_t bytes) {
  WorkerContext& self = of(context);
  const std::lock_guard lock(self.mutex_);
  for (Made& made : self.outputs_) {
    if (made.memory.data() != output) continue;
    if (bytes > made.memory.bytes()) return -1;
    self.output_bytes_ -= made.memory.bytes() - bytes;
    made.memory.shrink(bytes);
    return 0;
  }
  return -1;
}

std::int64_t WorkerContext::time_left(const ofp_context* context) {
  return context->deadline_ns == never ? never : std::max<TimeNs>(context->deadline_ns - monotonic_ns(), 0);
}

std::int32_t WorkerContext::is_cancelled(const ofp_context* context) {
  const WorkerContext& self = of(context);
  return self.cancelled_.load(std::memory_order_relaxed) >= self.call_ || time_left(context) == 0 ? 1 : 0;
}

void WorkerContext::set_error(std::string_view message) {
  const std::lock_guard lock(mutex_);
  error_ = message.substr(0, error_bytes_max);
}

void WorkerContext::set_error_of(ofp_context* context, const char* message) {
  of(context).set_error(message == nullptr ? "" : message);
}

void WorkerContext::log_line_of(ofp_context* context, ofp_log_level level, const char* line) {
  WorkerContext& self = of(context);
  const std::lock_guard lock(self.mutex_);
  if (line == nullptr || self.lines_ == lines_max) return;
  ++self.lines_;
  self.send_log_({static_cast<LogLevel>(std::clamp<int>(level, OFP_LOG_DEBUG, OFP_LOG_ERROR)), line});
}

// ---- the end

WorkerContext::Finished WorkerContext::finish(std::int32_t status) {
  const std::lock_guard lock(mutex_);
  Finished result;
  result.done.call = call_;
  result.done.status = status;
  for (Made& made : outputs_) {
    if (result.done.status != 0) break;
    const std::uint64_t bytes = made.memory.bytes();
    auto sealed = made.memory.seal();
    if (!sealed) {
      result.done.status = -1;
      error_ = fmt::format("output '{}': {}", made.name, sealed.error().message);
      break;
    }
    result.done.outputs.push_back({std::move(made.name), bytes, made.flags});
    result.memory.push_back(std::move(*sealed));
  }
  if (result.done.status != 0) {
    result.done.outputs.clear();
    result.memory.clear();
    result.done.error = error_;
  }
  outputs_.clear();
  mappings_.clear();
  return result;
}

}  // namespace offpath::plugin
