// The processes that hold each handle, and that are told of its changes. A process holds the handles that it made or
// accepted, and those that it was given at its start. ProcessTable has a bit for each process and handle; the cell
// counts them, because most handles have one holder.
//
// The bit is cleared last: if a process dies while it releases a handle, it is still a holder, and the release is
// repeated. The counts in cells may be wrong after the death of a process under the lock, and are taken anew.
#pragma once

#include "connections/area/process_table.h"
#include "connections/area/socket_records.h"

namespace offpath::channel {

class HandleHolders {
 public:
  using Handle = std::uint32_t;
  HandleHolders(const SocketRecords& records, ProcessTable& processes) noexcept
      : records_(records), processes_(processes) {}

  [[nodiscard]] bool is_held(std::uint32_t process, Handle handle) const noexcept {
    return handle < records_.flows() && processes_.is_held(process, handle);
  }
  void hold(std::uint32_t process, Handle handle) noexcept;
  // The first half of a release: counts the holders that are left. end_release() follows, when the handle has been
  // ended or the agent told of its only holder.
  [[nodiscard]] std::uint32_t begin_release(std::uint32_t process, Handle handle) noexcept;
  void end_release(std::uint32_t process, Handle handle) noexcept { processes_.let_go(process, handle); }
  // Whether the agent has to be told another process to wake for the flow: its only holder, or every process.
  [[nodiscard]] bool has_changed(Handle handle) const noexcept;
  // Says to all holders that the handle has changed. `by`: the process that found it out.
  void mark_changed(Handle handle, std::uint32_t by) noexcept;
  // After the death of a process under the lock.
  void recount(Handle handle) noexcept;

 private:
  const SocketRecords& records_;
  ProcessTable& processes_;
};

}  // namespace offpath::channel
