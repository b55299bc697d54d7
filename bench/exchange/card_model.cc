#include "exchange/card_model.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "exchange/parcel.h"

namespace offpath::bench {

namespace {

using namespace exchange;

class Simulation {
 public:
  Simulation(const Topology& topology, const CardConstants& constants, std::uint64_t record_bytes,
             std::size_t members_of_card)
      : topology_(topology),
        constants_(constants),
        record_bytes_(record_bytes),
        members_of_card_(members_of_card),
        processors_(topology.size()),
        cards_((topology.size() + members_of_card - 1) / members_of_card),
        missing_(topology.nodes().size()) {
    for (std::size_t i = 0; i < missing_.size(); ++i) missing_[i] = topology.nodes()[i].children.size();
    top_ = topology.node(topology.root()).children;
  }

  double run() {
    if (top_.empty()) return 0;
    for (NodeIndex node = 0; node < topology_.nodes().size(); ++node)
      if (topology_.node(node).member != nobody) gathered(node, 0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      switch (event.stage) {
        case Stage::sends:
          send(event);
          break;
        case Stage::at_card:
          receive(event);
          break;
        case Stage::arrived:
          take(event);
          break;
      }
    }
    return last_;
  }

 private:
  enum class Stage : std::uint8_t { sends, at_card, arrived };
  struct Event {
    double time = 0;
    std::uint64_t order = 0;  // of events at one time
    Stage stage = Stage::sends;
    NodeIndex from = 0;  // the node whose parcel it is
    std::size_t to = 0;  // an index of `top_`, or beyond it: the node's parent

    bool operator<(const Event& other) const noexcept {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Card {
    double sends_at = 0, receives_at = 0;  // free from then on
  };

  [[nodiscard]] std::uint32_t leader(NodeIndex node) const { return topology_.node(node).first; }
  [[nodiscard]] Card& card(std::uint32_t position) { return cards_[position / members_of_card_]; }
  [[nodiscard]] bool near(std::uint32_t one, std::uint32_t other) const {
    return one / members_of_card_ == other / members_of_card_;
  }
  [[nodiscard]] std::uint32_t target(const Event& event) const {
    return leader(event.to < top_.size() ? top_[event.to] : topology_.node(event.from).parent);
  }
  [[nodiscard]] double on_wire(NodeIndex node) const {
    return std::max(constants_.card_gap, constants_.network.byte_gap * bytes_of(node));
  }
  [[nodiscard]] double bytes_of(NodeIndex node) const { return parcel_bytes(topology_.node(node), record_bytes_); }
  void add(Event event, double time, Stage stage) {
    event.time = time;
    event.order = order_++;
    event.stage = stage;
    events_.push(event);
  }

  // The node's leader has everything of it.
  void gathered(NodeIndex node, double now) {
    last_ = std::max(last_, now);
    const NodeIndex parent = topology_.node(node).parent;
    if (parent == topology_.root()) {
      const auto own = static_cast<std::size_t>(std::ranges::find(top_, node) - top_.begin());
      if (top_.size() > 1) add({.from = node, .to = (own + 1) % top_.size()}, now, Stage::sends);
    } else if (leader(parent) == leader(node)) {
      is_there(parent, now);
    } else {
      add({.from = node, .to = top_.size()}, now, Stage::sends);
    }
  }
  void is_there(NodeIndex parent, double now) {
    if (--missing_[parent] == 0) gathered(parent, now);
  }

  // Each top leader begins with its successor, so that they do not all send to the same one.
  void send(const Event& event) {
    const std::uint32_t from = leader(event.from), to = target(event);
    const double sent = std::max(event.time, processors_[from]) + constants_.network.overhead;
    processors_[from] = sent;
    if (near(from, to)) {
      add(event, sent + constants_.near_latency, Stage::arrived);
    } else {
      double& sends_at = card(from).sends_at;
      const double begins = std::max(sent, sends_at);
      sends_at = begins + on_wire(event.from);
      add(event, begins + constants_.network.latency, Stage::at_card);
    }
    if (event.to == top_.size()) return;
    const std::size_t next = (event.to + 1) % top_.size();
    if (top_[next] != event.from) add({.from = event.from, .to = next}, sent, Stage::sends);
  }
  // Its first byte is there.
  void receive(const Event& event) {
    double& receives_at = card(target(event)).receives_at;
    receives_at = std::max(event.time, receives_at) + on_wire(event.from);
    add(event, receives_at, Stage::arrived);
  }
  void take(const Event& event) {
    const std::uint32_t from = leader(event.from), to = target(event);
    double& processor = processors_[to];
    processor = std::max(event.time, processor) + constants_.network.overhead;
    if (near(from, to)) processor += constants_.near_byte_gap * bytes_of(event.from);
    last_ = std::max(last_, processor);
    if (event.to == top_.size()) is_there(topology_.node(event.from).parent, processor);
  }

  const Topology& topology_;
  CardConstants constants_;
  std::uint64_t record_bytes_;
  std::size_t members_of_card_;
  std::vector<double> processors_;  // of members by place: free from then on
  std::vector<Card> cards_;
  std::vector<std::size_t> missing_;  // children whose parcels the leader of a node lacks
  std::vector<NodeIndex> top_;        // the root's children
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  double last_ = 0;
};

}  // namespace

double parcel_bytes(const exchange::Node& node, std::uint64_t record_bytes) {
  const std::uint64_t members = node.last - node.first;
  return static_cast<double>(parcel_bytes_max(members, record_bytes, 0) - members * (sizeof(Ballot) + sizeof(Grant)));
}

double exchange_ns(const exchange::Topology& topology, const CardConstants& constants, std::uint64_t record_bytes,
                   std::size_t members_of_card) {
  return Simulation(topology, constants, record_bytes, members_of_card).run();
}

}  // namespace offpath::bench
