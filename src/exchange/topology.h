// The paths of parcels: one pure function of a shape and of the members, so that all members with the same list compute
// the same tree without a message.
//
// The tree's leaves are the members, in an order (`order`) in which every node is a run [first, last). A node is
// represented by its leader: the first live member of its run. So every member that sees a leader die knows the next
// one without a vote.
//
//   up       the leader of a node sends what it gathered to the leader of the node's parent
//   across   the children of the root send to each other: all of their leaders have the whole
//   down     from the leader of a node to those of its children: data for all members
//
//   allgather             the root's children are the members                     all members send to all
//   neighbourhoods(s)     groups of at most s, and groups of groups, up to one    the root has one child: nothing is
//                         group of all: its leader has the whole, and scatters    sent across
//   grouped_allgather(s)  groups of at most s members below the root              hybrid of depth 2
//   hybrid(s, d)          groups of groups, d levels in all; depth 1 is allgather
//   file                  any tree, its groups named (node, rack, row)
//
// Read this first in src/exchange, then parcel.h (messages), exchange.h (one member), reduction.h and grants.h (figures
// and shares), carrier.h with its three kinds, and exchange_service.h (programs' part).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace offpath::exchange {

using MemberIndex = std::uint32_t;
using NodeIndex = std::uint32_t;
inline constexpr std::uint32_t nobody = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::size_t exchange_members_max = 65536;
inline constexpr std::uint32_t depth_max = 32;

// A member and its location. An empty host or rack is unknown, and equals no other.
struct Place {
  std::string name;
  std::string host{};
  std::string rack{};
};

struct Shape {
  enum class Kind : std::uint8_t { allgather, neighbourhoods, grouped_allgather, hybrid, file };
  enum class Order : std::uint8_t { contiguous, locality };
  Kind kind = Kind::allgather;
  std::uint32_t size = 2;   // largest size of a group; groups of one level differ by at most one
  std::uint32_t depth = 3;  // of hybrid
  // contiguous: in the order of the members. locality: no group has members of two hosts (of two racks, if no host has
  // two members); at higher levels, no group has groups of two racks, if any rack has several.
  Order order = Order::contiguous;
  std::string tree{};  // of file: its text
};
// "allgather", "neighbourhoods(4)", "grouped_allgather(4)", "hybrid(2, 3)". The error lists all forms.
[[nodiscard]] Result<Shape> parse_shape(std::string_view text);
[[nodiscard]] std::string shape_text(const Shape& shape);

struct Node {
  std::string name{};  // of a group of a tree file
  NodeIndex parent = nobody;
  std::uint32_t level = 0;            // hops from the leaves: 0 for a leaf, one more than its highest child otherwise
  std::uint32_t first = 0, last = 0;  // of `order`
  std::vector<NodeIndex> children{};
  MemberIndex member = nobody;  // of a leaf
};

class Topology {
 public:
  // At least one member, with different names that are not empty. An error in a tree's text names its line.
  [[nodiscard]] static Result<Topology> make(const Shape& shape, std::span<const Place> members);

  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] const std::vector<MemberIndex>& order() const noexcept { return order_; }
  [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Node& node(NodeIndex index) const noexcept { return nodes_[index]; }
  [[nodiscard]] NodeIndex root() const noexcept { return root_; }
  [[nodiscard]] NodeIndex leaf(MemberIndex member) const noexcept { return leaves_[member]; }
  [[nodiscard]] std::uint32_t position(MemberIndex member) const noexcept { return nodes_[leaves_[member]].first; }
  [[nodiscard]] bool contains(NodeIndex node, MemberIndex member) const noexcept {
    return nodes_[node].first <= position(member) && position(member) < nodes_[node].last;
  }
  // `nobody` if none of them is up.
  template <class IsUp>
  [[nodiscard]] MemberIndex leader(NodeIndex node, const IsUp& is_up) const {
    for (std::uint32_t at = nodes_[node].first; at < nodes_[node].last; ++at)
      if (is_up(order_[at])) return order_[at];
    return nobody;
  }
  // Whether the root's children send to each other. Otherwise one leader gathers everything.
  [[nodiscard]] bool sends_across() const noexcept { return nodes_[root_].children.size() > 1; }
  // Equal for equal members and trees, also on different machines: it shows that two members have the same tree.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }

  // A picture with a line for each node.
  [[nodiscard]] std::string text(std::span<const Place> members) const;

 private:
  NodeIndex add(Node node);
  void adopt(NodeIndex parent, std::span<const NodeIndex> children);
  void number(NodeIndex node);
  void build_levels(const Shape& shape, std::span<const Place> members);
  [[nodiscard]] Status build_file(const Shape& shape, std::span<const Place> members);
  void finish(std::span<const Place> members);

  std::vector<Node> nodes_;
  std::vector<MemberIndex> order_;
  std::vector<NodeIndex> leaves_;  // by member
  NodeIndex root_ = nobody;
  std::uint64_t fingerprint_ = 0;
};

// A tree's text, with one group on each line: its name, a colon, then groups and members. `#` begins a comment. Names
// that are not part of a line are below the root; a single such group is the root itself.
//
//     rack0: dpu0 dpu1 dpu2
//     rack1: dpu3 dpu4
//     row:   rack0 rack1
struct TreeGroup {
  std::string name;
  std::uint32_t line;
  std::vector<std::string> parts;
};
[[nodiscard]] Result<std::vector<TreeGroup>> parse_tree(std::string_view text);
// All names that stand for members in a tree: parts that are not groups, in the order of the text, each once.
[[nodiscard]] Result<std::vector<std::string>> tree_members(std::string_view text);

}  // namespace offpath::exchange
