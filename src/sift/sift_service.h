// The sift pools of one agent (sift.h has a single one), and their connection to programs and other members: pieces are
// offered to members and pulled by them, a flush is requested of all of them, and tracks are read at the member that
// keeps them.
//
// A state machine like the other services. The first request that names a pool makes it, with the members that live
// then: its name with all their names is its definition, by which all members place elements alike. Nothing is taken
// before they agree on it (sift_agree.cc).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "channel/ring.h"
#include "mover/mover.h"
#include "pool/members/pools.h"
#include "pool/rows/intake.h"
#include "service/service.h"
#include "sift/sift.h"
#include "sift/sift_pool.h"

namespace offpath::sift {

struct SiftServiceOptions {
  TimeNs piece_wait_ns = 30 * second_ns;  // for the answer to a piece, before it is offered again
  TimeNs ask_wait_ns = 5 * second_ns;
  std::uint64_t tracks_bytes_max = 1ull << 30;  // of one answer
  std::uint64_t object_bytes_max = UINT64_MAX;  // as in PoolsOptions
  std::size_t user_pools_max = 16384;           // as in FrameTable::Limits
};

class SiftService final : public service::Service {
 public:
  using ChannelNumber = service::ChannelNumber;

  // `pools` answers gets, and keeps received descriptors. Both outlive this.
  SiftService(const SiftServiceOptions& options, std::shared_ptr<service::BufferCache> buffers,
              std::function<bool(std::uint64_t)> room, pool::Pools& pools);
  ~SiftService() override;

  [[nodiscard]] static bool is_own(std::string_view pool) noexcept { return pool.starts_with("sift:/"); }
  void set_self(std::string name, std::uint64_t process);
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

  // ---- requests: sift_flush, sift_tracks, sift_info; pool_drop; from members peer_piece, peer_flush, peer_tracks,
  // peer_define, peer_drop
  void on_channel_open(ChannelNumber channel, uid_t user) { channels_[channel] = user; }
  void on_channel_closed(ChannelNumber channel, TimeNs now, service::Effects& effects);
  void on_request(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                  service::Effects& effects);
  void on_descriptor(TimeNs now, service::Effects& effects);  // a descriptor arrived that a piece may wait for

  // ---- completions
  void on_transfer(std::uint64_t token, const Status& status, TimeNs now, service::Effects& effects);
  void on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;
  // Called when memory becomes free.
  [[nodiscard]] bool waits_for_memory() const noexcept override { return !waiting_.empty(); }
  void on_memory_freed(TimeNs now, service::Effects& effects) override { pull_waiting(now, effects); }

  // ---- Service
  void on_opened(const service::OpenedChannel& channel) override {
    on_channel_open(channel.number, channel.client.user);
  }
  void on_closed(service::ChannelNumber channel, bool /*usual*/, TimeNs now, service::Effects& effects) override {
    on_channel_closed(channel, now, effects);
  }
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override {
    on_request(asked.channel, asked.entry, asked.is_member, now, effects);
  }
  void on_transfer(service::ChannelNumber /*channel*/, std::uint64_t token, Status status, TimeNs now,
                   service::Effects& effects) override {
    on_transfer(token, std::move(status), now, effects);
  }
  void on_descriptor(service::ChannelNumber /*channel*/, std::uint64_t /*number*/, Result<Fd>&, TimeNs now,
                     service::Effects& effects) override {
    on_descriptor(now, effects);
  }

  // ---- queries (track_queries.h)
  struct TrackSource {
    std::string text;
    std::size_t members;
    TrackSnapshot snapshot;  // of the elements that this member keeps
    FrameMemory memory;
  };
  // By its name alone, or, from another member, by its whole definition.
  [[nodiscard]] Result<TrackSource> track_source(std::string_view text, uid_t user, service::Effects& effects);
  [[nodiscard]] Result<std::pair<std::string, std::vector<std::string>>> members_of(std::string_view text);

  struct PoolStatus {
    std::string name, text;
    uid_t user;
    std::uint64_t track_bytes;
    std::vector<StageCounters> stages;
    bool kept = false, restored = true;  // it survives this agent; its former objects are back
    bool agreed = true;                  // all its living members have the same definition
    std::string rival{};                 // a definition of its name that other members agreed on, and that wins
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;

 private:
  using Deferred = DeferredRequest;
  using Pool = SiftPool;
  using Elsewhere = ElsewhereKept;
  using Awaited = AwaitedPool;
  using Unread = UnreadPool;
  // The meaning of a token that went into a Sift.
  struct Source {
    enum class Kind { put, offer, own, flush } kind;
    Pool* pool;
    std::uint64_t token = 0;  // put: the mover's; own: the publishing element's; flush: of flushes_, 0: a member's
    ChannelNumber channel = 0;
    std::uint64_t ticket = 0;
    pool::Intake::Object object{};
  };
  // The meaning of an own token among the mover's effects.
  struct Work {
    enum class Kind { pull, job, publish, flush, tracks, keep, read, open, tell } kind;
    Pool* pool;
    std::uint64_t token;   // of the Sift; flush: of flushes_; tracks: of reading_
    std::string member{};  // tell: the member that is asked
  };
  struct Flush {
    ChannelNumber channel;
    std::uint64_t ticket;
    Pool* pool;
    TimeNs deadline;
    std::size_t open = 0;
    // A member has begun a flush with this number, so this one may not follow everything that was put.
    std::uint64_t newer = 0;
    Status status{};
  };
  struct Reading {
    pool::FrameTable::Get get;
    std::shared_ptr<service::FramePtr> frame;
  };
  // The requested tracks, as wire::SiftTracks.
  struct Wanted {
    std::uint32_t element;
    bool all;
    std::int64_t first_step, last_step;
    std::vector<std::uint64_t> identifiers;
  };

  [[nodiscard]] Result<Pool*> find(std::string_view text);
  [[nodiscard]] Result<Pool*> define(std::string_view text, uid_t user, service::Effects& effects);
  [[nodiscard]] Result<Pool*> existing(std::string_view text, uid_t user);
  [[nodiscard]] static Status may_use(const Pool& pool, uid_t user);
  // Only these change `due` and `ask_at`; the deadlines of its Sift are tracked by carry_out().
  void set_due(Pool& pool, TimeNs at);
  void set_ask_at(Pool& pool, TimeNs at);
  void note_deadline(const Pool& pool);
  void carry_out(Pool& pool, TimeNs now, service::Effects& effects);
  void publish(Pool& pool, PublishEffect& publish, TimeNs now, service::Effects& effects);
  void answered(Pool& pool, const AnswerEffect& answer, TimeNs now, service::Effects& effects);
  void wait_for_pull(Pool& pool, std::uint64_t token);
  void pull_waiting(TimeNs now, service::Effects& effects);
  [[nodiscard]] bool begin_pull(Pool& pool, std::uint64_t token, TimeNs now, service::Effects& effects);
  std::uint64_t work(Work::Kind kind, Pool* pool, std::uint64_t token);

  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status serve_piece(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_flush(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_peer_flush(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                        service::Effects& effects);
  [[nodiscard]] Status serve_tracks(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                    service::Effects& effects);
  [[nodiscard]] Status serve_drop(ChannelNumber channel, const channel::Entry& request, bool of_member, TimeNs now,
                                  service::Effects& effects);
  void drop(Pool& pool, TimeNs now, service::Effects& effects);
  void forget_dropped();
  [[nodiscard]] Status serve_peer_tracks(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                         service::Effects& effects);
  [[nodiscard]] Status read_tracks(const Pool& pool, pool::FrameTable::Get get, Wanted wanted, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] static Result<std::uint32_t> element_of(const Pool& pool, std::span<const std::uint64_t> identifiers);
  void begin_flush(std::uint64_t id, TimeNs now, service::Effects& effects);
  void flushed(std::uint64_t number, const Result<std::uint64_t>& newer, TimeNs now, service::Effects& effects);

  // sift_agree.cc
  [[nodiscard]] static bool is_ready(const Pool& pool) noexcept;
  [[nodiscard]] Status may_put(const Pool& pool, TimeNs now) const;
  [[nodiscard]] std::vector<std::string> missing(const Pool& pool, TimeNs now) const;
  void work_on_agreement(Pool& pool, TimeNs now, service::Effects& effects);
  void tell(Pool& pool, const std::string& member, TimeNs now, service::Effects& effects);
  void on_told(Pool& pool, const std::string& member, const Result<service::Answer>& answer, TimeNs now,
               service::Effects& effects);
  void agree(Pool& pool, TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<std::uint64_t> serve_definition(std::string_view text, uid_t user, TimeNs now,
                                                       service::Effects& effects);
  [[nodiscard]] Result<Pool*> define_agreed(std::string_view text, uid_t user, TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<Pool*> replace(Pool& pool, std::string_view text, uid_t user, TimeNs now,
                                      service::Effects& effects);
  [[nodiscard]] Result<std::string> await(std::string_view text, uid_t user, const Failure& why);
  void make_awaited(TimeNs now, service::Effects& effects);

  // sift_kept.cc
  void read_identities(TimeNs now, service::Effects& effects);
  void on_identity(const std::string& own, const Result<service::FramePtr>& object, TimeNs now,
                   service::Effects& effects);
  [[nodiscard]] Status may_make(std::string_view text) const;
  [[nodiscard]] static std::string own_name(const Settings& settings, std::string_view text, uid_t user);
  [[nodiscard]] Status open_own(Pool& pool, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status set_aside(const Pool& pool);
  void work_on_opening(Pool& pool, TimeNs now, service::Effects& effects);
  void on_listed(std::uint64_t number, const std::string& member,
                 const Result<std::vector<pool::FrameTable::Item>>& items, TimeNs now);
  void begin_restore(Pool& pool, TimeNs now, service::Effects& effects);
  void identified(std::uint64_t number, Result<std::uint64_t> incarnation, const std::vector<KeptItem>& items,
                  TimeNs now, service::Effects& effects);
  [[nodiscard]] static mover::Store::Place place_of(const Pool& pool, std::string name);
  [[nodiscard]] static std::string member_with(const Pool& pool, std::string_view name);
  void keep(Pool& pool, KeepEffect& effect, TimeNs now, service::Effects& effects);
  void read(Pool& pool, const ReadEffect& effect, TimeNs now, service::Effects& effects);
  [[nodiscard]] Result<bool> must_wait(Pool& pool, TimeNs now, ChannelNumber channel, const channel::Entry& request,
                                       bool is_member);
  static void serve_deferred(Pool& pool, TimeNs now, service::Effects& effects);

  SiftServiceOptions options_;
  std::shared_ptr<service::BufferCache> buffers_;
  pool::Pools& pools_;
  pool::Intake intake_;
  std::string self_;
  std::uint64_t process_ = 0;
  std::vector<std::string> alive_;
  std::map<std::string, std::unique_ptr<Pool>, std::less<>> by_name_;
  DueTimes<std::string> times_;  // when to look at each pool of by_name_ again
  std::map<std::string, Awaited, std::less<>> awaited_;
  std::map<std::string, Unread> unread_;        // by the names of the pools that keep them
  std::vector<std::unique_ptr<Pool>> dropped_;  // until nothing under way refers to them
  std::unordered_map<ChannelNumber, uid_t> channels_;
  std::unordered_map<std::uint64_t, Source> sources_;
  std::unordered_map<std::uint64_t, Work> works_;
  std::deque<std::pair<Pool*, std::uint64_t>> waiting_;  // pulls for which there was no room, or no descriptor
  DueTimes<std::uint64_t> waiting_times_;                // those of them that wait for a descriptor
  std::unordered_map<std::uint64_t, Flush> flushes_;
  std::unordered_map<std::uint64_t, Reading> reading_;
  bool forget_later_ = false;  // a dropped pool may be unreferenced
  std::uint64_t next_ = 1;
};

}  // namespace offpath::sift
