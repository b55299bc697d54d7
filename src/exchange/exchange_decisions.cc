#include "exchange/exchange_decisions.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace offpath::exchange {

void ExchangeService::Decisions::decide(One& one, const View& view, TimeNs suspended_ns, TimeNs now,
                                        service::Effects& out) {
  const Exchange& exchange = *one.exchange;
  const Grants* const grants = exchange.grants();
  std::vector<std::string> members;
  if (one.decision->is_idle())
    for (const Place& each : one.places) members.push_back(each.name);
  const DecisionScene scene{.members = members,
                            .self = exchange.self(),
                            .interval_ns = exchange.options().interval_ns,
                            .reductions = exchange.options().reductions,
                            .grant_total = grants != nullptr ? exchange.options().grants->total : 0,
                            .may_grant = grants != nullptr && grants->may_grant(now),
                            .held = grants != nullptr ? grants->held(now) : Grants::Held{},
                            .held_nonce = grants != nullptr ? grants->held_nonce() : 0,
                            .suspended_ns = suspended_ns};
  auto call = one.decision->on_view(view, scene, gauges_, now);
  if (!call) return note_failure(one, call.error().message, now);
  if (!*call) return;
  const std::uint64_t token = next_token_();
  calls_.emplace(token, &one);
  out.push_back(service::CallEffect{token, std::move(*call)});
}

void ExchangeService::Decisions::on_called(std::uint64_t token, const Result<plugin::Outputs>& outcome, TimeNs now) {
  const auto node = calls_.extract(token);
  if (!node) return;
  One& one = *node.mapped();
  const Status carried = outcome ? carry_out_answer(one, *outcome, now) : tl::unexpected(outcome.error());
  if (carried) return;
  one.decision->on_failed();
  note_failure(one, carried.error().message, now);
}

// An answer is checked as a whole before any of it counts.
Status ExchangeService::Decisions::carry_out_answer(One& one, const plugin::Outputs& outputs, TimeNs now) {
  if (!one.exchange) return fail(Error::closed, "the exchange does not run here any more");
  const ExchangeOptions& options = one.settings.options;
  OFP_ASSIGN(const DecisionAnswer answer,
             read_answer(outputs, one.places.size(), options.record_bytes, one.decision->settings().actuators));
  Grants* const grants = one.exchange->grants();
  if (!answer.grants.empty() && grants == nullptr)
    return fail(Error::unsupported, "it has no grants (exchange.grant_total)");
  if (answer.record) {
    if (options.schema) OFP_TRY(check_record(*answer.record, *options.schema));
    auto bytes = std::make_shared<const std::vector<std::byte>>(*answer.record);
    one.record = {bytes, *bytes};
    one.record_made_at = now;
  }
  for (const ofp_grant_target& each : answer.grants) grants->set_target(each.member, each.amount);
  one.has_granted |= !answer.grants.empty();
  one.failing_since = never;
  one.tell_deciding(now);
  take_step(one, one.decision->on_answer(answer, now));
  return {};
}

void ExchangeService::Decisions::take_step(One& one, const Decision::Step& step) {
  // The amount that others get next was used here until now.
  Grants* const grants = one.exchange ? one.exchange->grants() : nullptr;
  if (step.followed && grants != nullptr) grants->on_user_goes_by(step.followed->nonce, step.followed->number);
  for (const Decision::Asked& each : step.asked)
    set_actuator_(each.actuator, each.value, each.until,
                  [this, &one, number = each.number](const Result<std::uint64_t>& value, TimeNs at) {
                    take_step(one, one.decision->on_set(number, value));
                    if (value || !is_due(one.refusal_logged_at, at)) return;
                    log(LogLevel::warning,
                        "exchange {}: a setting was refused: {}; further ones are counted "
                        "(settings_refused)",
                        one.settings.options.name, value.error().message);
                  });
}

void ExchangeService::Decisions::note_failure(One& one, std::string_view why, TimeNs now) {
  one.failing_since = std::min(one.failing_since, now);
  one.tell_deciding(now);
  if (!is_due(one.failure_logged_at, now)) return;
  log(LogLevel::warning, "exchange {}: a decision failed: {}; further failures are counted (decisions_failed)",
      one.settings.options.name, why);
}

}  // namespace offpath::exchange
