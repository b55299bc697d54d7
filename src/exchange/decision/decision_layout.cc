#include "exchange/decision/decision_layout.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace offpath::exchange {

namespace {

// Cut at 63 bytes, and terminated by NUL.
template <std::size_t bytes>
void put_text(char (&to)[bytes], std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), bytes - 1));
}

template <class Row>
void add_row(const Row& row, std::vector<std::byte>& to) {
  const Bytes bytes = std::as_bytes(std::span(&row, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Returns where the bytes lie.
std::uint64_t add_bytes(Bytes bytes, std::vector<std::byte>& to) {
  const std::uint64_t at = to.size();
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.resize(align_up(to.size(), 8));
  return at;
}

void put_view(const View& view, const DecisionScene& scene, std::uint64_t lost, std::vector<std::byte>& to) {
  ofp_decision_view head{};
  head.view_bytes = sizeof(ofp_decision_view);
  head.entry_bytes = sizeof(ofp_decision_entry);
  head.gauge_bytes = sizeof(ofp_gauge_value);
  head.figure_bytes = sizeof(ofp_figure_value);
  head.actuator_bytes = sizeof(ofp_actuator_state);
  head.self = scene.self;
  head.leader = view.leader;
  head.present = view.present;
  head.expected = view.expected;
  head.may_grant = scene.may_grant ? 1 : 0;
  head.interval = view.epoch;
  head.given_ns = view.given_at;
  head.interval_ns = scene.interval_ns;
  head.lost = lost;
  head.grant_total = scene.grant_total;
  head.granted = scene.held.amount;
  head.granted_until_ns = scene.held.amount == 0 ? 0 : scene.held.until;
  head.entry_count = view.entries.size();
  head.entries_at = sizeof head;
  to.reserve(view_bytes(view, scene));
  to.resize(sizeof head + view.entries.size() * sizeof(ofp_decision_entry));
  store(to.data(), head);
  std::uint64_t at = head.entries_at;
  for (const ViewEntry& entry : view.entries) {
    ofp_decision_entry row{};
    row.member = entry.member;
    row.flags = (entry.present ? OFP_ENTRY_PRESENT : 0) | (entry.has_value ? OFP_ENTRY_RECORD : 0);
    row.interval = entry.epoch;
    row.age_ns = entry.age_ns;
    const std::string& name = scene.members[entry.member];
    row.name_bytes = name.size();
    row.name_at = add_bytes(bytes_of(name), to);
    row.record_bytes = entry.record.bytes.size();
    row.record_at = add_bytes(entry.record.bytes, to);
    store(to.data() + at, row);
    at += sizeof row;
  }
}

void put_gauges(const GaugeVisit& gauges, TimeNs now, std::vector<std::byte>& to) {
  if (!gauges) return;
  gauges([&](const Schema& schema, const Sample& sample, TimeNs at) {
    for (std::size_t i = 0; i < schema.fields.size() && i < sample.values.size(); ++i) {
      const Field& field = schema.fields[i];
      ofp_gauge_value row{};
      put_text(row.source, schema.name);
      put_text(row.field, field.name);
      put_text(row.producer, sample.producer);
      row.bits = sample.values.bits(i);
      row.age_ns = std::max<TimeNs>(now - at, 0);
      row.type = field.type == FieldType::u64 ? 'u' : field.type == FieldType::i64 ? 'i' : 'f';
      row.is_present = sample.values.has(i) ? 1 : 0;
      add_row(row, to);
    }
  });
}

void put_figures(const View& view, const std::vector<Reduction>& reductions, std::vector<std::byte>& to) {
  for (std::size_t i = 0; view.reduced && i < reductions.size(); ++i) {
    ofp_figure_value row{};
    put_text(row.text, reductions[i].text);
    const bool is_one = reductions[i].kind != Reduction::Kind::top && reductions[i].kind != Reduction::Kind::histogram;
    row.value = is_one ? view.reduced->value(i, reductions[i]) : std::nan("");
    row.members = view.reduced->figure(i).count;
    add_row(row, to);
  }
}

}  // namespace

std::uint64_t view_bytes(const View& view, const DecisionScene& scene) {
  std::uint64_t bytes = sizeof(ofp_decision_view) + view.entries.size() * sizeof(ofp_decision_entry);
  for (const ViewEntry& entry : view.entries)
    bytes += align_up(scene.members[entry.member].size(), 8) + align_up(entry.record.bytes.size(), 8);
  return bytes;
}

DecisionInputs lay_out_decision(const View& view, const DecisionScene& scene, const GaugeVisit& gauges,
                                std::uint64_t lost, TimeNs now) {
  DecisionInputs inputs;
  put_view(view, scene, lost, inputs.view);
  put_gauges(gauges, now, inputs.gauges);
  put_figures(view, scene.reductions, inputs.figures);
  return inputs;
}

void add_actuator(const DecisionActuator& actuator, std::optional<std::uint64_t> value, std::vector<std::byte>& to) {
  ofp_actuator_state row{};
  put_text(row.name, actuator.name);
  row.min = actuator.min;
  row.max = actuator.max;
  row.value = value.value_or(0);
  row.is_held = value ? 1 : 0;
  add_row(row, to);
}

}  // namespace offpath::exchange
