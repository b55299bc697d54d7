// Requests for tracks by identifier, of programs and of other members: answered here, or at the member that keeps the
// identifiers' element.
#pragma once

#include <cstdint>
#include <span>

#include "sift/pools/service_context.h"
#include "sift/pools/sift_pool.h"
#include "sift/pools/under_way.h"
#include "sift/tracks/track_reads.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

class TrackRequests {
 public:
  // The references outlive this.
  TrackRequests(const ServiceContext& context, UnderWay& under_way);

  // ---- requests to a pool that is ready
  [[nodiscard]] Status serve(const SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                             wire::SiftTracks asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status serve_member(const SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                                    wire::PeerTracks asked, TimeNs now, service::Effects& effects);

  [[nodiscard]] bool has(std::uint64_t job) const { return reads_.has(job); }
  void on_job(std::uint64_t job, const Status& status, TimeNs now, service::Effects& effects) {
    reads_.on_job(job, status, now, effects);
  }

 private:
  // Fails unless all of them are in one element.
  [[nodiscard]] static Result<std::uint32_t> element_of(const SiftPool& pool,
                                                        std::span<const std::uint64_t> identifiers);
  [[nodiscard]] Status read(const SiftPool& pool, pool::Get get, TrackReads::Wanted wanted, TimeNs now,
                            service::Effects& effects);

  const ServiceContext& context_;
  UnderWay& under_way_;
  TrackReads reads_;
};

}  // namespace offpath::sift
