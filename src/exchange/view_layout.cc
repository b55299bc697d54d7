#include "exchange/view_layout.h"

#include <algorithm>
#include <bit>
#include <span>

namespace offpath::exchange {

namespace {

// A view in its layout: head and rows, then bytes while there is room.
class ViewBytes {
 public:
  ViewBytes(std::uint64_t rows, std::uint64_t bytes_max) : bytes_(rows), bytes_max_(bytes_max) {}

  // Reserves the records of `view`, so that their room is searched once.
  void expect(const View& view) {
    std::uint64_t bytes = bytes_.size();
    for (const ViewEntry& entry : view.entries) bytes += align_up(entry.record.bytes.size(), 8);
    bytes_.reserve(std::min(bytes, bytes_max_));
  }
  // The offset of the bytes; 0: there was no room.
  [[nodiscard]] std::uint64_t put(Bytes bytes) {
    const std::uint64_t place = bytes_.size(), end = place + align_up(bytes.size(), 8);
    if (end > bytes_max_) return 0;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    bytes_.resize(end);
    return place;
  }
  template <class Row>
  void set(std::uint64_t at, const Row& row) {
    store(bytes_.data() + at, row);
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
  std::uint64_t bytes_max_;
};

// False: a record was left out.
bool put_entries(const View& view, std::uint64_t at, ViewBytes& bytes) {
  bool all_fit = true;
  for (const ViewEntry& entry : view.entries) {
    wire::ViewEntryRow row{};
    row.member = entry.member;
    row.epoch = entry.epoch;
    row.age_ns = entry.age_ns;
    row.flags = (entry.present ? wire::entry_present : 0) | (entry.has_value ? wire::entry_has_value : 0);
    row.offset = bytes.put(entry.record.bytes);
    if (row.offset != 0) {
      row.length = entry.record.bytes.size();
    } else {
      row.flags |= wire::entry_cut;
      all_fit = false;
    }
    bytes.set(at, row);
    at += sizeof row;
  }
  return all_fit;
}

// The exact sum, min and max of integers.
std::uint64_t bits_of(const Reduced::Figure& figure, Reduction::Kind kind) {
  switch (kind) {
    case Reduction::Kind::min:
      return static_cast<std::uint64_t>(figure.least);
    case Reduction::Kind::max:
      return static_cast<std::uint64_t>(figure.most);
    default:
      return static_cast<std::uint64_t>(figure.whole);
  }
}

// False: values that a figure ranks or counts were left out.
bool put_figures(const Reduced& reduced, const std::vector<Reduction>& reductions, std::uint64_t at, ViewBytes& bytes) {
  bool all_fit = true;
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    const Reduced::Figure& figure = reduced.figure(i);
    wire::ViewFigureRow row{};
    row.count = figure.count;
    row.value = reduced.value(i, reductions[i]);
    row.bits = bits_of(figure, reductions[i].kind);
    words = figure.bins;
    for (const Reduced::Ranked& each : figure.top) {
      words.push_back(std::bit_cast<std::uint64_t>(each.value));
      words.push_back(each.member);
    }
    row.offset = bytes.put(std::as_bytes(std::span(words)));
    if (row.offset != 0) {
      row.ranked = static_cast<std::uint32_t>(figure.top.size());
      row.bins = static_cast<std::uint32_t>(figure.bins.size());
    } else {
      all_fit = false;
    }
    bytes.set(at, row);
    at += sizeof row;
  }
  return all_fit;
}

}  // namespace

std::vector<std::byte> lay_out_view(wire::ViewHead head, const View& view, const std::vector<Reduction>& reductions,
                                    std::uint64_t bytes_max) {
  const std::size_t figures = view.reduced ? reductions.size() : 0;
  const std::uint64_t figures_at = sizeof head + view.entries.size() * sizeof(wire::ViewEntryRow);
  const std::uint64_t bytes_at = figures_at + figures * sizeof(wire::ViewFigureRow);
  const bool rows_fit = bytes_at <= bytes_max;
  ViewBytes bytes(rows_fit ? bytes_at : sizeof head, bytes_max);
  bool all_fit = rows_fit;
  if (rows_fit) {
    head.entries = static_cast<std::uint32_t>(view.entries.size());
    head.figures = static_cast<std::uint32_t>(figures);
    bytes.expect(view);
    if (!put_entries(view, sizeof head, bytes)) all_fit = false;
    if (figures != 0 && !put_figures(*view.reduced, reductions, figures_at, bytes)) all_fit = false;
  }
  if (!all_fit) head.flags |= wire::view_cut;
  head.length = bytes.size();
  bytes.set(0, head);
  return std::move(bytes).take();
}

}  // namespace offpath::exchange
