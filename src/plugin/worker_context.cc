#include "plugin/worker_context.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace offpath::plugin {

namespace {

static_assert(OFP_LOG_DEBUG == static_cast<int>(LogLevel::debug) && OFP_LOG_ERROR == static_cast<int>(LogLevel::error));

}  // namespace

// ---- inputs

Result<InputMapping> InputMapping::map(int fd, std::uint64_t offset, std::uint64_t bytes) {
  // Private: a descriptor sealed against writing cannot be mapped shared before Linux 6.7. There are no writes, so no
  // page is copied.
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of an input of {} bytes", bytes));
  return InputMapping(static_cast<std::byte*>(data), bytes);
}

InputMapping::InputMapping(InputMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

InputMapping::~InputMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

KeptMemory::~KeptMemory() {
  for (const auto& [number, mapping] : all_) munmap(mapping.data, mapping.mapped);
}

Result<KeptMemory::Piece> KeptMemory::find(std::uint64_t number, int fd, std::uint64_t bytes, bool writable) {
  if (fd < 0) {
    const auto at = all_.find(number);
    if (at == all_.end() || at->second.bytes != bytes || at->second.writable != writable)
      return fail(Error::protocol, "memory {} of {} bytes is not mapped", number, bytes);
    return Piece{at->second.data, bytes};
  }
  forget(number);
  const std::uint64_t guard = writable ? page_bytes : 0, mapped = align_up(bytes, page_bytes) + guard;
  void* data = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("mmap of {} bytes", mapped));
  // Private, like InputMapping. Later writes of the agent are still visible, because no page is written here.
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ, kind = writable ? MAP_SHARED : MAP_PRIVATE;
  if (mmap(data, bytes, protection, kind | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(data, mapped);
    return fail_errno(error, fmt::format("mmap of memory of {} bytes", bytes));
  }
  all_.emplace(number, Mapping{static_cast<std::byte*>(data), bytes, mapped, writable});
  return Piece{static_cast<std::byte*>(data), bytes};
}

void KeptMemory::forget(std::uint64_t number) noexcept {
  const auto at = all_.find(number);
  if (at == all_.end()) return;
  munmap(at->second.data, at->second.mapped);
  all_.erase(at);
}

WorkerContext::WorkerContext(CallNumber call, KeptMemory& kept, const WorkerLimits& limits,
                             const std::atomic<CallNumber>& cancelled, WorkerMessages& messages, SendLog send_log)
    : call_(call),
      kept_(kept),
      limits_(limits),
      cancelled_(cancelled),
      messages_(messages),
      send_log_(std::move(send_log)) {}

Result<std::unique_ptr<WorkerContext>> WorkerContext::make(CallNumber call, const std::vector<Fd>& descriptors,
                                                           std::uint64_t description_bytes, Bytes enclosed,
                                                           KeptMemory& kept, const WorkerLimits& limits,
                                                           const std::atomic<CallNumber>& cancelled,
                                                           WorkerMessages& messages, SendLog send_log) {
  std::unique_ptr<WorkerContext> context(
      new WorkerContext(call, kept, limits, cancelled, messages, std::move(send_log)));
  messages.begin(call);
  OFP_TRY(context->map_inputs(descriptors, description_bytes, enclosed));
  OFP_TRY(context->map_rooms(descriptors));
  context->fill_context();
  return context;
}

Status WorkerContext::map_inputs(const std::vector<Fd>& descriptors, std::uint64_t description_bytes, Bytes enclosed) {
  const std::byte* start = nullptr;
  if (!enclosed.empty()) {
    enclosed_.resize(enclosed.size() / 8 + 1);  // aligned as arguments have to be
    std::memcpy(enclosed_.data(), enclosed.data(), enclosed.size());
    start = reinterpret_cast<const std::byte*>(enclosed_.data());
  } else {
    OFP_ASSIGN(InputMapping whole, InputMapping::map(descriptors.front().get(), 0, description_bytes));
    start = whole.data();
    mappings_.push_back(std::move(whole));
  }
  OFP_ASSIGN(description_, decode_description(Bytes(start, description_bytes)));
  if (description_.arguments_at > description_bytes ||
      description_.arguments_bytes > description_bytes - description_.arguments_at)
    return fail(Error::protocol, "arguments of {} bytes at {} of {}", description_.arguments_bytes,
                description_.arguments_at, description_bytes);
  limits_.output_bytes_max = std::min(limits_.output_bytes_max, description_.output_bytes_max);
  visible().arguments = start + description_.arguments_at;
  std::vector<ofp_input> inputs;
  for (const InputNotice& notice : description_.inputs) {
    const std::byte* data = start;
    if (notice.bytes != 0) {
      if (notice.descriptor >= descriptors.size())
        return fail(Error::protocol, "an input of descriptor {} of {}", notice.descriptor, descriptors.size());
      if (notice.kept != 0) {
        OFP_ASSIGN(const KeptMemory::Piece piece,
                   kept_.find(notice.kept, notice.descriptor == 0 ? -1 : descriptors[notice.descriptor].get(),
                              notice.kept_bytes, false));
        if (notice.offset > piece.bytes || notice.bytes > piece.bytes - notice.offset)
          return fail(Error::protocol, "an input of {} bytes at {} of {}", notice.bytes, notice.offset, piece.bytes);
        data = piece.data + notice.offset;
      } else {
        OFP_ASSIGN(InputMapping mapping,
                   InputMapping::map(descriptors[notice.descriptor].get(), notice.offset, notice.bytes));
        data = mapping.data();
        mappings_.push_back(std::move(mapping));
      }
    }
    inputs.push_back({sizeof(ofp_input), notice.flags, notice.row.data(), notice.column.data(), notice.row.size(),
                      notice.column.size(), data, notice.bytes});
  }
  show_inputs(std::move(inputs));
  return {};
}

Status WorkerContext::map_rooms(const std::vector<Fd>& descriptors) {
  std::vector<wire::FunctionOutputs::Room> named;
  std::vector<ofp_room> rooms;
  for (const RoomNotice& notice : description_.rooms) {
    std::byte* data = nullptr;
    if (notice.kept != 0) {
      if (notice.descriptor >= descriptors.size())
        return fail(Error::protocol, "room of descriptor {} of {}", notice.descriptor, descriptors.size());
      OFP_ASSIGN(const KeptMemory::Piece piece,
                 kept_.find(notice.kept, notice.descriptor == 0 ? -1 : descriptors[notice.descriptor].get(),
                            notice.kept_bytes, true));
      if (notice.bytes > piece.bytes)
        return fail(Error::protocol, "room for {} bytes in {}", notice.bytes, piece.bytes);
      data = piece.data;
    }
    rooms.push_back({sizeof(ofp_room), 0, notice.name.c_str(), notice.bytes});
    named.push_back({notice.name, notice.bytes});
    room_data_.push_back(data);
  }
  outputs_ = wire::FunctionOutputs(std::move(named), limits_.output_bytes_max);
  show_rooms(std::move(rooms));
  return {};
}

void WorkerContext::fill_context() {
  ofp_context& shown = visible();
  shown.function = description_.function.c_str();
  shown.arguments_bytes = description_.arguments_bytes;
  shown.deadline_ns = description_.deadline_ns;
  shown.session = description_.session;
  shown.worker = description_.worker;
  shown.lane = description_.lane;
  shown.lanes = description_.lanes;
}

// ---- calls of the function

Result<void*> WorkerContext::make_output(std::string_view name, std::uint64_t bytes, std::uint32_t flags) {
  OFP_ASSIGN(const std::optional<std::size_t> room, outputs_.admit(name, bytes));
  std::byte* data = room ? room_data_[*room] : nullptr;
  std::optional<OutputMemory> memory;
  if (data == nullptr) {
    auto own = OutputMemory::make(bytes);
    if (!own) return tl::unexpected(std::move(own).error());
    memory.emplace(std::move(*own));
    data = static_cast<std::byte*>(memory->data());
  } else if ((flags & OFP_DATA_UNSET) == 0) {
    std::memset(data, 0, bytes);
  }
  outputs_.add(name, room, data, bytes);
  memory_.push_back({flags & OFP_DATA_ARROW, std::move(memory)});
  return data;
}

void WorkerContext::shrunk(std::size_t at, std::uint64_t bytes) {
  if (auto& own = memory_[at].own) own->shrink(bytes);
}

bool WorkerContext::is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed) >= call_; }

Status WorkerContext::send(std::uint32_t lane, std::uint32_t tag, Bytes message) {
  return messages_.send(lane, tag, message);
}

Status WorkerContext::receive(std::uint32_t lane, std::uint32_t tag, std::span<std::byte> into, std::uint64_t& bytes) {
  return messages_.receive(lane, tag, into, bytes);
}

void WorkerContext::log(ofp_log_level level, std::string_view line) {
  if (lines_ == lines_max) return;
  ++lines_;
  send_log_({static_cast<LogLevel>(std::clamp<int>(level, OFP_LOG_DEBUG, OFP_LOG_ERROR)), std::string(line)});
}

// ---- the end

WorkerContext::Finished WorkerContext::finish(std::int32_t status) {
  const std::lock_guard lock(mutex_);
  Finished result;
  result.done.call = call_;
  result.done.status = status;
  std::string failed;
  for (std::size_t i = 0; i < memory_.size() && result.done.status == 0; ++i) {
    const wire::FunctionOutputs::Made& made = outputs_.made()[i];
    auto& [flags, own] = memory_[i];
    if (!own) {
      result.done.outputs.push_back({made.name, made.bytes, flags | output_in_room});
      continue;
    }
    auto sealed = own->seal();
    if (!sealed) {
      result.done.status = -1;
      failed = fmt::format("output '{}': {}", made.name, sealed.error().message);
      break;
    }
    result.done.outputs.push_back({made.name, made.bytes, flags});
    result.memory.push_back(std::move(*sealed));
  }
  if (result.done.status != 0) {
    result.done.outputs.clear();
    result.memory.clear();
    result.done.error = failed.empty() ? error() : failed;
  }
  memory_.clear();
  mappings_.clear();
  return result;
}

}  // namespace offpath::plugin
