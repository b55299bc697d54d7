#include "exchange/decision.h"

#include <algorithm>

#include "base/file_bytes.h"
#include "exchange/decision_layout.h"

namespace offpath::exchange {

namespace {

// A copy of an output, which must have whole rows.
template <class Row>
Result<std::vector<Row>> rows_of(const plugin::Output& output, std::size_t count_max) {
  if (output.bytes % sizeof(Row) != 0)
    return fail(Error::invalid, "output {} has {} bytes, which is no multiple of {}", output.name, output.bytes,
                sizeof(Row));
  if (output.bytes / sizeof(Row) > count_max)
    return fail(Error::too_large, "output {} has {} rows, at most {} are allowed", output.name,
                output.bytes / sizeof(Row), count_max);
  std::vector<Row> rows(output.bytes / sizeof(Row));
  OFP_TRY(read_all(output.memory.get(), std::as_writable_bytes(std::span(rows)), 0));
  return rows;
}

std::string_view name_of(const ofp_actuator_setting& row) {
  return {row.name, static_cast<std::size_t>(std::find(std::begin(row.name), std::end(row.name), '\0') - row.name)};
}

Result<std::vector<DecisionAnswer::Setting>> settings_of(const plugin::Output& output,
                                                         const std::vector<DecisionActuator>& actuators) {
  OFP_ASSIGN(const auto rows, rows_of<ofp_actuator_setting>(output, actuators.size()));
  std::vector<DecisionAnswer::Setting> settings;
  for (const ofp_actuator_setting& row : rows) {
    const auto at = std::ranges::find(actuators, name_of(row), &DecisionActuator::name);
    if (at == actuators.end())
      return fail(Error::denied, "the exchange may set no actuator '{}' (exchange.actuators)", brief(name_of(row)));
    const auto number = static_cast<std::size_t>(at - actuators.begin());
    if (std::ranges::find(settings, number, &DecisionAnswer::Setting::actuator) != settings.end())
      return fail(Error::invalid, "actuator {} is set twice", at->name);
    if (row.until_ns < 0) return fail(Error::invalid, "actuator {} is set until {}", at->name, row.until_ns);
    settings.push_back({number, row.value, row.until_ns, (row.flags & OFP_SETTING_GRANTED) != 0});
  }
  return settings;
}

}  // namespace

Result<DecisionAnswer> read_answer(const plugin::Outputs& outputs, std::size_t members, std::uint64_t bytes_max,
                                   const std::vector<DecisionActuator>& actuators) {
  DecisionAnswer answer;
  for (const plugin::Output& output : outputs) {
    if (output.name == "record") {
      if (output.bytes > bytes_max)
        return fail(Error::too_large, "a record of {} bytes, at most {} are allowed", output.bytes, bytes_max);
      answer.record.emplace(output.bytes);
      OFP_TRY(read_all(output.memory.get(), *answer.record, 0));
    } else if (output.name == "grants") {
      OFP_ASSIGN(answer.grants, rows_of<ofp_grant_target>(output, members));
      for (const ofp_grant_target& each : answer.grants)
        if (each.member >= members)
          return fail(Error::not_found, "a grant for member {}, but there are {}", each.member, members);
    } else if (output.name == "settings") {
      OFP_ASSIGN(answer.settings, settings_of(output, actuators));
    } else {
      return fail(Error::invalid, "output '{}' is not record, grants or settings", brief(output.name));
    }
  }
  return answer;
}

Decision::Decision(DecisionSettings settings) : settings_(std::move(settings)), states_(settings_.actuators.size()) {}

std::shared_ptr<plugin::Call> Decision::on_view(const View& view, const DecisionScene& scene, const GaugeVisit& gauges,
                                                TimeNs now) {
  if (phase_ != Phase::idle) {
    ++counters_.lost;
    return nullptr;
  }
  phase_ = Phase::calling;
  ++counters_.called;
  shown_ = scene.held;
  shown_nonce_ = scene.held_nonce;
  shown_suspended_ns_ = scene.suspended_ns;
  auto inputs = std::make_shared<DecisionInputs>(lay_out_decision(view, scene, gauges, counters_.lost, now));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const bool is_over = states_[i].until <= now + scene.suspended_ns;
    add_actuator(settings_.actuators[i], is_over ? std::nullopt : states_[i].value, inputs->actuators);
  }
  auto call = std::make_shared<plugin::Call>();
  call->plugin = settings_.plugin;
  call->function = settings_.function;
  const Bytes arguments = bytes_of(settings_.arguments);
  call->arguments.assign(arguments.begin(), arguments.end());
  const std::pair<const char*, const std::vector<std::byte>*> columns[] = {{"view", &inputs->view},
                                                                           {"gauges", &inputs->gauges},
                                                                           {"figures", &inputs->figures},
                                                                           {"actuators", &inputs->actuators}};
  for (const auto& [column, bytes] : columns) {
    plugin::Input input;
    input.column = column;
    input.bytes = bytes->size();
    input.data = *bytes;
    input.owner = inputs;
    call->inputs.push_back(std::move(input));
  }
  return call;
}

void Decision::on_failed() {
  ++counters_.failed;
  phase_ = Phase::idle;
}

std::vector<Decision::Asked> Decision::on_answer(const DecisionAnswer& answer, TimeNs now) {
  phase_ = Phase::setting;
  all_in_force_ = true;
  asked_.clear();
  std::vector<Asked> asked;
  const auto ask = [&](std::size_t actuator, const State& next) {
    asked_.push_back({next_, actuator, next});
    asked.push_back({next_++, settings_.actuators[actuator].number, next.value.value_or(0), next.until});
  };
  for (const DecisionAnswer::Setting& each : answer.settings) {
    TimeNs until = each.until == 0 ? now + settings_.actuators[each.actuator].lease_ns : each.until;
    if (each.granted) until = std::min(until, shown_.amount == 0 ? now : shown_.until);
    if (until > now) ask(each.actuator, {each.value, each.granted, until + shown_suspended_ns_});
  }
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (states_[i].value && states_[i].granted && std::ranges::find(asked_, i, &Pending::actuator) == asked_.end())
      ask(i, {});
  return asked;
}

std::optional<Decision::Followed> Decision::on_set(std::uint64_t number, const Result<std::uint64_t>& value) {
  const auto at = std::ranges::find(asked_, number, &Pending::number);
  if (at == asked_.end()) return std::nullopt;
  State& state = states_[at->actuator];
  if (value) {
    state = at->next;
    if (state.value) {
      ++counters_.set;
      state.value = *value;
    }
  } else {
    // It may have either setting.
    ++counters_.unset;
    all_in_force_ = false;
    state.granted |= at->next.granted;
    state.until = std::max(state.until, at->next.until);
    if (!state.value) state.value = at->next.value;
  }
  asked_.erase(at);
  return finish();
}

std::optional<Decision::Followed> Decision::finish() {
  if (phase_ != Phase::setting || !asked_.empty()) return std::nullopt;
  phase_ = Phase::idle;
  if (!all_in_force_) return std::nullopt;
  return Followed{shown_nonce_, shown_.number};
}

}  // namespace offpath::exchange
