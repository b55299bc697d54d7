#include "agent/status/json_tree.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/status/json.h"
#include "base/text.h"

namespace offpath::agent {

namespace {

constexpr unsigned json_depth_max = 32;
constexpr std::string_view json_blanks = " \n\r\t";

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : rest_(text) {}

  bool take_value(JsonTree& value, unsigned depth) {
    if (depth > json_depth_max) return false;
    if (take('{')) return take_object(value, depth);
    if (take('[')) return take_list(value, depth);
    if (take_text(value.raw)) {
      value.kind = JsonTree::Kind::text;
      return true;
    }
    skip_blanks();
    const std::size_t end = std::min(rest_.find_first_of(",]} \n\r\t"), rest_.size());
    value.raw = rest_.substr(0, end);
    rest_.remove_prefix(end);
    const bool is_boolean = value.raw == "true" || value.raw == "false";
    value.kind = value.raw == "null" ? JsonTree::Kind::null
                 : is_boolean        ? JsonTree::Kind::boolean
                                     : JsonTree::Kind::number;
    return value.kind != JsonTree::Kind::number || number_of<double>(value.raw).has_value();
  }
  [[nodiscard]] bool is_at_end() {
    skip_blanks();
    return rest_.empty();
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && json_blanks.find(rest_.front()) != std::string_view::npos) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_text(std::string& raw) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != '"') return false;
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return false;
    raw = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool take_list(JsonTree& value, unsigned depth) {
    value.kind = JsonTree::Kind::list;
    if (take(']')) return true;
    do {
      if (!take_value(value.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }
  bool take_object(JsonTree& value, unsigned depth) {
    value.kind = JsonTree::Kind::object;
    if (take('}')) return true;
    do {
      std::string key;
      if (!take_text(key) || !take(':')) return false;
      JsonTree& member = value.members.emplace_back(key.substr(1, key.size() - 2), JsonTree{}).second;
      if (!take_value(member, depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  std::string_view rest_;
};

}  // namespace

std::optional<JsonTree> JsonTree::parse(std::string_view text) {
  JsonParser parser(text);
  JsonTree value;
  if (!parser.take_value(value, 0) || !parser.is_at_end()) return std::nullopt;
  return value;
}

JsonTree JsonTree::of_number(std::uint64_t value) { return {Kind::number, fmt::format("{}", value)}; }
JsonTree JsonTree::of_text(std::string_view value) { return {Kind::text, Json().value(value).text()}; }
JsonTree JsonTree::of_boolean(bool value) { return {Kind::boolean, value ? "true" : "false"}; }

const JsonTree* JsonTree::find(std::string_view key) const noexcept {
  const auto at = std::ranges::find(members, key, &std::pair<std::string, JsonTree>::first);
  return at != members.end() ? &at->second : nullptr;
}

JsonTree* JsonTree::find(std::string_view key) noexcept {
  return const_cast<JsonTree*>(std::as_const(*this).find(key));
}

std::string JsonTree::written() const {
  std::string text;
  write(text);
  return text;
}

void JsonTree::write(std::string& to) const {
  if (kind == Kind::list) {
    to += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) to += ',';
      items[i].write(to);
    }
    to += ']';
  } else if (kind == Kind::object) {
    to += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      to += fmt::format("{}\"{}\":", i > 0 ? "," : "", members[i].first);
      members[i].second.write(to);
    }
    to += '}';
  } else {
    to += kind == Kind::null ? "null" : raw;
  }
}

}  // namespace offpath::agent
