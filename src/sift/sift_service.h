// The sift pools of one agent (sift.h has a single one), and their connection to programs and other members: pieces are
// offered to members and pulled by them, a flush is requested of all of them, and tracks are read at the member that
// keeps them.
//
// A state machine like the other services. The first request that names a pool makes it, with the members that live
// then (definition.h). Nothing is taken before they agree on it (agreement.h) and, if it is kept, before the objects
// that this agent kept before it restarted are back (kept/kept_store.h).
//
//   sift_service.cc   pools, their effects and the outcomes      sift_requests.cc   requests
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "channel/ring.h"
#include "mover/store.h"
#include "pool/members/pools.h"
#include "service/service.h"
#include "sift/definition.h"
#include "sift/kept/unread_pools.h"
#include "sift/publish/piece_pulls.h"
#include "sift/sift.h"
#include "sift/sift_pool.h"
#include "sift/tracks/track_parts.h"
#include "sift/tracks/track_reads.h"
#include "sift/tracks/track_writes.h"

namespace offpath::sift {

struct SiftServiceOptions {
  TimeNs piece_wait_ns = 30 * second_ns;  // for the answer to a piece, before it is offered again
  TimeNs ask_wait_ns = 5 * second_ns;
  std::uint64_t tracks_bytes_max = 1ull << 30;  // of one answer
  std::uint64_t object_bytes_max = UINT64_MAX;  // as in PoolsOptions
  std::size_t user_pools_max = 16384;           // as in FrameTable::Limits
  uid_t agent_user = 0;                         // whose rights the agent has: it writes files for this user alone
};

class SiftService final : public service::Service {
 public:
  using ChannelNumber = service::ChannelNumber;

  // `pools` answers gets, and keeps received descriptors. Both outlive this.
  SiftService(const SiftServiceOptions& options, std::shared_ptr<service::BufferCache> buffers,
              std::function<bool(std::uint64_t)> room, pool::Pools& pools);

  [[nodiscard]] static bool is_own(std::string_view pool) noexcept { return pool.starts_with("sift:/"); }
  void set_self(std::string name, std::uint64_t process);
  // Without: all members are hosts in no known rack.
  void set_places(PlaceOf place_of) { place_of_ = std::move(place_of); }
  // Restores pools that were kept on this agent's disk, after `pools` has found them.
  void recover(TimeNs now, service::Effects& effects);
  // `anew`: members that restarted.
  void on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now,
                  service::Effects& effects);

  // ---- called for a program's streams (mover::Store)
  [[nodiscard]] Result<std::string> admit(const std::string& pool, uid_t user, service::Effects& effects);
  // A pool of the configuration. It is made when as many members live as its wait= requires.
  [[nodiscard]] Status make(const std::string& pool, uid_t user, service::Effects& effects);
  // Completed later, by a StoredEffect with the token: when this agent is responsible for the frame's rows.
  [[nodiscard]] Result<mover::Stored> put(const mover::Store::Place& place, service::FramePtr frame,
                                          std::uint64_t token, TimeNs now, service::Effects& effects);

  // ---- Service. Requests: sift_flush, sift_tracks, sift_info, sift_write, sift_written; pool_drop; from members
  // peer_piece, peer_flush, peer_tracks, peer_write, peer_define, peer_drop
  void on_opened(const service::OpenedChannel& channel) override { channels_[channel.number] = channel.client.user; }
  void on_closed(ChannelNumber channel, bool usual, TimeNs now, service::Effects& effects) override;
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override;
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override {
    on_job(token, std::move(status), now, effects);
  }
  // A pull may wait for the descriptor.
  void on_descriptor(ChannelNumber /*channel*/, std::uint64_t /*number*/, Result<Fd>& /*fd*/, TimeNs now,
                     service::Effects& effects) override {
    pull_waiting(now, effects);
  }
  void on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;
  [[nodiscard]] bool waits_for_memory() const noexcept override { return pulls_.waiting() > 0; }
  void on_memory_freed(TimeNs now, service::Effects& effects) override { pull_waiting(now, effects); }

  // ---- queries (track_queries.h)
  struct TrackSource {
    std::string text;
    std::size_t members;
    TrackSnapshot snapshot;  // of the elements that this member keeps
    FrameMemory memory;
  };
  // `text`: the name alone or, from another member, the whole definition.
  [[nodiscard]] Result<TrackSource> track_source(std::string_view text, uid_t user, service::Effects& effects);
  [[nodiscard]] Result<std::pair<std::string, std::vector<std::string>>> members_of(std::string_view text);

  struct PoolStatus {
    std::string name, text;
    uid_t user;
    std::uint64_t track_bytes;
    std::vector<StageCounters> stages;
    bool kept = false, restored = true;  // it survives this agent; its objects from before a restart are back
    bool agreed = true;                  // all its living members have the same definition
    std::string rival{};                 // as in Agreement
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;
  [[nodiscard]] const TrackParts::Counters& track_files() const noexcept { return parts_.counters(); }

  // For the directory: pools that are made, and those that wait for members.
  struct Known {
    std::string_view text;
    uid_t user;
    std::string_view state;  // "waits" for members, "agrees" with them, "ready", or "rival" as in Agreement
  };
  [[nodiscard]] std::vector<Known> known() const;
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }  // of these

 private:
  using Pool = SiftPool;
  using Awaited = AwaitedPool;
  // The meaning of a token that went into a Sift.
  struct Source {
    enum class Kind { put, offer, own, flush } kind;
    Pool* pool;
    std::uint64_t token = 0;  // put: the mover's; own: the publishing element's; flush: of pool->flushes, 0: a member's
    ChannelNumber channel = 0;
    std::uint64_t ticket = 0;
  };
  // The meaning of an own token among the mover's effects.
  struct Work {
    enum class Kind { job, publish, flush, ask } kind;
    Pool* pool;
    std::uint64_t token;   // of the Sift; flush: of pool->flushes
    std::string member{};  // ask: the member that is asked
  };

  // ---- pools, by their names
  [[nodiscard]] Result<Pool*> find(std::string_view text);
  [[nodiscard]] Result<Pool*> define(std::string_view text, uid_t user, service::Effects& effects);
  [[nodiscard]] Result<Pool*> existing(std::string_view text, uid_t user);
  [[nodiscard]] static Status may_use(const Pool& pool, uid_t user);
  [[nodiscard]] Status may_make(std::string_view text) const;
  [[nodiscard]] Result<std::string> await(std::string_view text, uid_t user, const Failure& why);
  void make_awaited(TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<Pool*> replace(Pool& pool, std::string_view text, uid_t user, TimeNs now,
                                      service::Effects& effects);
  void drop(Pool& pool, TimeNs now, service::Effects& effects);
  void forget_dropped();
  void note_deadline(const Pool& pool);

  // ---- agreement with other members, and objects from before a restart
  void after(Pool& pool, Agreement::Outcome outcome, const Agreement::Asks& asks, TimeNs now,
             service::Effects& effects);
  void ask(Pool& pool, const Agreement::Ask& asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<std::uint64_t> serve_definition(std::string_view text, uid_t user, TimeNs now,
                                                       service::Effects& effects);
  [[nodiscard]] Result<Pool*> define_agreed(std::string_view text, uid_t user, TimeNs now, service::Effects& effects);
  void on_identity(const std::string& own, uid_t user, const Result<Identity>& identity, TimeNs now,
                   service::Effects& effects);
  [[nodiscard]] Status open_kept(Pool& pool, service::Effects& effects);
  [[nodiscard]] Result<bool> must_wait(Pool& pool, TimeNs now, ChannelNumber channel, const channel::Entry& request,
                                       bool is_member);
  [[nodiscard]] static Result<bool> must_wait(Pool& pool, TimeNs now, DeferredRequest serve);
  static void serve_deferred(Pool& pool, TimeNs now, service::Effects& effects);

  // ---- effects of a Sift
  void carry_out(Pool& pool, TimeNs now, service::Effects& effects);
  void publish(Pool& pool, PublishEffect& publish, TimeNs now, service::Effects& effects);
  void answered(Pool& pool, const StoredEffect& answer, TimeNs now, service::Effects& effects);
  void pulled(PiecePulls::Ended ended, TimeNs now, service::Effects& effects);
  void pull_waiting(TimeNs now, service::Effects& effects);
  std::uint64_t work(Work::Kind kind, Pool* pool, std::uint64_t token, std::string member = {});

  // ---- requests
  void serve_or_fail(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                     service::Effects& effects);
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status serve_piece(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status all_live(const Pool& pool) const;
  [[nodiscard]] Status serve_flush(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_peer_flush(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                        service::Effects& effects);
  void flush_all(Pool& pool, std::uint64_t id, FlushRounds::Round round, TimeNs now, service::Effects& effects);
  void flushed(Pool& pool, std::uint64_t id, const Result<std::uint64_t>& newer, TimeNs now, service::Effects& effects);
  static void tell_flushed(const FlushRounds::Over& over, service::Effects& effects);
  void end_flushes(Pool& pool, std::span<const std::string> before, std::span<const std::string> anew, TimeNs now,
                   service::Effects& effects);
  [[nodiscard]] Status serve_drop(ChannelNumber channel, const channel::Entry& request, bool of_member, TimeNs now,
                                  service::Effects& effects);
  [[nodiscard]] Status serve_tracks(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                    service::Effects& effects);
  [[nodiscard]] Status serve_peer_tracks(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                         service::Effects& effects);
  [[nodiscard]] Status read_tracks(const Pool& pool, pool::Get get, TrackReads::Wanted wanted, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_write(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_peer_write(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                        service::Effects& effects);
  void ask_to_write(const TrackWrites::Ask& ask, const TrackWrites::Wanted& wanted, TimeNs now,
                    service::Effects& effects);
  [[nodiscard]] Status begin_write(ChannelNumber channel, std::uint64_t ticket, const std::string& text,
                                   const std::string& directory, TimeNs deadline, TimeNs now,
                                   service::Effects& effects);
  struct PartAsked {
    TrackParts::Asker from;  // a channel
    std::uint64_t process;
    uid_t asker;
    std::string text, directory;
    TimeNs until;
  };
  [[nodiscard]] Status begin_part_of(const PartAsked& asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status begin_part(const Pool& pool, const TrackParts::Asker& from, std::uint64_t process, uid_t asker,
                                  std::string directory, TimeNs until, TimeNs now, service::Effects& effects);
  void serve_part(const TrackParts::Asker& from, wire::PeerWrite::What what, TimeNs until, TimeNs now,
                  service::Effects& effects);
  void tell_own_parts(TimeNs now, service::Effects& effects);
  [[nodiscard]] static Result<std::uint32_t> element_of(const Pool& pool, std::span<const std::uint64_t> identifiers);

  SiftServiceOptions options_;
  std::shared_ptr<service::BufferCache> buffers_;
  pool::Pools& pools_;
  PiecePulls pulls_;
  TrackReads reads_;
  TrackParts parts_;
  TrackWrites writes_;
  std::set<std::pair<ChannelNumber, std::uint64_t>> deferred_parts_;  // by the asker's number: they wait for the pool
  std::vector<std::pair<std::uint64_t, Result<wire::Written>>> own_parts_;  // answers to writes_, by number
  UnreadPools unread_;
  std::string self_;
  std::uint64_t process_ = 0;
  std::vector<std::string> alive_;
  PlaceOf place_of_;
  std::map<std::string, std::unique_ptr<Pool>, std::less<>> by_name_;
  DueTimes<std::string> times_;  // when to look at each pool of by_name_ again
  std::map<std::string, Awaited, std::less<>> awaited_;
  std::vector<std::unique_ptr<Pool>> dropped_;  // until nothing under way refers to them
  std::unordered_map<ChannelNumber, uid_t> channels_;
  std::unordered_map<std::uint64_t, Source> sources_;
  std::unordered_map<std::uint64_t, Work> works_;
  bool forget_later_ = false;  // a dropped pool may be unreferenced
  std::uint64_t next_ = 1;
  std::uint64_t changes_ = 0;
};

}  // namespace offpath::sift
