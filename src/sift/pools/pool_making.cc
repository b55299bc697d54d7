#include "sift/pools/pool_making.h"

#include <algorithm>

#include "base/log.h"

namespace offpath::sift {

PoolMaking::PoolMaking(const ServiceContext& context, KnownPools& known, PoolEffects& pool_effects, Agreed agreed)
    : context_(context),
      known_(known),
      pool_effects_(pool_effects),
      agreed_(std::move(agreed)),
      awaited_(context.options.user_pools_max),
      unread_(context.pools, [this](const std::string& own, uid_t user, const Result<Identity>& identity, TimeNs now,
                                    service::Effects& effects) {
        if (const Status status = take_up(own, user, identity, now, effects); !status)
          log(LogLevel::error, "pool \"{}\": its kept objects are not used: {}", own, status.error().message);
        make_awaited(now, effects);
      }) {}

Result<SiftPool*> PoolMaking::existing(std::string_view text, uid_t user) const {
  OFP_ASSIGN(SiftPool* const pool, known_.find(text));
  if (pool == nullptr) OFP_TRY(may_make(text));
  if (pool == nullptr && awaited_.has(text))
    return fail(Error::not_found,
                "pool \"{}\" waits for more of its members, or for its first rows; {} members are alive", name_in(text),
                context_.alive.size());
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", name_in(text));
  OFP_TRY(KnownPools::may_use(*pool, user));
  return pool;
}

Result<SiftPool*> PoolMaking::define(std::string_view text, uid_t user, service::Effects& effects) {
  OFP_ASSIGN(SiftPool* const known, known_.find(text));
  if (known != nullptr) {
    OFP_TRY(KnownPools::may_use(*known, user));
    return known;
  }
  if (is_reference(text)) {
    OFP_ASSIGN(const std::string full, known_.resolve(text));
    return define_exactly(full, user, effects);
  }
  OFP_TRY(may_make(text));
  OFP_ASSIGN(const auto meant, awaited_.meant(text, user));
  if (meant) return define(meant->first, meant->second, effects);
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  if (settings.samples_ranges)
    return fail(Error::would_block,
                "pool \"{}\" waits for its first rows, from which it learns ranges=", name_in(text));
  OFP_TRY(all_cores_live(text));
  return make_of(text, settings, context_.alive, user, effects);
}

Result<SiftPool*> PoolMaking::define_exactly(std::string_view text, uid_t user, service::Effects& effects) {
  OFP_ASSIGN(SiftPool* const known, known_.find(text));
  if (known != nullptr) {
    OFP_TRY(KnownPools::may_use(*known, user));
    return known;
  }
  OFP_TRY(may_make(text));
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  return make_of(text, settings, {}, user, effects);
}

// A program that comes to a core which was not among the members could not use the pool.
Status PoolMaking::all_cores_live(std::string_view text) const {
  for (const std::string& core : context_.cores)
    if (!std::ranges::binary_search(context_.alive, core))
      return fail(Error::would_block, "pool \"{}\" waits for core {} of this agent", name_in(text), core);
  return {};
}

Result<bool> PoolMaking::lacks_own_core(std::string_view text) const {
  if (context_.cores.size() <= 1) return false;
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  const auto is_member = [&](const std::string& core) { return has_member(settings, core); };
  return std::ranges::any_of(context_.cores, is_member) && !std::ranges::all_of(context_.cores, is_member);
}

Result<SiftPool*> PoolMaking::make_of(std::string_view text, const Settings& asked, std::span<const std::string> alive,
                                      uid_t user, service::Effects& effects) {
  const std::size_t own = known_.count_of(user);
  if (own >= context_.options.user_pools_max)
    return fail(Error::too_large,
                "user {} has {} sift pools, which is the limit of each user (limits.user_pools_max); drop one", user,
                own);
  OFP_ASSIGN(const Definition definition, definition_of(text, asked, alive, context_.place_of));
  OFP_ASSIGN(Settings settings, parse_settings(definition.text));
  const std::string& self = context_.self;
  if (std::ranges::find(definition.members, self) == definition.members.end())
    return fail(Error::unsupported, "pool \"{}\": this agent, {}, is not one of its members", shown(definition.text),
                self);
  OFP_ASSIGN(std::unique_ptr<Sift> sift, Sift::make({.settings = settings,
                                                     .self = {self, context_.process},
                                                     .memory = {context_.buffers, user},
                                                     .kept = settings.kept()},
                                                    definition.members));
  const std::uint32_t position = sift->geometry().position_of(self);
  auto made = std::make_unique<SiftPool>(
      SiftPool{.name = std::string(name_in(text)),
               .text = definition.text,
               .reference = reference_to(definition.text),
               .user = user,
               .settings = std::move(settings),
               .sift = std::move(sift),
               .agreement = Agreement(self, definition.text, definition.members),
               .flushes = FlushRounds(std::string(name_in(text)), position, definition.members.size())});
  if (made->settings.kept() || made->settings.spill_on) OFP_TRY(open_kept(*made, effects));
  SiftPool& pool = known_.add(std::move(made));
  if (auto awaited = awaited_.take(pool.name)) {
    pool.learnt = text == awaited->learnt;
    pool.deferred = std::move(awaited->deferred);
  }
  known_.note_deadline(pool);  // the next round, which knows the time, asks the members
  if (pool.text != text && pool.agreement.missing(context_.alive, 0).empty())
    agreed_(pool, context_.pools.now(), effects);
  return &pool;
}

Status PoolMaking::open_kept(SiftPool& pool, service::Effects& effects) {
  pool.kept = std::make_unique<KeptStore>(
      KeptStore::Options{.name = pool.name,
                         .text = pool.text,
                         .user = pool.user,
                         .settings = pool.settings,
                         .memory = {context_.buffers, pool.user},
                         .self = context_.self,
                         .process = context_.process,
                         .moves_ns = context_.options.piece_wait_ns},
      pool.sift->geometry(), context_.pools,
      KeptStore::Events{
          .found =
              [this, &pool](std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now,
                            service::Effects& more) {
                pool.sift->restore(incarnation, items, now, pool.pending);
                pool_effects_.carry_out(pool, now, more);
              },
          .kept =
              [this, &pool](std::uint64_t token, const Status& status, TimeNs now, service::Effects& more) {
                pool.sift->on_kept(token, status, now, pool.pending);
                pool_effects_.carry_out(pool, now, more);
              },
          .read =
              [this, &pool](std::uint64_t token, Result<FramePtr> object, TimeNs now, service::Effects& more) {
                pool.sift->on_read(token, std::move(object), now, pool.pending);
                pool_effects_.carry_out(pool, now, more);
              },
          .spilled =
              [this, &pool](std::uint64_t token, Result<FramePtr> unread, TimeNs now, service::Effects& more) {
                pool.sift->on_spilled(token, std::move(unread), now, pool.pending);
                pool_effects_.carry_out(pool, now, more);
              },
          .changed =
              [this, &pool] {
                known_.note_deadline(pool);
                known_.forget_later();
              }});
  return pool.kept->open(context_.pools.now(), effects);
}

void PoolMaking::drop(SiftPool& pool, TimeNs now, service::Effects& effects) {
  pool.sift->drop(pool.pending);
  pool_effects_.carry_out(pool, now, effects);
  if (pool.kept) pool.kept->drop(now, effects);
  known_.drop(pool);
  pool.deferred.serve(now, effects);
  known_.forget_dropped();
}

// ---- pools that wait

Result<std::string> PoolMaking::admit(const std::string& text, uid_t user, service::Effects& effects) {
  auto made = define(text, user, effects);
  if (made) {
    OFP_TRY((*made)->sift->may_put());
    if (text.size() == name_in(text).size() || is_reference(text)) return (*made)->text;
    OFP_ASSIGN(const Settings asked, parse_settings(text));
    return asked.samples_ranges ? text : (*made)->text;  // another definition may still win
  }
  if (made.error().code != Error::would_block) return tl::unexpected(std::move(made).error());
  return await(text, user, made.error());
}

Status PoolMaking::make(const std::string& text, uid_t user, service::Effects& effects) {
  const auto made = define(text, user, effects);
  if (made) return {};
  if (made.error().code != Error::would_block) return tl::unexpected(made.error());
  OFP_TRY(await(text, user, made.error()));
  return {};
}

Result<SiftPool*> PoolMaking::make_for(const std::string& text, uid_t user, const service::Frame* frame,
                                       DeferredRequests::Serve again, service::Effects& effects) {
  auto defined = define(text, user, effects);
  if (defined || defined.error().code != Error::would_block) return defined;
  OFP_TRY(await(text, user, defined.error()));
  OFP_ASSIGN(SiftPool* const made, make_from(frame, name_in(text), effects));
  if (made == nullptr) awaited_.find(text)->deferred.add(std::move(again));
  return made;
}

// Null: it keeps waiting, for rows or for members.
Result<SiftPool*> PoolMaking::make_from(const service::Frame* frame, std::string_view name, service::Effects& effects) {
  OFP_ASSIGN(const std::string learnt, awaited_.learn(name, frame));
  if (learnt.empty()) return nullptr;
  auto made = define(learnt, awaited_.find(name)->user, effects);
  if (made || made.error().code == Error::would_block) return made ? *made : nullptr;
  awaited_.forget_learnt(name);
  return made;
}

// Nobody says what it is: it is not among the kept pools that are still being read.
bool PoolMaking::is_unknown_reference(std::string_view text) const {
  return is_reference(text) && !unread_.may_have(text);
}

Result<std::string> PoolMaking::await(std::string_view text, uid_t user, const Failure& why) {
  if (is_unknown_reference(text))
    return fail(Error::not_found,
                "there is no pool \"{}\" here, and definition= cannot make it: name it with its options",
                name_in(text));
  return awaited_.add(text, user, why);
}

void PoolMaking::make_awaited(TimeNs now, service::Effects& effects) {
  std::vector<std::pair<std::string, uid_t>> all;
  for (const auto& [name, awaited] : awaited_.all()) all.emplace_back(awaited.text, awaited.user);
  for (const auto& [text, user] : all) {
    const auto made = define(text, user, effects);
    if (made || (made.error().code == Error::would_block && !is_unknown_reference(text))) continue;
    log(LogLevel::error, "{}", made.error().message);
    if (AwaitedPool* const awaited = awaited_.find(text)) awaited->deferred.serve(now, effects);
    if (is_unknown_reference(text)) awaited_.drop(text);
  }
}

// ---- pools that are found on the disk at start

void PoolMaking::recover(TimeNs now, service::Effects& effects) {
  for (const pool::FrameTable::PoolStatus& each : context_.pools.table().pools())
    if (pool::is_reserved(each.name) && is_passing(each.name)) context_.pools.forget_all(each.name, now, effects);
  unread_.find(context_.self, now);
  unread_.read(now, effects);
}

// Makes the pool of which the objects in `own` are kept, with its former definition.
Status PoolMaking::take_up(const std::string& own, uid_t user, const Result<Identity>& identity, TimeNs now,
                           service::Effects& effects) {
  OFP_TRY(identity);
  OFP_ASSIGN(const Settings settings, parse_settings(identity->text));
  if (const std::string name = own_name(settings, identity->text, user); name != own)
    return fail(Error::exists, "the kept objects of pool \"{}\" of user {} are in \"{}\"", identity->text, user, name);
  OFP_ASSIGN(SiftPool* const pool, define_exactly(identity->text, user, effects));
  if (pool->kept == nullptr || pool->kept->own() != own)
    return fail(Error::exists, "another pool \"{}\" exists", identity->text);
  agreed_(*pool, now, effects);
  return {};
}

// Refuses a pool whose name may belong to kept objects that are still being read: it would replace them.
Status PoolMaking::may_make(std::string_view text) const {
  if (!unread_.may_have(text)) return {};
  return fail(Error::would_block, "pool \"{}\": agent {} is still reading its kept objects", name_in(text),
              context_.self);
}

}  // namespace offpath::sift
