#include "sift/pools/pool_agreements.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

// Sends the questions of the agreement, and acts on its outcome.
void PoolAgreements::after(SiftPool& pool, Agreement::Outcome outcome, const Agreement::Asks& asks, TimeNs now,
                           service::Effects& effects) {
  for (const Agreement::Ask& each : asks) ask(pool, each, now, effects);
  known_.note_deadline(pool);
  if (outcome != Agreement::Outcome::none) known_.note_change();
  if (outcome == Agreement::Outcome::agreed) {
    if (pool.kept) pool.kept->begin(now);
    serve_deferred(pool, now, effects);
  } else if (outcome == Agreement::Outcome::hopeless) {
    pool.deferred.serve(now, effects);  // these fail
  }
}

void PoolAgreements::serve_deferred(SiftPool& pool, TimeNs now, service::Effects& effects) {
  if (!pool.deferred.empty() && pool.is_ready()) pool.deferred.serve(now, effects);
}

// A flush without a number says that this definition was agreed on.
void PoolAgreements::ask(SiftPool& pool, const Agreement::Ask& asked, TimeNs now, service::Effects& effects) {
  if (asked.sends && pool.object == nullptr)
    pool.object = std::make_shared<const std::vector<std::byte>>(encode_definition(pool.text));
  effects.push_back(service::AskEffect{
      under_way_.add(UnderWay::Work{UnderWay::Work::Kind::ask, &pool, 0, asked.member}), asked.member,
      asked.tells ? EntryKind::peer_flush : EntryKind::peer_define, deadline_after(now, context_.options.ask_wait_ns),
      nullptr, 0,
      [tells = asked.tells, reference = pool.reference, user = pool.user, object = asked.sends ? pool.object : nullptr](
          const AskedMemory&, std::vector<std::byte>& payload) {
        if (tells)
          wire::encode(wire::PeerFlush{user, 0, 1, reference}, payload);
        else
          wire::encode(wire::PeerDefine{user, reference, object ? Bytes(*object) : Bytes()}, payload);
      }});
  if (asked.sends)
    std::get<service::AskEffect>(effects.back()).payload_bytes = pool.text.size() + pool.reference.size() + 128;
}

void PoolAgreements::work(SiftPool& pool, TimeNs now, service::Effects& effects) {
  Agreement::Asks asks;
  const Agreement::Outcome outcome = pool.agreement.work(context_.alive, now, asks);
  after(pool, outcome, asks, now, effects);
}

void PoolAgreements::on_members(SiftPool& pool, std::span<const std::string> before, std::span<const std::string> anew,
                                TimeNs now, service::Effects& effects) {
  Agreement& agreement = pool.agreement;
  Agreement::Asks asks;
  for (const std::string& member : anew) agreement.on_restart(member);
  for (const std::string& member : context_.alive)  // other agents may have another pool of the name
    if (member != context_.self &&
        (!std::ranges::binary_search(before, member) || std::ranges::find(anew, member) != anew.end()))
      agreement.ask(member, asks);
  const Agreement::Outcome outcome = agreement.work(context_.alive, now, asks);
  after(pool, outcome, asks, now, effects);
}

void PoolAgreements::on_answer(const UnderWay::Work& work, const Result<std::uint64_t>& answer, TimeNs now,
                               service::Effects& effects) {
  SiftPool& pool = *work.pool;
  if (!known_.has(pool)) return;
  Agreement::Asks asks;
  const Agreement::Outcome outcome = pool.agreement.on_answer(work.member, answer, context_.alive, now, asks);
  after(pool, outcome, asks, now, effects);
}

// ---- definitions of other members

// An unknown definition is requested from one member at a time; the others ask again.
Result<std::uint64_t> PoolAgreements::serve_define(const wire::PeerDefine& asked, TimeNs now,
                                                   service::Effects& effects) {
  if (!asked.definition.empty()) {
    OFP_ASSIGN(std::string text, decode_definition(asked.definition));
    if (reference_to(text) != asked.pool)
      return fail(Error::protocol, "the definition of pool \"{}\" has another hash than its name", name_in(text));
    known_.foreign().add(std::string(asked.pool), std::move(text));
  }
  const auto text = known_.resolve(asked.pool);
  if (text) return serve_definition(*text, static_cast<uid_t>(asked.user), now, effects);
  if (known_.foreign().want(asked.pool, now)) return Agreement::wants_definition;
  return tl::unexpected(text.error());
}

Result<std::uint64_t> PoolAgreements::serve_definition(std::string_view text, uid_t user, TimeNs now,
                                                       service::Effects& effects) {
  SiftPool* mine = known_.named(text);
  const bool is_new = mine == nullptr;
  if (is_new) {  // one with all cores of this agent wins over one that lacks some
    OFP_ASSIGN(const bool lacks, making_.lacks_own_core(text));
    OFP_ASSIGN(mine, lacks ? making_.define(text, user, effects) : making_.define_exactly(text, user, effects));
  }
  OFP_TRY(KnownPools::may_use(*mine, user));
  if (mine->text == text) return mine->agreement.confirm(is_new, now);
  const Status yields = mine->agreement.yield_to_proposed(text, now);
  known_.note_deadline(*mine);
  OFP_TRY(yields);
  OFP_ASSIGN(SiftPool* const pool, replace(*mine, text, user, now, effects));
  pool->agreement.take_as_proposed(now);
  return Agreement::promised;
}

// Replaces a definition that was not agreed on, and so has no objects.
Result<SiftPool*> PoolAgreements::replace(SiftPool& mine, std::string_view text, uid_t user, TimeNs now,
                                          service::Effects& effects) {
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  if (!has_member(settings, context_.self))
    return fail(Error::unsupported, "pool \"{}\": this agent, {}, is not one of its members", shown(text),
                context_.self);
  log(LogLevel::info, "pool \"{}\" is made as \"{}\"", shown(mine.text), shown(text));
  DeferredRequests deferred = std::exchange(mine.deferred, {});
  std::deque<std::string> replaced = std::exchange(mine.replaced, {});
  OFP_ASSIGN(Settings before, parse_settings(mine.text));
  if (mine.learnt && settings.by == KeyBy::range) before.ranges = settings.ranges;
  if (same_but_members(before, settings)) replaced.push_back(mine.reference);
  if (replaced.size() > SiftPool::replaced_max) replaced.pop_front();
  making_.drop(mine, now, effects);
  auto made = making_.define_exactly(text, user, effects);
  if (!made) {  // there is no memory for it
    deferred.serve(now, effects);
    return made;
  }
  (*made)->replaced = std::move(replaced);
  (*made)->deferred.add(std::move(deferred));
  serve_deferred(**made, now, effects);
  return made;
}

Result<SiftPool*> PoolAgreements::define_agreed(std::string_view said, uid_t user, TimeNs now,
                                                service::Effects& effects) {
  SiftPool* const mine = known_.named(said);
  if (mine != nullptr && mine->reference == said) {  // as nearly always
    OFP_TRY(KnownPools::may_use(*mine, user));
    agree(*mine, now, effects);
    return mine;
  }
  OFP_ASSIGN(const std::string text, known_.resolve(said));
  const bool other = mine != nullptr && mine->text != text;
  if (other) {
    OFP_TRY(KnownPools::may_use(*mine, user));
    OFP_TRY(mine->agreement.yield_to_agreed(text, now));
  }
  OFP_ASSIGN(SiftPool* const pool,
             other ? replace(*mine, text, user, now, effects) : making_.define_exactly(text, user, effects));
  agree(*pool, now, effects);
  return pool;
}

}  // namespace offpath::sift
