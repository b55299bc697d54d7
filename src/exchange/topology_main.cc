// offpath-topology: shows the tree of a shape for a number of members, before an exchange uses it. `offpath exchange
// topology` runs it.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "exchange/topology.h"

namespace offpath::exchange {
namespace {

constexpr std::size_t drawn_members_max = 512;

struct Load {
  std::uint64_t sends = 0, takes = 0;
};

// Counts the parcels of one round in which all members live.
class Traffic {
 public:
  explicit Traffic(const Topology& topology) : topology_(topology), loads_(topology.size()) {
    const Node& root = topology.node(topology.root());
    for (const NodeIndex from : root.children)
      for (const NodeIndex to : root.children)
        if (from != to) count(across, from, to);
    for (NodeIndex index = 0; index < topology.nodes().size(); ++index) {
      const Node& node = topology.node(index);
      if (node.parent == nobody || node.parent == topology.root() || leader(index) == leader(node.parent)) continue;
      count(up, index, node.parent);
      count(down, node.parent, index);
    }
  }
  std::uint64_t up = 0, across = 0, down = 0;
  [[nodiscard]] MemberIndex busiest() const {
    const auto most = std::ranges::max_element(loads_, {}, [](const Load& each) { return each.sends + each.takes; });
    return static_cast<MemberIndex>(most - loads_.begin());
  }
  [[nodiscard]] const Load& load(MemberIndex member) const { return loads_[member]; }

 private:
  [[nodiscard]] MemberIndex leader(NodeIndex node) const { return topology_.order()[topology_.node(node).first]; }
  void count(std::uint64_t& sum, NodeIndex from, NodeIndex to) {
    ++sum;
    ++loads_[leader(from)].sends;
    ++loads_[leader(to)].takes;
  }
  const Topology& topology_;
  std::vector<Load> loads_;
};

struct Asked {
  Shape shape;
  std::vector<Place> members;
};

Result<Asked> read(const std::string& shape, const std::string& members) {
  Asked asked;
  if (shape == "--file") {
    std::ifstream file(members);
    asked.shape.kind = Shape::Kind::file;
    asked.shape.tree.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file) return fail(Error::io, "{} cannot be read", members);
    OFP_ASSIGN(const std::vector<std::string> names, tree_members(asked.shape.tree));
    for (const std::string& name : names) asked.members.push_back({name});
    return asked;
  }
  OFP_ASSIGN(asked.shape, parse_shape(shape));
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(members.data(), members.data() + members.size(), count);
  if (error != std::errc() || *end != '\0' || count == 0 || count > exchange_members_max)
    return fail(Error::invalid, "'{}' is not a number of members from 1 to {}", members, exchange_members_max);
  for (std::size_t i = 0; i < count; ++i) asked.members.push_back({fmt::format("dpu{}", i)});
  return asked;
}

Status show(const std::string& shape, const std::string& members) {
  OFP_ASSIGN(const Asked asked, read(shape, members));
  OFP_ASSIGN(const Topology topology, Topology::make(asked.shape, asked.members));
  if (asked.members.size() <= drawn_members_max) fmt::print("{}\n", topology.text(asked.members));
  const Traffic traffic(topology);
  const MemberIndex busiest = traffic.busiest();
  const Node& root = topology.node(topology.root());
  const std::uint32_t levels = root.level - (root.children.size() == 1 ? 1 : 0);  // nothing crosses a single child
  fmt::print("{} members, {} levels; parcels of a round: {} up, {} across, {} down\n", topology.size(), levels,
             traffic.up, traffic.across, traffic.down);
  fmt::print("the busiest member is {}: it sends {} and receives {}\n", asked.members[busiest].name,
             traffic.load(busiest).sends, traffic.load(busiest).takes);
  return {};
}

}  // namespace
}  // namespace offpath::exchange

int main(int count, char** values) {
  const bool asked = count == 2 && std::string_view(values[1]) == "--help";
  if (count != 3) {
    fmt::print(asked ? stdout : stderr,
               "usage: offpath-topology SHAPE MEMBERS | --file TREE\n"
               "Shows the tree of an exchange: its groups, their leaders, and the parcels of a round.\n\n"
               "Arguments:\n"
               "  SHAPE        A topology, such as 'neighbourhoods(4)'\n"
               "  MEMBERS      How many members the group has\n\n"
               "Options:\n"
               "  --file TREE  Read the groups from a file, one group on each line\n"
               "  --help       Print this help and exit\n");
    return asked ? 0 : 2;
  }
  const offpath::Status shown = offpath::exchange::show(values[1], values[2]);
  if (!shown) fmt::print(stderr, "offpath-topology: {}\n", shown.error().message);
  return shown ? 0 : 1;
}
