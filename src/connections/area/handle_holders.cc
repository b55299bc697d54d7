#include "connections/area/handle_holders.h"

namespace offpath::channel {

void HandleHolders::hold(std::uint32_t process, Handle handle) noexcept {
  processes_.hold(process, handle);
  SocketCell& held = records_.cell(handle);
  ++held.holders;
  held.holder = static_cast<std::uint16_t>(process);
}

std::uint32_t HandleHolders::begin_release(std::uint32_t process, Handle handle) noexcept {
  SocketCell& held = records_.cell(handle);
  if (held.holders <= 1) return held.holders = 0;
  if (--held.holders > 1) return held.holders;
  for (std::uint32_t each = 0; each < processes_.count(); ++each)
    if (each != process && processes_.is_held(each, handle)) held.holder = static_cast<std::uint16_t>(each);
  return held.holders;
}

bool HandleHolders::has_changed(Handle handle) const noexcept {
  const SocketCell& held = records_.cell(handle);
  const std::uint16_t wanted = held.holders == 1 && processes_.count() > 1 ? held.holder : every_process;
  return held.is == SocketCell::Is::flow && !held.gone && wanted != held.woken;
}

void HandleHolders::mark_changed(Handle handle, std::uint32_t by) noexcept {
  const SocketCell& held = records_.cell(handle);
  if (held.holders == 1) return processes_.set_changed(held.holder, handle, by);
  for (std::uint32_t each = 0; each < processes_.count() && held.holders > 0; ++each)
    if (processes_.is_held(each, handle)) processes_.set_changed(each, handle, by);
}

void HandleHolders::recount(Handle handle) noexcept {
  SocketCell& held = records_.cell(handle);
  held.holders = 0;
  for (std::uint32_t each = 0; each < processes_.count(); ++each) {
    if (!processes_.is_held(each, handle)) continue;
    ++held.holders;
    held.holder = static_cast<std::uint16_t>(each);
  }
}

}  // namespace offpath::channel
