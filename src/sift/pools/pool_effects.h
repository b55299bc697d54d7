// Carries out the effects of the pools' Sifts: answers puts and offers, pulls offered pieces, publishes pieces to other
// members and to this one, starts jobs, and has objects kept.
#pragma once

#include <cstdint>
#include <functional>

#include "sift/pools/service_context.h"
#include "sift/pools/sift_pool.h"
#include "sift/pools/under_way.h"
#include "sift/publish/piece_pulls.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

class PoolEffects {
 public:
  struct Events {
    // This member's part of the flush `id` of a program here has ended.
    std::function<void(SiftPool& pool, std::uint64_t id, const Status& status, TimeNs now, service::Effects& effects)>
        flushed;
    // The pool has another deadline, and may be ready for requests that wait.
    std::function<void(SiftPool& pool, TimeNs now, service::Effects& effects)> carried_out;
  };

  // The references outlive this. `room`: as in pool::Intake.
  PoolEffects(const ServiceContext& context, UnderWay& under_way, std::function<bool(std::uint64_t)> room,
              Events events);

  // Takes the effects that the pool's Sift has added to `pending`. Those that they cause are appended and carried out
  // in order.
  void carry_out(SiftPool& pool, TimeNs now, service::Effects& effects);

  // ---- what goes into a Sift
  // A program's frame; `token` is the mover's.
  void put(SiftPool& pool, std::uint64_t token, const std::string& row_key, service::FramePtr frame, TimeNs now,
           service::Effects& effects);
  // A piece that another member offers.
  void offer(SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket, const wire::PeerPiece& piece,
             PieceHeader header, TimeNs now, service::Effects& effects);
  // The pool's part of a flush. Its end is answered to a member, or goes to Events::flushed.
  void flush(UnderWay::Input source, std::uint64_t number, TimeNs deadline, TimeNs now, service::Effects& effects);

  // ---- completions
  // `number`: of a pull. False: of something else.
  [[nodiscard]] bool on_pull_job(std::uint64_t number, const Status& status, TimeNs now, service::Effects& effects);
  void on_job(const UnderWay::Work& work, const Status& status, TimeNs now, service::Effects& effects);
  void on_published(const UnderWay::Work& work, const Status& status, TimeNs now, service::Effects& effects);
  void on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects);

  // Pulls that wait for memory, or for a descriptor.
  [[nodiscard]] bool any_pull_waits() const noexcept { return pulls_.waiting() > 0; }
  void pull_waiting(TimeNs now, service::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept { return pulls_.next_deadline(); }

 private:
  void carry_out(SiftPool& pool, Effect& effect, TimeNs now, service::Effects& effects);
  void publish(SiftPool& pool, PublishEffect& publish, TimeNs now, service::Effects& effects);
  void answered(SiftPool& pool, const StoredEffect& answer, TimeNs now, service::Effects& effects);
  void flushed(SiftPool& pool, const FlushedEffect& over, TimeNs now, service::Effects& effects);
  void pulled(PiecePulls::Ended ended, TimeNs now, service::Effects& effects);

  const ServiceContext& context_;
  UnderWay& under_way_;
  Events events_;
  PiecePulls pulls_;
};

}  // namespace offpath::sift
