// Gets and computations of programs, answered here or by a row's owners one after the other, and of other members. An
// object up to the size of an inbox comes with its answer; a larger one is delivered and pulled.
//
// All owners are asked before the get waits at one, former owners included, because an object may be moving between
// them. While rows settle after a change, all other members are asked too (Directory::is_settling). A member drops a
// moved row only when the new owners have it. So the owners are asked once more at the end, and an existing row is
// found even if it moves meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/peers/pool_context.h"
#include "pool/query/query_members.h"
#include "pool/rows/computation.h"
#include "pool/rows/remote_gets.h"
#include "pool/rows/waiting.h"
#include "service/service.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

class Gets {
 public:
  using Compose =
      std::function<void(const service::AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload)>;

  Gets(PoolContext& context, RemoteGets& remote, std::shared_ptr<service::BufferCache> buffers)
      : context_(context), gets_(remote), buffers_(std::move(buffers)) {}
  void serve_computes(Computes& computes) noexcept { computes_ = &computes; }

  // ---- of programs
  void get(ChannelNumber channel, uid_t user, const channel::Entry& request, TimeNs now, Effects& effects);
  // `local`: this agent has the whole pool.
  void compute(ChannelNumber channel, uid_t user, const channel::Entry& request, bool local, TimeNs now,
               Effects& effects);
  void cancel(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  // Asks another owner, because the object here cannot be read.
  void on_unreadable(FrameTable::Get get, Failure why, TimeNs now, Effects& effects);

  // ---- of other parts and services
  // Asks one member, which answers as to a PeerGet; `get` returns that answer.
  void fetch(FrameTable::Get get, std::string member, wire::EntryKind kind, TimeNs deadline, Compose compose,
             Effects& effects);
  void fetch_part(std::string member, uid_t user, wire::EntryKind kind, TimeNs deadline, std::vector<std::byte> body,
                  Compose compose, QueryMembers::Fetched fetched, Effects& effects);
  // Asks the other owners of an object for a copy.
  void fetch_copy(const RecordPtr& record, RemoteGet::Copied copied, TimeNs now, Effects& effects);

  // ---- of other members
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  [[nodiscard]] Status serve_compute(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                     Effects& effects);
  [[nodiscard]] Status serve_cancel(ChannelNumber channel, const channel::Entry& request, Effects& effects);
  // Sends an object that does not fit into the inbox of the member that asked.
  void deliver(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, Effects& effects);
  static void on_delivered(const FrameTable::Get& get, const service::Frame& frame, const Status& status,
                           Effects& effects);

  void on_answer(std::uint64_t number, Result<service::Answer> answer, TimeNs now, Effects& effects);
  void on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects);
  // Repeats requests to former owners at a present owner.
  void on_members(TimeNs now, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  void add_pools(std::set<std::string_view>& names) const;
  [[nodiscard]] ListedGets waiting(TimeNs now) const;

 private:
  void ask_next(std::uint64_t number, TimeNs now, Effects& effects);
  // True if this member's answer is awaited, or ends the get.
  [[nodiscard]] bool ask_at(std::uint64_t number, RemoteGet& remote, const Definition& definition,
                            const std::string& member, TimeNs now, Effects& effects);
  [[nodiscard]] bool ask_any(std::uint64_t number, RemoteGet& remote, const Definition& definition, TimeNs now,
                             Effects& effects);
  [[nodiscard]] bool begin_last_look(RemoteGet& remote, const Definition& definition, TimeNs now) const;
  [[nodiscard]] std::vector<std::string> candidates_of(RemoteGet& remote, const Definition& definition) const;
  [[nodiscard]] bool is_here(const RemoteGet& remote) const;
  void serve_here(std::uint64_t number, TimeNs now, Effects& effects);
  void note_absence_here(RemoteGet& remote) const;
  void ask_owner(std::uint64_t number, RemoteGet& remote, const Definition& definition, const std::string& owner,
                 TimeNs now, Effects& effects);
  void give_up(std::uint64_t number, TimeNs now, Effects& effects);
  [[nodiscard]] std::uint64_t ask_compute(std::uint64_t number, const RemoteGet& remote, const std::string& owner,
                                          std::int64_t wait_ns, Effects& effects);
  void cancel_at_owner(std::uint64_t number, const RemoteGet& remote, TimeNs now, Effects& effects);
  [[nodiscard]] static bool may_compute_elsewhere(const RemoteGet& remote, Error said) noexcept;
  [[nodiscard]] Result<FramePtr> frame_of(const RemoteGet& remote, const wire::Got& got, Bytes inbox);
  void on_part_answer(std::uint64_t number, Result<service::Answer> answer, TimeNs now, Effects& effects);

  PoolContext& context_;
  RemoteGets& gets_;
  std::shared_ptr<service::BufferCache> buffers_;
  Computes* computes_ = nullptr;
};

}  // namespace offpath::pool
