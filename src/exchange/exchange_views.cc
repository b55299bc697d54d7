// Views: laid out as in wire/areas/exchange_area.h, and pushed into the area of each program, the slot first, then the
// line.
#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"

namespace offpath::exchange {

namespace {

// A laid out view: head and rows, then bytes as long as there is room.
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

void ExchangeService::show(One& one, Subscriber& subscriber, ViewPtr view, TimeNs now, service::Effects& out) {
  if (subscriber.push != Subscriber::Push::idle) {
    subscriber.next = std::move(view);  // any earlier waiting view is older
    return;
  }
  ++subscriber.view_number;
  if (const Grants* grants = one.exchange->grants(); grants != nullptr && subscriber.publishes) {
    subscriber.shown_grants.push_back({subscriber.view_number, grants->held_nonce(), grants->held(now).number});
    if (subscriber.shown_grants.size() > shown_grants_max) subscriber.shown_grants.pop_front();
  }
  subscriber.push = Subscriber::Push::slot;
  const std::uint64_t token = next_token();
  Transfer transfer{};
  transfer.kind = Transfer::Kind::push;
  transfer.subscriber = subscriber.number;
  transfer.bytes = std::make_shared<std::vector<std::byte>>(encode_view(one, subscriber, *view, now));
  push(out, subscriber.channel, token, subscriber.area.region,
       subscriber.area.offset +
           wire::view_slot_at(subscriber.view_number, subscriber.record_bytes, subscriber.view_bytes),
       *transfer.bytes);
  transfers_.emplace(token, std::move(transfer));
}

void ExchangeService::on_push(One& one, Subscriber& subscriber, const Status& status, TimeNs now,
                              service::Effects& out) {
  if (!status) {
    subscriber.push = Subscriber::Push::idle;  // the channel ends, or the area differs from its description
    return;
  }
  if (subscriber.push == Subscriber::Push::slot) {
    subscriber.push = Subscriber::Push::line;
    const std::uint64_t token = next_token();
    Transfer transfer{};
    transfer.kind = Transfer::Kind::push;
    transfer.subscriber = subscriber.number;
    transfer.bytes = std::make_shared<std::vector<std::byte>>(sizeof(wire::ViewLine));
    wire::ViewLine line{};
    line.number = subscriber.view_number;
    store(transfer.bytes->data(), line);
    // Only the number: one aligned word.
    push(out, subscriber.channel, token, subscriber.area.region, subscriber.area.offset + sizeof(wire::PublishLine),
         Bytes(*transfer.bytes).first(sizeof line.number));
    transfers_.emplace(token, std::move(transfer));
    return;
  }
  subscriber.push = Subscriber::Push::idle;
  subscriber.shown = subscriber.view_number;
  ++one.views_pushed;
  std::erase_if(subscriber.waiters, [&](const Waiter& each) {
    if (subscriber.shown <= each.after) return false;
    service::answer(out, subscriber.channel, each.ticket, subscriber.shown);
    return true;
  });
  if (subscriber.next) show(one, subscriber, std::exchange(subscriber.next, nullptr), now, out);
}

wire::ViewHead ExchangeService::view_head(const One& one, const Subscriber& subscriber, const View& view,
                                          TimeNs now) const {
  wire::ViewHead head{};
  head.number = subscriber.view_number;
  head.epoch = view.epoch;
  head.took_ns = view.given_at - view.began_at;
  head.deadline_ns = one.settings.options.deadline_ns;
  head.present = view.present;
  head.expected = view.expected;
  head.leader = view.leader;
  head.tree = one.exchange->topology().fingerprint();
  head.figure_members = view.reduced_members;
  head.flags = (view.whole ? wire::view_whole : 0) | (view.leader == one.exchange->self() ? wire::view_leads : 0);
  head.grant_leader = nobody;
  const Grants* grants = one.exchange->grants();
  if (grants == nullptr || !subscriber.publishes || subscriber.record_number == 0) return head;
  const Grants::Held held = grants->held(now);
  // Counted from the moment the record was seen, which is later than its publication (grants.h).
  const TimeNs valid = held.until - subscriber.record_seen_at;
  head.grant_leader = held.leader;
  head.grant_number = held.number;
  if (now < held.until && valid > 0) {
    head.grant_amount = held.amount;
    head.grant_record = subscriber.record_number;
    head.grant_valid_ns = valid;
  }
  return head;
}

std::vector<std::byte> ExchangeService::encode_view(const One& one, const Subscriber& subscriber, const View& view,
                                                    TimeNs now) const {
  const std::vector<Reduction>& reductions = one.settings.options.reductions;
  wire::ViewHead head = view_head(one, subscriber, view, now);
  const std::size_t figures = view.reduced ? reductions.size() : 0;
  const std::uint64_t figures_at = sizeof head + view.entries.size() * sizeof(wire::ViewEntryRow);
  const std::uint64_t bytes_at = figures_at + figures * sizeof(wire::ViewFigureRow);
  const bool rows_fit = bytes_at <= subscriber.view_bytes;
  ViewBytes bytes(rows_fit ? bytes_at : sizeof head, subscriber.view_bytes);
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
