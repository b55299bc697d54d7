#include "exchange/topology.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/hash/fnv1a.h"

namespace offpath::exchange {

namespace {

// Sizes of groups of at most `size` for n things; sizes differ by one at most.
std::vector<std::size_t> balanced(std::size_t n, std::size_t size) {
  const std::size_t groups = (n + size - 1) / size;
  std::vector<std::size_t> sizes(groups, n / groups);
  for (std::size_t i = 0; i < n % groups; ++i) ++sizes[i];
  return sizes;
}

// Runs of equal keys; an empty key equals no other.
std::vector<std::size_t> runs_of(const std::vector<std::string_view>& keys) {
  std::vector<std::size_t> runs;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && !keys[i].empty() && keys[i] == keys[i - 1])
      ++runs.back();
    else
      runs.push_back(1);
  }
  return runs;
}

bool gathers(const std::vector<std::size_t>& runs) {
  return runs.size() > 1 && std::ranges::any_of(runs, [](std::size_t run) { return run > 1; });
}

// Takes a number from the front of `text`.
bool take_number(std::string_view& text, std::uint32_t& number) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

}  // namespace

Result<Shape> parse_shape(std::string_view text) {
  constexpr std::string_view forms = "allgather, neighbourhoods(SIZE), grouped_allgather(SIZE) or hybrid(SIZE, DEPTH)";
  constexpr std::pair<std::string_view, Shape::Kind> sized_forms[] = {
      {"neighbourhoods(", Shape::Kind::neighbourhoods}, {"grouped_allgather(", Shape::Kind::grouped_allgather}};
  Shape shape;
  if (text == "allgather") return shape;
  std::string_view rest = text;
  const auto* const form =
      std::ranges::find_if(sized_forms, [&](const auto& each) { return rest.starts_with(each.first); });
  if (form != std::end(sized_forms)) {
    rest.remove_prefix(form->first.size());
    shape.kind = form->second;
    if (!take_number(rest, shape.size) || rest != ")") return fail(Error::invalid, "'{}' is not {}", text, forms);
  } else if (rest.starts_with("hybrid(")) {
    rest.remove_prefix(std::string_view("hybrid(").size());
    shape.kind = Shape::Kind::hybrid;
    const bool sized = take_number(rest, shape.size) && rest.starts_with(',');
    if (sized) rest.remove_prefix(1);
    if (!sized || !take_number(rest, shape.depth) || rest != ")")
      return fail(Error::invalid, "'{}' is not {}", text, forms);
    if (shape.depth < 1 || shape.depth > depth_max)
      return fail(Error::invalid, "'{}': a depth of {}, 1 to {} are allowed", text, shape.depth, depth_max);
  } else {
    return fail(Error::invalid, "'{}' is not {}", text, forms);
  }
  if (shape.size < 2)
    return fail(Error::invalid, "'{}': groups of {}, at least 2 members are needed", text, shape.size);
  return shape;
}

std::string shape_text(const Shape& shape) {
  switch (shape.kind) {
    case Shape::Kind::allgather:
      return "allgather";
    case Shape::Kind::neighbourhoods:
      return fmt::format("neighbourhoods({})", shape.size);
    case Shape::Kind::grouped_allgather:
      return fmt::format("grouped_allgather({})", shape.size);
    case Shape::Kind::hybrid:
      return fmt::format("hybrid({}, {})", shape.size, shape.depth);
    case Shape::Kind::file:
      return "file";
  }
  return {};
}

Result<Topology> Topology::make(const Shape& shape, std::span<const Place> members) {
  if (members.empty() || members.size() > exchange_members_max)
    return fail(Error::invalid, "an exchange of {} members, 1 to {} are allowed", members.size(), exchange_members_max);
  std::set<std::string_view> names;
  for (const Place& member : members) {
    if (member.name.empty()) return fail(Error::invalid, "a member of an exchange has no name");
    if (!names.insert(member.name).second) return fail(Error::invalid, "member {} is named twice", member.name);
  }
  if (shape.size < 2) return fail(Error::invalid, "groups of {} members, at least 2 are needed", shape.size);
  Topology made;
  made.leaves_.resize(members.size());
  for (MemberIndex member = 0; member < members.size(); ++member) {
    Node leaf;
    leaf.member = member;
    made.leaves_[member] = made.add(std::move(leaf));
  }
  if (shape.kind == Shape::Kind::file)
    OFP_TRY(made.build_file(shape, members));
  else
    made.build_levels(shape, members);
  made.finish(members);
  return made;
}

NodeIndex Topology::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeIndex>(nodes_.size() - 1);
}

void Topology::adopt(NodeIndex parent, std::span<const NodeIndex> children) {
  for (const NodeIndex child : children) {
    nodes_[child].parent = parent;
    nodes_[parent].level = std::max(nodes_[parent].level, nodes_[child].level + 1);
    nodes_[parent].children.push_back(child);
  }
}

// Level by level from below: groups of at most `size`, until the depth is reached; the root takes the rest. That is one
// group in neighbourhoods, whose depth is as large as that needs.
void Topology::build_levels(const Shape& shape, std::span<const Place> members) {
  const bool one_leader = shape.kind == Shape::Kind::neighbourhoods;
  const std::uint32_t depth = shape.kind == Shape::Kind::allgather           ? 1
                              : shape.kind == Shape::Kind::grouped_allgather ? 2
                              : one_leader                                   ? nobody
                                                                             : shape.depth;
  const bool local = shape.order == Shape::Order::locality;
  std::vector<NodeIndex> row = leaves_;
  if (local) {
    std::ranges::stable_sort(row, [&](NodeIndex a, NodeIndex b) {
      const Place &one = members[nodes_[a].member], &other = members[nodes_[b].member];
      return std::tie(one.rack, one.host) < std::tie(other.rack, other.host);
    });
  }
  // The place of a group is its first member's.
  const auto place = [&](NodeIndex node) -> const Place& {
    while (nodes_[node].member == nobody) node = nodes_[node].children.front();
    return members[nodes_[node].member];
  };
  for (std::uint32_t level = 1; level < depth && row.size() > 1; ++level) {
    std::vector<std::size_t> runs{row.size()};
    if (local) {
      std::vector<std::string_view> hosts, racks;
      for (const NodeIndex node : row) {
        hosts.emplace_back(place(node).host);
        racks.emplace_back(place(node).rack);
      }
      if (const auto by_host = runs_of(hosts), by_rack = runs_of(racks); level == 1 && gathers(by_host))
        runs = by_host;
      else if (gathers(by_rack))
        runs = by_rack;
    }
    std::vector<NodeIndex> above;
    std::size_t at = 0;
    for (const std::size_t run : runs) {
      for (const std::size_t size : balanced(run, shape.size)) {
        if (size == 1) {
          above.push_back(row[at]);  // a group of one is replaced by its member
        } else {
          above.push_back(add({}));
          adopt(above.back(), std::span(row).subspan(at, size));
        }
        at += size;
      }
    }
    if (above.size() == row.size()) break;
    row = std::move(above);
  }
  if (row.size() == 1 && (!one_leader || members.size() == 1)) {
    root_ = row.front();
    return;
  }
  root_ = add({});
  adopt(root_, row);
}

// Numbers leaves in the order of the tree, so that each node is a run of them.
void Topology::number(NodeIndex index) {
  nodes_[index].first = static_cast<std::uint32_t>(order_.size());
  if (nodes_[index].member != nobody) order_.push_back(nodes_[index].member);
  for (const NodeIndex child : nodes_[index].children) number(child);
  nodes_[index].last = static_cast<std::uint32_t>(order_.size());
}

void Topology::finish(std::span<const Place> members) {
  number(root_);
  fingerprint_ = fnv1a_offset_basis;
  const auto add = [this](std::string_view text) { fingerprint_ = fnv1a("\xFF", fnv1a(text, fingerprint_)); };
  for (const MemberIndex member : order_) add(members[member].name);
  for (const Node& node : nodes_) add(fmt::format("{}-{}", node.first, node.last));
  if (fingerprint_ == 0) fingerprint_ = 1;
}

// ---- tree files

Result<std::vector<TreeGroup>> parse_tree(std::string_view text) {
  std::vector<TreeGroup> groups;
  std::map<std::string, std::uint32_t> lines;
  std::uint32_t line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = text.find('\n');
    std::string_view rest = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    rest = rest.substr(0, rest.find('#'));
    std::vector<std::string> words;
    bool has_colon = false;
    for (std::size_t at = 0; at < rest.size();) {
      const char each = rest[at];
      if (each == ' ' || each == '\t' || each == '\r') {
        ++at;
      } else if (each == ':') {
        if (has_colon || words.size() != 1)
          return fail(Error::invalid, "line {}: one name is expected before a colon", line);
        has_colon = true;
        ++at;
      } else {
        const std::size_t stop = std::min(rest.find_first_of(has_colon ? " \t\r" : " \t\r:", at), rest.size());
        words.emplace_back(rest.substr(at, stop - at));
        at = stop;
      }
    }
    if (words.empty()) continue;
    if (!has_colon) return fail(Error::invalid, "line {}: a group is written \"name: part part ...\"", line);
    const std::string name = words.front();
    if (const auto [before, fresh] = lines.emplace(name, line); !fresh)
      return fail(Error::invalid, "line {}: group {} exists already (line {})", line, name, before->second);
    words.erase(words.begin());
    if (words.empty()) return fail(Error::invalid, "line {}: group {} has no parts", line, name);
    groups.push_back({name, line, std::move(words)});
  }
  if (groups.empty()) return fail(Error::invalid, "a tree without a group");
  return groups;
}

Result<std::vector<std::string>> tree_members(std::string_view text) {
  OFP_ASSIGN(const std::vector<TreeGroup> groups, parse_tree(text));
  std::vector<std::string> members;
  for (const TreeGroup& group : groups)
    for (const std::string& part : group.parts)
      if (std::ranges::find(groups, part, &TreeGroup::name) == groups.end() &&
          std::ranges::find(members, part) == members.end())
        members.push_back(part);
  return members;
}

Status Topology::build_file(const Shape& shape, std::span<const Place> members) {
  OFP_ASSIGN(const std::vector<TreeGroup> groups, parse_tree(shape.tree));
  std::map<std::string_view, MemberIndex> by_name;
  for (MemberIndex i = 0; i < members.size(); ++i) by_name.emplace(members[i].name, i);
  std::map<std::string_view, std::size_t> group_of;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (by_name.contains(groups[i].name))
      return fail(Error::invalid, "line {}: {} is a member, not a group", groups[i].line, groups[i].name);
    group_of.emplace(groups[i].name, i);
  }
  std::map<std::string_view, const TreeGroup*> part_of;  // by part
  for (const TreeGroup& group : groups) {
    for (const std::string& part : group.parts) {
      const bool is_group = group_of.contains(part);
      if (!is_group && !by_name.contains(part))
        return fail(Error::invalid, "line {}: {} is neither a member nor a group", group.line, part);
      if (const auto [before, fresh] = part_of.emplace(part, &group); !fresh)
        return fail(Error::invalid, "line {}: {} {} is already in {} (line {})", group.line,
                    is_group ? "group" : "member", part, before->second->name, before->second->line);
    }
  }
  for (const Place& member : members)
    if (!part_of.contains(member.name))
      return fail(Error::invalid, "line {}: the tree does not contain member {}", groups.back().line, member.name);
  // Each has at most one parent, so an endless way up is a cycle.
  for (const TreeGroup& group : groups) {
    std::string way = group.name;
    const TreeGroup* at = &group;
    for (std::uint32_t steps = 0; part_of.contains(at->name); ++steps) {
      at = part_of.at(at->name);
      way += fmt::format(" in {}", at->name);
      if (at == &group)
        return fail(Error::invalid, "line {}: group {} is part of itself: {}", group.line, group.name, way);
      if (steps > groups.size()) break;  // the cycle is above; one of its own nodes will report it
      if (steps > depth_max)
        return fail(Error::invalid, "line {}: group {} lies deeper than {} levels", group.line, group.name, depth_max);
    }
  }
  std::vector<NodeIndex> made(groups.size(), nobody);
  const std::function<NodeIndex(std::size_t)> build = [&](std::size_t i) {
    if (made[i] != nobody) return made[i];
    Node fresh;
    fresh.name = groups[i].name;
    const NodeIndex node = made[i] = add(std::move(fresh));
    std::vector<NodeIndex> children;
    for (const std::string& part : groups[i].parts) {
      const auto group = group_of.find(part);
      children.push_back(group != group_of.end() ? build(group->second) : leaves_[by_name.at(part)]);
    }
    adopt(node, children);
    return node;
  };
  std::vector<NodeIndex> tops;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const NodeIndex node = build(i);
    if (!part_of.contains(groups[i].name)) tops.push_back(node);
  }
  if (tops.size() == 1) {
    root_ = tops.front();
    return {};
  }
  root_ = add({});
  adopt(root_, tops);
  return {};
}

// ---- pictures

std::string Topology::text(std::span<const Place> members) const {
  std::string out;
  const auto name_of = [&](NodeIndex index) {
    const Node& node = nodes_[index];
    if (node.member != nobody) return members[node.member].name;
    const std::string& leader = members[order_[node.first]].name;
    const std::uint32_t count = node.last - node.first;
    return fmt::format("{}{} member{}, led by {}", node.name.empty() ? "" : node.name + ": ", count,
                       count == 1 ? "" : "s", leader);
  };
  const std::function<void(NodeIndex, const std::string&)> draw = [&](NodeIndex index, const std::string& margin) {
    const Node& node = nodes_[index];
    // Members side by side, because a line for each would be long.
    const bool flat =
        std::ranges::all_of(node.children, [&](NodeIndex child) { return nodes_[child].member != nobody; });
    if (flat && !node.children.empty()) {
      std::string line;
      for (const NodeIndex child : node.children) line += (line.empty() ? "" : "  ") + name_of(child);
      out += margin + "└─ " + line + "\n";
      return;
    }
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool is_last = i + 1 == node.children.size();
      out += margin + (is_last ? "└─ " : "├─ ") + name_of(node.children[i]) + "\n";
      draw(node.children[i], margin + (is_last ? "   " : "│  "));
    }
  };
  const bool scatters = nodes_[root_].children.size() == 1 && nodes_[root_].name.empty();
  const NodeIndex top = scatters ? nodes_[root_].children.front() : root_;
  out += name_of(top) + (scatters         ? ", which gathers from all and scatters to all\n"
                         : sends_across() ? "; its parts send to each other\n"
                                          : "\n");
  draw(top, "");
  return out;
}

}  // namespace offpath::exchange
