#include "sift/split/range_sample.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "sift/split/row_form.h"
#include "wire/limits.h"

namespace offpath::sift {

namespace {

constexpr std::uint64_t sampled_rows_max = 4096;  // sorted on the loop
constexpr std::size_t ranges_bytes_max = wire::pool_bytes_max / 2;
constexpr std::uint64_t ranges_max = ranges_bytes_max / 2;  // each value has a digit, and a comma in front
constexpr std::string_view sample = "&ranges=sample";

constexpr std::size_t prefix_bytes_max = 32;  // bytes of long identifiers, whose beginning is enough

// Keys of at most eight bytes, and the beginnings of long ones, in the form that is compared.
struct ShortKeys {
  using Key = std::uint64_t;
  static Key key_of(const KeyForm& form, Bytes value) { return form.key_of(value.data()); }
  static Result<Key> key_of_text(const KeyForm& form, std::string_view text) { return form.key_of_text(text); }
  static std::string text_of(const KeyForm& form, Key key) { return form.text_of(key); }
};
struct LongKeys {
  using Key = std::string;
  static Key key_of(const KeyForm& form, Bytes value) {
    std::string key(value.size(), 0);
    if (form.is_compared_as_it_lies())
      key = offpath::text_of(value);
    else
      form.order(value.data(), reinterpret_cast<std::byte*>(key.data()));
    return key;
  }
  static Result<Key> key_of_text(const KeyForm& form, std::string_view text) { return form.long_key_of_text(text); }
  static std::string text_of(const KeyForm& form, const Key& key) {
    if (key.empty()) return "00";  // an empty one is the least
    const bool is_number = form.kind() == KeyForm::Kind::long_number;
    return form.text_of(bytes_of(is_number ? key : std::string_view(key).substr(0, prefix_bytes_max)));
  }
};

// Ascending.
template <class Keys>
Result<std::vector<typename Keys::Key>> sampled_keys(const RowForm& form, const RowsView& view) {
  const std::uint64_t each = (view.rows + sampled_rows_max - 1) / sampled_rows_max;
  std::vector<typename Keys::Key> keys;
  for (std::uint64_t row = each / 2; row < view.rows; row += each) {
    OFP_ASSIGN(const Bytes value, form.checked_id(view, row));
    keys.push_back(Keys::key_of(form.key(), value));
  }
  std::ranges::sort(keys);
  return keys;
}

// The least values of `ranges` ranges except the first; fewer if there are fewer distinct values.
template <class Keys>
std::vector<std::string> quantiles(const KeyForm& form, const std::vector<typename Keys::Key>& keys,
                                   std::uint64_t ranges) {
  std::vector<std::string> values;
  typename Keys::Key before = keys.front();
  for (std::uint64_t i = 1; i < ranges; ++i) {
    const std::string text = Keys::text_of(form, keys[i * keys.size() / ranges]);
    const auto written = Keys::key_of_text(form, text);  // text may be rounded
    if (!written || *written <= before) continue;
    before = *written;
    values.push_back(text);
  }
  if (values.empty()) values.push_back(Keys::text_of(form, keys.front()));  // all rows are in the second range
  return values;
}

template <class Keys>
Result<std::string> ranges_of(const RowForm& form, const RowsView& view, std::uint64_t count) {
  OFP_ASSIGN(const auto keys, sampled_keys<Keys>(form, view));
  for (count = std::min(count, ranges_max);; count = count * 7 / 8) {
    std::string ranges = fmt::format("ranges={}", fmt::join(quantiles<Keys>(form.key(), keys, count), ","));
    if (ranges.size() <= ranges_bytes_max) return ranges;
  }
}

}  // namespace

Result<std::string> with_sampled_ranges(std::string_view text, const Settings& settings, Bytes frame) {
  OFP_ASSIGN(const std::shared_ptr<const RowForm> form, RowForm::of_frame(frame, settings.key_rule()));
  OFP_ASSIGN(const RowsView view, form->view_ends(frame));
  if (view.rows == 0) return std::string();
  const std::uint64_t elements = settings.elements(settings.track_stage());
  OFP_ASSIGN(const std::string ranges, form->key().is_long() ? ranges_of<LongKeys>(*form, view, elements)
                                                             : ranges_of<ShortKeys>(*form, view, elements));
  // If it is the first option, '?' precedes it instead of '&'.
  std::size_t at = text.find(sample, name_in(text).size());
  if (text.substr(name_in(text).size() + 1).starts_with(sample.substr(1))) at = name_in(text).size();
  return fmt::format("{}{}{}", text.substr(0, at + 1), ranges, text.substr(at + sample.size()));
}

}  // namespace offpath::sift
