// Memory that a program announced to a card, until the agent has released it. For host ends whose agent must confirm
// before a key ends (verbs_link, doca_link).
//
// A key ends in this order: the host tells the agent (`withdraw`), the agent answers when no operation uses the key,
// then the registration is released. A segment is the link's own memory: its pages are kept until the answer, and
// nobody waits. A range belongs to the program, which gets it back when retire() returns; if the agent does not answer
// within a second, the key ends anyway. A host that may not wait, because it is itself an agent, withdraws and keeps
// the memory until is_gone().
//
// `Registered`: a move-only handle that owns the key.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "link/control/host_control.h"
#include "wire/region.h"
#include "wire/stale_range.h"

namespace offpath::link {

template <class Registered>
class AnnouncedMemory {
 public:
  static constexpr TimeNs withdraw_wait_ns = second_ns;

  [[nodiscard]] std::optional<std::uint32_t> generation_of(wire::RegionId region) const {
    const auto at = kept_.find(region);
    return at != kept_.end() ? std::optional(at->second.generation) : std::nullopt;
  }
  void keep(wire::RegionId region, std::uint32_t generation, Registered registered) {
    kept_.insert_or_assign(region, Kept{generation, std::move(registered)});
  }

  // For memory that the agent refused.
  void drop(wire::RegionId region) { kept_.erase(region); }

  // Fails if there is nothing to wait for.
  Status withdraw(HostControl& control, wire::RegionId region, std::uint32_t generation) {
    OFP_TRY(control.usable());
    const auto at = kept_.find(region);
    if (at == kept_.end() || at->second.generation != generation) return wire::not_announced(region, generation);
    leaving_.emplace(std::pair(region, generation), std::move(at->second));
    kept_.erase(at);
    std::vector<std::byte> payload;
    wire::encode(wire::Withdrawal{region, generation}, payload);
    return control.send(wire::ControlType::withdraw, payload);
  }
  // The agent has answered, or there is nothing to wait for.
  [[nodiscard]] bool is_gone(wire::RegionId region, std::uint32_t generation) {
    return find_leaving(region, generation) == leaving_.end();
  }
  // Waits for the answer.
  void retire(HostControl& control, wire::RegionId range, std::uint32_t generation) {
    if (!withdraw(control, range, generation)) return;
    const auto gone = [&] { return is_gone(range, generation); };
    (void)control.until(gone, deadline_after(monotonic_ns(), withdraw_wait_ns));
    const auto at = find_leaving(range, generation);
    if (at == leaving_.end()) return;
    log(LogLevel::warning,
        "the agent did not confirm within {} s that it has stopped using range {}: its key ends, and operations under "
        "way "
        "on it fail",
        withdraw_wait_ns / second_ns, range);
    leaving_.erase(at);
  }
  Status take_withdrawn(Bytes payload) {
    OFP_ASSIGN(const wire::Withdrawal withdrawal, wire::decode_withdrawal(payload));
    const auto at = find_leaving(withdrawal.region, withdrawal.generation);
    if (at != leaving_.end()) leaving_.erase(at);  // otherwise retire() gave up waiting
    return {};
  }

  void clear() noexcept {
    kept_.clear();
    leaving_.clear();
  }
  // In a forked child: registrations belong to the parent.
  void abandon() noexcept {
    for (auto& [region, kept] : kept_) (void)kept.registered.release();
    for (auto& [name, kept] : leaving_) (void)kept.registered.release();
    clear();
  }

 private:
  struct Kept {
    std::uint32_t generation;
    Registered registered;  // null: nothing to register
  };
  // The number of a segment, whose generation is always 0, may be announced again before the agent has answered:
  // answers come in the order of withdrawals.
  using Leaving = std::multimap<std::pair<wire::RegionId, std::uint32_t>, Kept>;

  [[nodiscard]] typename Leaving::iterator find_leaving(wire::RegionId region, std::uint32_t generation) {
    const auto at = leaving_.lower_bound({region, generation});
    return at != leaving_.end() && at->first == std::pair(region, generation) ? at : leaving_.end();
  }

  std::map<wire::RegionId, Kept> kept_;  // segments and ranges, including the channel segment
  Leaving leaving_;                      // the agent has not answered
};

}  // namespace offpath::link
