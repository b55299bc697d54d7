#include "sift/member_ranges.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>

#include "wire/messages/peer_messages.h"

namespace offpath::sift {

namespace {

constexpr std::size_t digits_max = 9;
constexpr std::size_t numbers_max = 8;  // numbers of a name that are joined; each takes a pass over all names

[[nodiscard]] bool is_digit(char letter) noexcept { return letter >= '0' && letter <= '9'; }

struct Numbers {
  std::uint32_t first = 0, last = 0;
  std::size_t digits = 0;
  auto operator<=>(const Numbers&) const = default;
};

// Texts and, between each two of them, numbers.
struct Names {
  std::vector<std::string> texts;
  std::vector<Numbers> numbers;
  auto operator<=>(const Names&) const = default;
};

[[nodiscard]] std::uint32_t number_in(std::string_view digits) noexcept {
  std::uint32_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

[[nodiscard]] Names names_of(std::string_view name) {
  Names names;
  names.texts.emplace_back();
  while (!name.empty()) {
    const auto digits = static_cast<std::size_t>(std::ranges::find_if_not(name, is_digit) - name.begin());
    if (digits == 0 || digits > digits_max || names.numbers.size() == numbers_max) {
      const std::size_t taken = std::max<std::size_t>(digits, 1);
      names.texts.back() += name.substr(0, taken);
      name.remove_prefix(taken);
      continue;
    }
    const std::uint32_t number = number_in(name.substr(0, digits));
    names.numbers.push_back({number, number, digits});
    names.texts.emplace_back();
    name.remove_prefix(digits);
  }
  return names;
}

[[nodiscard]] std::string joined_name(const Names& names) {
  std::string text = names.texts.front();
  for (std::size_t i = 0; i < names.numbers.size(); ++i) {
    const Numbers& each = names.numbers[i];
    text += each.first == each.last
                ? fmt::format("{:0{}}", each.first, each.digits)
                : fmt::format("{{{:0{}}..{:0{}}}}", each.first, each.digits, each.last, each.digits);
    text += names.texts[i + 1];
  }
  return text;
}

// Joins names that differ only in this number, by consecutive values.
void join(std::vector<Names>& all, std::size_t number) {
  std::map<Names, std::vector<Numbers>> by_rest;
  for (Names& each : all) {
    if (each.numbers.size() <= number) {
      by_rest[each];
      continue;
    }
    const Numbers own = each.numbers[number];
    each.numbers[number] = {0, 0, own.digits};
    by_rest[each].push_back(own);
  }
  all.clear();
  for (auto& [rest, numbers] : by_rest) {
    if (numbers.empty()) all.push_back(rest);
    std::ranges::sort(numbers);
    for (std::size_t i = 0; i < numbers.size();) {
      Numbers joined = numbers[i++];
      for (; i < numbers.size() && numbers[i].first == joined.last + 1; ++i) joined.last = numbers[i].last;
      all.push_back(rest);
      all.back().numbers[number] = joined;
    }
  }
}

struct Range {
  std::size_t begin, end;  // in the text, with its braces
  Numbers numbers;
};

// Looks at each character about once: it is a program's or another member's text.
[[nodiscard]] std::optional<Range> first_range(std::string_view text) {
  const auto take_number = [](std::string_view& rest) {
    const auto digits = static_cast<std::size_t>(std::ranges::find_if_not(rest, is_digit) - rest.begin());
    const std::string_view number = rest.substr(0, digits);
    rest.remove_prefix(digits);
    return number.size() <= digits_max ? number : std::string_view{};
  };
  for (std::size_t begin = text.find('{'); begin != std::string_view::npos; begin = text.find('{', begin + 1)) {
    std::string_view rest = text.substr(begin + 1);
    const std::string_view first = take_number(rest);
    if (first.empty() || !rest.starts_with("..")) continue;
    rest.remove_prefix(2);
    const std::string_view last = take_number(rest);
    if (last.empty() || !rest.starts_with('}')) continue;
    const std::size_t end = text.size() - rest.size() + 1;
    return Range{begin, end, {number_in(first), number_in(last), first.size() == last.size() ? first.size() : 0}};
  }
  return std::nullopt;
}

Status expand(const std::string& before, std::string_view text, std::vector<std::string>& names) {
  const auto range = first_range(text);
  if (!range) {
    if (names.size() == wire::members_max)
      return fail(Error::too_large, "members: more than {} names", wire::members_max);
    names.push_back(before + std::string(text));
    return {};
  }
  const Numbers& numbers = range->numbers;
  if (numbers.digits == 0 || numbers.last < numbers.first)
    return fail(Error::invalid, "members: {}: two ascending numbers of as many digits are expected, such as {{01..16}}",
                text.substr(range->begin, range->end - range->begin));
  for (std::uint32_t number = numbers.first; number <= numbers.last; ++number)
    OFP_TRY(expand(fmt::format("{}{}{:0{}}", before, text.substr(0, range->begin), number, numbers.digits),
                   text.substr(range->end), names));
  return {};
}

}  // namespace

std::string member_ranges(const std::vector<std::string>& names) {
  const bool has_braces =
      std::ranges::any_of(names, [](const std::string& each) { return each.find_first_of("{}") != std::string::npos; });
  if (has_braces) return fmt::format("{}", fmt::join(names, ","));
  std::vector<Names> all;
  std::size_t numbers = 0;
  for (const std::string& each : names) {
    all.push_back(names_of(each));
    numbers = std::max(numbers, all.back().numbers.size());
  }
  while (numbers-- > 0) join(all, numbers);
  const auto first_name = [](Names each) {
    for (Numbers& range : each.numbers) range.last = range.first;
    return joined_name(each);
  };
  std::ranges::sort(all, {}, first_name);
  std::vector<std::string> texts;
  for (const Names& each : all) texts.push_back(joined_name(each));
  return fmt::format("{}", fmt::join(texts, ","));
}

Result<std::string> member_names(std::string_view ranges) {
  if (ranges.find('{') == std::string_view::npos) return std::string(ranges);
  std::vector<std::string> names;
  while (true) {
    const std::string_view one = ranges.substr(0, ranges.find(','));
    OFP_TRY(expand({}, one, names));
    if (one.size() == ranges.size()) break;
    ranges.remove_prefix(one.size() + 1);
  }
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace offpath::sift
