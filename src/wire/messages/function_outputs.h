// The outputs of a plug-in's function, and the rules for them: the same in a worker and in a program that runs the
// function itself. The caller provides memory for outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::wire {

inline constexpr std::size_t function_outputs_max = 250;
inline constexpr std::size_t output_name_bytes_max = 255;
inline constexpr std::size_t function_error_bytes_max = 1000;

class FunctionOutputs {
 public:
  struct Room {
    std::string name;
    std::uint64_t bytes;
  };
  struct Made {
    std::string name;
    std::optional<std::size_t> room;
    void* data;
    std::uint64_t bytes;
  };
  // With rooms, or with `rooms_alone`, outputs have to be among the rooms.
  FunctionOutputs(std::vector<Room> rooms, std::uint64_t bytes_max, bool rooms_alone = false)
      : rooms_(std::move(rooms)), bytes_max_(bytes_max), rooms_alone_(rooms_alone || !rooms_.empty()) {}

  // Whether an output of this name and size may be made, and in which room, if it has one.
  [[nodiscard]] Result<std::optional<std::size_t>> admit(std::string_view name, std::uint64_t bytes) const;
  void add(std::string_view name, std::optional<std::size_t> room, void* data, std::uint64_t bytes);
  // Shortens the output at `data` and returns its index; none: there is no such output, or it is smaller.
  [[nodiscard]] std::optional<std::size_t> shrink(const void* data, std::uint64_t bytes);
  [[nodiscard]] const std::vector<Made>& made() const noexcept { return made_; }

 private:
  std::vector<Room> rooms_;
  std::uint64_t bytes_max_, bytes_ = 0;
  bool rooms_alone_;
  std::vector<Made> made_;
};

[[nodiscard]] inline TimeNs time_left(TimeNs deadline_ns) noexcept {
  if (deadline_ns == never) return never;
  const TimeNs now = monotonic_ns();
  return deadline_ns > now ? deadline_ns - now : 0;
}

// The result of a function; -1 if it throws, with the reason in `error`.
template <class Function>
[[nodiscard]] std::int32_t call_guarded(const Function& function, std::string& error) {
  try {
    return function();
  } catch (const std::exception& thrown) {
    error = fmt::format("threw: {}", thrown.what());
  } catch (...) {
    error = "threw an exception that is not a std::exception";
  }
  return -1;
}

}  // namespace offpath::wire
