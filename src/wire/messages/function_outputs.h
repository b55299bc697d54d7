// What a function of a plug-in has made, and may make: the rules are the same in a worker and in a program that runs it
// itself. Memory for outputs is the caller's.
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
  // With rooms, or where there is nothing but them, outputs have to be among these.
  FunctionOutputs(std::vector<Room> rooms, std::uint64_t bytes_max, bool rooms_alone = false)
      : rooms_(std::move(rooms)), bytes_max_(bytes_max), rooms_alone_(rooms_alone || !rooms_.empty()) {}

  // May an output of this name and size be made? In which room, if there is one for it.
  [[nodiscard]] Result<std::optional<std::size_t>> admit(std::string_view name, std::uint64_t bytes) const;
  void add(std::string_view name, std::optional<std::size_t> room, void* data, std::uint64_t bytes);
  // Which one it is, made shorter; none: there is no such output, or it has fewer bytes.
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

// What a function returns; -1 where it throws, and `error` says what.
template <class Function>
[[nodiscard]] std::int32_t call_guarded(const Function& function, std::string& error) {
  try {
    return function();
  } catch (const std::exception& thrown) {
    error = fmt::format("threw: {}", thrown.what());
  } catch (...) {
    error = "threw something that is no std::exception";
  }
  return -1;
}

}  // namespace offpath::wire
