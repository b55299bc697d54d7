#include "exchange/reduction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/text.h"
#include "wire/cursor.h"

namespace offpath::exchange {

namespace {

constexpr std::array<std::string_view, 6> kind_names{"sum", "min", "max", "mean", "top", "histogram"};

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto parsed = number_of<Number>(text);
  if (parsed) number = *parsed;
  return parsed.has_value();
}

bool is_present(Bytes record, std::size_t field, std::size_t fields) {
  if (record.size() == fields * 8) return true;
  const auto word = load<std::uint64_t>(record.data() + (fields + field / 64) * 8);
  return (word >> field % 64 & 1) != 0;
}

// Figures of another process may be arbitrary, and must not overflow.
__int128 wrapping_sum(__int128 a, __int128 b) noexcept {
  return static_cast<__int128>(static_cast<unsigned __int128>(a) + static_cast<unsigned __int128>(b));
}

// Members' order among equal values, so that the result does not depend on the tree.
bool ranks_before(const Reduced::Ranked& one, const Reduced::Ranked& other) noexcept {
  return one.value != other.value ? one.value > other.value : one.member < other.member;
}

}  // namespace

Result<Reduction> parse_reduction(std::string_view text, const Schema& schema) {
  Reduction reduction;
  reduction.text = std::string(text);
  text = trimmed(text);
  const std::size_t open = text.find('(');
  const std::string_view name = trimmed(text.substr(0, open));
  const auto kind = std::ranges::find(kind_names, name);
  if (kind == kind_names.end() || open == std::string_view::npos || !text.ends_with(')'))
    return fail(Error::invalid, "'{}' is not sum(F), min(F), max(F), mean(F), top(F, K) or histogram(F, LOW, HIGH, N)",
                text);
  reduction.kind = static_cast<Reduction::Kind>(kind - kind_names.begin());
  const std::string_view inner = text.substr(open + 1, text.size() - open - 2);
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at <= inner.size();) {
    const std::size_t comma = std::min(inner.find(',', at), inner.size());
    words.push_back(trimmed(inner.substr(at, comma - at)));
    at = comma + 1;
  }
  const std::size_t expected = reduction.kind == Reduction::Kind::histogram ? 4
                               : reduction.kind == Reduction::Kind::top     ? 2
                                                                            : 1;
  if (words.size() != expected)
    return fail(Error::invalid, "'{}' has {} arguments, expected {}", text, words.size(), expected);
  const std::size_t field = schema.find(words[0]);
  if (field == schema.fields.size()) {
    std::string names;
    for (const Field& each : schema.fields) names += (names.empty() ? "" : ", ") + each.name;
    return fail(Error::invalid, "'{}': there is no field '{}' in {}: {}", text, words[0], schema.name, names);
  }
  reduction.field = static_cast<std::uint32_t>(field);
  reduction.type = schema.fields[field].type;
  if (reduction.kind == Reduction::Kind::top &&
      (!parse(words[1], reduction.count) || reduction.count < 1 || reduction.count > top_max))
    return fail(Error::invalid, "'{}': '{}' values, 1 to {} are allowed", text, words[1], top_max);
  if (reduction.kind == Reduction::Kind::histogram) {
    if (!parse(words[1], reduction.low) || !parse(words[2], reduction.high) || !(reduction.low < reduction.high) ||
        !std::isfinite(reduction.high - reduction.low))
      return fail(Error::invalid, "'{}': bins from '{}' to '{}'", text, words[1], words[2]);
    if (!parse(words[3], reduction.count) || reduction.count < 1 || reduction.count > bins_max)
      return fail(Error::invalid, "'{}': '{}' bins, 1 to {} are allowed", text, words[3], bins_max);
  }
  return reduction;
}

Status check_record(Bytes record, const Schema& schema) {
  const std::size_t fields = schema.fields.size(), with_presence = (fields + (fields + 63) / 64) * 8;
  if (record.size() == fields * 8 || record.size() == with_presence) return {};
  return fail(Error::schema, "a record of {} bytes; {} fields of schema {} have {}, with presence bits {}",
              record.size(), fields, schema.name, fields * 8, with_presence);
}

void Reduced::reset(std::span<const Reduction> reductions) {
  members_ = 0;
  figures_.assign(reductions.size(), {});
  for (std::size_t i = 0; i < reductions.size(); ++i)
    if (reductions[i].kind == Reduction::Kind::histogram) figures_[i].bins.assign(reductions[i].count, 0);
}

void Reduced::rank(Figure& figure, Ranked ranked, std::uint32_t count) {
  const auto at = std::ranges::upper_bound(figure.top, ranked, ranks_before);
  if (at == figure.top.end() && figure.top.size() == count) return;
  figure.top.insert(at, ranked);
  if (figure.top.size() > count) figure.top.pop_back();
}

void Reduced::add(MemberIndex member, Bytes record, std::span<const Reduction> reductions, std::size_t fields) {
  ++members_;
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    const Reduction& reduction = reductions[i];
    if (!is_present(record, reduction.field, fields)) continue;
    const auto bits = load<std::uint64_t>(record.data() + reduction.field * std::size_t{8});
    const auto whole = std::bit_cast<std::int64_t>(bits);
    const double value = reduction.type == FieldType::f64   ? std::bit_cast<double>(bits)
                         : reduction.type == FieldType::i64 ? static_cast<double>(whole)
                                                            : static_cast<double>(bits);
    if (std::isnan(value)) continue;
    Figure& figure = figures_[i];
    const bool first = figure.count++ == 0;
    if (reduction.type == FieldType::f64) figure.sum += value;
    figure.min = first ? value : std::min(figure.min, value);
    figure.max = first ? value : std::max(figure.max, value);
    if (reduction.type == FieldType::u64) {
      figure.whole += bits;
      figure.least = first || bits < static_cast<std::uint64_t>(figure.least) ? whole : figure.least;
      figure.most = first || bits > static_cast<std::uint64_t>(figure.most) ? whole : figure.most;
    } else if (reduction.type == FieldType::i64) {
      figure.whole += whole;
      figure.least = first ? whole : std::min(figure.least, whole);
      figure.most = first ? whole : std::max(figure.most, whole);
    }
    if (reduction.kind == Reduction::Kind::top) rank(figure, {value, member}, reduction.count);
    if (reduction.kind == Reduction::Kind::histogram) {
      const double at = (value - reduction.low) / (reduction.high - reduction.low) * reduction.count;
      ++figure.bins[at < 0 ? 0 : at >= reduction.count ? reduction.count - 1 : static_cast<std::size_t>(at)];
    }
  }
}

void Reduced::merge(const Reduced& other, std::span<const Reduction> reductions) {
  members_ += other.members_;
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    Figure& mine = figures_[i];
    const Figure& its = other.figures_[i];
    if (its.count == 0) continue;
    const bool first = mine.count == 0, is_unsigned = reductions[i].type == FieldType::u64;
    const auto less = [is_unsigned](std::int64_t a, std::int64_t b) {
      return is_unsigned ? static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b) : a < b;
    };
    mine.count += its.count;
    mine.sum += its.sum;
    mine.whole = wrapping_sum(mine.whole, its.whole);
    mine.min = first ? its.min : std::min(mine.min, its.min);
    mine.max = first ? its.max : std::max(mine.max, its.max);
    if (first || less(its.least, mine.least)) mine.least = its.least;
    if (first || less(mine.most, its.most)) mine.most = its.most;
    for (const Ranked& each : its.top) rank(mine, each, reductions[i].count);
    for (std::size_t bin = 0; bin < its.bins.size(); ++bin) mine.bins[bin] += its.bins[bin];
  }
}

double Reduced::value(std::size_t i, const Reduction& reduction) const noexcept {
  const Figure& figure = figures_[i];
  if (figure.count == 0) return std::numeric_limits<double>::quiet_NaN();
  const bool whole = reduction.type != FieldType::f64;
  const double sum = whole ? static_cast<double>(figure.whole) : figure.sum;
  switch (reduction.kind) {
    case Reduction::Kind::sum:
      return sum;
    case Reduction::Kind::min:
      return figure.min;
    case Reduction::Kind::max:
      return figure.max;
    case Reduction::Kind::mean:
      return sum / static_cast<double>(figure.count);
    case Reduction::Kind::top:
      return figure.max;
    case Reduction::Kind::histogram:
      return static_cast<double>(figure.count);
  }
  return 0;
}

void Reduced::encode(std::vector<std::byte>& to) const {
  wire::Writer writer(to);
  writer.put(members_);
  writer.put(std::uint32_t{0});
  for (const Figure& each : figures_) {
    writer.put(each.count);
    writer.put(each.sum);
    writer.put(each.min);
    writer.put(each.max);
    writer.put(static_cast<std::uint64_t>(each.whole));
    writer.put(static_cast<std::int64_t>(each.whole >> 64));
    writer.put(each.least);
    writer.put(each.most);
    writer.put(static_cast<std::uint32_t>(each.top.size()));
    writer.put(static_cast<std::uint32_t>(each.bins.size()));
    for (const Ranked& ranked : each.top) {
      writer.put(ranked.value);
      writer.put(std::uint64_t{ranked.member});
    }
    for (const std::uint64_t bin : each.bins) writer.put(bin);
  }
}

Result<Reduced> Reduced::decode(Bytes bytes, std::span<const Reduction> reductions) {
  Reduced reduced(reductions);
  wire::Reader reader(bytes);
  reduced.members_ = reader.take<std::uint32_t>();
  (void)reader.take<std::uint32_t>();
  for (std::size_t i = 0; i < reductions.size() && reader.ok(); ++i) {
    const bool has_bins = reductions[i].kind == Reduction::Kind::histogram,
               has_top = reductions[i].kind == Reduction::Kind::top;
    Figure& figure = reduced.figures_[i];
    figure.count = reader.take<std::uint64_t>();
    figure.sum = reader.take<double>();
    figure.min = reader.take<double>();
    figure.max = reader.take<double>();
    const auto low = reader.take<std::uint64_t>();
    const auto high = reader.take<std::int64_t>();
    figure.whole =
        static_cast<__int128>((static_cast<unsigned __int128>(static_cast<std::uint64_t>(high)) << 64) | low);
    figure.least = reader.take<std::int64_t>();
    figure.most = reader.take<std::int64_t>();
    const auto ranked = reader.take<std::uint32_t>(), bins = reader.take<std::uint32_t>();
    if (figure.count > reduced.members_ || bins != (has_bins ? reductions[i].count : 0) ||
        ranked > (has_top ? reductions[i].count : 0))
      return fail(Error::protocol, "partial reductions do not fit '{}': {} of {} members, {} ranked, {} bins",
                  reductions[i].text, figure.count, reduced.members_, ranked, bins);
    for (std::uint32_t k = 0; k < ranked; ++k) {
      const auto value = reader.take<double>();
      const auto member = reader.take<std::uint64_t>();
      const Ranked next{value, static_cast<MemberIndex>(member)};
      if (std::isnan(value) || member >= exchange_members_max || (k > 0 && !ranks_before(figure.top.back(), next)))
        return fail(Error::protocol, "partial reductions of '{}': value {} of the largest is out of order",
                    reductions[i].text, k);
      figure.top.push_back(next);
    }
    for (std::uint64_t& bin : figure.bins) bin = reader.take<std::uint64_t>();
  }
  if (!reader.done())
    return fail(Error::protocol, "partial reductions of {} bytes do not fit {} reductions", bytes.size(),
                reductions.size());
  return reduced;
}

}  // namespace offpath::exchange
