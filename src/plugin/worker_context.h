// The ofp_context of one call, in the worker: the function's view of its inputs, and its outputs.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "plugin/message.h"
#include "plugin/output_memory.h"
#include "plugin/worker_messages.h"
#include "wire/messages/function_context.h"

namespace offpath::plugin {

// A mapping of a piece of a descriptor, read-only.
class InputMapping {
 public:
  [[nodiscard]] static Result<InputMapping> map(int fd, std::uint64_t offset, std::uint64_t bytes);
  InputMapping(InputMapping&& other) noexcept;
  InputMapping& operator=(InputMapping&&) = delete;
  ~InputMapping();
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

 private:
  InputMapping(std::byte* data, std::uint64_t bytes) noexcept : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::uint64_t bytes_;
};

// Mappings that are kept between calls, by the agent's numbers.
class KeptMemory {
 public:
  struct Piece {
    std::byte* data;
    std::uint64_t bytes;
  };
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory();

  // `fd` is -1 if it has to be mapped already. An inaccessible page follows writable memory.
  [[nodiscard]] Result<Piece> find(std::uint64_t number, int fd, std::uint64_t bytes, bool writable);
  void forget(std::uint64_t number) noexcept;

 private:
  struct Mapping {
    std::byte* data;
    std::uint64_t bytes, mapped;
    bool writable;
  };
  std::map<std::uint64_t, Mapping> all_;
};

struct WorkerLimits {
  std::uint64_t output_bytes_max = 0;
};

// `cancelled` is the word in which the agent writes the newest cancelled call. A call's numbers and messages go to
// `send_log`.
class WorkerContext final : public wire::FunctionContext {
 public:
  using SendLog = std::function<void(const LogLine&)>;

  // `descriptors` are those of the call, the description first (absent if it is `enclosed`); they may be closed
  // afterwards.
  [[nodiscard]] static Result<std::unique_ptr<WorkerContext>> make(CallNumber call, const std::vector<Fd>& descriptors,
                                                                   std::uint64_t description_bytes, Bytes enclosed,
                                                                   KeptMemory& kept, const WorkerLimits& limits,
                                                                   const std::atomic<CallNumber>& cancelled,
                                                                   WorkerMessages& messages, SendLog send_log);
  [[nodiscard]] const std::string& function() const noexcept { return description_.function; }

  struct Finished {
    Done done;
    std::vector<Fd> memory;  // of each output
  };
  // The result of this call for the function's `status`. Ends with all mappings.
  [[nodiscard]] Finished finish(std::int32_t status);

 private:
  // The memory of each output, in the order of outputs_.made().
  struct Memory {
    std::uint32_t flags;
    std::optional<OutputMemory> own;  // none: it is in a room
  };

  WorkerContext(CallNumber call, KeptMemory& kept, const WorkerLimits& limits, const std::atomic<CallNumber>& cancelled,
                WorkerMessages& messages, SendLog send_log);
  [[nodiscard]] Status map_inputs(const std::vector<Fd>& descriptors, std::uint64_t description_bytes, Bytes enclosed);
  [[nodiscard]] Status map_rooms(const std::vector<Fd>& descriptors);
  void fill_context();
  [[nodiscard]] Result<void*> make_output(std::string_view name, std::uint64_t bytes, std::uint32_t flags) override;
  void shrunk(std::size_t at, std::uint64_t bytes) override;
  [[nodiscard]] bool is_cancelled() const noexcept override;
  [[nodiscard]] Status send(std::uint32_t lane, std::uint32_t tag, Bytes message) override;
  [[nodiscard]] Status receive(std::uint32_t lane, std::uint32_t tag, std::span<std::byte> into,
                               std::uint64_t& bytes) override;
  void log(ofp_log_level level, std::string_view line) override;

  CallNumber call_;
  KeptMemory& kept_;
  WorkerLimits limits_;
  const std::atomic<CallNumber>& cancelled_;
  WorkerMessages& messages_;
  SendLog send_log_;
  Description description_;
  std::vector<InputMapping> mappings_;
  std::vector<std::byte*> room_data_;
  std::vector<std::uint64_t> enclosed_;  // the description, if the packet contained it
  std::vector<Memory> memory_;
  unsigned lines_ = 0;
};

}  // namespace offpath::plugin
