#include "connections/area/owed_commands.h"

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;

void OwedCommands::owe(Handle handle, std::uint8_t what) noexcept {
  records_.cell(handle).owed |= what;
  if (!settle(handle)) remember(handle);
}

// True: no commands are owed any more.
bool OwedCommands::settle(Handle handle) noexcept {
  SocketCell& owing = records_.cell(handle);
  constexpr struct {
    Owed owed;
    TcpCommandKind kind;
  } order[] = {{owed_allow, TcpCommandKind::allow},     {owed_finish, TcpCommandKind::finish},
               {owed_release, TcpCommandKind::release}, {owed_abort, TcpCommandKind::abort},
               {owed_holders, TcpCommandKind::holders}, {owed_options, TcpCommandKind::options}};
  for (const auto& each : order) {
    if ((owing.owed & each.owed) == 0) continue;
    const std::uint32_t core = owing.listens ? 0 : commands_.core_of(handle);  // core 0 takes those of listeners
    if (!commands_.room(core)) return false;
    TcpCommand command{};
    command.kind = each.kind;
    command.handle = handle;
    if (each.owed == owed_allow) {
      memory_.open_window(handle);  // first, so that pages are no longer given back
      command.position = owing.allowed = owing.read + owing.bytes(Way::in);
    }
    if (each.owed == owed_holders) {
      owing.woken = owing.holders == 1 ? owing.holder : every_process;
      command.position = owing.woken == every_process ? ~0ull : wire::tcp_process_bit(owing.woken);
    }
    if (each.owed == owed_options) owing.settings.put(command);
    records_.post(commands_, core, command);
    owing.owed &= static_cast<std::uint8_t>(~each.owed);
  }
  return owing.owed == 0 || rings_.ask(handle);
}

// Where one core's ring is full, handles that owe it commands are passed over: so many in a call. The agent wakes this
// process when the ring has room.
void OwedCommands::settle_some() noexcept {
  constexpr int passed_over_max = 1024;
  HandlePass pass(owing_, records_.shared().next_owing);
  for (int passed_over = 0; passed_over < passed_over_max && !owing_.empty() && commands_.room_anywhere();) {
    const auto handle = pass.next();
    if (!handle) break;
    if (records_.cell(*handle).owed == 0 || settle(*handle))
      owing_.remove(*handle);
    else
      ++passed_over;
  }
}

}  // namespace offpath::channel
