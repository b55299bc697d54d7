// The sift pools of one agent (sift.h has a single one), and their connection to programs and other members: pieces are
// offered to members and pulled by them, a flush is requested of all of them, and tracks are read at the member that
// keeps them.
//
// A state machine like the other services. The first request that names a pool makes it, with the members that live
// then (definition.h). Nothing is taken before they agree on it (agreement.h) and, if it is kept, before the objects
// that this agent kept before it restarted are back (kept/kept_store.h).
//
// This class gives each event to the part that it concerns (pools/): pools by name, how they are made and agreed on,
// their effects, and requests by kind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "mover/store.h"
#include "pool/members/pools.h"
#include "service/service.h"
#include "sift/definition.h"
#include "sift/pools/flush_requests.h"
#include "sift/pools/known_pools.h"
#include "sift/pools/pool_agreements.h"
#include "sift/pools/pool_effects.h"
#include "sift/pools/pool_making.h"
#include "sift/pools/service_context.h"
#include "sift/pools/track_requests.h"
#include "sift/pools/under_way.h"
#include "sift/pools/write_requests.h"
#include "sift/sift.h"
#include "sift/sift_service_options.h"

namespace offpath::sift {

class SiftService final : public service::Service {
 public:
  using ChannelNumber = service::ChannelNumber;

  // `pools` answers gets, and keeps received descriptors. Both outlive this.
  SiftService(const SiftServiceOptions& options, std::shared_ptr<service::BufferCache> buffers,
              std::function<bool(std::uint64_t)> room, pool::Pools& pools);

  [[nodiscard]] static bool is_own(std::string_view pool) noexcept { return is_sift_pool(pool); }
  void set_self(std::string name, std::uint64_t process);
  // All cores of this agent, this one among them.
  void set_cores(std::vector<std::string> cores) { context_.cores = std::move(cores); }
  // Without: all members are hosts in no known rack.
  void set_places(PlaceOf place_of) { context_.place_of = std::move(place_of); }
  // Restores pools that were kept on this agent's disk, after `pools` has found them.
  void recover(TimeNs now, service::Effects& effects) { making_.recover(now, effects); }
  // `anew`: members that restarted.
  void on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now,
                  service::Effects& effects);

  // ---- called for a program's streams (mover::Store)
  [[nodiscard]] Result<std::string> admit(const std::string& pool, uid_t user, service::Effects& effects) {
    return making_.admit(pool, user, effects);
  }
  // A pool of the configuration. It is made when as many members live as its wait= requires.
  [[nodiscard]] Status make(const std::string& pool, uid_t user, service::Effects& effects) {
    return making_.make(pool, user, effects);
  }
  // Completed later, by a StoredEffect with the token, when this agent is responsible for the frame's rows.
  [[nodiscard]] Result<mover::Stored> put(const mover::Store::Place& place, service::FramePtr frame,
                                          std::uint64_t token, TimeNs now, service::Effects& effects);

  // ---- Service. Requests: sift_flush, sift_tracks, sift_info, sift_write, sift_written; pool_drop; from members
  // peer_piece, peer_flush, peer_tracks, peer_write, peer_define, peer_drop
  void on_opened(const service::OpenedChannel& channel) override {
    context_.channels[channel.number] = channel.client.user;
  }
  void on_closed(ChannelNumber channel, bool usual, TimeNs now, service::Effects& effects) override;
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override;
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override {
    on_job(token, std::move(status), now, effects);
  }
  // A pull may wait for the descriptor.
  void on_descriptor(ChannelNumber /*channel*/, std::uint64_t /*number*/, Result<Fd>& /*fd*/, TimeNs now,
                     service::Effects& effects) override {
    pool_effects_.pull_waiting(now, effects);
  }
  void on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;
  [[nodiscard]] bool waits_for_memory() const noexcept override { return pool_effects_.any_pull_waits(); }
  void on_memory_freed(TimeNs now, service::Effects& effects) override { pool_effects_.pull_waiting(now, effects); }

  // ---- queries (track_queries.h)
  struct TrackSource {
    std::string text;  // of the definition
    std::size_t members;
    TrackSnapshot snapshot;  // of the elements that this member keeps
    FrameMemory memory;
  };
  // `text`: the name alone or, from another member, the whole definition.
  [[nodiscard]] Result<TrackSource> track_source(std::string_view text, uid_t user, service::Effects& effects);
  struct Members {
    std::string reference;  // to the definition
    std::vector<std::string> names;
    std::string key;  // the column with identifiers
  };
  [[nodiscard]] Result<Members> members_of(std::string_view text);

  struct PoolStatus {
    std::string name, text;
    uid_t user;
    std::uint64_t track_bytes, spilled_track_bytes;  // all; of these, on disk alone
    std::vector<StageCounters> stages;
    bool kept = false, restored = true;  // it survives this agent; its objects from before a restart are back
    bool agreed = true;                  // all its living members have the same definition
    std::string rival{};                 // as in Agreement
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;
  [[nodiscard]] const TrackParts::Counters& track_files() const noexcept { return writes_.counters(); }

  // For the directory: pools that are made, and those that wait for members.
  struct Known {
    std::string_view text;  // the definition's text, or a reference to it if that is longer than a name may be
    uid_t user;
    std::string_view state;  // "waits" for members, "agrees" with them, "ready", or "rival" as in Agreement
  };
  [[nodiscard]] std::vector<Known> known() const;
  [[nodiscard]] std::uint64_t changes() const noexcept {
    return known_.changes() + making_.awaited().changes();
  }  // of these

 private:
  void serve_or_fail(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                     service::Effects& effects);
  [[nodiscard]] Status serve(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                             service::Effects& effects);
  [[nodiscard]] Status serve_program(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                     service::Effects& effects);
  [[nodiscard]] Status serve_member(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                    service::Effects& effects);
  // True: the pool is not ready, and the request is served when it is.
  [[nodiscard]] Result<bool> defer(SiftPool& pool, TimeNs now, ChannelNumber channel, const channel::Entry& request,
                                   bool is_member);
  [[nodiscard]] Status serve_piece(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                   service::Effects& effects);
  [[nodiscard]] Status serve_info(ChannelNumber channel, const channel::Entry& request, service::Effects& effects);
  [[nodiscard]] Status serve_drop(ChannelNumber channel, const channel::Entry& request, bool of_member, TimeNs now,
                                  service::Effects& effects);

  ServiceContext context_;
  UnderWay under_way_;
  KnownPools known_;
  PoolEffects pool_effects_;
  PoolMaking making_;
  PoolAgreements agreements_;
  FlushRequests flushes_;
  TrackRequests tracks_;
  WriteRequests writes_;
};

}  // namespace offpath::sift
