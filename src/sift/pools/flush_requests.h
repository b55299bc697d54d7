// Flushes of sift pools over all of their members: a program's flush asks every member, and a member's flush this one
// (flush_rounds.h counts the answers).
#pragma once

#include <span>
#include <string>

#include "sift/pools/pool_effects.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

class FlushRequests {
 public:
  // The references outlive this.
  FlushRequests(const ServiceContext& context, UnderWay& under_way, PoolEffects& pool_effects) noexcept
      : context_(context), under_way_(under_way), pool_effects_(pool_effects) {}

  // ---- requests to a pool that is ready
  [[nodiscard]] Status serve(SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket, TimeNs wait_ns,
                             TimeNs now, service::Effects& effects);
  [[nodiscard]] Status serve_member(SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                                    const wire::PeerFlush& flush, TimeNs now, service::Effects& effects);

  // A member's answer, or this member's, to the flush `id` of a program. `newer`: as in FlushRounds.
  void on_answer(SiftPool& pool, std::uint64_t id, const Result<std::uint64_t>& newer, TimeNs now,
                 service::Effects& effects);
  // Fails flushes of programs, and this agent's parts of other members' flushes, if a member of the pool was lost: it
  // may have answered already, but still owe marks to waiting members. `before`: the members that lived until now.
  void on_members(SiftPool& pool, std::span<const std::string> before, std::span<const std::string> anew, TimeNs now,
                  service::Effects& effects);

 private:
  [[nodiscard]] Status all_live(const SiftPool& pool) const;
  void ask_all(SiftPool& pool, std::uint64_t id, FlushRounds::Round round, TimeNs now, service::Effects& effects);
  static void tell(const FlushRounds::Over& over, service::Effects& effects);

  const ServiceContext& context_;
  UnderWay& under_way_;
  PoolEffects& pool_effects_;
};

}  // namespace offpath::sift
