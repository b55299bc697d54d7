// The hardware addresses of neighbours, of both families: resolved when they are needed, and refreshed before they
// expire (RFC 826; RFC 4861, 7). A state machine without clock and port: the caller takes the messages to send.
//
// RFC 4861's states: INCOMPLETE is an entry that is not known; REACHABLE is known and fresh; STALE known and old; PROBE
// known, old and asked. A used stale entry is probed at once: there is no DELAY. Acknowledgements do not prove
// reachability here, but retransmission timeouts of flows make a router stale.
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
  // unanswered entries of one user: a user that resolves absent neighbours does not stop others
  std::size_t unknown_of_user_max = 64;
  std::size_t waiting_max = 1024;  // flows that wait for a neighbour; others ask again by their timer
  TimeNs fresh_ns = 60 * second_ns;
  TimeNs trusted_ns = 5 * second_ns;  // after a doubt (RFC 4861, DELAY_FIRST_PROBE_TIME)
  TimeNs retry_ns = second_ns;
  std::uint32_t tries = 3;
};

class Neighbours {
 public:
  // `self4`, `self6`: this node's own addresses; unspecified without an address of that family.
  Neighbours(const IpAddress& self4, const IpAddress& self6, const MacAddress& mac, const NeighbourLimits& limits)
      : self4_(self4), self6_(self6), mac_(mac), limits_(limits) {}

  // Null: it is not known, and is asked for if there is room. `flow` will be in woken() when it is known or given up.
  // `user`: the user to charge, or one of the two below. `place`: in, the last known place or any value; out, the
  // present place, which saves a search next time.
  [[nodiscard]] const MacAddress* find(const IpAddress& address, std::uint16_t& place, std::uint32_t flow,
                                       std::uint64_t user, TimeNs now);
  [[nodiscard]] const MacAddress* find(const IpAddress& address, std::uint32_t flow, std::uint64_t user, TimeNs now) {
    std::uint16_t place = no_place;
    return find(address, place, flow, user, now);
  }

  void on_message(const NeighbourMessage& message, TimeNs now);
  void overhear(const NeighbourMessage& message, TimeNs now);  // answered by another stack with this address
  // A neighbour's address, heard in another stack's message; `wanted`: kept even if no flow here has asked for it.
  void learn(const IpAddress& address, const MacAddress& mac, bool wanted, TimeNs now);
  // The neighbour may be gone: an entry not heard for a few seconds becomes old.
  void doubt(const IpAddress& address, TimeNs now) noexcept;
  [[nodiscard]] const MacAddress* known(const IpAddress& address) const noexcept;  // null if it is not known; sends no
                                                                                   // request
  void on_time(TimeNs now);
  [[nodiscard]] TimeNs next_due() const noexcept { return next_due_; }

  struct Send {
    NeighbourMessage message;
    MacAddress to;
  };
  [[nodiscard]] std::optional<Send> next_message();
  struct Woken {
    // Its number may be reused by now, by a flow that waits for another neighbour; no_flow: empty.
    std::uint32_t flow;
    IpAddress address;
    bool found;
    std::uint32_t generation = 0;  // of the flow; 0: not known
  };
  [[nodiscard]] std::optional<Woken> next_woken();
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }

  static constexpr std::uint32_t no_flow = ~0u;
  static constexpr std::uint16_t no_place = 0xffff;
  // Users for answers to peers that have only begun to connect, and for a stack with its own bounds.
  static constexpr std::uint64_t peers = ~0ull, other_stack = ~1ull;

 private:
  struct Entry {
    IpAddress address{};  // unspecified: free
    MacAddress mac{};
    bool known = false;
    bool used = false;           // wanted here; otherwise it has only asked for this node
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
  [[nodiscard]] Entry* get(const IpAddress& address) noexcept;  // null if there is no room
  [[nodiscard]] Entry& add(const IpAddress& address);
  void set(Entry& entry, const MacAddress& mac, TimeNs fresh_until);
  // Neighbour discovery: a solicitation has its sender's address, an advertisement its reachability.
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
  std::deque<Entry> entries_;  // by place: callers hold addresses of entries, which must not move
  std::vector<std::uint16_t> free_;
  std::map<IpAddress, std::uint16_t, Order> places_;  // by address; bounded, with a depth that peers cannot choose
  std::size_t waiting_ = 0;
  std::deque<Send> messages_;
  std::deque<Woken> woken_;
  TimeNs next_due_ = never;
};

}  // namespace offpath::tcp
