// The ofp_context of one call of a plug-in's function, wherever the function runs. A derived class provides memory for
// outputs and carries messages and log lines: plugin::WorkerContext in a worker, host::ContextHere in a program that
// runs the function itself.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "offpath/plugin.h"
#include "wire/messages/function_outputs.h"

namespace offpath::wire {

class FunctionContext {
 public:
  FunctionContext(const FunctionContext&) = delete;
  FunctionContext& operator=(const FunctionContext&) = delete;

  [[nodiscard]] ofp_context* context() noexcept { return &context_.visible; }
  // Runs the function. Returns its status; an exception is -1 and sets the error.
  [[nodiscard]] std::int32_t call(ofp_function_pointer function);
  // Cut at function_error_bytes_max.
  void set_error(std::string_view message);

 protected:
  FunctionContext() noexcept;
  ~FunctionContext() = default;

  // The context that the function sees; the pointers to functions are set already.
  [[nodiscard]] ofp_context& visible() noexcept { return context_.visible; }
  [[nodiscard]] const ofp_context& visible() const noexcept { return context_.visible; }
  // Neither list may change afterwards; names and data stay the caller's.
  void show_inputs(std::vector<ofp_input> inputs);
  void show_rooms(std::vector<ofp_room> rooms);
  [[nodiscard]] const std::vector<ofp_input>& inputs() const noexcept { return inputs_; }
  // The error that was set, otherwise that of the last message that failed; may be empty. With mutex_ locked.
  [[nodiscard]] const std::string& error() const noexcept { return error_.empty() ? message_error_ : error_; }
  [[nodiscard]] const FunctionOutputs& outputs() const noexcept { return outputs_; }

  std::mutex mutex_;  // a function's threads may call at the same time
  FunctionOutputs outputs_{{}, 0};

 private:
  // Zeroed unless `flags` contain OFP_DATA_UNSET, which are known flags only. Adds to outputs_. With mutex_ locked.
  [[nodiscard]] virtual Result<void*> make_output(std::string_view name, std::uint64_t bytes, std::uint32_t flags) = 0;
  // Output `at` of outputs_ has become shorter. With mutex_ locked.
  virtual void shrunk(std::size_t at, std::uint64_t bytes) = 0;
  [[nodiscard]] virtual bool is_cancelled() const noexcept = 0;
  [[nodiscard]] virtual Status send(std::uint32_t lane, std::uint32_t tag, Bytes message) = 0;
  [[nodiscard]] virtual Status receive(std::uint32_t lane, std::uint32_t tag, std::span<std::byte> into,
                                       std::uint64_t& bytes) = 0;
  // With mutex_ locked.
  virtual void log(ofp_log_level level, std::string_view line) = 0;

  // The C structure, and the way back from it.
  struct Visible {
    ofp_context visible{};
    FunctionContext* owner = nullptr;
  };
  struct Calls;  // the functions of the plug-in interface

  Visible context_;
  std::vector<ofp_input> inputs_;
  std::vector<const ofp_input*> input_pointers_;
  std::vector<ofp_room> rooms_;
  std::string error_, message_error_;
};

}  // namespace offpath::wire
