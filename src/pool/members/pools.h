// Pools over the members of a group: the owners of rows, and the requests between members. Read pool_name.h and
// placement.h first. This agent's own objects are in frame_table.h.
//
// Pools only forwards. Each part has its own state, and can be read and tested without the others:
//
//   peers/pool_context.h     what all parts share: options, table, numbers, stamps, counters
//   peers/directory.h        which pools and members there are, and who owns a row; pools that make room for others
//   peers/member_requests.h  requests under way to other members
//   rows/puts.h                a put of a program: here, or at the row's owners, who pull it; `stored` when all have it
//   rows/gets.h                a get or a computation: here, or asked of one owner after the other
//   rows/arrivals.h            objects that other members put and deliver here, pulled when there is room
//   rows/versions.h            which of two objects of the same keys stays
//   rows/moves.h               rows whose owners change when members come and go
//   rows/comparisons.h         owners compare their objects after that
//   rows/repairs.h             objects that were lost on this disk, copied from another owner
//   peers/gathers.h          list and drop, asked of all members and put together
//   peers/drops.h            drops that follow rows on their way
//   members/query_parts.h      each member's part of a query
//   members/kept_objects.h     objects of services beside this one; listings.h and removals.h are parts of that
//
// A state machine: members, requests, answers, completions and the time go in, effects come out. A program talks to its
// own agent only. An owner without room for an object leaves it unpulled. The bytes stay at the program, with their
// credit, so the slowest member slows the program down and nothing is lost.
//
// Read this first in src/pool/members, then query_parts.h and kept_objects.h, which are asked by other services.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "mover/store.h"
#include "pool/directory/pool_name.h"
#include "pool/members/kept_objects.h"
#include "pool/members/query_parts.h"
#include "pool/peers/gathers.h"
#include "pool/peers/listings.h"
#include "pool/peers/pool_context.h"
#include "pool/peers/removals.h"
#include "pool/query/query_members.h"
#include "pool/rows/arrivals.h"
#include "pool/rows/comparisons.h"
#include "pool/rows/computation.h"
#include "pool/rows/gets.h"
#include "pool/rows/moves.h"
#include "pool/rows/puts.h"
#include "pool/rows/remote_gets.h"
#include "pool/rows/repairs.h"
#include "pool/rows/versions.h"
#include "pool/table/frame_table.h"
#include "pool/table/reserves.h"
#include "service/service.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::Answer;

class Pools final : public mover::Store,
                    public QueryMembers,
                    public service::Service,
                    private Directory::Users,
                    private Puts::Ends {
 public:
  // `room`: whether so many bytes of memory may be taken for objects of other members. `wanted`: how many bytes of
  // memory objects should free by going to disk. `unused`: whether so many bytes are free or reserved.
  Pools(const PoolsOptions& options, std::shared_ptr<service::BufferCache> buffers,
        std::function<bool(std::uint64_t bytes)> room, std::function<std::uint64_t()> wanted = {},
        std::function<bool(std::uint64_t bytes)> unused = {});

  // Sets the agent's user and a number of this process; called before anything else.
  void set_self(std::string name, std::uint64_t process);
  // All cores of this agent, which share its local pools; after set_self.
  void set_cores(std::vector<std::string> cores) { context_.directory.set_cores(std::move(cores)); }
  // Reads the objects on disk; called after set_self and before on_members.
  [[nodiscard]] Status recover(TimeNs now, Effects& effects);
  // The living members, sorted, this one among them. `anew`: members that lived before too, as another process.
  void on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now, Effects& effects);

  // ---- Store
  [[nodiscard]] Result<std::string> admit(const std::string& pool, uid_t user, Effects& effects) override;
  [[nodiscard]] Result<mover::Stored> put(const Place& place, FramePtr frame, std::uint64_t token, TimeNs now,
                                          Effects& effects) override;
  [[nodiscard]] Result<FramePtr> find(const std::string& pool, const std::string& row_key,
                                      const std::string& column_key, uid_t user) override;
  [[nodiscard]] Status end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank,
                                std::uint32_t ranks, TimeNs now, Effects& effects) override;
  void leave(const std::string& pool) override;
  [[nodiscard]] std::string why_waits(std::uint64_t token) const override { return puts_.why_waits(token); }
  void rank_ended(const std::string& pool, std::uint32_t rank, const mover::Client& client) override;
  void rank_began(const std::string& pool, std::uint32_t rank) override { context_.table.rank_began(pool, rank); }
  // A pool of the configuration: it stays even while unused.
  [[nodiscard]] Status make(const std::string& text, uid_t user, Effects& effects);

  // ---- computations: carried out by `computes`, which asks for objects of this agent
  void serve_computes(Computes& computes);
  [[nodiscard]] Result<std::vector<QuerySource>> row(const FrameTable::Get& get) {
    return context_.table.row(get.pool, get.keys.first, get.keys.second, get.user);
  }
  void answer(const FrameTable::Get& get, const FramePtr& frame, Effects& effects) {
    context_.table.answer(get, frame, effects);
  }
  // The owner of a pool; the agent's own user if the pool does not exist.
  [[nodiscard]] uid_t owner_of(const std::string& pool) const {
    return context_.table.has(pool) ? context_.table.user_of(pool) : own_user_;
  }
  void set_own_user(uid_t user) noexcept { own_user_ = user; }
  [[nodiscard]] const std::string& self() const noexcept override { return context_.directory.self(); }
  [[nodiscard]] TimeNs now() const noexcept { return context_.now; }  // of the last event

  // ---- local requests without a program's channel
  // The objects that a query reads. Error::unsupported: the pool has other members too.
  [[nodiscard]] Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                        std::string_view column_glob, uid_t user) override {
    return parts_.choose(pool, row_glob, column_glob, user);
  }

  // ---- QueryMembers
  [[nodiscard]] Result<std::optional<Spread>> spread(const std::string& pool) override { return parts_.spread(pool); }
  [[nodiscard]] Result<std::vector<QuerySource>> choose_part(const Part& part, Effects& effects) override {
    return parts_.choose_part(part, context_.now, effects);
  }
  [[nodiscard]] std::vector<std::string> lost(const std::string& pool) const override { return parts_.lost(pool); }
  [[nodiscard]] Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) override {
    return context_.table.charge(user, bytes);
  }
  void fetch_part(std::string member, uid_t user, wire::EntryKind kind, TimeNs deadline, std::vector<std::byte> body,
                  Compose compose, Fetched fetched, TimeNs now, Effects& effects) override {
    context_.now = now;
    gets_.fetch_part(std::move(member), user, kind, deadline, std::move(body), std::move(compose), std::move(fetched),
                     effects);
  }
  void cancel_part(const std::string& member, std::uint64_t number, TimeNs now, Effects& effects) override;

  // ---- for other services
  // Asks a member for one frame. It answers as to a PeerGet, and `get` returns that answer.
  using ComposeFetch = Gets::Compose;
  void fetch(FrameTable::Get get, std::string member, wire::EntryKind kind, TimeNs deadline, ComposeFetch compose,
             TimeNs now, Effects& effects) {
    context_.now = now;
    gets_.fetch(std::move(get), std::move(member), kind, deadline, std::move(compose), effects);
  }
  void answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs now, Effects& effects) override;
  [[nodiscard]] Fd take_offer(ChannelNumber channel, std::uint64_t number) {
    return context_.table.take_offer(channel, number);
  }

  // ---- objects of other services, in pools of their own
  using Kept = pool::Kept;
  using Read = KeptObjects::Read;
  using ListedThere = Listings::Listed;
  [[nodiscard]] Status open(const std::string& text, uid_t user, TimeNs now, Effects& effects) {
    context_.now = now;
    return kept_.open(text, user, now, effects);
  }
  // Reserves memory for objects that other members keep in the pool here, until unreserve or forget_all (see
  // reserves.h). Error::too_large if all reserves together would exceed their bound.
  [[nodiscard]] Status reserve(const std::string& pool, std::uint64_t bytes, Reserves::Stays stays) {
    return kept_.reserves().add(pool, bytes, std::move(stays), context_.directory.self());
  }
  void unreserve(const std::string& pool) { kept_.reserves().remove(pool); }
  [[nodiscard]] std::uint64_t reserved() const noexcept { return kept_.reserves().bytes(); }
  [[nodiscard]] std::uint64_t reserved_left() const noexcept { return kept_.reserves().left(); }
  // Calls `kept` when all owners have it, on disk if the pool is durable; after a failure some owners may have it.
  // These methods may call back at once.
  void keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects) {
    context_.now = now;
    kept_.keep(place, std::move(object), std::move(kept), now, effects);
  }
  // Members that do not confirm, or are absent, are asked again until they do.
  void forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects) {
    context_.now = now;
    kept_.forget(pool, keys, now, effects);
  }
  void forget_all(const std::string& pool, TimeNs now, Effects& effects) {
    context_.now = now;
    kept_.forget_all(pool, now, effects);
  }
  [[nodiscard]] Result<FramePtr> let_go(const std::string& pool, const FrameTable::Keys& keys) {
    return kept_.let_go(pool, keys);
  }
  // `member`: a member that has it if this agent has not; may be empty.
  void read(const std::string& pool, const FrameTable::Keys& keys, const std::string& member, Read done, TimeNs now,
            Effects& effects) {
    context_.now = now;
    kept_.read(pool, keys, member, std::move(done), now, effects);
  }
  // A member's objects of a row, even if the pool is unknown to it.
  void list_at(const std::string& member, const std::string& pool, const std::string& row, ListedThere listed,
               TimeNs now, Effects& effects) {
    context_.now = now;
    listings_.ask(member, pool, row, std::move(listed), now, effects);
  }

  // ---- requests of programs and of members
  void on_channel_open(ChannelNumber channel, uid_t user);
  void on_channel_closed(ChannelNumber channel, TimeNs now, Effects& effects);
  void on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  // `is_member`: the channel is one of an agent of this agent's user.
  void on_peer_request(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                       Effects& effects);
  void on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, TimeNs now, Effects& effects);

  // ---- completions
  void on_transfer(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  void on_job(std::uint64_t token, Status status, TimeNs now, Effects& effects) override;
  void on_answer(std::uint64_t token, Result<Answer> answer, TimeNs now, Effects& effects) override;
  // ---- with a disk: in each round, and at the end, when no job of the disk runs any more
  [[nodiscard]] bool has_disk() const noexcept { return context_.table.disk() != nullptr; }
  void on_disk_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);
  void spill(TimeNs now, Effects& effects);
  void flush() { context_.table.flush(); }
  void read_back(const FramePtr& frame, TimeNs until, Disk::Read done, Effects& effects) {
    context_.table.read_back(frame, until, std::move(done), effects);
  }

  void on_time(TimeNs now, Effects& effects) override;
  // Wants to be called when memory becomes free.
  [[nodiscard]] bool waits_for_memory() const noexcept override { return arrivals_.is_waiting(); }
  void on_memory_freed(TimeNs now, Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;

  // ---- Service
  void on_opened(const service::OpenedChannel& channel) override {
    on_channel_open(channel.number, channel.client.user);
  }
  void on_closed(ChannelNumber channel, bool /*usual*/, TimeNs now, Effects& effects) override {
    on_channel_closed(channel, now, effects);
  }
  void on_request(const service::Request& asked, TimeNs now, Effects& effects) override;
  void on_descriptor(ChannelNumber channel, std::uint64_t number, Result<Fd>& fd, TimeNs now,
                     Effects& effects) override {
    on_offer(channel, number, std::move(fd), now, effects);
  }
  bool on_round(TimeNs now, Effects& effects) override;

  [[nodiscard]] const FrameTable& table() const noexcept { return context_.table; }
  [[nodiscard]] const Directory& directory() const noexcept { return context_.directory; }
  [[nodiscard]] PoolsCounters counters() const;
  struct PoolStatus {
    std::string name;
    uid_t user;
    std::uint64_t frames, bytes, rows;
    std::uint64_t spilled_bytes;  // of these, on disk alone
    std::uint64_t arrow_frames;   // slabs with their rows
    std::string options;
    std::size_t members;
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;
  [[nodiscard]] WaitingPuts waiting_puts(TimeNs now) const { return puts_.waiting(now); }
  [[nodiscard]] ListedGets waiting_gets(TimeNs now) const { return gets_.waiting(now); }

 private:
  // ---- Directory::Users
  void on_pool_made(const Definition& definition, uid_t user, bool by_program, TimeNs now, Effects& effects) override;
  void on_pool_gone(const std::string& pool) override;
  void add_in_use(std::set<std::string_view>& names) const override;
  [[nodiscard]] bool has_moves(const std::string& pool) const override;
  [[nodiscard]] bool is_settling() const override;

  // ---- Puts::Ends
  void on_move_ended(const Put& move, const Status& status, TimeNs now, Effects& effects) override;
  void on_put_divided(TimeNs now) override;

  using By = Directory::By;
  using Access = FrameTable::Access;
  [[nodiscard]] Status serve_definition(const channel::Entry& request, Effects& effects);
  [[nodiscard]] Status serve_step_end(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                      Effects& effects);

  PoolContext context_;
  std::unordered_map<ChannelNumber, uid_t> channels_;  // their users
  uid_t own_user_ = 0;
  Removals removals_{context_};
  Versions versions_{context_, removals_};
  Puts puts_{context_, versions_, *this};
  Moves moves_{context_, puts_};
  Comparisons comparisons_{context_, moves_};
  Listings listings_{context_};
  Drops drops_{context_, puts_};
  Gathers gathers_{context_, drops_};
  RemoteGets remote_;
  Gets gets_;
  KeptObjects kept_{context_, puts_, removals_, gets_};
  Arrivals arrivals_;
  Repairs repairs_{context_, versions_, gets_, arrivals_};
  QueryParts parts_{context_, moves_, repairs_};
};

}  // namespace offpath::pool
