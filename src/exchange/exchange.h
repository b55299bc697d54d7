// One member's part in one exchange: rounds with a deadline, views, grants. A state machine without socket, thread or
// clock: events and the time are arguments, and its actions are effects. Read topology.h and parcel.h first.
//
//   a round at one member                                                              slot of the deadline, of 2 R
//                                                                                      (2 R - 1 if none sends across)
//     own record is there, or its time is over                                          1
//     up: for each node it leads, the expected parts have arrived, or their time is over     level + 1
//     across: a child of the root sends to the others and waits for theirs              R + 1
//     down: the others wait for the whole, where views go to all, or grants do          up to 2 R
//   and the view is given: at the deadline at the latest, with what has come. R is the root's level.
//
// Epochs. The member whose interval ends first begins the next epoch; the others follow when a parcel of it arrives,
// and take over its beginning. So the members follow the fastest of their clocks, and no clock is compared. A parcel of
// the next epoch that arrives during this one waits for its end; a parcel of a later epoch ends it.
//
// Members that are up. The parts of a node pass over a leader that was silent for `silent_rounds`, all of them alike,
// until it is heard again; it is asked from time to time. A part that was silent for `missed_rounds` is not waited for
// until its next parcel. The owner reports the members that it knows to be dead (on_member).
//
// The leader of everything. Without grants it is the root's leader. With grants it is a member where something decides
// (grants.h), and may be any: the tree's leaders stay, choose it, and say so downwards. Ballots, and the view, go down
// into its part of the tree too, and its grants come up from there, so they take a round more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "exchange/grants.h"
#include "exchange/parcel.h"
#include "exchange/reduction.h"
#include "exchange/topology.h"

namespace offpath::exchange {

struct ExchangeOptions {
  std::string name;
  TimeNs interval_ns = 100 * millisecond_ns;  // from the start of one round to the next; 0: as fast as they end
  TimeNs deadline_ns = 50 * millisecond_ns;   // of a round; at most the interval, unless the interval is 0
  bool views_to_all = true;                   // otherwise only the leaders of the root's parts have the complete view
  bool entries = true;                        // records travel; otherwise only their reductions
  std::vector<Reduction> reductions{};        // of records of `schema`
  std::shared_ptr<const Schema> schema{};     // null: records are bytes
  std::optional<GrantOptions> grants{};
  std::uint64_t record_bytes = record_bytes_max;  // of a record, at most
  std::uint32_t silent_rounds = 3, missed_rounds = 2, probe_rounds = 4;
};

// Returns the first error in them, if any.
[[nodiscard]] Status check(const ExchangeOptions& options);
// A warning if grants may lapse although all members are there, because of times that are short for this tree. Empty:
// they do not.
[[nodiscard]] std::string warning_of_grants(const ExchangeOptions& options, const Topology& topology);

struct ViewEntry {
  MemberIndex member;
  bool present;         // of this epoch; otherwise the newest known
  bool has_value;       // it has published something
  std::uint64_t epoch;  // 0: nothing was received from it
  TimeNs age_ns;        // of the record, when the view was made; never less than its true age, as far as known
  Record record;
};

struct View {
  std::uint64_t epoch = 0;
  TimeNs began_at = 0, given_at = 0;  // by this member's clock
  std::uint32_t present = 0, expected = 0;
  bool whole = false;                        // of all members; otherwise of this member's part of the tree
  MemberIndex leader = nobody;               // the member that grants, as far as this member knows
  std::vector<ViewEntry> entries{};          // of the expected members, in their order; empty if only reductions travel
  std::shared_ptr<const Reduced> reduced{};  // null: there are no reductions
  std::uint32_t reduced_members = 0;
};
using ViewPtr = std::shared_ptr<const View>;

struct ExchangeEffects {
  struct Send {
    MemberIndex to;
    SharedBytes parcel;
    TimeNs deadline;  // it is useless afterwards
  };
  std::vector<Send> sends;
  std::vector<ViewPtr> views;
  bool wants_local = false;  // a round has begun: on_local has to be called
};

struct ExchangeCounters {
  std::uint64_t rounds = 0, complete = 0, partial = 0;
  std::uint64_t late = 0;     // parcels of an epoch that had ended
  std::uint64_t refused = 0;  // invalid parcels, or parcels of another tree
  std::uint64_t parcels_in = 0, parcels_out = 0, bytes_in = 0, bytes_out = 0;
  std::uint64_t followed = 0;             // rounds that another member began
  std::uint64_t replaced = 0;             // leaders that were passed over
  std::uint64_t without_value = 0;        // rounds without a record of this member
  TimeNs round_ns = 0, round_ns_max = 0;  // from start to view: the last one, the longest
  TimeNs overrun_ns_max = 0;              // a view after its deadline: this process was not running
};

class Exchange {
 public:
  // `nonce` is random for each process (grants.h). `epoch`: that of an exchange with other members, which this one
  // replaces.
  Exchange(ExchangeOptions options, Topology topology, MemberIndex self, std::uint64_t nonce, TimeNs now,
           std::uint64_t epoch = 0);

  // Begins the next round now, regardless of the interval.
  void begin(TimeNs now, ExchangeEffects& effects);
  void on_time(TimeNs now, ExchangeEffects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // The own record for the current round, and its age; without an owner: there is none.
  void on_local(const Record& record, TimeNs age_ns, TimeNs now, ExchangeEffects& effects);
  // An error is the sender's fault, and nothing has changed.
  [[nodiscard]] Status on_parcel(const SharedBytes& bytes, TimeNs now, ExchangeEffects& effects);
  // A member is known to be dead, or alive again.
  void on_member(MemberIndex member, bool is_up, TimeNs now);

  [[nodiscard]] Grants* grants() noexcept { return grants_ ? &*grants_ : nullptr; }
  [[nodiscard]] const Grants* grants() const noexcept { return grants_ ? &*grants_ : nullptr; }
  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] std::shared_ptr<const Topology> shared_topology() const noexcept { return shared_topology_; }
  [[nodiscard]] const ExchangeOptions& options() const noexcept { return options_; }
  [[nodiscard]] const ExchangeCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] MemberIndex self() const noexcept { return self_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  // The member that this one takes for the leader of everything.
  [[nodiscard]] MemberIndex leader() const noexcept { return leader_; }
  [[nodiscard]] bool is_dead(MemberIndex member) const noexcept { return peers_[member].dead; }  // says its owner
  [[nodiscard]] bool is_up(MemberIndex member) const noexcept { return !peers_[member].dead && !peers_[member].silent; }

 private:
  struct Peer {                                         // a member, as this one knows it
    bool dead = false;                                  // reported by the owner
    bool silent = false;                                // a leader that was not heard of
    std::uint64_t heard_round = 0, expected_round = 0;  // in this member's count of rounds
    std::uint64_t epoch = 0;                            // of its newest record
    TimeNs source_at = 0;                               // when it was made, by this clock: at the latest
    bool has_value = false;
    Record record{};
    std::uint64_t sent_up = 0, sent_down = 0;  // epochs that were sent on
  };
  struct Part {                    // a node of the tree that concerns this member
    std::uint64_t epoch = 0;       // the newest that was received for it
    std::uint32_t missed = 0;      // rounds without one
    MemberIndex speaker = nobody;  // the sender of that
    std::uint64_t speaker_round = 0;
    std::uint64_t partial_epoch = 0;
    Reduced partial{};
  };
  struct OwnRecord {
    Record record;
    TimeNs made_at;
  };
  enum class Phase : std::uint8_t { local, up, across, down };

  [[nodiscard]] MemberIndex leader_of(NodeIndex node) const;
  [[nodiscard]] MemberIndex speaker_of(NodeIndex node) const;
  [[nodiscard]] MemberIndex choose_leader(TimeNs now) const;
  [[nodiscard]] bool has_granting_leader(NodeIndex node) const;
  [[nodiscard]] TimeNs slot(std::uint32_t number) const noexcept;
  [[nodiscard]] std::uint32_t depth_of(NodeIndex node) const noexcept;
  void start(std::uint64_t epoch, TimeNs began_at, TimeNs now, ExchangeEffects& effects);  // the caller calls advance()
  void say_own_record(TimeNs now);
  void advance(TimeNs now, ExchangeEffects& effects);
  [[nodiscard]] bool step(TimeNs now, ExchangeEffects& effects);
  [[nodiscard]] TimeNs phase_deadline() const noexcept;
  [[nodiscard]] bool parts_are_there(NodeIndex node) const;
  void note_missing(NodeIndex node);
  void leave_node(TimeNs now, ExchangeEffects& effects);
  void close(TimeNs now, ExchangeEffects& effects);
  void send_down(TimeNs now, ExchangeEffects& effects);
  void judge(TimeNs now, ExchangeEffects& effects);
  void expect_to_hear(MemberIndex member);
  void probe(TimeNs now, ExchangeEffects& effects);
  [[nodiscard]] bool leads(NodeIndex node) const { return leader_of(node) == self_; }
  [[nodiscard]] ParcelHeader header(ParcelKind kind, NodeIndex node, TimeNs now) const;
  void add_entries(ParcelWriter& writer, std::uint32_t first, std::uint32_t last, std::uint64_t Peer::* sent,
                   TimeNs now) const;
  void note_sent(std::uint32_t first, std::uint32_t last, std::uint64_t Peer::* sent);
  void add_partial(ParcelWriter& writer, NodeIndex node);
  void add_ballots(ParcelWriter& writer, std::uint32_t first, std::uint32_t last) const;
  void add_grants(ParcelWriter& writer, std::uint32_t first, std::uint32_t last) const;
  void send(MemberIndex to, const SharedBytes& parcel, ExchangeEffects& effects);
  void reduce_own_part(NodeIndex node);
  void take(const Parcel& parcel, TimeNs now);
  void take_partials(const Parcel& parcel);
  void take_entries(const Parcel& parcel, TimeNs now);
  void take_grants(const Parcel& parcel, TimeNs now);
  void hear(const ParcelHeader& header);
  [[nodiscard]] Status check(const Parcel& parcel) const;
  [[nodiscard]] ViewPtr make_view(TimeNs now) const;

  ExchangeOptions options_;
  std::shared_ptr<const Topology> shared_topology_;
  const Topology& topology_;  // that one
  MemberIndex self_;
  std::uint64_t tag_;
  std::uint32_t slots_, across_slots_;
  bool waits_for_down_;
  std::optional<Grants> grants_;
  // from the owner; a round uses the one that is present at the end of its first phase
  std::optional<OwnRecord> own_newest_;
  std::vector<Peer> peers_;
  std::vector<Part> parts_;  // by node
  std::vector<std::byte> scratch_;
  ParcelWriter writer_{};

  std::uint64_t epoch_ = 0, rounds_ = 0;
  bool open_ = false;
  Phase phase_ = Phase::local;
  NodeIndex at_ = nobody;  // the highest node that this member leads and has reached in this round
  bool local_there_ = false, whole_there_ = false, whole_ = false;
  TimeNs began_at_ = 0, next_at_ = 0;
  MemberIndex leader_;                        // chosen here, or told by the member that leads this one
  MemberIndex probed_ = 0;                    // the last one asked
  std::map<MemberIndex, SharedBytes> early_;  // parcels of the next epoch, the newest of each member
  ExchangeCounters counters_;
};

}  // namespace offpath::exchange
