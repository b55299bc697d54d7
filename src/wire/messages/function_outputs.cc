#include "wire/messages/function_outputs.h"

#include <algorithm>

namespace offpath::wire {

Result<std::optional<std::size_t>> FunctionOutputs::admit(std::string_view name, std::uint64_t bytes) const {
  if (name.size() > output_name_bytes_max)
    return fail(Error::too_large, "an output's name has {} bytes, at most {}", name.size(), output_name_bytes_max);
  if (made_.size() == function_outputs_max)
    return fail(Error::too_large, "output '{}' would be one more than {}", name, function_outputs_max);
  if (std::ranges::find(made_, name, &Made::name) != made_.end())
    return fail(Error::exists, "there is an output '{}' already", name);
  const auto room = std::ranges::find(rooms_, name, &Room::name);
  const bool has_room = room != rooms_.end();
  if (has_room && bytes > room->bytes)
    return fail(Error::too_large, "output '{}' of {} bytes: the task has room for {}", name, bytes, room->bytes);
  if (!has_room && rooms_alone_)
    return fail(Error::invalid, "output '{}' is not among those that the task names", name);
  if (bytes > bytes_max_ - bytes_)
    return fail(Error::too_large,
                "output '{}' of {} bytes: the outputs of this call may have {} bytes together, {} are left", name,
                bytes, bytes_max_, bytes_max_ - bytes_);
  return has_room ? std::optional(static_cast<std::size_t>(room - rooms_.begin())) : std::nullopt;
}

void FunctionOutputs::add(std::string_view name, std::optional<std::size_t> room, void* data, std::uint64_t bytes) {
  made_.push_back({std::string(name), room, data, bytes});
  bytes_ += bytes;
}

std::optional<std::size_t> FunctionOutputs::shrink(const void* data, std::uint64_t bytes) {
  const auto at = std::ranges::find_if(made_, [&](const Made& each) { return each.data == data; });
  if (data == nullptr || at == made_.end() || bytes > at->bytes) return std::nullopt;
  bytes_ -= at->bytes - bytes;
  at->bytes = bytes;
  return static_cast<std::size_t>(at - made_.begin());
}

}  // namespace offpath::wire
