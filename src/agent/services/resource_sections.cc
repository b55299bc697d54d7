#include "agent/services/resource_sections.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace offpath::agent {

namespace {

using group::Member;
using group::MemberState;
using group::ResourceSection;
using Take = ResourceSection::Take;
using Texts = std::map<std::string, std::string, std::less<>>;

bool is_live(const Member& member) noexcept {
  return member.state == MemberState::alive || member.state == MemberState::suspect;
}

std::string properties(std::initializer_list<std::pair<std::string_view, std::string_view>> all) {
  std::string text;
  for (const auto& [name, value] : all)
    if (!value.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

std::string about(const Member& member) {
  return properties({{"role", group::role_name(member.id.role)},
                     {"rack", member.id.rack},
                     {"state", group::state_name(member.state)},
                     {"incarnation", fmt::format("{}", member.id.incarnation)},
                     {"host", member.id.host},
                     {"address", member.id.address},
                     {"http", member.id.http},
                     {"flight", member.id.flight}});
}

std::string_view options_in(std::string_view text) noexcept {
  const std::size_t mark = text.find('?');
  return mark == std::string_view::npos ? std::string_view() : text.substr(mark + 1);
}

void visit(const Texts& texts, std::string_view after, const Take& take) {
  for (auto at = texts.upper_bound(after); at != texts.end(); ++at)
    if (!take(at->first, at->second)) return;
}

// `add` is called with each member. There are few enough to be put in order for each page.
ResourceSection member_section(const group::Membership& membership, std::string root,
                               std::function<void(const Member& member, Texts& texts)> add) {
  ResourceSection section{.root = std::move(root), .of_group = true, .changes = {}, .visit = {}};
  section.changes = [&membership] { return membership.changes(); };
  section.visit = [&membership, add = std::move(add)](uid_t, std::string_view after, const Take& take) {
    Texts texts;
    add(membership.self(), texts);
    for (const auto& [name, member] : membership.others()) add(member, texts);
    visit(texts, after, take);
  };
  return section;
}

}  // namespace

std::vector<ResourceSection> member_sections(const group::Group& group) {
  const group::Membership& membership = group.membership();
  std::vector<ResourceSection> all;
  all.push_back(member_section(membership, "/members", [](const Member& member, Texts& texts) {
    texts.emplace(member.id.name, about(member));
  }));
  all.push_back(member_section(membership, "/racks", [](const Member& member, Texts& texts) {
    if (is_live(member) && !member.id.rack.empty())
      texts.emplace(fmt::format("{}/{}", member.id.rack, member.id.name),
                    properties({{"role", group::role_name(member.id.role)}}));
  }));
  all.push_back(member_section(membership, "/roles", [](const Member& member, Texts& texts) {
    if (is_live(member))
      texts.emplace(fmt::format("{}/{}", group::role_name(member.id.role), member.id.name),
                    properties({{"rack", member.id.rack}}));
  }));
  return all;
}

ResourceSection pool_section(const pool::Pools& pools) {
  return {.root = "/pools",
          .of_group = false,
          .changes = [&pools] { return pools.directory().changes(); },
          .visit =
              [&pools](uid_t user, std::string_view after, const Take& take) {
                const auto& all = pools.directory().all();
                for (auto at = all.upper_bound(after); at != all.end(); ++at) {
                  if (pool::is_reserved(at->first)) continue;
                  if (!pools.table().may_use(at->first, user, pool::FrameTable::Access::read)) continue;
                  if (!take(at->first, std::string(options_in(at->second.text)))) return;
                }
              }};
}

ResourceSection sift_section(const sift::SiftService& sifts) {
  return {.root = "/sift",
          .of_group = false,
          .changes = [&sifts] { return sifts.changes(); },
          .visit =
              [&sifts](uid_t user, std::string_view after, const Take& take) {
                Texts texts;
                for (const sift::SiftService::Known& each : sifts.known()) {
                  if (each.user != user && user != 0) continue;
                  texts.emplace(each.text.substr(0, each.text.find('?')).substr(std::string_view("sift:/").size()),
                                fmt::format("state={}&{}", each.state, options_in(each.text)));
                }
                agent::visit(texts, after, take);
              }};
}

ResourceSection exchange_section(const exchange::ExchangeService& exchanges) {
  return {.root = "/exchanges",
          .of_group = false,
          .changes = [&exchanges] { return exchanges.changes(); },
          .visit =
              [&exchanges](uid_t, std::string_view after, const Take& take) {
                Texts texts;
                for (const exchange::ExchangeService::Known& each : exchanges.known())
                  texts.emplace(each.name, each.failure.empty()
                                               ? fmt::format("topology={}&members={}", each.topology, each.members)
                                               : fmt::format("topology={}&failure={}", each.topology, each.failure));
                agent::visit(texts, after, take);
              }};
}

// A plug-in without functions is listed by its name, with the reason.
ResourceSection function_section(std::function<std::vector<plugin::PluginStatus>()> plugins,
                                 std::function<std::uint64_t()> changes) {
  return {.root = "/functions",
          .of_group = false,
          .changes = std::move(changes),
          .visit = [plugins = std::move(plugins)](uid_t, std::string_view after, const Take& take) {
            Texts texts;
            for (const plugin::PluginStatus& each : plugins()) {
              if (each.own) continue;
              if (each.functions.empty()) texts.emplace(each.name, each.failure.empty() ? "it starts" : each.failure);
              for (const plugin::FunctionInfo& function : each.functions)
                texts.emplace(fmt::format("{}/{}", each.name, function.name), function.doc);
            }
            agent::visit(texts, after, take);
          }};
}

}  // namespace offpath::agent
