#include "exchange/decision/decision.h"

#include <algorithm>

#include "base/files/file_bytes.h"
#include "exchange/decision/decision_layout.h"

namespace offpath::exchange {

namespace {

// A copy of an output, which must have whole rows.
template <class Row>
Result<std::vector<Row>> rows_of(const plugin::Output& output, std::size_t count_max) {
  if (output.bytes % sizeof(Row) != 0)
    return fail(Error::invalid, "output {} has {} bytes, which is not a multiple of {}", output.name, output.bytes,
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

Result<std::shared_ptr<plugin::Call>> Decision::on_view(const View& view, const DecisionScene& scene,
                                                        const GaugeVisit& gauges, TimeNs now) {
  if (!is_idle()) {
    ++counters_.lost;
    return nullptr;
  }
  ++counters_.called;
  if (const std::uint64_t bytes = view_bytes(view, scene); bytes > plugin::copied_bytes_max) {
    ++counters_.failed;
    return fail(Error::too_large, "a view of {} bytes, at most {} are given to a function", bytes,
                plugin::copied_bytes_max);
  }
  phase_ = Phase::calling;
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

void Decision::ask(std::size_t actuator, const State& next, Step& step) {
  asked_.push_back({next_, actuator, next});
  step.asked.push_back({next_++, settings_.actuators[actuator].number, next.value.value_or(0), next.until});
}

Decision::Step Decision::on_answer(const DecisionAnswer& answer, TimeNs now) {
  phase_ = Phase::lowering;
  all_in_force_ = true;
  asked_.clear();
  raises_.clear();
  Step step;
  std::vector<bool> is_named(states_.size());
  for (const DecisionAnswer::Setting& each : answer.settings) {
    const DecisionActuator& actuator = settings_.actuators[each.actuator];
    TimeNs until = now + actuator.lease_ns;
    if (each.until != 0) until = std::min(until, each.until);
    if (each.granted) until = std::min(until, shown_.amount == 0 ? now : shown_.until);
    // A value below the least one would be raised to that, which is more than was granted.
    if (until <= now || (each.granted && each.value < actuator.min)) continue;
    is_named[each.actuator] = true;
    const State& state = states_[each.actuator];
    const State next{std::min(each.value, actuator.max), until + shown_suspended_ns_, each.granted};
    const bool is_known = state.is_sure && (!state.value || state.until > now + shown_suspended_ns_);
    if (is_known && state.value && *next.value <= *state.value) {
      ask(each.actuator, next, step);
    } else {
      // If either of two values may be in force, neither counts: the former setting is restored first.
      if (!is_known) ask(each.actuator, {}, step);
      raises_.emplace_back(each.actuator, next);
    }
  }
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (!is_named[i] && states_[i].granted) ask(i, {}, step);
  if (step.asked.empty()) return go_on();
  return step;
}

Decision::Step Decision::on_set(std::uint64_t number, const Result<std::uint64_t>& value) {
  const auto at = std::ranges::find(asked_, number, &Pending::number);
  if (at == asked_.end()) return {};
  State& state = states_[at->actuator];
  if (value) {
    state = at->next;
    if (state.value) {
      ++counters_.set;
      state.value = *value;
    }
  } else {
    ++counters_.unset;
    all_in_force_ = false;
    state.is_sure = false;
    state.granted |= at->next.granted;
    if (value.error().code == Error::not_found) state.value.reset();  // the keeper has let it go
  }
  asked_.erase(at);
  return go_on();
}

Decision::Step Decision::go_on() {
  Step step;
  if (!asked_.empty()) return step;
  if (phase_ == Phase::lowering) {
    phase_ = Phase::raising;
    if (all_in_force_)
      for (const auto& [actuator, next] : raises_) ask(actuator, next, step);
    else
      counters_.unset += raises_.size();
    raises_.clear();
    if (!asked_.empty()) return step;
  }
  if (phase_ == Phase::raising && all_in_force_) step.followed = Followed{shown_nonce_, shown_.number};
  phase_ = Phase::idle;
  return step;
}

}  // namespace offpath::exchange
