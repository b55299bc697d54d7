// The hardware addresses of neighbours, of both families: asked for when they are needed, asked for again before they
// are forgotten (RFC 826; RFC 4861, 7). A state machine; reads no clock, sends nothing: what is to be sent is taken
// from it.
//
// RFC 4861's states: INCOMPLETE is an entry that is not known; REACHABLE is known and fresh; STALE known and old; PROBE
// known, old and asked. A stale one that is used is asked at once: there is no DELAY.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

struct NeighbourLimits {
  std::size_t neighbours_max = 512;
  // of one user, those that have not answered: whoever asks for absent ones keeps nobody else from asking
  std::size_t unknown_of_user_max = 64;
  std::size_t waiting_max = 1024;  // flows that wait for one of them; others ask again when their timer says so
  TimeNs fresh_ns = 60 * second_ns;
  TimeNs retry_ns = second_ns;
  std::uint32_t tries = 3;
};

class Neighbours {
 public:
  // `self4`, `self6`: this node's own addresses; unspecified: it has none of that family.
  Neighbours(const IpAddress& self4, const IpAddress& self6, const MacAddress& mac, const NeighbourLimits& limits)
      : self4_(self4), self6_(self6), mac_(mac), limits_(limits) {}

  // Null: it is not known, and is asked for if there is room for that. `flow` will be in woken() when it is known, or
  // not found. `user`: who wants it, or one of the two below.
  // `place`: where it was found last, or any value; where it is now. Whoever keeps it is spared a search.
  [[nodiscard]] const MacAddress* find(const IpAddress& address, std::uint16_t& place, std::uint32_t flow,
                                       std::uint64_t user, TimeNs now);
  [[nodiscard]] const MacAddress* find(const IpAddress& address, std::uint32_t flow, std::uint64_t user, TimeNs now) {
    std::uint16_t place = no_place;
    return find(address, place, flow, user, now);
  }

  void on_message(const NeighbourMessage& message, TimeNs now);
  void overhear(const NeighbourMessage& message, TimeNs now);  // one that somebody else with this address answers
  // Heard from somebody else who asks, of a station; `wanted`: although nobody has asked for it here.
  void learn(const IpAddress& address, const MacAddress& mac, bool wanted, TimeNs now);
  [[nodiscard]] const MacAddress* known(const IpAddress& address) const noexcept;  // null: it is not; nobody is asked
  void on_time(TimeNs now);
  [[nodiscard]] TimeNs next_due() const noexcept { return next_due_; }

  struct Send {
    NeighbourMessage message;
    MacAddress to;
  };
  [[nodiscard]] std::optional<Send> next_message();
  struct Woken {
    std::uint32_t flow;  // whose number may be another's by now, which waits for another neighbour
    IpAddress address;
    bool found;
    std::uint32_t generation = 0;  // of the flow; 0: not known
  };
  [[nodiscard]] std::optional<Woken> next_woken();
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }

  static constexpr std::uint32_t no_flow = ~0u;
  static constexpr std::uint16_t no_place = 0xffff;
  // Answers to peers that have only begun to connect; a stack whose own bounds hold for what it asks.
  static constexpr std::uint64_t peers = ~0ull, other_stack = ~1ull;

 private:
  struct Entry {
    IpAddress address{};  // unspecified: it is nobody's
    MacAddress mac{};
    bool known = false;
    bool used = false;           // somebody here wanted it; otherwise it has only asked for us
    std::uint64_t user = peers;  // the first one that asked
    TimeNs since = 0;            // and when
    TimeNs fresh_until = 0;
    TimeNs ask_at = never;  // the next request, or the end
    std::uint32_t asked = 0;
    std::vector<std::uint32_t> waiting{};
  };
  [[nodiscard]] const IpAddress& self(const IpAddress& neighbour) const noexcept {
    return neighbour.is_v4() ? self4_ : self6_;
  }
  [[nodiscard]] bool is_believed(const NeighbourMessage& message) const noexcept;
  [[nodiscard]] Entry* get(const IpAddress& address) noexcept;  // null: there is none
  [[nodiscard]] Entry& add(const IpAddress& address);
  void set(Entry& entry, const MacAddress& mac, TimeNs fresh_until);
  // By neighbour discovery: a solicitation says where its sender is, an advertisement whether it can be reached.
  void learn_solicitation(const NeighbourMessage& message, TimeNs now);
  void learn_advertisement(const NeighbourMessage& message, TimeNs now);
  void remove(Entry& entry);
  void ask(Entry& entry, TimeNs now);
  [[nodiscard]] bool make_room(TimeNs now, bool for_use);
  [[nodiscard]] bool make_room_of(std::uint64_t user, TimeNs now);
  template <class May>
  [[nodiscard]] bool evict_unknown(TimeNs now, const May& may);
  void wake(Entry& entry, bool found);

  static constexpr std::size_t messages_max = 256;
  struct Order {
    bool operator()(const IpAddress& one, const IpAddress& other) const noexcept { return one.bytes < other.bytes; }
  };
  IpAddress self4_, self6_;
  MacAddress mac_;
  NeighbourLimits limits_;
  std::deque<Entry> entries_;  // by place: an address is handed out, which stays where it is
  std::vector<std::uint16_t> free_;
  std::map<IpAddress, std::uint16_t, Order> places_;  // by address; bounded, and nobody can choose how deep it is
  std::size_t waiting_ = 0;
  std::deque<Send> messages_;
  std::deque<Woken> woken_;
  TimeNs next_due_ = never;
};

}  // namespace offpath::tcp
