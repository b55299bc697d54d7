// Functions that decide on views: their calls, and what their answers change.
#include <utility>

#include "base/log.h"
#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"

namespace offpath::exchange {

void ExchangeService::decide(One& one, const View& view, TimeNs now, service::Effects& out) {
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
                            .suspended_ns = suspended_before_};
  auto call = one.decision->on_view(view, scene, gauges_, now);
  if (!call) return note_failure(one, call.error().message, now);
  if (!*call) return;
  const std::uint64_t token = next_token();
  calls_.emplace(token, &one);
  out.push_back(service::CallEffect{token, std::move(*call)});
}

void ExchangeService::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, service::Effects&) {
  const auto node = calls_.extract(token);
  if (!node) return;
  One& one = *node.mapped();
  notice_suspend();
  const Status carried = outcome ? carry_out_answer(one, *outcome, now) : tl::unexpected(outcome.error());
  if (carried) return;
  one.decision->on_failed();
  note_failure(one, carried.error().message, now);
}

// An answer is checked as a whole before any of it counts.
Status ExchangeService::carry_out_answer(One& one, const plugin::Outputs& outputs, TimeNs now) {
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
  take_step(one, one.decision->on_answer(answer, now));
  return {};
}

void ExchangeService::take_step(One& one, const Decision::Step& step) {
  // What others get next was used here until now.
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

void ExchangeService::note_failure(One& one, std::string_view why, TimeNs now) {
  if (!is_due(one.failure_logged_at, now)) return;
  log(LogLevel::warning, "exchange {}: a decision failed: {}; further failures are counted (decisions_failed)",
      one.settings.options.name, why);
}

}  // namespace offpath::exchange
