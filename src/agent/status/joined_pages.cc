#include "agent/status/joined_pages.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/status/json.h"
#include "agent/status/json_tree.h"
#include "base/text.h"

namespace offpath::agent {

namespace {

template <std::size_t count>
bool is_among(std::string_view key, const std::string_view (&keys)[count]) {
  return std::ranges::find(keys, key) != std::end(keys);
}

// Values that are the same on all cores, and belong to no core alone.
constexpr std::string_view kept_numbers[] = {"user",    "members", "pid",     "from_s",
                                             "up_to_s", "every_s", "ended_s", "descriptors_max"};
constexpr std::string_view largest_numbers[] = {"uptime_s", "longest_round_s", "p50_s", "p99_s", "hit_rate"};
constexpr std::string_view kept_lists[] = {"addresses", "members", "functions"};
// Entries that are one thing on all cores, by what names them.
constexpr std::pair<std::string_view, std::string_view> lists_by[] = {
    {"pools", "name"}, {"plugins", "name"}, {"sifts", "name"}, {"buckets", "from_s"}};
constexpr std::string_view lists_by_place[] = {"stages", "bytes_per_s"};

void add_numbers(std::string_view key, std::string& into, const std::string& other) {
  if (is_among(key, kept_numbers)) return;
  const double one = number_of<double>(into).value_or(0), two = number_of<double>(other).value_or(0);
  if (is_among(key, largest_numbers)) {
    if (two > one) into = other;
    return;
  }
  const auto whole = number_of<std::int64_t>(into), other_whole = number_of<std::int64_t>(other);
  std::int64_t sum = 0;
  if (whole && other_whole && !__builtin_add_overflow(*whole, *other_whole, &sum))
    into = fmt::format("{}", sum);
  else
    into = fmt::format("{}", one + two);
}

void join_trees(std::string_view key, JsonTree& into, JsonTree other);

void join_lists(std::string_view key, JsonTree& into, JsonTree other) {
  if (is_among(key, kept_lists)) return;
  const bool by_place = is_among(key, lists_by_place);
  const auto* const by = std::ranges::find(lists_by, key, &std::pair<std::string_view, std::string_view>::first);
  for (std::size_t i = 0; i < other.items.size(); ++i) {
    JsonTree& item = other.items[i];
    JsonTree* same = by_place && i < into.items.size() ? &into.items[i] : nullptr;
    for (JsonTree& each : into.items) {
      if (same != nullptr || by == std::end(lists_by)) break;
      const JsonTree *name = each.find(by->second), *wanted = item.find(by->second);
      if (name != nullptr && wanted != nullptr && name->raw == wanted->raw) same = &each;
    }
    if (same != nullptr)
      join_trees("", *same, std::move(item));
    else
      into.items.push_back(std::move(item));
  }
  if (key == "buckets")
    std::ranges::stable_sort(into.items, {}, [](const JsonTree& bucket) {
      const JsonTree* const from = bucket.find("from_s");
      return from != nullptr ? number_of<double>(from->raw).value_or(0) : 0;
    });
}

void join_trees(std::string_view key, JsonTree& into, JsonTree other) {
  if (into.kind == JsonTree::Kind::null) {
    into = std::move(other);
    return;
  }
  if (into.kind != other.kind) return;
  if (into.kind == JsonTree::Kind::number) return add_numbers(key, into.raw, other.raw);
  if (into.kind == JsonTree::Kind::list) return join_lists(key, into, std::move(other));
  if (into.kind == JsonTree::Kind::text && key == "failure" && into.raw == "\"\"") into.raw = other.raw;
  for (auto& [name, member] : other.members) {
    if (JsonTree* const same = into.find(name); same != nullptr)
      join_trees(name, *same, std::move(member));
    else
      into.members.emplace_back(name, std::move(member));
  }
}

// Numbers of channels, streams and events are each core's own.
void name_core(JsonTree& page, std::size_t core) {
  for (auto& [key, value] : page.members) {
    const bool is_joined =
        std::ranges::find(lists_by, key, &std::pair<std::string_view, std::string_view>::first) != std::end(lists_by);
    if (value.kind != JsonTree::Kind::list || is_joined || is_among(key, kept_lists)) continue;
    for (JsonTree& item : value.items)
      if (item.kind == JsonTree::Kind::object) item.members.emplace_back("core", JsonTree::of_number(core));
  }
}

// The other cores are listed as cores, and not as members beside their agent.
void leave_out_cores(JsonTree& page, std::span<const CorePage> cores) {
  JsonTree* const members = page.find("members");
  if (members == nullptr) return;
  std::erase_if(members->items, [&](JsonTree& member) {
    const JsonTree* const name = member.find("name");
    return name != nullptr && std::ranges::any_of(cores.subspan(1), [&](const CorePage& core) {
             return name->raw == Json().value(core.name).text();
           });
  });
}

}  // namespace

std::string joined_status(std::span<const CorePage> cores) {
  JsonTree all, list{JsonTree::Kind::list};
  for (std::size_t core = 0; core < cores.size(); ++core) {
    std::optional<JsonTree> page;
    if (cores[core].text) page = JsonTree::parse(*cores[core].text);
    JsonTree& listed = list.items.emplace_back(JsonTree{JsonTree::Kind::object});
    listed.members = {{"core", JsonTree::of_number(core)},
                      {"name", JsonTree::of_text(cores[core].name)},
                      {"answers", JsonTree::of_boolean(page.has_value())}};
    if (!page) continue;
    if (const JsonTree* const process = page->find("pid")) listed.members.emplace_back("pid", *process);
    if (JsonTree* const channels = page->find("channels"))
      listed.members.emplace_back("channels", JsonTree::of_number(channels->items.size()));
    name_core(*page, core);
    join_trees("", all, std::move(*page));
  }
  if (all.kind != JsonTree::Kind::object) all = {JsonTree::Kind::object};
  if (JsonTree* const name = all.find("name"); name != nullptr && !cores.empty())
    *name = JsonTree::of_text(cores.front().name);
  leave_out_cores(all, cores);
  all.members.emplace_back("cores", std::move(list));
  return all.written() + '\n';
}

std::string joined_list(std::span<const CorePage> cores) {
  JsonTree all{JsonTree::Kind::list};
  for (const CorePage& core : cores)
    if (auto page = core.text ? JsonTree::parse(*core.text) : std::nullopt; page && page->kind == JsonTree::Kind::list)
      std::ranges::move(page->items, std::back_inserter(all.items));
  return all.written() + '\n';
}

std::string joined_metrics(std::span<const CorePage> cores) {
  struct Family {
    std::string head, samples;  // lines
  };
  std::vector<Family> families;
  std::map<std::string, std::size_t, std::less<>> places;  // by name
  bool ends = false;
  for (std::size_t core = 0; core < cores.size(); ++core) {
    std::string_view rest = cores[core].text ? std::string_view(*cores[core].text) : std::string_view();
    Family* at = nullptr;
    bool is_known = false;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line == "# EOF") {
        ends = true;
      } else if (line.starts_with("# ")) {  // "# TYPE name type", "# HELP name text"
        const std::string_view words = line.substr(std::min(line.find(' ', 2), line.size() - 1) + 1);
        const auto [place, is_new] = places.emplace(words.substr(0, words.find(' ')), families.size());
        if (is_new) families.emplace_back();
        if (at != &families[place->second]) is_known = !is_new;
        at = &families[place->second];
        if (!is_known) at->head += fmt::format("{}\n", line);
      } else if (!line.empty() && at != nullptr) {
        const std::size_t end = line.find_first_of("{ ");
        const bool has_labels = end != std::string_view::npos && line[end] == '{';
        const std::string_view labels = end == std::string_view::npos ? "" : line.substr(end + (has_labels ? 1 : 0));
        at->samples += fmt::format("{}{{core=\"{}\"{}{}\n", line.substr(0, end), core, has_labels ? "," : "}", labels);
      }
    }
  }
  std::string text;
  for (const Family& family : families) text += family.head + family.samples;
  return ends ? text + "# EOF\n" : text;
}

}  // namespace offpath::agent
